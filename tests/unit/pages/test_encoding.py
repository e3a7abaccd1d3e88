"""Tests of whether a page stores all weights, the strongest keys, or queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.pages import encoding, limits
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, ChosenMask, PackedMask
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.views.head import HeadView
from attnviz.views.neuron import NeuronView
from unit.formulas import equal_cells
from unit.long_records import alike
from unit.page_data import data_of, decode_layers, decode_rows
from unit.records import (
    captured_record,
    difference_record,
    encoder_decoder_record,
    given_record,
    vectors,
    words,
)

MB = 1_000_000


def sharp(layers: int, heads: int, tokens: int) -> av.AttentionRecord:
    """Return a record of causal weights that favour key 0 and near keys, as language models do."""
    distance = torch.arange(tokens) - torch.arange(tokens)[:, None]
    logits = 2 * vectors(layers, heads, tokens, tokens) - distance.abs() / 8
    logits[..., 0] += 4
    weights = torch.softmax(logits.masked_fill(distance > 0, -torch.inf), dim=-1)
    return av.AttentionRecord.from_weights(weights, words(tokens))


def of_vectors(layers: int, heads: int, tokens: int, head_dim: int) -> av.AttentionRecord:
    queries, keys = vectors(2, layers, heads, tokens, head_dim)
    return av.AttentionRecord.from_qk(queries, keys, words(tokens), causal=True)


@pytest.mark.parametrize(("tokens", "max_mb"), [(64, 6.0), (1024, 10.0), (131_072, 40.0)])
def test_the_limit_grows_with_the_text(tokens: int, max_mb: float) -> None:
    record = alike(12, 12, tokens, causal=True)
    causal = limits.default_limit(record)
    ahead = limits.default_limit(alike(12, 12, tokens, causal=False))
    assert 6 * MB <= causal <= max_mb * MB
    assert causal <= ahead <= 2 * max_mb * MB


def test_the_limit_of_causal_arrays_is_that_of_causal_queries_and_keys() -> None:
    arrays, vectors_of_same = sharp(4, 8, 512), of_vectors(4, 8, 512, 4)
    assert arrays.stack().causal
    assert limits.default_limit(arrays) == limits.default_limit(vectors_of_same)
    uniform = av.AttentionRecord.from_weights(torch.full((4, 8, 512, 512), 1 / 512), words(512))
    assert not uniform.stack().causal


def test_zeros_by_chance_in_arrays_are_drawn_as_they_are() -> None:
    # Layer 0 is causal, layer 1 is a window with padding, and layer 2 has a zero first row.
    weights = sharp(3, 2, 70).stack().attention(0).block([0, 1], slice(0, 70)).repeat(3, 1, 1, 1)
    weights[0, :, 40] = torch.eye(70)[40]
    weights[1] = weights[1].triu(-9)
    weights[1, :, 60:] = 0
    weights[2, :, 0] = 0
    record = av.AttentionRecord.from_weights(weights, words(70), normalized=False)
    for form in ("all", "strongest"):
        entries = embedded(record, 9_000 if form == "strongest" else None)
        assert entries["embedded"]["self"]["form"] == form
        for _, layer, reported, rows in decode_layers(entries):
            error = np.abs(rows.dense - weights[layer].numpy()).max()
            assert error <= reported * (1 + 1e-4) + 1e-6


def embedded(record: av.AttentionRecord, max_bytes: int | None = None) -> dict[str, Any]:
    """Return the page data of a record, whose encoded weights take at most `max_bytes`."""

    def size_of(entries: dict[str, Any]) -> int:
        return sum(len(block["data"]) for block in entries.get("blocks", []))

    return encoding.embed_weights(record, precision="auto", max_bytes=max_bytes, size_of=size_of)


@pytest.mark.parametrize(
    "make",
    [captured_record, encoder_decoder_record, partial(difference_record, 40, with_side=True)],
)
@pytest.mark.parametrize("form", ["all", "strongest"])
def test_reported_errors_are_true(
    make: Callable[[], av.AttentionRecord], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make()
    monkeypatch.setattr(encoding, "_can_compute", lambda _: False)
    data = embedded(record)
    if form == "strongest":
        data = embedded(record, sum(len(block["data"]) for block in data["blocks"]) - 1)
    masses, errors = (
        {name: np.zeros(2) for name in record.stacks},
        dict.fromkeys(record.stacks, 0.0),
    )
    for name, layer, error, rows in decode_layers(data):
        numbers = record.stacks[name].weights(layer=layer).astype(np.float64)
        difference = float(np.abs(rows.dense - numbers).max())
        assert difference <= error * (1 + 1e-4) + 1e-7
        assert (rows.dense * numbers >= 0).all()
        sizes = np.abs(numbers)
        masses[name] += sizes[rows.embedded].sum(), sizes.sum()
        errors[name] = max(errors[name], error)
    assert form in {report["form"] for report in data["embedded"].values()}
    for name, report in data["embedded"].items():
        assert report["error"] == errors[name]
        assert report["covered"] == pytest.approx(masses[name][0] / masses[name][1], abs=1e-6)
        assert (report["covered"] == 1.0) == (report["form"] == "all")


def test_a_small_stack_is_stored_whole_beside_large_ones() -> None:
    parts = {"encoder": sharp(4, 6, 256).stack(), "decoder": sharp(1, 2, 16).stack()}
    record = av.AttentionRecord(
        {
            name: stack.derive({layer: stack.attention(layer) for layer in stack.layers}, name=name)
            for name, stack in parts.items()
        }
    )
    page = HeadView(record).to_html(max_mb=0.26)
    forms = {name: report["form"] for name, report in data_of(page)["embedded"].items()}
    assert forms == {"encoder": "strongest", "decoder": "all"}
    assert data_of(page)["embedded"]["encoder"]["covered"] < 0.95
    assert data_of(page)["embedded"]["decoder"]["covered"] == 1.0


def test_the_fewest_keys_that_cover_enough() -> None:
    view = HeadView(sharp(4, 6, 256))
    everything = view.to_html()
    assert data_of(everything)["embedded"]["self"]["form"] == "all"
    # Not all weights fit in `room`. The page has the fewest keys with 95 % of the weight, which is
    # estimated from a quarter of the queries.
    room = len(everything.encode()) / MB - 0.01
    page = view.to_html(max_mb=room)
    assert 0.945 < data_of(page)["embedded"]["self"]["covered"] < 0.955
    assert len(page.encode()) < 0.7 * len(everything.encode())


def test_a_small_page_stores_as_many_keys_as_fit() -> None:
    view = HeadView(sharp(4, 6, 256))
    shares = []
    for room in (0.21, 0.26):
        page = view.to_html(max_mb=room)
        assert 0.88 * room * MB < len(page.encode()) <= room * MB
        data = data_of(page)
        assert data["embedded"]["self"]["form"] == "strongest"
        shares.append(data["embedded"]["self"]["covered"])
        for *_, rows in decode_layers(data):
            # Each query has two or more stored keys, except the first, which may attend to one key.
            counts = rows.embedded.sum(axis=2)
            assert (counts[:, 0] == 1).all()
            assert (counts[:, 1:] >= 2).all()
    assert 0.5 < shares[0] < shares[1] < 0.95


def test_queries_and_keys_are_stored_if_they_are_smaller() -> None:
    data = data_of(HeadView(of_vectors(2, 6, 512, 2)).to_html(max_mb=0.3))
    assert "blocks" not in data or data["blocks"] == []
    # Vectors that take less than 4 MB are embedded without rounding.
    assert data["embedded"] == {"self": {"form": "vectors", "covered": 1.0, "error": 0.0}}
    assert [len(data["errors"]), len(data["maps"])] == [2, 2]
    # With 64 dimensions, the queries and keys do not fit in 0.5 MB.
    data = data_of(HeadView(of_vectors(2, 6, 512, 64)).to_html(max_mb=0.5))
    assert data["embedded"]["self"]["form"] == "strongest"


def test_exact_means_every_weight() -> None:
    view = HeadView(sharp(4, 6, 256))
    page = view.to_html()
    assert view.to_html(precision="exact") == page
    room = len(page.encode()) / MB + 0.001
    assert len(view.to_html(precision="exact", max_mb=room)) == len(page)
    message = r'at most 0\.2 MB.* with precision="exact"\. Pass a larger max_mb'
    with pytest.raises(ValueError, match=message):
        view.to_html(precision="exact", max_mb=0.2)


@pytest.mark.parametrize(("precision", "dtype"), [("auto", "F16"), ("exact", "F32")])
def test_exact_vectors_are_not_rounded(
    precision: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.pages.vectors.MAX_EXACT_BYTES", 100)
    data = data_of(NeuronView(of_vectors(1, 2, 16, 8)).to_html(precision=precision))
    assert data["saved"]["arrays"]["self/0/queries"]["dtype"] == dtype
    assert (data["errors"][0]["error"] == 0.0) == (precision == "exact")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"precision": "full"}, ValueError, r"precision='full' must be \"auto\".* or \"exact\""),
        ({"max_mb": float("nan")}, ValueError, "max_mb=nan must be greater than 0"),
        ({"max_mb": 401}, ValueError, "max_mb=401 must be greater than 0 and at most 400"),
        ({"max_mb": "2"}, TypeError, "max_mb must be a number of megabytes, such as 10; got '2'"),
    ],
)
def test_invalid_options_are_refused(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    view = HeadView(given_record())
    for export in (view.to_html, partial(view.save, tmp_path / "x.html"), view.snapshot):
        with pytest.raises(error, match=message):
            export(**options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("max_bytes", [None, 100])
def test_weights_that_are_nan_are_refused_in_every_form(
    max_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_can_compute", lambda _: False)
    record = of_vectors(1, 2, 3, 4)
    attention = record.stack().attention(0)
    assert isinstance(attention, QueryKeyAttention)
    attention.queries[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"layer 0: some weights are NaN or infinite"):
        embedded(record, max_bytes)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("tokens", "tile"), [(40, 1 << 19), (130, 1 << 12)])
def test_small_maps_show_the_largest_number_of_each_cell(
    tokens: int, tile: int, signed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_POOLED_WEIGHTS", 0)
    monkeypatch.setattr(encoding, "_TILE", tile)
    record = difference_record(tokens) if signed else sharp(2, 3, tokens)
    data = embedded(record)
    layers = {(block["stack"], block["layer"]) for block in data["blocks"]}
    assert [(entry["stack"], entry["layer"]) for entry in data["maps"]] == sorted(layers)
    for entry in data["maps"]:
        stack = record.stack(entry["stack"])
        for head, cells in enumerate(decode_rows(entry).dense):
            expected = equal_cells(stack.weights(layer=entry["layer"], head=head), 32)
            assert_allclose(np.abs(cells), np.abs(expected), atol=entry["error"])
            assert (cells * expected >= 0).all()


@pytest.mark.parametrize("per_head", [False, True])
def test_the_rest_of_a_row_is_spread_over_keys_that_were_scored(
    monkeypatch: pytest.MonkeyPatch, *, per_head: bool
) -> None:
    monkeypatch.setattr(encoding, "_can_compute", lambda _: False)
    chosen = torch.from_numpy(np.random.default_rng(0).random((3 if per_head else 1, 60, 60)) < 0.3)
    mask = ChosenMask(PackedMask.pack(chosen | torch.eye(60, dtype=torch.bool)), BandMask(None, 0))
    layer = QueryKeyAttention(vectors(3, 60, 4), vectors(3, 60, 4, seed=1), 0.5, mask)
    stack = AttentionStack("self", {0: layer}, Tokens.of(words(60)))
    record = av.AttentionRecord({"self": stack})
    everything = embedded(record)
    data = embedded(record, sum(len(block["data"]) for block in everything["blocks"]) - 500)
    assert data["embedded"]["self"]["form"] == "strongest"
    [block] = data["blocks"]
    decoded = decode_rows(block)
    scored = np.broadcast_to(layer.allowed(range(3), slice(0, 60)).numpy(), decoded.dense.shape)
    shown = np.where(scored, decoded.dense, 0)
    weights = np.stack([stack.weights(layer=0, head=head) for head in range(3)])
    assert (decoded.embedded < scored).any()
    assert np.abs(shown - weights).max() <= block["error"]
    # A code c stands for (c / 255)². If c is rounded by 1/2, a weight w changes by at most
    # sqrt(w) / 255 + 1 / 510².
    changes = np.where(decoded.embedded, np.sqrt(weights) / 255 + 510.0**-2, 0).sum(axis=2)
    rounding = changes + block["max_rest"] * (1 / 255 + 510.0**-2)
    assert (np.abs(shown.sum(axis=2) - 1) <= rounding + 1e-5).all()
