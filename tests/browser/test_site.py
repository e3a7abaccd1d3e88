"""Test the built documentation site: every link resolves and every frame draws."""

from __future__ import annotations

import functools
import http.server
import importlib
import os
import re
import subprocess
import sys
import threading
from collections import defaultdict
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from bs4 import BeautifulSoup
from mkdocstrings import Inventory
from playwright.sync_api import expect

from browser.chromium import TIMEOUT, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from playwright.sync_api import Browser, Page

# The build runs models for the gallery, which takes a minute on an idle machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
# A local port without a server.
NOWHERE = "http://127.0.0.1:9"
MODULES = ("attnviz", "attnviz.analysis", "attnviz.demos", "attnviz.integrations")
# Attributes of resources that a page loads without a click.
LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "srcset", "video": "src"}


@pytest.fixture(scope="module")
def pages() -> Mapping[str, BeautifulSoup]:
    """Return the pages of the site by path, after a strict build without network."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), NOWHERE)
    environment = os.environ | proxies | {name.upper(): NOWHERE for name in proxies}
    script = ROOT / "scripts" / "build_site.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return {
        path.relative_to(SITE).as_posix(): BeautifulSoup(path.read_text("utf-8"), "html.parser")
        for path in sorted(SITE.rglob("*.html"))
        if path.relative_to(SITE).parts[0] != "live"
    }


def local(page: str, target: str) -> tuple[Path, str] | None:
    """Return the file and the anchor that a link leads to, or None for other sites."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    path, anchor = urldefrag(target)
    # The error page is served at any path, so its links are absolute.
    start = SITE if path.startswith("/") else (SITE / page).parent
    file = (start / unquote(path.lstrip("/"))).resolve() if path else SITE / page
    return (file / "index.html" if file.is_dir() else file), unquote(anchor)


def test_every_link_leads_to_a_page_and_a_heading(pages: Mapping[str, BeautifulSoup]) -> None:
    assert len(pages) > 50
    anchors = {
        page: {element["id"] for element in soup.find_all(id=True)}
        | {element["name"] for element in soup.find_all("a", attrs={"name": True})}
        for page, soup in pages.items()
    }
    broken = []
    followed = 0
    for page, soup in pages.items():
        if page == "404.html":
            continue
        for name, attribute in {**LOADED, "a": "href", "link": "href"}.items():
            for element in soup.find_all(name, attrs={attribute: True}):
                target = local(page, str(element[attribute]))
                if target is None:
                    continue
                followed += 1
                file, anchor = target
                path = file.relative_to(SITE).as_posix() if file.exists() else None
                ids = anchors.get(path or "", {anchor}) | {"", "only-light", "only-dark"}
                if path is None or anchor not in ids | {"__skip"}:
                    broken.append(f"{page}: {element[attribute]}")
    assert not broken, broken
    assert followed > 5000


def test_a_page_loads_nothing_from_elsewhere(pages: Mapping[str, BeautifulSoup]) -> None:
    for page, soup in pages.items():
        loaded = [
            str(element[attribute])
            for name, attribute in LOADED.items()
            for element in soup.find_all(name, attrs={attribute: True})
        ]
        styles = [str(element["href"]) for element in soup.find_all("link", rel="stylesheet")]
        elsewhere = [address for address in loaded + styles if urlsplit(address).netloc]
        assert not elsewhere, (page, elsewhere)


def test_the_inventory_has_every_public_name(pages: Mapping[str, BeautifulSoup]) -> None:
    assert pages
    inventory = Inventory.parse_sphinx(BytesIO((SITE / "objects.inv").read_bytes()))
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            full = f"{module}.{name}"
            if full in MODULES:
                continue
            item = inventory[full]
            page, anchor = urldefrag(item.uri.replace("$", full))
            soup = pages[f"{page}index.html"]
            assert soup.find(id=anchor) is not None, full


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def address(pages: Mapping[str, BeautifulSoup]) -> Iterator[str]:
    """Serve the site and return its address."""
    assert pages
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def reader(chromium: Browser, address: str) -> Iterator[Page]:
    """Open a page that fails the test on errors and on requests to other hosts."""
    watch = Watch(origin=address.rstrip("/"))
    context = chromium.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme="light", base_url=address
    )
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    watch.follow(page)
    yield page
    context.close()
    watch.check()


def test_every_frame_draws(pages: Mapping[str, BeautifulSoup], reader: Page) -> None:
    frames = defaultdict(list)
    for page, soup in pages.items():
        for frame in soup.find_all("iframe"):
            frames[Path(os.path.normpath((SITE / page).parent / str(frame["src"])))].append(page)
    live = set((SITE / "live").glob("*.html"))
    assert {path for path in frames if path.parent.name == "live"} == live
    # One page per frame, preferably the gallery page with its code.
    shown = {
        min(group, key=lambda page: (not page.startswith("gallery"), page))
        for group in frames.values()
    }
    for page in sorted(shown):
        reader.goto(page.removesuffix("index.html"))
        reader.locator("iframe").scroll_into_view_if_needed()
        inside = reader.frame_locator("iframe").locator(".attnviz").first
        inside.wait_for()
        expect(inside).to_have_attribute("data-attnviz-drawn", re.compile("."))
        expect(inside).not_to_have_attribute("data-attnviz-state", "error")
        expect(inside).to_have_attribute("data-theme", "light")


def test_a_frame_is_as_high_as_its_view_and_follows_the_switch(reader: Page) -> None:
    reader.goto("gallery/views/head/")
    view = reader.frame_locator(".attnviz-live iframe").locator(".attnviz")
    expect(view).to_have_attribute("data-theme", "light")
    inner = reader.frames[1]
    inner.wait_for_function(
        "() => Math.abs(innerHeight - document.documentElement.getBoundingClientRect().height) < 2"
    )
    # The switch cycles from system to light, dark and back.
    for scheme, theme in (("default", "light"), ("slate", "dark")):
        reader.locator("form.md-header__option label:visible").click()
        reader.wait_for_function(f"() => document.body.dataset.mdColorScheme === '{scheme}'")
        expect(view).to_have_attribute("data-theme", theme)
    # Instant navigation opens another page without loading the site again.
    reader.get_by_role("link", name="Model view").first.click()
    reader.wait_for_url("**/gallery/views/model/")
    expect(reader.frame_locator(".attnviz-live iframe").locator(".attnviz")).to_have_attribute(
        "data-theme", "dark"
    )


def test_the_search_finds_a_public_name(reader: Page) -> None:
    reader.goto("")
    reader.get_by_role("button", name="Search").first.click()
    reader.keyboard.type("show_neuron_view")
    expect(reader.get_by_role("link", name="show_neuron_view").first).to_be_visible()
