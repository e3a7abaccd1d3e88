"""Test views in a row, column, grid or tab of ipywidgets: all fit and keep a readable width."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from browser.hosts import FIRST_PICTURE, RECORD
from browser.jupyter import LAB_VIEWPORT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

WIDTHS = (1300, 900)
# A view of nine tokens is about 700 pixels high, or 1,100 at the width of a phone.
HIGHEST = 1200
NARROWEST = 320

VIEWS = "av.HeadView(record, layer=1), av.MatrixView(record, layer=1)"
# Containers of ipywidgets, with the number of visible views.
BOXES = {
    f"widgets.HBox([{VIEWS}])": 2,
    f"widgets.VBox([{VIEWS}])": 2,
    f"widgets.GridBox([{VIEWS}], layout=widgets.Layout(grid_template_columns='50% 50%'))": 2,
    f"widgets.GridBox([{VIEWS}], layout=widgets.Layout(grid_template_columns='auto auto'))": 2,
    f"widgets.Tab([{VIEWS}])": 1,
    f"widgets.Accordion([{VIEWS}], selected_index=0)": 1,
    "widgets.HBox([widgets.Button(description='a'), av.HeadView(record, layer=1)])": 1,
}


def settled(roots: Locator, count: int) -> list[dict[str, float]]:
    """Return the boxes of the visible views after each has drawn at its current width."""
    page = roots.page
    # The hidden views of a tab or an accordion have not drawn.
    page.wait_for_function(
        """([roots, count]) => {
          const shown = roots.filter((root) => root.checkVisibility());
          return shown.length === count && shown.every((root) => {
            const style = getComputedStyle(root);
            const inner = root.clientWidth - parseFloat(style.paddingLeft) * 2;
            const picture = root.querySelector(".av-back");
            return root.hasAttribute("data-attnviz-drawn") && picture &&
              Math.abs(picture.getBoundingClientRect().width - inner) < 2;
          });
        }""",
        arg=[roots.element_handles(), count],
        timeout=FIRST_PICTURE,
    )
    boxes: list[dict[str, float]] = roots.evaluate_all(
        """(roots) => roots.filter((root) => root.checkVisibility()).map((root) => {
          const { left, top, width, height } = root.getBoundingClientRect();
          return { left, top, width, height };
        })"""
    )
    return boxes


def check(boxes: list[dict[str, float]], room: float, least: float) -> None:
    """Check that no view is too narrow or too high, and that no two views overlap."""
    for box in boxes:
        assert box["width"] >= least - 1, boxes
        assert box["height"] <= HIGHEST, boxes
    for one, other in itertools.pairwise(boxes):
        beside = other["left"] >= one["left"] + one["width"] - 1
        below = other["top"] >= one["top"] + one["height"] - 1
        assert beside or below, boxes
    right = max(box["left"] + box["width"] for box in boxes)
    assert right - min(box["left"] for box in boxes) <= room + 1, boxes


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Iterator[Notebook]:
    notebook = lab.open([f"{RECORD}\nimport ipywidgets as widgets", *BOXES])
    notebook.run_all()
    yield notebook
    lab.page.set_viewport_size(LAB_VIEWPORT)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("box", BOXES)
def test_views_in_a_box_fit_and_keep_a_readable_width(
    notebook: Notebook, lab: JupyterLab, box: str, width: int
) -> None:
    lab.page.set_viewport_size({"width": width, "height": 1000})
    cell = 1 + list(BOXES).index(box)
    notebook.root.locator(".jp-Cell").nth(cell).scroll_into_view_if_needed()
    output = notebook.output(cell)
    output.locator(".attnviz").first.wait_for(timeout=FIRST_PICTURE)
    boxes = settled(output.locator(".attnviz"), BOXES[box])
    room = output.evaluate("(output) => output.clientWidth")
    # The columns of a grid keep the width that their layout sets.
    least = 230 if "Grid" in box else NARROWEST
    check(boxes, room, least)
    if box.startswith("widgets.HBox([av."):
        beside = boxes[0]["top"] == boxes[1]["top"]
        assert beside == (width == WIDTHS[0])
