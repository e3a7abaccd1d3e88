"""Tests of how many weights are computed for a page, and which weights the page contains.

They also test that an interrupted page starts again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.pages import encoding, limits
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.rows import sample_queries
from attnviz.views.head import HeadView
from attnviz.views.neuron import NeuronView
from unit.formulas import logits_of, weights_of
from unit.long_records import long_record
from unit.page_data import data_of, decode_layers
from unit.records import vectors, words


def record_of(weights: torch.Tensor) -> av.AttentionRecord:
    """Normalize `weights` (layers, heads, tokens, tokens) and return a record of the result."""
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return av.AttentionRecord.from_weights(list(weights), words(weights.shape[-1]))


def noise() -> av.AttentionRecord:
    return record_of(vectors(2, 3, 600, 600).mul(2).exp())


def heads_of_all_sharpness() -> av.AttentionRecord:
    exponents = torch.linspace(0, 4, 12).reshape(3, 4, 1, 1)
    return record_of(vectors(3, 4, 400, 400).mul(2 * exponents).exp())


def windows() -> av.AttentionRecord:
    return record_of(vectors(1, 2, 1500, 1500).mul(2).exp().tril().triu(-30))


def page_of(record: av.AttentionRecord, room: int) -> dict[str, Any]:
    """Return the page data of a record, whose weights and maps take at most `room` bytes."""

    def size_of(entries: dict[str, Any]) -> int:
        blocks = [*entries.get("blocks", []), *entries.get("maps", [])]
        return sum(len(block["data"]) for block in blocks)

    return encoding.embed_weights(record, precision="auto", max_bytes=room, size_of=size_of)


@pytest.mark.parametrize(
    ("make", "room"), [(noise, 150_000), (heads_of_all_sharpness, 150_000), (windows, 40_000)]
)
def test_no_omitted_weight_is_larger_than_an_embedded_one(
    make: Callable[[], av.AttentionRecord], room: int
) -> None:
    record = make()
    data = page_of(record, room)
    assert data["embedded"]["self"]["form"] == "strongest"
    weakest, strongest = np.inf, 0.0
    for name, layer, _, rows in decode_layers(data):
        layer_weights, stored = record.stacks[name].weights(layer=layer), rows.embedded
        # Leave out the two strongest keys of each row, which are always embedded.
        second = np.sort(layer_weights, axis=2)[..., -2:-1]
        weakest = min(weakest, layer_weights[stored & (layer_weights < second)].min(initial=np.inf))
        strongest = max(strongest, layer_weights[~stored].max())
    assert strongest <= weakest * (1 + 1e-6)


def long() -> av.AttentionRecord:
    """Return a record of 1,100 tokens, whose pages store only the strongest keys."""
    return long_record(1100, layers=2, heads=3, key_heads=3)


class Counted:
    """Counter of the weights that are computed to select the keys of a page.

    If `fail_after` weights have been counted, the next computation raises KeyboardInterrupt.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.weights, self.fail_after = 0, math.inf
        compute = encoding._weights_of_tile

        def counted(*tile: Any) -> Any:
            if self.weights >= self.fail_after:
                raise KeyboardInterrupt
            of_tile = compute(*tile)
            self.weights += of_tile.size
            return of_tile

        monkeypatch.setattr(encoding, "_weights_of_tile", counted)


def test_a_page_takes_one_pass_over_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = Counted(monkeypatch)
    page = HeadView(long()).to_html(max_mb=0.8)
    assert data_of(page)["embedded"]["self"]["form"] == "strongest"
    # The causal mask allows 1100 * 1101 / 2 pairs in each of 6 heads. Blocks of rows also contain
    # some masked pairs.
    assert 6 * 1100 * 1101 / 2 <= computed.weights < 6 * 1100 * 1100


@pytest.mark.slow
def test_an_interrupted_page_starts_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(encoding, "_TILE", 1 << 14)
    computed = Counted(monkeypatch)
    page = HeadView(long()).to_html(max_mb=0.8)
    record = long()
    computed.fail_after = computed.weights + 6 * 1100 * 1100 / 4
    with pytest.raises(KeyboardInterrupt):
        HeadView(record).save(tmp_path / "x.html", max_mb=0.8)
    assert list(tmp_path.iterdir()) == []
    computed.fail_after = math.inf
    HeadView(record).save(tmp_path / "x.html", max_mb=0.8)
    assert (tmp_path / "x.html").read_text(encoding="utf-8") == page


def test_rounding_is_measured_on_some_queries_of_a_long_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_MEASURED", 2 * 3 * 500 * 500 - 1)
    monkeypatch.setattr("attnviz.pages.vectors.MAX_EXACT_BYTES", 0)
    record = long_record(500, layers=2, heads=3, key_heads=1, head_dim=16)
    measured = sample_queries(500, 64)
    for number, layer in enumerate(data_of(NeuronView(record).to_html())["errors"]):
        attention = record.stack().attention(number)
        assert isinstance(attention, QueryKeyAttention)
        queries, keys = attention.queries.half(), attention.keys.half()
        rounded = replace(attention, queries=queries, keys=keys)
        logits, rounded_logits = (logits_of(side)[:, measured] for side in (attention, rounded))
        weights, rounded_weights = (weights_of(side)[:, measured] for side in (attention, rounded))
        visible = np.isfinite(logits)
        logit_error = np.abs(logits[visible] - rounded_logits[visible]).max()
        assert layer["measured"] == 64
        assert layer["logit_error"] == pytest.approx(logit_error, rel=1e-2)
        assert layer["error"] == pytest.approx(np.abs(weights - rounded_weights).max(), rel=1e-2)
