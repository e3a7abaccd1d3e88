"""Test snapshots without a kernel: an untrusted notebook and its conversion to HTML."""

from __future__ import annotations

from html import escape
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

CELL = """
import attnviz as av, torch
weights = torch.softmax(torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)), -1)
record = av.AttentionRecord.from_weights(weights, ["a", "b", "<b>c</b>", "d", "e", "f"], model="m")
view = av.HeadView(record, layer=1, token=2)
view.snapshot()
"""
# A PNG of a drawn view is larger than this. A blank picture is smaller.
MIN_PICTURE_BYTES = 10_000


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([CELL])
    notebook.run_all()
    return notebook


@pytest.mark.slow
def test_the_frame_takes_the_pictures_place_live(notebook: Notebook) -> None:
    outputs = [
        output["data"] for output in notebook.outputs() if any(output.get("data", {}).values())
    ]
    assert [next(iter(data)) for data in outputs] == ["image/png", "text/html"]
    assert len(outputs[0]["image/png"]) > MIN_PICTURE_BYTES
    expect(notebook.output(0).locator("img")).to_be_attached()
    expect(notebook.output(0).locator("img")).to_be_hidden()
    frame = notebook.output(0).frame_locator("iframe")
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", "head:self:1")


@pytest.mark.slow
def test_an_untrusted_notebook_without_a_kernel_shows_the_picture(
    lab: JupyterLab, notebook: Notebook
) -> None:
    untrusted = lab.reopen(notebook, trusted=False)
    image = untrusted.output(0).locator("img")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.naturalWidth") > 500
    # JupyterLab's sanitizer removes the frame, so the picture is needed.
    assert untrusted.output(0).locator("iframe").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("template", ["lab", "classic"])
@pytest.mark.parametrize("scripts", [True, False])
def test_nbconvert_shows_the_page_or_the_picture(
    notebook_file: Path, chromium: Browser, tmp_path: Path, template: str, scripts: bool
) -> None:
    html, _ = HTMLExporter(template_name=template).from_filename(str(notebook_file))
    page_file = tmp_path / "converted.html"
    page_file.write_text(html, encoding="utf-8")
    # nbconvert's template requests MathJax from the network, which is not available.
    with chromium.new_context(offline=True, java_script_enabled=scripts) as context:
        page = context.new_page()
        page.goto(page_file.as_uri(), wait_until="domcontentloaded")
        image, frame = page.locator("img"), page.locator("iframe")
        expect(image).to_have_count(1)
        expect(frame).to_have_count(1)
        expect(image).to_be_visible(visible=not scripts)
        expect(frame).to_be_visible(visible=scripts)
        if scripts:
            inside = page.frame_locator("iframe")
            view = inside.locator(".attnviz")
            expect(view).to_have_attribute("data-attnviz-drawn", "head:self:1")
            expect(inside.locator("#attnviz-still")).to_have_count(0)
        page.emulate_media(media="print")
        expect(image).to_be_visible()
        expect(frame).to_be_hidden()


@pytest.fixture
def notebook_file(lab: JupyterLab, notebook: Notebook, tmp_path: Path) -> Path:
    """Return a copy of the notebook as JupyterLab saved it."""
    source = lab.server.notebooks / f"untrusted-{notebook.name}"
    if not source.exists():
        notebook.save()
        source = lab.server.notebooks / notebook.name
    copy = tmp_path / "notebook.ipynb"
    nbformat.write(nbformat.read(source, as_version=4), copy)
    return copy


@pytest.mark.slow
def test_without_a_browser_a_small_picture_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNVIZ_BROWSER", str(tmp_path / "none"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    NotebookClient(notebook, kernel_name="python3").execute()
    [outputs] = (cell["outputs"] for cell in notebook.cells)
    displayed = [output["data"] for output in outputs if any(output.get("data", {}).values())]
    picture, frame = (data["text/html"] for data in displayed)
    assert 'alt="Weights of layers 0, 1 from top to bottom' in picture
    # The page in the frame contains the same picture, for websites that forbid its scripts.
    assert frame.count(escape(picture)) == 1
    message = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    assert "a smaller picture replaces that of the view" in message
