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

    watch = Watch(known=KNOWN)
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


def test_every_view_is_drawn_in_an_embedded_page(
    tab: Page, requested: list[str], tmp_path: Path
) -> None:
    shown = record(TOKENS)
    made = [each.widget(shown, layer=0) for each in VIEWS]
    # A view inside a box is embedded only if its state is included.
    box = ipywidgets.VBox(made)
    file = tmp_path / "embedded.html"
    embed_minimal_html(file, [box], state=dependency_state([box]))
    open_page(tab, file.read_text(encoding="utf-8"), tmp_path)
    frames = tab.locator("iframe")
    expect(frames).to_have_count(len(VIEWS))
    for number, each in enumerate(VIEWS):
        frames.nth(number).scroll_into_view_if_needed()
        root = tab.frame_locator("iframe").nth(number).locator(".attnviz")
        drawn = re.compile(f"^{each.name}:")
        expect(root).to_have_attribute("data-attnviz-drawn", drawn, timeout=FIRST_PICTURE)
    # The embedded page works as it does alone, and the frame takes its height.
    root = tab.frame_locator("iframe").nth(0).locator(".attnviz")
    root.get_by_role("button", name="Layer 2").click()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:2")
    frame = frames.nth(0).element_handle()
    assert frame is not None
    inside = frame.content_frame()
    assert inside is not None
    inside.wait_for_function(
        "() => Math.abs(innerHeight - document.documentElement.getBoundingClientRect().height) < 2"
    )
    assert tab.title() != "run"
    hosts = {url.split("/npm/")[-1] for url in requested if "/npm/" in url}
    assert hosts == {
        "@jupyter-widgets/html-manager@%5E1.0.1/dist/embed-amd.js",
        f"anywidget@{made[0]._model_module_version}/dist/index.js",
    }


def test_what_is_embedded_is_the_page_as_python_shows_it_now(tab: Page, tmp_path: Path) -> None:
    view = av.HeadView(record(TOKENS), layer=0, theme="dark", controls="compact")
    view.layer = 1
    file = tmp_path / "embedded.html"
    embed_minimal_html(file, [view], state=dependency_state([view], drop_defaults=False))
    open_page(tab, file.read_text(encoding="utf-8"), tmp_path)
    root = tab.frame_locator("iframe").locator(".attnviz")
    root.wait_for(timeout=FIRST_PICTURE)
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    expect(root).to_have_attribute("data-theme", "dark")
    expect(root).to_have_attribute("data-controls", "compact")


class Refused(av.HeadView):
    """View whose page cannot be created."""

    def to_html(self, **_: Any) -> str:
        raise ValueError("max_mb=1: the page would have <b>2 MB</b>")


def test_a_view_that_makes_no_page_says_so_and_keeps_no_other_from_it(
    tab: Page, tmp_path: Path
) -> None:
    refused, view = Refused(record(TOKENS)), av.HeadView(record(TOKENS), layer=0)
    file = tmp_path / "embedded.html"
    with pytest.warns(UserWarning, match="a view is not embedded: max_mb=1: the page would have"):
        embed_minimal_html(file, [refused, view], state=dependency_state([refused, view]))
    open_page(tab, file.read_text(encoding="utf-8"), tmp_path)
    root = tab.frame_locator("iframe").locator(".attnviz")
    root.wait_for(timeout=FIRST_PICTURE)
    expect(tab.get_by_text("was not embedded: max_mb=1: the page would have <b>2")).to_be_visible()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")


def test_a_live_view_stays_as_it_is_and_weights_are_embedded_once() -> None:
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
av.HeadView(record, layer=1)
"""


def test_a_saved_picture_takes_the_place_of_a_view_that_a_notebook_stored(
    tab: Page, tmp_path: Path
) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    NotebookClient(notebook, kernel_name="python3", timeout=100).execute()
    html, _ = HTMLExporter(mathjax_url="data:,").from_notebook_node(notebook)
    open_page(tab, html, tmp_path)
    root = tab.locator(".attnviz")
    root.wait_for(state="attached", timeout=FIRST_PICTURE)
    expect(root).to_have_attribute("data-attnviz-state", "detached")
    expect(root).to_be_hidden()
    expect(tab.locator(".attnviz-saved img")).to_be_visible()


def test_a_view_that_a_notebook_stored_says_what_it_lacks(tab: Page, tmp_path: Path) -> None:
    """Check the output of nbconvert, nbsphinx and Jupyter Book without a saved picture."""
    cell = CELL.replace("av.HeadView", "av.options.snapshot = False\nav.HeadView")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    NotebookClient(notebook, kernel_name="python3", timeout=100).execute()
    html, _ = HTMLExporter(mathjax_url="data:,").from_notebook_node(notebook)
    open_page(tab, html, tmp_path)
    root = tab.locator(".attnviz")
    root.wait_for(timeout=FIRST_PICTURE)
    expect(root).to_have_attribute("data-attnviz-state", "detached")
    expect(root).to_contain_text("stored without its kernel")
    expect(root).to_contain_text("view.snapshot()")
    expect(root.get_by_role("button", name="Try again")).to_have_count(0)
