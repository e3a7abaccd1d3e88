"""Test the lasso and three dimensions on pages of the embedding view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.embedding_pages import (
    coordinates,
    drawn,
    one_head,
    pixel_positions,
    pixels,
    prose,
)
from browser.pages import says, table

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show


@pytest.fixture(scope="module")
def corpus() -> av.Corpus:
    return prose()


def test_a_lasso_selects_the_points_inside(show: Show, page: Page, corpus: av.Corpus) -> None:
    root = show(one_head(corpus))
    positions = pixel_positions(root, coordinates(corpus))
    # The focus may scroll the page, so set it before measuring positions.
    root.locator(".av-plot").focus()
    box = root.locator(".av-plot").bounding_box()
    assert box is not None
    # A box whose sides keep a distance from all points.
    left, right = (gap(positions[:, 0], share) for share in (0.25, 0.75))
    top, bottom = (gap(positions[:, 1], share) for share in (0.2, 0.8))
    inside = np.flatnonzero(
        (positions > (left, top)).all(axis=1) & (positions < (right, bottom)).all(axis=1)
    )
    assert 5 < len(inside) < 43
    page.keyboard.press("l")
    x, y = box["x"], box["y"]
    page.mouse.move(x + left, y + top)
    page.mouse.down()
    for corner in ((right, top), (right, bottom), (left, bottom), (left, top)):
        page.mouse.move(x + corner[0], y + corner[1], steps=3)
    page.mouse.up()
    says(root.locator(".av-sentence"), f"{len(inside)} points in the lasso.")
    assert [int(row["point"]) for row in table(root) if row["in_lasso"] == "1"] == [*inside]
    # The selection stays in other heads, whose points are the same tokens.
    page.keyboard.press("]")
    drawn(root, 2)
    assert sum(row["in_lasso"] == "1" for row in table(root)) == len(inside)
    page.keyboard.press("Escape")
    expect(root.locator(".av-sentence")).not_to_contain_text("lasso")


def gap(values: Any, share: float) -> float:
    """Return the middle of the widest gap between values near a quantile, in whole pixels."""
    ordered = np.sort(values)
    middle = int(share * len(ordered))
    neighbours = ordered[middle - 3 : middle + 4]
    widest = int(np.argmax(np.diff(neighbours)))
    return round(float(neighbours[widest] + neighbours[widest + 1]) / 2)


def test_keys_rotate_a_plot_of_three_dimensions(show: Show, page: Page, corpus: av.Corpus) -> None:
    root = show(one_head(corpus, dimensions=3))
    expected = coordinates(corpus, dimensions=3)
    exported = np.array([[float(row[axis]) for axis in "xyz"] for row in table(root)])
    # A page stores coordinates as 16-bit steps of the larger side.
    assert np.abs(exported - expected).max() <= np.ptp(expected, axis=0).max() / 65535 + 1e-4
    before = pixels(root)
    root.locator(".av-plot").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert (pixels(root) != before).any()
    page.keyboard.press("Home")
    assert (pixels(root) == before).all()
