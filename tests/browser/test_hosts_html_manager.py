"""Test views in static pages that use Jupyter's `@jupyter-widgets/html-manager`.

`ipywidgets.embed`, nbconvert, nbsphinx and Sphinx load it, and anywidget, from a CDN. These tests
serve the files of the npm packages in place of the CDN.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import ipywidgets
import nbformat
import pytest
from ipywidgets.embed import dependency_state, embed_data, embed_minimal_html
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import expect

import attnviz as av
from browser.cdn import serve_scripts
from browser.chromium import TIMEOUT, Watch
from browser.hosts import FIRST_PICTURE, VIEWS, record

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Route

# Expected errors: the manager first looks for a widget's script in the folder of the page.
KNOWN = (r"ERR_FILE_NOT_FOUND \(file:.*/anywidget\.js\)", r"request to https://")
HOSTILE = "</script><script>document.title = 'run'</script>"
TOKENS = [*"The cat sat on the mat . The".split(), HOSTILE]


@pytest.fixture
def requested() -> list[str]:
    """Return the URLs that the page requests, except its own files."""
    return []


@pytest.fixture
def tab(chromium: Browser, requested: list[str]) -> Iterator[Page]:
    """Open a page without network that receives the scripts of the CDN from this machine."""

    def serve(route: Route) -> None:
        requested.append(route.request.url)
        serve_scripts(route)

    watch = Watch(ignored=KNOWN)
    context = chromium.new_context(viewport={"width": 1000, "height": 900})
    context.set_default_timeout(TIMEOUT)
    context.route(lambda url: not url.startswith("file:"), serve)
    page = context.new_page()
    watch.follow(page)
    yield page
    context.close()
    watch.check()


def open_page(tab: Page, html: str, folder: Path) -> None:
    """Open a page without its integrity hashes, because the served versions may differ."""
    file = folder / "page.html"
    file.write_text(re.sub(r'integrity="[^"]*"', "", html), encoding="utf-8")
    tab.goto(file.as_uri(), wait_until="domcontentloaded")


def embed(tab: Page, folder: Path, widgets: list[Any]) -> None:
    """Open a page with embedded widgets."""
    file = folder / "embedded.html"
    embed_minimal_html(file, widgets, state=dependency_state(widgets, drop_defaults=False))
    open_page(tab, file.read_text(encoding="utf-8"), folder)


def test_every_view_is_drawn_in_an_embedded_page(
    tab: Page, requested: list[str], tmp_path: Path
) -> None:
    views = [view.widget(record(TOKENS), layer=0) for view in VIEWS]
    # The views are inside a box, so the page must contain the state of the box and of each view.
    embed(tab, tmp_path, [ipywidgets.VBox(views)])
    frames = tab.locator("iframe")
    expect(frames).to_have_count(len(VIEWS))
    for number, view in enumerate(VIEWS):
        frames.nth(number).scroll_into_view_if_needed()
        root = tab.frame_locator("iframe").nth(number).locator(".attnviz")
        drawn = re.compile(f"^{view.name}:")
        expect(root).to_have_attribute("data-attnviz-drawn", drawn, timeout=FIRST_PICTURE)
    assert tab.title() != "run"
    hosts = {url.split("/npm/")[-1] for url in requested if "/npm/" in url}
    assert hosts == {
        "@jupyter-widgets/html-manager@%5E1.0.1/dist/embed-amd.js",
        f"anywidget@{views[0]._model_module_version}/dist/index.js",
    }


class Refused(av.HeadView):
    """View whose page cannot be created."""

    def to_html(self, **_: Any) -> str:
        raise ValueError("max_mb=1: the page would have <b>2 MB</b>")


def test_an_embedded_view_has_its_current_state_and_a_refused_one_a_reason(
    tab: Page, tmp_path: Path
) -> None:
    refused = Refused(record(TOKENS))
    view = av.HeadView(record(TOKENS), layer=0, theme="dark", controls="compact")
    view.layer = 1
    with pytest.warns(UserWarning, match="a view is not embedded: max_mb=1: the page would have"):
        embed(tab, tmp_path, [refused, view])
    root = tab.frame_locator("iframe").locator(".attnviz")
    root.wait_for(timeout=FIRST_PICTURE)
    expect(tab.get_by_text("was not embedded: max_mb=1: the page would have <b>2")).to_be_visible()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    expect(root).to_have_attribute("data-theme", "dark")
    expect(root).to_have_attribute("data-controls", "compact")


def test_embedding_leaves_the_live_view_unchanged_and_contains_its_weights_once() -> None:
    view = av.HeadView(record(TOKENS), layer=0)
    before = view.get_state()
    state = embed_data([view], state=dependency_state([view]))["manager_state"]["state"]
    assert view.get_state() == before
    mine = state[view.model_id]
    assert mine["model_name"] == "AnyModel"
    assert "_code" not in mine["state"]
    assert mine["state"]["layout"] == f"IPY_MODEL_{view.layout.model_id}"
    assert len(str(mine)) < 1.3 * len(view.to_iframe())


CELL = """
import attnviz as av, torch
weights = torch.softmax(torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)), -1)
record = av.AttentionRecord.from_weights(weights, list("abcdef"))
av.options.snapshot = False
av.HeadView(record, layer=1)
"""


def test_a_view_without_its_kernel_and_picture_shows_what_to_do(tab: Page, tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    NotebookClient(notebook, kernel_name="python3", timeout=100).execute()
    html, _ = HTMLExporter(mathjax_url="data:,").from_notebook_node(notebook)
    open_page(tab, html, tmp_path)
    root = tab.locator(".attnviz")
    root.wait_for(timeout=FIRST_PICTURE)
    expect(root).to_have_attribute("data-attnviz-state", "detached")
    expect(root).to_contain_text("stored without its kernel")
    expect(root).to_contain_text("view.snapshot()")
    expect(root.get_by_role("button", name="Try again")).to_have_count(0)
