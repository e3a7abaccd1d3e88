"""Test signed values (such as differences) on exported pages: colours, dashes, signs, words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import expect

import attnviz as av
from browser.accessibility import check
from browser.pages import svg, table

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from playwright.sync_api import Page

    from browser.pages import Show

TOKENS = ["he", "saw", "the", "nurse"]
# Rows of a difference of two texts sum to 0. The largest absolute value is 0.8.
NUMBERS = np.array(
    [
        [
            [0.0, 0.0, 0.0, 0.0],
            [0.3, -0.3, 0.0, 0.0],
            [0.5, -0.8, 0.3, 0.0],
            [-0.1, 0.05, 0.0, 0.05],
        ],
        [
            [0.0, 0.0, 0.0, 0.0],
            [-0.2, 0.2, 0.0, 0.0],
            [0.1, 0.1, -0.2, 0.0],
            [0.4, -0.1, -0.1, -0.2],
        ],
    ],
    dtype=np.float32,
)
RECORD = av.AttentionRecord.from_weights([NUMBERS], TOKENS, signed=True, measure="difference")
#: Largest error according to docs/pages.md: (127² − 126.5²) / 127² of the largest absolute value.
ERROR = (127**2 - 126.5**2) / 127**2 * 0.8
BLUE, ORANGE = (27, 106, 179), (217, 111, 14)


def hues(page: Page, canvas: str) -> NDArray[np.int64]:
    """Count the pixels of a canvas that are clearly blue and clearly orange."""
    counts = page.locator(canvas).first.evaluate(
        """(canvas) => {
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            const counts = [0, 0];
            for (let i = 0; i < data.length; i += 4) {
                if (data[i + 3] < 20) continue;
                if (data[i + 2] - data[i] > 60) counts[0]++;
                else if (data[i] - data[i + 2] > 60) counts[1]++;
            }
            return counts;
        }"""
    )
    return np.array(counts)


def test_lines_show_the_sign_by_colour_and_by_dashes(show: Show, page: Page) -> None:
    root = show(av.HeadView(RECORD, heads=[0]))
    expect(root).to_contain_text("Largest difference: “the” to “saw”, −0.80 (less).")
    assert (hues(page, ".av-back") > 0).all()
    picture = svg(root)
    above, below = (f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in (BLUE, ORANGE))
    assert re.search(rf'stroke="{below}" stroke-dasharray', picture)
    assert re.search(rf'stroke="{above}"(?! stroke-dasharray)', picture)
    differences = np.zeros_like(NUMBERS[0])
    for row in table(root):
        differences[int(row["query"]), int(row["key"])] = float(row["difference"])
        assert float(row["largest_error"]) >= ERROR
    np.testing.assert_allclose(differences, NUMBERS[0], atol=ERROR + 1e-4)


def test_cells_have_two_colours_and_numbers_with_signs(show: Show, page: Page) -> None:
    root = show(av.MatrixView(RECORD, heads=[0], token=2))
    expect(root).to_contain_text("Largest difference from “the”: to “saw”, −0.80 (less).")
    expect(root.locator(".av-legend")).to_contain_text("−0.80+0.8")
    check(root)
    assert (hues(page, ".av-back") > 400).all()
    picture = svg(root)
    assert "−.80" in picture
    assert "+.50" in picture
    differences = [float(row["difference"]) for row in table(root)]
    np.testing.assert_allclose(differences, NUMBERS[0].ravel(), atol=ERROR + 1e-4)
