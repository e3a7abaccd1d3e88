"""Tests of exported head views: lines, pointer, windows and stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.pages import says, table

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show


def test_the_mean_of_all_heads_is_the_default_above_four(
    show: Show, minilm: av.AttentionRecord
) -> None:
    root = show(av.HeadView(minilm, layer=3))
    says(root, "16 tokens · exact to 0.004")
    says(root, "mean of 12 heads")
    mean = minilm.stack().weights(layer=3).mean(axis=0)
    lines = table(root)
    assert {line["layer"] for line in lines} == {"3"}
    drawn = {(int(line["query"]), int(line["key"])): float(line["weight"]) for line in lines}
    assert len(drawn) == len(lines) > len(mean)
    for pair, weight in drawn.items():
        assert weight == pytest.approx(mean[pair], abs=0.004)
    # All weights that are not drawn are smaller than the drawn ones.
    hidden = [float(mean[pair]) for pair in np.ndindex(mean.shape) if pair not in drawn]
    assert max(hidden, default=0) <= min(drawn.values()) + 0.004


def test_the_pointer_describes_a_token_and_a_click_pins_it(
    show: Show, page: Page, minilm: av.AttentionRecord
) -> None:
    root = show(av.HeadView(minilm, layer=3, heads=[1]))
    position = pixel_of(page, "“it”, query 10")
    page.mouse.move(*position)
    says(root, "“it” attends most to “animal”: 0.68")
    page.mouse.click(*position)
    page.mouse.move(1, 1)
    says(root, "Pinned: query “it”")
    page.mouse.click(*position)
    page.mouse.move(1, 1)
    expect(root).not_to_contain_text("Pinned")


def pixel_of(page: Page, title: str) -> tuple[float, float]:
    """Move the pointer until the hint starts with `title`, and return its position."""
    box = page.locator(".av-plot").bounding_box()
    assert box is not None
    side = title.split()[-2]
    hint = page.locator(".av-hint")

    def hint_at(x: float, y: float) -> str:
        page.mouse.move(box["x"] + x, box["y"] + y)
        return " ".join(hint.all_text_contents())

    middle = box["height"] / 2
    for x in range(4, int(box["width"]), 12):
        if any(f", {side} " in hint_at(x, middle + offset) for offset in (0, 9)):
            for y in range(4, int(box["height"]), 6):
                if hint_at(x, y).startswith(title):
                    # A few pixels further into the row, which is about 26 pixels high.
                    return box["x"] + x, box["y"] + y + 8
    pytest.fail(f"no token with the hint {title!r}")
