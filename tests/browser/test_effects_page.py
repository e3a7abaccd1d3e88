"""Test effects on exported pages: numbers and bars of heads and of keys, in words and figures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from attnviz.interventions.head_effects import HeadEffects
from attnviz.interventions.token_effects import TokenEffects
from browser.accessibility import check
from browser.pages import NEGATIVE, POSITIVE, SVG, effect_bars, figure, table
from unit.records import shares, words

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show

MEASURE = "logit of “a” minus logit of “b”"


def record() -> av.AttentionRecord:
    return av.AttentionRecord.from_weights(
        [shares(3, 5, 5, seed=layer) for layer in range(2)], words(5), model="small"
    )


def test_effects_of_heads_are_bars_ordered_by_size(show: Show, page: Page) -> None:
    values = (np.array([0.5, -4.0, 0.25]), np.array([np.nan, 2.0, -1.0]))
    effects = HeadEffects(values, None, 3.4e-6, MEASURE, "self", (0, 1), 1)
    root = show(av.ModelView(record(), scores={"effect": effects}, theme="light"))
    cells = root.get_by_role("gridcell")
    assert [cell.get_attribute("aria-label") for cell in cells.all()] == [
        "Layer 0, head 1, effect −4.00",
        "Layer 1, head 1, effect +2.00",
        "Layer 1, head 2, effect −1.00",
        "Layer 0, head 0, effect +0.50",
        "Layer 0, head 2, effect +0.25",
        "Layer 1, head 0, effect none",
    ]
    expect(root).to_contain_text(f"Effect of removing a head on: {MEASURE}; noise 3.4e−6.")
    colors, widths = effect_bars(root)
    assert colors == [NEGATIVE, POSITIVE, NEGATIVE, POSITIVE, POSITIVE]
    assert np.allclose(np.divide(widths, widths[0]), [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16], atol=0.01)
    assert [row["score: effect"] for row in table(root)] == ["-4", "2", "-1", "0.5", "0.25", ""]
    check(page.locator("html"))


def test_effects_of_tokens_are_bars_beside_the_keys(show: Show, page: Page) -> None:
    values = np.array([1.0, -8.0, 0.0, 4.0, np.nan])
    effects = TokenEffects(values, 0.25, MEASURE, "mask", record().stack().key_tokens)
    root = show(av.HeadView(record(), token_scores=effects, theme="light"))
    summary = root.locator(".av-summary")
    expect(summary).to_contain_text("Effect, largest absolute value at “t1”: −8.00.")
    footer = root.locator(".av-footer")
    expect(footer).to_contain_text(f"removing a token (mask) on: {MEASURE}; noise 0.2")
    expect(footer).to_contain_text("1 of 5 keys has no number and no bar.")
    colors, widths = effect_bars(root)
    assert colors == [POSITIVE, NEGATIVE, POSITIVE]
    assert np.allclose(np.divide(widths, widths[1]), [1 / 8, 1, 1 / 2], atol=0.01)
    # Each bar has its number, in the row of its key. The last key has neither.
    texts = {mark.text: float(mark.get("y", 0)) for mark in figure(root).iter(f"{SVG}text")}
    rows = [texts[number] for number in ("+1.00", "−8.00", "0.00", "+4.00")]
    assert np.allclose(np.diff(rows), rows[1] - rows[0], atol=0.01)
    assert "–" not in texts
    for row in table(root):
        value = values[int(row["key"])]
        assert row["key score: effect"] == ("" if np.isnan(value) else f"{value:g}")
    check(page.locator("html"))


@pytest.mark.parametrize("num_keys", [5, 40])
def test_all_bars_of_a_matrix_have_numbers_above_their_columns(show: Show, num_keys: int) -> None:
    tokens = words(num_keys)
    shown = av.AttentionRecord.from_weights([shares(1, num_keys, num_keys)], tokens, model="small")
    # The numbers of 40 columns are wider than the columns, and are turned.
    values = np.linspace(-8, 8, num_keys)
    effects = TokenEffects(values, 0.25, MEASURE, "mask", shown.stack().key_tokens)
    root = show(av.MatrixView(shown, token_scores=effects, theme="light"))
    svg = figure(root)
    signed = re.compile(r"[+−]\d\.\d\d|0\.00")
    numbers = [mark for mark in svg.iter(f"{SVG}text") if signed.fullmatch(mark.text or "")]
    numbers.sort(key=lambda mark: float(mark.get("x", 0)))
    expected = [f"{value:+.2f}" if value else "0.00" for value in values]
    assert [(mark.text or "").replace("−", "-") for mark in numbers] == expected
    steps = np.diff([float(mark.get("x", 0)) for mark in numbers])
    assert np.allclose(steps, steps[0], atol=0.2)
    assert {mark.get("transform") is not None for mark in numbers} == {num_keys == 40}
