"""Tests of the bars of a pinned query: lengths, labels and heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.pages import SVG, figure, texts

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show

TOKENS, HEADS, QUERY, FAR = 150, 12, 70, 5
WINDOW = [60, 92]


def record() -> av.AttentionRecord:
    """Return a record with spread weights, except one query of head 3.

    This query has nearly all of its weight on a key outside the window.
    """
    logits = np.random.default_rng(0).normal(size=(HEADS, TOKENS, TOKENS))
    weights = np.exp(1.5 * logits)
    weights /= weights.sum(axis=-1, keepdims=True)
    weights[3, QUERY] = 0.02 / (TOKENS - 1)
    weights[3, QUERY, FAR] = 0.98
    words = [f"w{place}" for place in range(TOKENS)]
    words[QUERY], words[FAR] = "it", "animal"
    return av.AttentionRecord.from_weights([weights.astype(np.float32)], words)


RECORD = record()


@pytest.mark.parametrize("max_mb", [None, 0.28])
def test_bars_end_at_one_whatever_is_in_sight(show: Show, max_mb: float | None) -> None:
    view = av.HeadView(RECORD, heads=[3], token=QUERY, query_window=WINDOW, key_window=WINDOW)
    root = show(view, max_mb=max_mb)
    if max_mb is not None:
        expect(root.locator(".av-note")).to_contain_text("strongest keys")
    svg = figure(root)
    assert {"<0.01", "0", "1"} <= set(texts(svg))
    # All weights in the window are about 0.0001, so the bars are shorter than a pixel.
    own = (
        root.locator(".av-head")
        .nth(3)
        .evaluate("each => getComputedStyle(each).getPropertyValue('--av-head')")
    )
    bars = [each for each in svg.iter(f"{SVG}rect") if each.get("fill") == own.strip()]
    inside = [each for each in bars if float(each.get("height", 0)) > 4.5]
    assert len(inside) == WINDOW[1] - WINDOW[0]
    assert max(float(each.get("width", 0)) for each in inside) < 1


def test_the_pointer_on_the_legend_brings_its_heads_out(show: Show, page: Page) -> None:
    view = av.HeadView(RECORD, heads=list(range(HEADS)), query_window=WINDOW, key_window=WINDOW)
    root = show(view)
    back = root.locator(".av-back")
    expect(back).to_have_css("opacity", "1")
    root.locator(".av-head-legend > span").nth(1).hover()
    expect(back).to_have_css("opacity", "0.12")
    page.mouse.move(2, 2)
    expect(back).to_have_css("opacity", "1")
