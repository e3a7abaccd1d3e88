"""Encodings of weights on a page: the chosen form, the size, and the reported error."""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.pages import encoding as choice
from attnviz.pages import limits
from attnviz.pages.vectors import encode_vectors_in_steps
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate, Prediction, Tokens
from attnviz.server.codec import Encoded, decode
from attnviz.utils.progress import run_steps
from attnviz.views.head import HeadView
from attnviz.views.neuron import NeuronView
from unit.formulas import equal_cells
from unit.long_records import alike, long_record
from unit.page_data import data_of, decode_sparse, no_page_of_all, shown
from unit.records import (
    captured_record,
    difference_record,
    encoder_decoder_record,
    given_record,
    words,
)

MB = 1_000_000


def sharp(layers: int, heads: int, tokens: int) -> av.AttentionRecord:
    """Return weights with a sink and a neighbourhood, as in language models."""
    generator = torch.Generator().manual_seed(0)
    position = torch.arange(tokens)
    ahead = (position - position[:, None]).float()
    weights = []
    for _ in range(layers):
        logits = 2 * torch.randn((heads, tokens, tokens), generator=generator) - ahead.abs() / 8
        logits[..., 0] += 4
        weights.append(torch.softmax(logits.masked_fill(ahead > 0, -torch.inf), dim=-1))
    return av.AttentionRecord.from_weights(weights, words(tokens))


def of_vectors(layers: int, heads: int, tokens: int, head_dim: int) -> av.AttentionRecord:
    generator = torch.Generator().manual_seed(0)
    sides = torch.randn((2, layers, heads, tokens, head_dim), generator=generator)
    return av.AttentionRecord.from_qk(list(sides[0]), list(sides[1]), words(tokens), causal=True)


@pytest.mark.parametrize(
    ("tokens", "max_mb"),
    [(64, 6.0), (256, 6.0), (1024, 10.0), (4096, 40.0), (131_072, 40.0)],
)
def test_the_limit_grows_with_the_text(tokens: int, max_mb: float) -> None:
    record = alike(12, 12, tokens, causal=True)
    causal = limits.default_limit(record, record.stacks.values())
    ahead = limits.default_limit(alike(12, 12, tokens, causal=False), ())
    assert 6 * MB <= causal <= max_mb * MB
    assert causal <= ahead <= 2 * max_mb * MB


def test_a_long_text_is_embedded_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two of twelve layers get a sixth of the bytes of all layers.
    monkeypatch.setattr(limits, "FULL_BYTES", 300_000)
    record = long_record(1024, layers=2, heads=12, key_heads=12)
    page = HeadView(record).to_html()
    assert 0.9 * 10 * MB / 6 < len(page.encode()) <= 10 * MB / 6
    embedded = data_of(page)["embedded"]
    assert embedded["form"] == "strongest"


@pytest.mark.parametrize(
    "make",
    [
        captured_record,
        encoder_decoder_record,
        given_record,
        difference_record,
        partial(difference_record, 40, with_side=True),
    ],
)
@pytest.mark.parametrize("form", ["all", "strongest"])
def test_reported_errors_are_true(make: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = make()
    monkeypatch.setattr(choice, "_can_compute", lambda _: False)
    if form == "strongest":
        monkeypatch.setattr(choice, "_embed_all", no_page_of_all)
    data = data_of(HeadView(record).to_html())
    assert data["embedded"]["form"] == form
    error = embedded = total = 0.0
    for block in data["blocks"]:
        stack = record.stacks[block["stack"]]
        numbers = stack.weights(layer=block["layer"]).astype(np.float64)
        decoded = shown(block)
        difference = float(np.abs(decoded - numbers).max())
        assert difference <= block["error"] * (1 + 1e-4) + 1e-7
        # Signed numbers have a signed encoding, and no sign is wrong.
        assert (decoded * numbers >= 0).all()
        assert (block["encoding"] == "int8-sqrt" or block.get("signed", False)) == stack.signed
        error = max(error, difference)
        total += np.abs(numbers).sum()
        if form == "strongest":
            rows = decode_sparse(block, zlib.decompress(base64.b64decode(block["data"])))
            row = np.repeat(np.arange(len(rows.counts)), rows.counts)
            stored = np.abs(numbers).reshape(-1, numbers.shape[-1])[row, rows.keys].sum()
            assert block["covered"] == pytest.approx(stored / np.abs(numbers).sum(), abs=1e-6)
            embedded += stored
    report = data["embedded"]
    if form == "strongest":
        assert report["error"] == pytest.approx(error, rel=1e-3, abs=1e-7)
        assert report["covered"] == pytest.approx(embedded / total, abs=1e-6)
        assert report["covered"] >= 0.95
    else:
        assert (report["covered"], report["error"] >= error) == (1.0, True)


def test_small_maps_of_signed_numbers_show_the_largest_number_of_each_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "_POOLED_WEIGHTS", 0)
    record = difference_record(40)
    data = data_of(HeadView(record).to_html())
    for pooled, layer in zip(data["maps"], record.stack().layers, strict=True):
        header = {name: pooled[name] for name in ("shape", "encoding", "maximum", "error")}
        packed_cells = zlib.decompress(base64.b64decode(pooled["data"]))
        numbers = record.stack().weights(layer=layer)
        for head, cells in enumerate(decode(Encoded(**header, data=packed_cells))):
            assert_allclose(cells, equal_cells(numbers[head], 32), atol=pooled["error"])


def test_a_page_of_signed_numbers_omits_data_of_weights() -> None:
    predictions = (Prediction(1, Candidate("c", 3, 0.5), (Candidate("c", 3, 0.5),), 2),)
    tokens = replace(Tokens.of(words(3)), predictions=predictions)
    numbers = np.random.default_rng(0).normal(size=(1, 2, 3, 3))
    record = av.AttentionRecord.from_weights(numbers, tokens, signed=True, measure="effect")
    data = data_of(HeadView(record).to_html())
    (stack,) = data["description"]["stacks"]
    assert (stack["signed"], stack["measure"], stack["patterns"]) == (True, "effect", [])
    assert data["scores"] == []


def test_the_fewest_keys_that_cover_enough() -> None:
    view = HeadView(sharp(4, 6, 256))
    everything = view.to_html()
    assert data_of(everything)["embedded"]["form"] == "all"
    # All weights would fit, but the page stores only the keys that cover enough.
    room = len(everything.encode()) / MB - 0.01
    page = view.to_html(max_mb=room)
    embedded = data_of(page)["embedded"]
    assert 0.95 <= embedded["covered"] < 0.955
    assert len(page.encode()) < 0.7 * len(everything.encode())


def test_a_small_page_stores_as_many_keys_as_fit() -> None:
    view = HeadView(sharp(4, 6, 256))
    shares = []
    for room in (0.21, 0.26):
        page = view.to_html(max_mb=room)
        assert 0.9 * room * MB < len(page.encode()) <= room * MB
        embedded = data_of(page)["embedded"]
        assert embedded["form"] == "strongest"
        shares.append(embedded["covered"])
        for block in data_of(page)["blocks"]:
            rows = decode_sparse(block, zlib.decompress(base64.b64decode(block["data"])))
            # At least two keys of every query, even if their weights are small.
            assert (rows.counts >= np.minimum(2, np.arange(256) + 1)[np.arange(1536) % 256]).all()
    assert 0.5 < shares[0] < shares[1] < 0.95


def test_queries_and_keys_are_stored_if_they_are_smaller() -> None:
    record = of_vectors(2, 6, 512, 2)
    data = data_of(HeadView(record).to_html(max_mb=0.3))
    assert data["embedded"]["form"] == "vectors"
    assert data["blocks"] == []
    assert data["embedded"]["covered"] == 1.0
    # All vectors take less than 4 MB and are embedded without rounding.
    assert data["embedded"]["error"] == 0.0
    assert [len(data["vectors"]["layers"]), len(data["maps"])] == [2, 2]
    # With many dimensions the vectors are larger than the weights.
    data = data_of(HeadView(of_vectors(2, 6, 512, 64)).to_html(max_mb=0.5))
    assert data["embedded"]["form"] == "strongest"


def test_exact_means_every_weight() -> None:
    view = HeadView(sharp(4, 6, 256))
    assert view.to_html(precision="exact") == view.to_html()
    size = len(view.to_html().encode())
    with pytest.raises(
        ValueError, match=r'"exact".*too large \(max_mb=0\.2\)\. Pass a larger max_mb'
    ):
        view.to_html(precision="exact", max_mb=0.2)
    room = size / MB + 0.001
    assert len(view.to_html(precision="exact", max_mb=room).encode()) == size


def test_exact_vectors_are_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.pages.vectors.MAX_EXACT_BYTES", 100)
    record = of_vectors(1, 2, 16, 8)
    kinds = {
        precision: {
            layer["encoding"]
            for layer in data_of(NeuronView(record).to_html(precision=precision))["vectors"][
                "layers"
            ]
        }
        for precision in ("auto", "exact")
    }
    assert kinds == {"auto": {"float16"}, "exact": {"float32"}}
    assert (
        run_steps(encode_vectors_in_steps(record.stacks.values(), exact=True))["layers"][0]["error"]
        == 0.0
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"precision": "full"}, ValueError, r"precision='full' must be \"auto\".* or \"exact\""),
        ({"max_mb": 0}, ValueError, "max_mb=0 must be greater than 0 and at most 400"),
        ({"max_mb": float("nan")}, ValueError, "max_mb=nan must be greater than 0"),
        ({"max_mb": 401}, ValueError, "max_mb=401 must be greater than 0 and at most 400"),
        ({"max_mb": "2"}, TypeError, "max_mb must be a number of megabytes, such as 10; got '2'"),
        ({"max_mb": True}, TypeError, "max_mb must be a number"),
    ],
)
def test_invalid_options_are_refused(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    view = HeadView(given_record())
    with pytest.raises(error, match=message):
        view.to_html(**options)
    with pytest.raises(error, match=message):
        view.save(tmp_path / "x.html", **options)
    with pytest.raises(error, match=message):
        view.snapshot(**options)
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_nan_are_refused_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = torch.zeros(2, 3, 4)
    queries[1, 2] = torch.nan
    layer = {0: QueryKeyAttention(queries, torch.zeros(2, 3, 4), 1.0)}
    stack = AttentionStack("self", layer, Tokens.of(words(3)))
    record = av.AttentionRecord({"self": stack})
    for forms in ({}, {"_embed_all": no_page_of_all, "_can_compute": lambda _: False}):
        for name, value in forms.items():
            monkeypatch.setattr(choice, name, value)
        with pytest.raises(ValueError, match=r"layer 0, head 1: some weights are NaN or infinite"):
            HeadView(record).to_html()
