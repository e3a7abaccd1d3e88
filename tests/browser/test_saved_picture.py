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
# Milliseconds until the kernel has replaced a picture.
SYNC = 30_000


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


def test_the_saved_picture_follows_the_view(lab: JupyterLab) -> None:
    made = lab.open([RECORD, HEAD], own_kernel=True)
    made.run_all()
    output = made.output(1)
    view = output.locator(".attnviz")
    expect(view).to_have_attribute("data-attnviz-drawn", DRAWN)
    saved = output.locator(".attnviz-saved")
    expect(saved).to_contain_text("Weights of layer 1, ")
    expect(saved).to_contain_text("The pinned query is “<b>c</b>”, token 2.")
    # Clicks in quick succession change the stored picture once.
    made.execute(
        "drawn = []; still = view._still; view._still = lambda: drawn.append(1) or still()"
    )
    for layer in "010":
        view.get_by_role("button", name=f"Layer {layer}", exact=True).click()
    expect(saved).to_contain_text("Weights of layer 0, ", timeout=SYNC)
    assert made.evaluate("drawn") == [1]
    expect(saved.locator("img")).to_be_hidden()
    expect(lab.reopen(made).output(1)).to_contain_text("Weights of layer 0, ")
    lab.watch.problems[:] = [
        problem for problem in lab.watch.problems if "widget model not found" not in problem
    ]


def test_a_view_with_a_display_id_is_replaced_with_its_picture(lab: JupyterLab) -> None:
    cells = [
        RECORD,
        "h = display(av.HeadView(record, layer=1), display_id=True)",
        "other = av.MatrixView(record, layer=0); h.update(other)",
        "k = display('wait', display_id=True)",
        "k.update(av.ModelView(record))",
        "other.layer = 1",
    ]
    made = lab.open(cells, own_kernel=True)
    made.run_all()
    # The outputs are those of the cells that called `display`.
    for cell, drawn_state in ((1, "matrix:self:1"), (3, "model:self:0")):
        output = made.output(cell)
        output.scroll_into_view_if_needed()
        expect(output.locator(".attnviz")).to_have_count(1)
        expect(output.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", drawn_state)
        expect(made.output(cell + 1).locator(".jp-OutputArea-child")).to_have_count(0)
    saved = made.output(1).locator(".attnviz-saved")
    expect(saved).to_have_count(1)
    expect(saved).to_contain_text("m · matrix view")
    expect(saved).to_contain_text("Weights of layer 1, ")
    expect(saved).to_be_hidden()


@pytest.mark.slow
def test_a_server_without_anywidget_says_what_to_install(lab: JupyterLab) -> None:
    def is_extension(url: str) -> bool:
        return "/extensions/anywidget/" in url

    lab.context.route(is_extension, lambda route: route.abort())
    lab.start_again()
    made = lab.open([RECORD, HEAD], own_kernel=True)
    made.run_all()
    output = made.output(1)
    expect(output.get_by_text("pip install anywidget")).to_be_visible()
    expect(output.locator(".attnviz-saved img")).to_be_visible()
    expect(output.get_by_text("javascript error")).to_be_hidden()
    lab.context.unroute(is_extension)
    lab.start_again()


def test_a_change_by_a_later_cell_is_in_the_notebook() -> None:
    cells = [RECORD, HEAD, "view.layer = 0\nview.heads = [1]\nview.token = 4", "view.layer"]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    NotebookClient(notebook, kernel_name="python3").execute()
    [_, shown, *_] = notebook.cells
    [html] = [
        o.data["text/html"] for o in shown.outputs if "attnviz-saved" in o.data.get("text/html", "")
    ]
    assert "Weights of layer 0, head 1" in html
    assert "The pinned query is “e”, token 4." in html


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
        expect(page.locator("img")).to_have_count(2)
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
