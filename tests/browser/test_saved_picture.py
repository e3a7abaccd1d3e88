"""Test the saved pictures that a reopened notebook shows in place of its live views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from browser.jupyter import JupyterLab, Notebook

RECORD = """
import attnviz as av, torch
weights = torch.softmax(torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)), -1)
record = av.AttentionRecord.from_weights(weights, ["a", "b", "<b>c</b>", "d", "e", "f"], model="m")
"""
HEAD = "view = av.HeadView(record, layer=1, token=2)\nview"
MODEL = "av.ModelView(record)"
DRAWN = "head:self:1"


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([RECORD, HEAD, MODEL])
    notebook.run_all()
    return notebook


def test_a_live_view_hides_its_picture(notebook: Notebook) -> None:
    for cell, drawn_state in ((1, DRAWN), (2, "model:self:0")):
        output = notebook.output(cell)
        output.scroll_into_view_if_needed()
        expect(output.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", drawn_state)
        expect(output.locator(".attnviz-saved img")).to_be_hidden()


@pytest.mark.slow
def test_a_reopened_notebook_shows_pictures_if_it_is_trusted_and_if_not(lab: JupyterLab) -> None:
    made = lab.open([RECORD, HEAD, MODEL], own_kernel=True)
    made.run_all()
    reopened = lab.reopen(made)
    for cell, says in ((1, "Weights of layer 1, "), (2, "Weights of layers 0, 1")):
        output = reopened.output(cell)
        output.scroll_into_view_if_needed()
        picture = output.locator(".attnviz-saved img")
        expect(picture).to_be_visible()
        assert picture.evaluate("image => image.naturalWidth") > 0
        expect(output).to_contain_text(says)
        for instead in ("Error displaying widget", "Loading widget"):
            expect(output.get_by_text(instead)).to_be_hidden()
    untrusted = lab.reopen(reopened, trusted=False)
    for cell in (1, 2):
        output = untrusted.output(cell)
        output.scroll_into_view_if_needed()
        expect(output.locator("img")).to_be_visible()
        expect(output).to_contain_text("This picture was saved with a live view.")
        assert output.locator("style").count() == 0
    # JupyterLab logs that the widgets are missing.
    lab.watch.problems[:] = [
        problem for problem in lab.watch.problems if "widget model not found" not in problem
    ]


@pytest.fixture(scope="module", params=[False, True], ids=["no state", "state"])
def executed(request: pytest.FixtureRequest) -> tuple[nbformat.NotebookNode, bool]:
    """Return an executed notebook and whether its widget state is saved."""
    cells = [nbformat.v4.new_code_cell(cell) for cell in (RECORD, HEAD, MODEL)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, kernel_name="python3", store_widget_state=request.param).execute()
    assert ("widgets" in notebook.metadata) is request.param
    return notebook, request.param


@pytest.mark.slow
@pytest.mark.parametrize("template", ["lab", "classic"])
@pytest.mark.parametrize("scripts", [True, False])
def test_nbconvert_shows_pictures(
    executed: tuple[nbformat.NotebookNode, bool],
    chromium: Browser,
    tmp_path: Path,
    template: str,
    scripts: bool,
) -> None:
    notebook, _ = executed
    html, _ = HTMLExporter(template_name=template).from_notebook_node(notebook)
    page_file = tmp_path / "converted.html"
    page_file.write_text(html, encoding="utf-8")
    # The widget manager would come from the network, which is not available.
    with chromium.new_context(offline=True, java_script_enabled=scripts) as context:
        page = context.new_page()
        page.goto(page_file.as_uri(), wait_until="domcontentloaded")
        images = page.locator(".attnviz-saved img")
        expect(images).to_have_count(2)
        for image in images.all():
            expect(image).to_be_visible()
        expect(page.get_by_text("<HeadView of")).to_be_hidden()


PAGE = "av.options.snapshot = 'page'\nview = av.HeadView(record, layer=1)\nview"


@pytest.mark.slow
def test_a_saved_page_is_hidden_while_the_view_is_alive(lab: JupyterLab) -> None:
    made = lab.open([RECORD, PAGE], own_kernel=True)
    made.run_all()
    made.execute("av.options.snapshot = 'picture'")
    output = made.output(1)
    view = output.locator(".attnviz")
    expect(view).to_have_attribute("data-attnviz-drawn", DRAWN)
    expect(output.locator(".attnviz-saved img")).to_be_hidden()
    expect(output.locator("iframe")).to_be_hidden()
    reopened = lab.reopen(made)
    output = reopened.output(1)
    frame = output.locator("iframe")
    expect(frame).to_be_visible()
    inside = output.frame_locator("iframe").locator(".attnviz")
    expect(inside).to_have_attribute("data-attnviz-drawn", DRAWN)
    expect(output.locator(".attnviz-saved img")).to_be_hidden()
