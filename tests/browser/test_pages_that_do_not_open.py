"""Test that a page that cannot be drawn shows the reason and is never empty."""

from __future__ import annotations

import base64
import html
import re
import zlib
from typing import TYPE_CHECKING

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.chromium import TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Locator, Page

BROWSERS = "Chrome or Edge 105, Firefox 113, Safari 16.4"


@pytest.fixture(scope="module")
def view() -> av.HeadView:
    weights = torch.softmax(torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)), -1)
    return av.HeadView(av.AttentionRecord.from_weights(weights, list("abcdef")))


@pytest.fixture(scope="module")
def text(view: av.HeadView) -> str:
    return view.to_html()


@pytest.fixture(scope="module")
def offline_tabs(chromium: Browser) -> Iterator[BrowserContext]:
    """Return a browser context without network. Its errors are expected."""
    with chromium.new_context(offline=True) as context:
        context.set_default_timeout(TIMEOUT)
        yield context


@pytest.fixture
def opened(offline_tabs: BrowserContext, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Return a function that opens HTML text, after a script if one is passed."""
    page = offline_tabs.new_page()

    def opened(text: str, before: str = "") -> Page:
        if before:
            page.add_init_script(before)
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        page.goto(path.as_uri())
        return page

    yield opened
    page.close()


def with_byte(text: str, after: str, to: str = "") -> str:
    """Return the text with one character changed, 40 characters after a marker."""
    at = text.index(after) + len(after) + 40
    other = to or ("A" if text[at] != "A" else "B")
    return text[:at] + other + text[at + 1 :]


def in_a_host(policy: str, text: str) -> str:
    return (
        f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(text)}"></iframe>'
    )


def note(page: Page) -> Locator:
    return page.locator("#attnviz-note")


@pytest.mark.parametrize("reads", [True, False])
def test_an_old_browser_shows_what_it_lacks_and_which_ones_work(
    opened: Callable[..., Page], text: str, reads: bool
) -> None:
    if not reads:
        # Replace the loader by one that no browser can parse, and remove the policy, which
        # allows only the original loader.
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        text = text.replace("async function open()", "async async function open()")
    page = opened(text, "delete globalThis.DecompressionStream")
    expect(note(page)).to_be_visible()
    lacks = "DecompressionStream is not defined" if reads else "Unexpected token"
    expect(note(page)).to_contain_text(f"attnviz could not open this page: {lacks}")
    expect(note(page)).to_contain_text(f"open it in {BROWSERS}")
    assert page.locator(".attnviz").count() == 0


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda text: with_byte(text, 'id="attnviz-bundle">'), "could not open this page"),
        (lambda text: text.replace('"blocks"', '"blocks', 1), "in JSON at position"),
        (lambda text: text.replace('"format":1', '"format":9'), "format 1 is supported. Copy"),
        (lambda text: text[: len(text) // 2], "the end of the file is missing"),
        (lambda text: text[: text.index('"blocks"')], "the end of the file is missing"),
        (lambda text: text[: text.index("page.opened")], "the end of the file is missing"),
    ],
)
def test_a_damaged_file_shows_the_reason(
    opened: Callable[..., Page], text: str, damage: Callable[[str], str], says: str
) -> None:
    page = opened(damage(text))
    expect(note(page)).to_be_visible()
    expect(note(page)).to_contain_text(says)


def test_weights_that_are_damaged_are_not_drawn(opened: Callable[..., Page], text: str) -> None:
    page = opened(with_byte(text, '<template id="attnviz-0000">'))
    expect(page.locator(".av-standing")).to_contain_text("The data are damaged.")
    expect(page.locator("[data-attnviz-drawn]")).to_have_count(0)


def test_a_policy_that_forbids_scripts_leaves_a_message_and_the_picture(
    opened: Callable[..., Page], text: str
) -> None:
    page = opened(in_a_host("default-src 'self'", text))
    frame = page.frame_locator("iframe").locator("#attnviz-note")
    expect(frame).to_be_visible()
    expect(frame).to_contain_text("forbidden by the website around the page. Open the file itself")
    expect(page.frame_locator("iframe").get_by_text("Weights of layers 0, 1")).to_be_visible()
    # This policy allows styles, which hide the message at first because scripts may still start.
    page = opened(in_a_host("script-src 'none'", text))
    frame = page.frame_locator("iframe").locator("#attnviz-note")
    expect(frame).to_be_hidden()
    picture = page.frame_locator("iframe").locator("#attnviz-still img")
    expect(picture).to_be_hidden()
    # The hidden message takes no space.
    assert frame.evaluate("(note) => note.getBoundingClientRect().top") < 60
    frame.evaluate("() => document.getAnimations().forEach((each) => each.finish())")
    expect(frame).to_be_visible()
    expect(picture).to_be_visible()
    assert picture.evaluate("(image) => image.naturalWidth") == 22
    assert "Weights of layers 0, 1" in (picture.get_attribute("alt") or "")


@pytest.mark.parametrize(
    "policy",
    [
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'",
        "script-src {hashes}",
        "script-src 'unsafe-inline'; require-trusted-types-for 'script'",
        "script-src 'unsafe-inline'; trusted-types others",
    ],
    ids=["inline", "hashes", "trusted types", "names of trusted types"],
)
def test_a_policy_without_blob_lets_a_page_draw(
    opened: Callable[..., Page], text: str, policy: str
) -> None:
    [hashes] = re.findall(r"script-src (.*?);", text)
    page = opened(in_a_host(policy.format(hashes=hashes), text))
    frame = page.frame_locator("iframe")
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("^head:"))
    expect(frame.locator("#attnviz-note")).to_have_count(0)
    assert page.frames[1].evaluate("document.scripts.length") == 4


@pytest.mark.parametrize(
    "policy",
    [
        "script-src {hashes}",
        "script-src 'unsafe-inline'; require-trusted-types-for 'script'; trusted-types others",
    ],
    ids=["hashes", "trusted types"],
)
def test_a_policy_that_forbids_unpacked_code_is_named(
    opened: Callable[..., Page], text: str, policy: str
) -> None:
    [hashes] = re.findall(r"script-src (.*?);", text)
    # The policy allows the loader but not the code that it decompresses.
    page = opened(in_a_host(policy.format(hashes=hashes.rpartition(" ")[0]), text))
    frame = page.frame_locator("iframe")
    expect(frame.locator("#attnviz-note")).to_contain_text(
        "its code cannot run, because the website around it forbids that"
    )
    expect(frame.locator(".attnviz")).to_have_count(0)


def test_code_that_was_replaced_does_not_run(opened: Callable[..., Page], text: str) -> None:
    other = base64.b64encode(zlib.compress(b"globalThis.ran = true;")).decode()
    page = opened(re.sub('(id="attnviz-bundle">)[^<]+', rf"\g<1>{other}", text))
    expect(note(page)).to_contain_text("or the file was changed")
    assert page.evaluate("globalThis.ran") is None


def test_a_frame_without_scripts_shows_the_picture(opened: Callable[..., Page], text: str) -> None:
    page = opened(f'<!doctype html><iframe sandbox="" srcdoc="{html.escape(text)}"></iframe>')
    frame = page.frame_locator("iframe")
    expect(frame.locator("#attnviz-still img")).to_be_visible()
    expect(frame.get_by_text("Weights of layers 0, 1")).to_be_visible()
    expect(frame.locator("#attnviz-note")).to_be_visible()


def test_without_javascript_a_page_shows_a_message_and_the_picture(
    chromium: Browser, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    with chromium.new_context(java_script_enabled=False, offline=True) as context:
        page = context.new_page()
        page.goto(path.as_uri())
        expect(note(page)).to_be_visible()
        expect(note(page)).to_contain_text("JavaScript is disabled")
        expect(note(page)).to_contain_text(BROWSERS)
        expect(page.locator("#attnviz-still img")).to_be_visible()


def test_a_frame_is_as_high_as_its_error_message(
    opened: Callable[..., Page], view: av.HeadView
) -> None:
    frame = view.to_iframe()
    page = opened("<!doctype html>" + with_byte(frame, "attnviz-bundle&quot;&gt;"))
    says = page.frame_locator("iframe").locator("#attnviz-note")
    expect(says).to_contain_text("could not open this page")
    page.wait_for_function("() => document.querySelector('iframe').offsetHeight < 150")
