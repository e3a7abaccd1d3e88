"""Test the matrix view of a long text in JupyterLab: an estimate at first, exact when zoomed in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import has_ink

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

TOKENS = 40_000
SETUP = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import attnviz as av, torch
from unit.long_records import NEEDLE, long_record
torch.set_num_threads(1)
record = long_record({TOKENS})
"""
SHOW = """
view = av.MatrixView(record, heads=[1])
view
"""
# A long timeout for a busy machine, in milliseconds.
DRAWN = 120_000
ESTIMATE = re.compile(r"^1/\d+$")


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([SETUP, SHOW], own_kernel=True)
    notebook.run_all()
    return notebook


@pytest.fixture
def view(notebook: Notebook) -> Locator:
    root = notebook.output(1).locator(".attnviz")
    root.scroll_into_view_if_needed()
    return root


def drawn(view: Locator) -> None:
    expect(view).to_have_attribute("data-attnviz-drawn", "matrix:self:0", timeout=DRAWN)


def exact(view: Locator) -> None:
    drawn(view)
    expect(view).not_to_have_attribute("data-attnviz-estimate", ESTIMATE, timeout=DRAWN)


def estimate(view: Locator) -> None:
    drawn(view)
    expect(view).to_have_attribute("data-attnviz-estimate", ESTIMATE, timeout=DRAWN)


@pytest.mark.slow
def test_a_caption_states_that_the_complete_matrix_is_an_estimate(view: Locator) -> None:
    estimate(view)
    every = (view.get_attribute("data-attnviz-estimate") or "").removeprefix("1/")
    expect(view).to_contain_text(f"Estimate from 1 query in {every}: zoom in for exact cells.")
    expect(view).to_contain_text("Each cell is the mean of")
    view.get_by_label("Cells show").select_option("max")
    estimate(view)
    expect(view).to_contain_text("Each cell is the maximum of")
    view.get_by_label("Cells show").select_option("mean")
    estimate(view)


@pytest.mark.slow
def test_the_picture_is_never_empty_during_pan_and_zoom(notebook: Notebook, view: Locator) -> None:
    estimate(view)
    page = notebook.lab.page
    plot = view.locator(".av-plot")
    plot.focus()
    for _ in range(4):
        page.keyboard.press("+")
        assert has_ink(view)
    for _ in range(3):
        notebook.execute(
            "first = view.query_window[0]; width = view.query_window[1] - first;"
            f"first = min(first + width, {TOKENS} - width);"
            "view.query_window = (first, first + width); view.key_window = (first, first + width)"
        )
        assert has_ink(view)
    exact(view)
    notebook.execute("view.query_window = (30000, 30100); view.key_window = (7950, 8050)")
    exact(view)
    expect(view).to_contain_text("Queries “word30000 – word30099” of 40000")
    # The strongest weight in the view is the weight in the record.
    weight = notebook.evaluate(
        "float(record.stack().weights(layer=0, head=1, rows=slice(30000, 30001))[0, 8000])"
    )
    assert weight > 0.9
    expect(view).to_contain_text(f"“word30000” to “word8000”, {weight:.2f}")
    page.keyboard.press("Home")
    estimate(view)
