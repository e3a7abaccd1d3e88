"""Test touch input on exported pages: fingers move and zoom a picture, or scroll the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.embedding_pages import one_head, prose
from browser.pages import open_view
from browser.touch import slide

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.touch import Point

COUNT = 40
IN_SIGHT = re.compile(r"Queries “t(\d+) – t(\d+)” of 40, keys “t(\d+) – t(\d+)” of 40")


def matrix(page: Page, folder: Path, window: tuple[int, int] | None = None) -> Locator:
    generator = torch.Generator().manual_seed(0)
    weights = torch.softmax(3 * torch.randn(1, 3, COUNT, COUNT, generator=generator), -1)
    record = av.AttentionRecord.from_weights(weights, [f"t{number}" for number in range(COUNT)])
    view = av.MatrixView(record, query_window=window, key_window=window)
    return open_view(page, folder, view)


def in_sight(root: Locator) -> list[int] | None:
    """Return the first and last visible query and key, or None if all are visible."""
    match = IN_SIGHT.search(root.locator(".av-words").inner_text())
    return [int(number) for number in match.groups()] if match else None


def middle(plot: Locator) -> Point:
    """Scroll a picture to the middle of the screen and return its centre."""
    plot.evaluate("plot => plot.scrollIntoView({block: 'center'})")
    box = plot.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def scrolled(page: Page) -> float:
    offset: float = page.evaluate("() => window.scrollY")
    return offset


@pytest.mark.slow
def test_one_finger_moves_a_matrix_that_is_zoomed_in(phone: Page, tmp_path: Path) -> None:
    root = matrix(phone, tmp_path, (10, 20))
    plot = root.locator(".av-plot")
    x, y = middle(plot)
    before = scrolled(phone)
    # Ten cells take about 250 pixels, so this moves the window by about four cells.
    slide(phone, [((x, y), (x - 100, y - 100))])
    expect(root.locator(".av-words")).not_to_contain_text("Queries “t10 – t19”")
    windows = in_sight(root)
    assert windows is not None
    first_query, last_query, first_key, last_key = windows
    assert last_query - first_query == last_key - first_key == 9
    assert 12 <= first_query <= 16
    assert 12 <= first_key <= 16
    assert scrolled(phone) == before
    # A tap pins a cell and moves nothing.
    phone.touchscreen.tap(x, y)
    expect(root.locator(".av-words")).to_contain_text("Pinned")
    assert in_sight(root) == windows


@pytest.mark.slow
@pytest.mark.parametrize("way", ["across", "down"])
def test_two_fingers_zoom_a_matrix_and_not_the_page(phone: Page, tmp_path: Path, way: str) -> None:
    root = matrix(phone, tmp_path)
    plot = root.locator(".av-plot")
    x, y = middle(plot)
    before = scrolled(phone)

    def at(distance: float) -> tuple[Point, Point]:
        if way == "across":
            return (x - distance, y), (x + distance, y)
        return (x, y - distance), (x, y + distance)

    near, far = at(20), at(90)
    slide(phone, list(zip(near, far, strict=True)))
    expect(root.locator(".av-words")).to_contain_text("in sight, where")
    windows = in_sight(root)
    assert windows is not None
    # The zoom equals the spread of the fingers, rounded to a whole step.
    assert 40 / 8 <= windows[1] - windows[0] + 1 <= 40 / 2
    # The cells below the fingers stay in the middle.
    assert windows[0] < 20 <= windows[1]
    assert windows[2] < 20 <= windows[3]
    slide(phone, list(zip(far, near, strict=True)))
    expect(root.locator(".av-words")).not_to_contain_text("in sight, where")
    assert scrolled(phone) == before
    assert phone.evaluate("() => window.visualViewport.scale") == 1
    assert "Pinned" not in root.locator(".av-words").inner_text()


@pytest.mark.slow
def test_two_fingers_zoom_points_and_one_finger_moves_them(phone: Page, tmp_path: Path) -> None:
    root = open_view(phone, tmp_path, one_head(prose()))
    plot = root.locator(".av-plot")
    x, y = middle(plot)
    picture = plot.locator("canvas").first

    def drawn() -> str:
        url: str = picture.evaluate("canvas => canvas.toDataURL()")
        return url

    def changed(since: str) -> str:
        phone.wait_for_function(
            "([canvas, since]) => canvas.toDataURL() !== since",
            arg=[picture.element_handle(), since],
        )
        return drawn()

    whole = drawn()
    before = scrolled(phone)
    slide(phone, [((x - 20, y), (x - 70, y)), ((x + 20, y), (x + 70, y))])
    nearer = changed(whole)
    slide(phone, [((x, y), (x + 40, y - 60))])
    changed(nearer)
    assert scrolled(phone) == before
    assert phone.evaluate("() => window.visualViewport.scale") == 1
