"""Tests of how many weights are computed and how many keys are kept for a page."""

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
from attnviz.pages import encoding, html
from attnviz.pages.strongest import Cut, Sweep
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.rows import sample_queries
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.neuron import NeuronView
from unit.formulas import logits_of, weights_of
from unit.long_records import long_record
from unit.page_data import data_of, decode_sparse, no_page_of_all, unpacked
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


def swept(record: av.AttentionRecord, room: float, collect: float) -> tuple[Cut, int]:
    """Return the keys that fit into `room` bytes, and the largest number of keys in memory."""
    sweep, max_keys = Sweep(collect), 0
    for stack in record.stacks.values():
        for layer in stack.layers:
            sweep.begin(stack, layer)
            for part in encoding.head_tiles(stack, layer):
                for weights in encoding.tile_of_heads(stack, layer, part):
                    sweep.add(weights, part.tile.columns.start)
                    max_keys = max(max_keys, sweep._num_keys)
    return sweep.cut(0.95, room), max_keys


@pytest.mark.parametrize("make", [noise, heads_of_all_sharpness, windows])
def test_a_sweep_keeps_few_keys_and_drops_none_that_fits(
    make: Callable[[], av.AttentionRecord],
) -> None:
    record, room = make(), 150_000
    bounded, max_keys = swept(record, room, room)
    everything, _ = swept(record, room, 1e12)
    assert max_keys <= 1.5 * room / 0.8
    # Each sweep searches for its own threshold, so the results differ a little.
    assert bounded.covered == pytest.approx(everything.covered, abs=0.005)
    assert bounded.error == pytest.approx(everything.error, rel=0.05)
    assert max(bounded.size, everything.size) <= room
    for block in bounded.blocks:
        weights = record.stacks[block["stack"]].weights(layer=block["layer"])
        rows = decode_sparse(block, unpacked(block["data"]))
        row = np.repeat(np.arange(len(rows.counts)), rows.counts)
        stored = np.zeros((len(rows.counts), weights.shape[-1]), np.bool_)
        stored[row, rows.keys] = True
        # Apart from the two strongest keys of each row, stored weights exceed all omitted weights.
        flat = weights.reshape(stored.shape)
        second = np.sort(flat, axis=1)[:, -2]
        weakest = min(flat[stored & (flat < second[:, None])], default=np.inf)
        assert flat[~stored].max() <= weakest * (1 + 1e-6)


def test_a_sweep_of_equal_weights_keeps_the_fewest() -> None:
    cut, max_keys = swept(record_of(torch.ones(1, 2, 1500, 1500)), 100_000, 50_000)
    # All weights are equal, so each row keeps the minimum of two keys.
    assert cut.covered == pytest.approx(2 / 1500, rel=1e-6)
    assert max_keys <= 1.5 * 50_000 / 0.8


def long() -> av.AttentionRecord:
    """Return a record of 1,100 tokens, whose pages store only the strongest keys."""
    return long_record(1100, layers=2, heads=3, key_heads=3)


class Counted:
    """Counter of computed weights. After `fail_after` weights, KeyboardInterrupt is raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.weights, self.fail_after = 0, math.inf
        compute = QueryKeyAttention.weights

        def counted(attention: QueryKeyAttention, *block: Any) -> Any:
            if self.weights >= self.fail_after:
                raise KeyboardInterrupt
            weights = compute(attention, *block)
            self.weights += weights.size
            return weights

        monkeypatch.setattr(QueryKeyAttention, "weights", counted)


def test_a_second_page_takes_no_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_embed_all", no_page_of_all)
    smaller = HeadView(long()).to_html(max_mb=0.6)
    record = long()
    computed = Counted(monkeypatch)
    page = HeadView(record).to_html(max_mb=0.8)
    first = computed.weights
    # 6 heads compute all 1100 * 1101 / 2 pairs that the causal mask allows, and some masked pairs.
    assert 6 * 1100 * 1101 / 2 <= first < 6 * 1100 * 1100
    # Three more pages compute no weights: the same page, another view's page, and a smaller page.
    assert HeadView(record).to_html(max_mb=0.8) == page
    assert data_of(MatrixView(record).to_html(max_mb=0.8))["embedded"]["form"] == "strongest"
    assert data_of(HeadView(record).to_html(max_mb=0.6)) == data_of(smaller)
    assert computed.weights == first
    # A larger page needs keys that were dropped, so all weights are computed again.
    HeadView(record).to_html(max_mb=1.2)
    assert computed.weights == 2 * first
    # Keys that take more memory than `MAX_CACHED_BYTES` are not kept.
    monkeypatch.setattr(encoding, "MAX_CACHED_BYTES", 1000)
    record = long()
    for _ in range(2):
        HeadView(record).to_html(max_mb=0.8)
    assert computed.weights == 4 * first


@pytest.mark.slow
def test_an_interrupted_page_starts_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(encoding, "_embed_all", no_page_of_all)
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
    monkeypatch.setattr(html, "MAX_MEASURED", 2 * 3 * 500 * 500 - 1)
    monkeypatch.setattr("attnviz.pages.vectors.MAX_EXACT_BYTES", 0)
    record = long_record(500, layers=2, heads=3, key_heads=1, head_dim=16)
    measured = sample_queries(500, 64)
    for number, layer in enumerate(data_of(NeuronView(record).to_html())["vectors"]["layers"]):
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
