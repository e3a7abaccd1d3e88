"""Test where the model view shows the chosen head: beside or below the grid, which stays put."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import attnviz as av
from attnviz.views.model import ModelView
from unit.records import shares, words

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

Rect = dict[str, float]
HEADS = 12
DRAWN = re.compile("^model:")
# A promise that resolves when the element has not moved for eight frames.
STILL = """(element) => new Promise((done) => {
  let last = "", same = 0;
  const look = () => {
    const { x, y } = element.getBoundingClientRect();
    const now = `${x} ${y}`;
    same = now === last ? same + 1 : 0;
    last = now;
    if (same > 8) done(); else requestAnimationFrame(look);
  };
  look();
})"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of 6 layers with 12 heads."""
    weights = shares(6 * HEADS, 14, 14).reshape(6, HEADS, 14, 14)
    record = av.AttentionRecord.from_weights(weights, words(14), model="six")
    return ModelView(record).save(tmp_path_factory.mktemp("detail") / "view.html")


def opened(page: Page, file: Path) -> Locator:
    page.goto(file.as_uri())
    page.reload()
    root = page.locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", DRAWN)
    return root


def cell(root: Locator, layer: int, head: int) -> Locator:
    return root.get_by_role("gridcell", name=f"Layer {layer}, head {head}", exact=True)


def rect(element: Locator) -> Rect:
    element.evaluate(STILL)
    box: Rect = element.evaluate(
        """(element) => {
          const { x, y, width, height } = element.getBoundingClientRect();
          return { x, y, width, height };
        }"""
    )
    return box


def inside(page: Page, inner: Rect) -> bool:
    size = page.viewport_size
    assert size is not None
    across = inner["x"] >= 0 and inner["x"] + inner["width"] <= size["width"]
    return across and inner["y"] >= 0 and inner["y"] + inner["height"] <= size["height"]


@pytest.mark.slow
@pytest.mark.parametrize("head", [0, 11])
def test_a_head_opens_on_the_right_and_all_thumbnails_stay_in_sight(
    page: Page, file: Path, head: int
) -> None:
    page.set_viewport_size({"width": 944, "height": 900})
    root = opened(page, file)
    grid, detail = root.get_by_role("grid"), root.locator(".av-model-detail")
    before = rect(cell(root, 3, head))
    cell(root, 3, head).click()
    expect(detail.locator("canvas").first).to_be_visible()
    assert inside(page, rect(detail))
    assert rect(grid)["x"] + rect(grid)["width"] <= rect(detail)["x"]
    assert grid.evaluate("(box) => box.scrollWidth - box.clientWidth") == 0
    for other in (0, HEADS - 1):
        box = rect(cell(root, 3, other))
        label = rect(root.get_by_role("columnheader", name=re.compile(rf"^(head )?{other}$")))
        assert abs(label["x"] + label["width"] / 2 - box["x"] - box["width"] / 2) < 3
    page.keyboard.press("Escape")
    expect(detail).to_have_count(0)
    assert rect(cell(root, 3, head)) == before


def test_a_head_opens_in_view_below_the_grid_on_a_phone(phone: Page, file: Path) -> None:
    root = opened(phone, file)
    detail = root.locator(".av-model-detail")
    cell(root, 3, 2).tap()
    expect(detail.locator("canvas").first).to_be_visible()
    assert inside(phone, rect(detail))
    assert inside(phone, rect(cell(root, 3, 2)))
