"""Tests of the exported atlas: numbers, and operation by keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.pages import svg, table

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from browser.pages import Show

VOCABULARY = ["the", "cat", "dog", "saw", "it", ",", "ran", "a"]
KINDS = {"the": "DET", "a": "DET", "cat": "NOUN", "dog": "NOUN", "it": "PRON", ",": "PUNCT"}
LAYERS, HEADS, TEXTS = 2, 3, 24
# Head 0.1 attends to the previous token, head 1.2 to the first one. The others are random.
PREVIOUS, FIRST = (0, 1), (1, 2)


def words(number: int) -> list[str]:
    generator = np.random.default_rng(number)
    return list(generator.choice(VOCABULARY, size=8 + number % 7))


def weights(number: int, layers: int = LAYERS, heads: int = HEADS) -> Any:
    """Return causal weights of a text, shape (layers, heads, tokens, tokens)."""
    length = len(words(number))
    generator = np.random.default_rng(1000 + number)
    made = np.tril(generator.random((layers, heads, length, length)) ** 6 + 1e-6)
    made[PREVIOUS] = np.eye(length, k=-1)
    made[PREVIOUS][0, 0] = 1
    made[FIRST] = 0
    made[FIRST][:, 0] = 1
    return (made / made.sum(axis=-1, keepdims=True)).astype(np.float32)


def measured(layers: int = LAYERS, heads: int = HEADS, texts: int = TEXTS) -> av.HeadStatistics:
    statistics = av.HeadStatistics(columns=["pos"], edges=60)
    for number in range(texts):
        tokens = words(number)
        layer_weights = list(weights(number, layers, heads))
        record = av.AttentionRecord.from_weights(layer_weights, tokens, model="made")
        kinds = [KINDS.get(token, "VERB") for token in tokens]
        statistics.add(record, number, columns={"pos": kinds})
    return statistics


@pytest.fixture(scope="module")
def statistics() -> av.HeadStatistics:
    return measured()


def drawn(root: Locator, layer: int) -> None:
    expect(root).to_have_attribute("data-attnviz-drawn", f"atlas:self:{layer}")


def cell(root: Locator, layer: int, head: int) -> Locator:
    return root.get_by_role("gridcell", name=re.compile(rf"^Layer {layer}, head {head}:"))


def test_each_head_has_its_role_and_the_chosen_head_its_statistics(
    show: Show, statistics: av.HeadStatistics
) -> None:
    root = show(av.AtlasView(statistics, layer=0, heads=[1]))
    assert root.get_by_role("gridcell").count() == LAYERS * HEADS
    for (layer, head), name in ((PREVIOUS, "previous token"), (FIRST, "first token")):
        label = cell(root, layer, head).get_attribute("aria-label")
        assert label is not None
        assert f"{name} 1.00 ± <0.01 (baseline " in label
        assert label.endswith(f", {TEXTS} texts")
    stack = statistics.stack()
    rows = table(root)
    assert len(rows) == LAYERS * HEADS
    for row in rows:
        layer, head = int(row["layer"]), int(row["head"])
        roles = stack.roles().of(layer, head)
        assert row["role"] == (roles[0].name if roles else "none")
        label_of_role = re.compile(f": {re.escape(roles[0].name)} " if roles else ": none of ")
        expect(cell(root, layer, head)).to_have_attribute("aria-label", label_of_role)
        for name in stack.score_names:
            mean = stack.mean(name)[layer][head]
            exported = float(row[name]) if row[name] else np.nan
            assert exported == pytest.approx(mean, rel=1e-4, nan_ok=True)
    picture = svg(root)
    for text in ("made", "Layer 0, head 1", "previous token", "mean weight by offset", "none"):
        assert text in picture


def test_a_pressed_button_keeps_its_colours_under_the_pointer(
    show: Show, statistics: av.HeadStatistics
) -> None:
    root = show(av.AtlasView(statistics, layer=1, heads=[0]))
    pressed = root.get_by_role("group", name="Which edges").locator("[aria-pressed=true]")
    colours = (
        "element => [getComputedStyle(element).color, getComputedStyle(element).backgroundColor]"
    )
    before = pressed.evaluate(colours)
    pressed.hover()
    assert pressed.evaluate(colours) == before


def test_the_keyboard_reads_the_weights_by_offset(
    show: Show, page: Page, statistics: av.HeadStatistics
) -> None:
    root = show(av.AtlasView(statistics, layer=1, heads=[0]))
    root.locator(".av-atlas-profile .av-plot").focus()
    stack = statistics.stack()
    # The texts are too short for larger offsets, so "first" is the last bar.
    page.keyboard.press("End")
    weight = stack.offsets(1)[0][stack.offset_labels.index("first")]
    expect(root.locator(".av-atlas-profile .av-unseen")).to_have_text(
        f"the first token: mean weight {weight:.2f}"
    )
