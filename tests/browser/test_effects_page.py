"""Tests of effects on exported pages: bars and numbers of heads and of keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import expect

import attnviz as av
from attnviz.interventions.head_effects import HeadEffects
from attnviz.interventions.token_effects import TokenEffects
from attnviz.views.head import HeadView
from attnviz.views.model import ModelView
from browser.accessibility import check
from browser.pages import SVG, figure, table
from unit.records import shares, words

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from browser.pages import Show

# End colours of the diverging scale in the light theme.
NEGATIVE, POSITIVE = "#d96f0e", "#1b6ab3"
MEASURE = "logit of “a” minus logit of “b”"


def record() -> av.AttentionRecord:
    return av.AttentionRecord.from_weights(
        [shares(3, 5, 5, seed=layer) for layer in range(2)], words(5), model="small"
    )


def effects() -> HeadEffects:
    values = (np.array([0.5, -4.0, 0.25]), np.array([np.nan, 2.0, -1.0]))
    return HeadEffects(values, None, 3.4e-6, MEASURE, "self", (0, 1), 1)


def bars(root: Locator) -> list[tuple[str, float, float]]:
    """Return the colour, left edge and width of the bars in the view's picture."""
    return [
        (mark.get("fill", ""), float(mark.get("x", 0)), float(mark.get("width", 0)))
        for mark in figure(root).iter(f"{SVG}rect")
        # Bars of a legend have rounded corners (rx).
        if mark.get("fill") in (NEGATIVE, POSITIVE) and mark.get("rx") is None
    ]


def test_effects_of_heads_are_bars_ordered_by_size(show: Show, page: Page) -> None:
    view = ModelView(record(), scores={"effect": effects()}, theme="light")
    root = show(view)
    cells = root.get_by_role("gridcell")
    assert [cell.get_attribute("aria-label") for cell in cells.all()] == [
        "Layer 0, head 1, effect −4.00",
        "Layer 1, head 1, effect +2.00",
        "Layer 1, head 2, effect −1.00",
        "Layer 0, head 0, effect +0.50",
        "Layer 0, head 2, effect +0.25",
        "Layer 1, head 0, effect none",
    ]
    expect(root).to_contain_text("By effect, ordered by size: all 6 heads.")
    expect(root).to_contain_text(f"Effect of removing a head on: {MEASURE}; noise 3.4e−6.")
    expect(root.locator(".av-legends")).to_contain_text("−40+4bars below heads: effect")
    drawn = bars(root)
    assert [color for color, *_ in drawn] == [NEGATIVE, POSITIVE, NEGATIVE, POSITIVE, POSITIVE]
    widths = np.array([width for *_, width in drawn])
    assert np.allclose(widths / widths[0], [1, 0.5, 0.25, 0.125, 0.0625], atol=0.01)
    rows = table(root)
    assert [row["score: effect"] for row in rows] == ["-4", "2", "-1", "0.5", "0.25", ""]
    assert MEASURE in rows[0]["score_measure"]
    root.get_by_label("Minimum size, effect").fill("1")
    page.keyboard.press("Enter")
    expect(cells).to_have_count(3)
    # Bars stay below their heads if heads are ordered by number.
    root.get_by_label("Heads by").select_option("number")
    expect(cells.first).to_have_attribute("aria-label", "Layer 0, head 0, effect +0.50")
    check(page.locator("html"))


def test_effects_of_tokens_are_bars_beside_the_keys(show: Show, page: Page) -> None:
    values = np.array([1.0, -8.0, 0.0, 4.0, np.nan])
    tokens = record().stack().key_tokens
    token_effects = TokenEffects(values, 0.25, MEASURE, "mask", tokens)
    scores = {"effect": effects()}
    root = show(HeadView(record(), scores=scores, token_scores=token_effects, theme="light"))
    heads = root.locator(".av-head")
    assert [head.get_attribute("aria-label") for head in heads.all()] == [
        "Head 1, −4.00 (effect)",
        "Head 0, +0.50 (effect)",
        "Head 2, +0.25 (effect)",
    ]
    expect(root.locator(".av-effect-note")).to_contain_text("A full bar is 4.")
    summary = root.locator(".av-summary")
    expect(summary).to_contain_text("Effect, largest absolute value at “t1”: −8.00.")
    footer = root.locator(".av-footer")
    expect(footer).to_contain_text(f"removing a token (mask) on: {MEASURE}; noise 0.2")
    expect(footer).to_contain_text("1 of 5 keys has no number and no bar.")
    drawn = bars(root)
    assert [color for color, *_ in drawn] == [POSITIVE, NEGATIVE, POSITIVE]
    assert np.allclose([width / drawn[1][2] for *_, width in drawn], [0.125, 1, 0.5], atol=0.01)
    # All bars start at one zero line: negative ones end where positive ones start.
    zero = drawn[1][1] + drawn[1][2]
    assert np.allclose([drawn[0][1], drawn[2][1]], zero, atol=0.1)
    rows = table(root)
    for row in rows:
        value = values[int(row["key"])]
        assert row["key score: effect"] == ("" if np.isnan(value) else f"{value:g}")
        assert MEASURE in row["key_score_measure"]
    # The hint of a key shows its effect.
    plot = root.locator(".av-plot").first.bounding_box()
    assert plot is not None
    # The bars are to the right of the lines, which take 520 pixels in the middle.
    page.mouse.move(plot["x"] + plot["width"] / 2 + 314, plot["y"] + plot["height"] / 2)
    expect(root.locator(".av-hint")).to_contain_text(re.compile(r"effect [−+]?\d"))
    check(page.locator("html"))
