"""Test the neuron view on exported pages: the numbers that it shows add up."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from attnviz.pages import vectors as carried
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DistanceBias
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.views.neuron import NeuronView
from browser.pages import SVG, figure, table

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show

# Optional parts of attention logits besides queries and keys.
EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": BandMask(None, 0)},
    "window, capped": {"mask": BandMask(3, 0), "softcap": 3.0},
    "bias": {"bias": True},
    "sink": {"mask": BandMask(None, 0), "sinks": True},
    "capped, bias": {"softcap": 5.0, "bias": True},
}


def record_of(
    head_dim: int, tokens: list[str], *, seed: int = 0, layers: int = 2, **extras: Any
) -> AttentionRecord:
    """Return a record of four query heads that share two key heads."""
    generator = torch.Generator().manual_seed(seed)
    count = len(tokens)

    def random(*shape: int) -> torch.Tensor:
        return 1.5 * torch.randn(*shape, generator=generator)

    if extras.pop("bias", False):
        extras["bias"] = DistanceBias(random(4, 2 * count - 1), count)
    if extras.pop("sinks", False):
        extras["sinks"] = random(4)
    attention = {
        layer: QueryKeyAttention(
            random(4, count, head_dim), random(2, count, head_dim), head_dim**-0.5, **extras
        )
        for layer in range(layers)
    }
    stack = AttentionStack("self", attention, Tokens.of(tokens))
    return AttentionRecord({"self": stack}, model="random")


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def lines_of(svg: ET.Element) -> list[list[str]]:
    """Return the texts of the picture by line, from left to right."""
    by_height = defaultdict(list)
    for mark in svg.iter(f"{SVG}text"):
        by_height[mark.attrib["y"]].append((float(mark.attrib["x"]), "".join(mark.itertext())))
    return [[text for _, text in sorted(line)] for line in by_height.values()]


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("<", ""))


def by_quantity(rows: list[dict[str, str]]) -> dict[str, dict[str, float]]:
    """Return the values of the table by quantity and key. Quantities of the row have no key."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row["quantity"] not in ("product", "masked"):
            values[row["quantity"]][row["key"]] = float(row["value"])
    return values


@pytest.mark.parametrize(
    ("head_dim", "extras"),
    [
        *[(64, extras) for extras in EXTRAS],
        (256, "capped, bias"),
    ],
)
def test_every_row_adds_up(show: Show, page: Page, head_dim: int, extras: str) -> None:
    count, layer, head, token = 12, 1, 3, 8
    record = record_of(head_dim, names(count), **EXTRAS[extras])
    page.set_viewport_size({"width": 1100, "height": 900})
    view = NeuronView(record, layer=layer, heads=[head], token=token)
    root = show(view)
    rows = table(root)
    products: dict[str, float] = defaultdict(float)
    dimensions: dict[str, int] = defaultdict(int)
    stack = record.stack()
    queries = stack.queries(layer=layer, head=head)
    keys = stack.keys(layer=layer, head=head)
    assert queries is not None
    assert keys is not None
    for row in rows:
        if row["quantity"] != "product":
            continue
        dimension, key_index = int(row["dimension"]), int(row["key"])
        assert float(row["q"]) == pytest.approx(queries[token, dimension], abs=1e-5)
        assert float(row["k"]) == pytest.approx(keys[key_index, dimension], abs=1e-5)
        product = float(row["q"]) * float(row["k"]) * float(row["scale"])
        assert float(row["value"]) == pytest.approx(product, abs=1e-5)
        products[row["key"]] += float(row["value"])
        dimensions[row["key"]] += 1
    assert set(dimensions.values()) == {head_dim}

    values = by_quantity(rows)
    expected = stack.weights(layer=layer, head=head, rows=slice(token, token + 1))[0]
    allowed = stack.allowed(layer=layer, head=head, rows=slice(token, token + 1))[0]
    masked = {row["key"] for row in rows if row["quantity"] == "masked"}
    assert masked == {str(key) for key in np.flatnonzero(~allowed)}
    cap = EXTRAS[extras].get("softcap")
    log_sum_exp = values["log_sum_exp"][""]
    shown = lines_of(figure(root))
    total = 0.0
    for key in map(str, np.flatnonzero(allowed)):
        logit = values["sum"][key]
        assert products[key] == pytest.approx(logit, abs=1e-4)
        if cap is not None:
            assert values["capped"][key] == pytest.approx(cap * math.tanh(logit / cap), abs=1e-4)
            logit = values["capped"][key]
        if "bias" in values:
            logit += values["bias"][key]
        assert logit == pytest.approx(values["logit"][key], abs=1e-4)
        weight = values["weight"][key]
        assert math.exp(logit - log_sum_exp) == pytest.approx(weight, abs=1e-4)
        assert weight == pytest.approx(expected[int(key)], abs=1e-5)
        total += weight

        # Check the equations for the rounded numbers in the picture.
        (line,) = [line for line in shown if line[0] == f"t{key}" and len(line) > 1]
        numbers = [number(text) for text in line[1:]]
        assert numbers[0] == pytest.approx(products[key], abs=0.0051)
        assert numbers[-2] == pytest.approx(values["logit"][key], abs=0.0051)
        assert numbers[-1] == pytest.approx(math.exp(numbers[-2] - log_sum_exp), abs=0.011)
        assert len(numbers) == 2 + (cap is not None) + 2 * ("bias" in values)
    for key in masked:
        (line,) = [line for line in shown if line[0] == f"t{key}" and len(line) > 1]
        assert line == [f"t{key}", "masked"]
    if "sink_logit" in values:
        weight = values["sink_weight"][""]
        assert math.exp(values["sink_logit"][""] - log_sum_exp) == pytest.approx(weight, abs=1e-4)
        (line,) = [line for line in shown if line[0] == "sink"]
        assert number(line[-1]) == pytest.approx(weight, abs=0.0051)
        total += weight
    assert total == pytest.approx(1, abs=1e-5)


def test_keys_choose_head_query_highlighted_key_and_order(
    show: Show, page: Page, minilm: av.AttentionRecord
) -> None:
    root = show(NeuronView(minilm, layer=3))
    sentence = root.locator(".av-sentence")
    # At first, the query is the last token that is not special.
    expect(sentence).to_contain_text("“.” gives")
    root.locator(".av-plot").focus()
    page.keyboard.press("1")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    expect(sentence).to_contain_text("“it” gives 0.68 of its attention to “animal”")
    page.keyboard.press("ArrowDown")
    expect(sentence).to_contain_text("attention to “didn”")
    page.keyboard.press("End")
    expect(sentence).to_contain_text("attention to “[SEP]”")
    page.keyboard.press("s")
    expect(root).to_contain_text("unsorted")
    page.keyboard.press("Escape")
    expect(sentence).to_contain_text("“.” gives")
    # The queries are one tab stop. Arrow keys move between them.
    root.get_by_label("., query 14").focus()
    page.keyboard.press("ArrowLeft")
    expect(sentence).to_contain_text("“tired” gives")
    expect(root.get_by_label("tired, query 13")).to_be_focused()


def test_a_long_text_shows_64_keys_around_the_strongest_and_buttons_move_them(show: Show) -> None:
    record = record_of(16, names(200), layers=1)
    row = record.stack().weights(layer=0, head=0, rows=slice(199, 200))[0]
    root = show(NeuronView(record))
    strongest = int(row.argmax())
    start = 0 if strongest < 64 else min(strongest - 32, 136)
    moved = start - 64 if start > 64 else min(start + 64, 136)
    for button, first in (
        (None, start),
        ("Earlier keys" if start > 64 else "Later keys", moved),
        ("around the strongest", start),
    ):
        if button:
            root.get_by_role("button", name=button).click()
        share = row[first : first + 64].sum()
        expect(root).to_contain_text(
            f"Keys {first} to {first + 63} of 200 are shown: {share:.0%} of the attention."
        )
        (line,) = [line for line in lines_of(figure(root)) if line[0] == "136 other keys"]
        assert number(line[-1]) == pytest.approx(1 - share, abs=0.0051)


def test_a_page_with_rounded_vectors_states_an_error_that_no_weight_exceeds(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, "MAX_EXACT_BYTES", 0)
    record = record_of(64, names(20))
    root = show(NeuronView(record, layer=1, token=19, heads=[2]))
    weights = re.search(r"Weights exact to ([\d.e-]+), logits to ([\d.e-]+)", root.inner_text())
    assert weights is not None
    row = record.stack().weights(layer=1, head=2, rows=slice(19, 20))[0]
    shown = by_quantity(table(root))["weight"]
    worst = max(abs(shown[str(key)] - row[key]) for key in range(20))
    assert 0 < worst <= float(weights[1])
