"""Tests of queries, keys and logits of a head in replies to "vectors" and on pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from attnviz.pages import vectors as embedded
from attnviz.pages.html import document
from attnviz.pages.vectors import encode_vectors
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DistanceBias
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.description import describe
from attnviz.server.protocol import MAX_REPLY_BYTES
from attnviz.server.server import RecordServer
from fixtures.make_vectors import OPTIONS, case
from rounding import logit_error, weights_error
from unit.complete_replies import row_arrays
from unit.formulas import logits_of, weights_of
from unit.layers import HEADS, LAYER, counts, ranges, softmaxes, stack_of
from unit.page_data import unpacked
from unit.records import vectors, words

FIXTURE = Path(__file__).parents[2] / "fixtures" / "vectors.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]


def record_of(attention: QueryKeyAttention) -> AttentionRecord:
    return AttentionRecord({"self": stack_of(attention)})


def requested(record: AttentionRecord, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Request vectors. Return the header of the reply, and its arrays by name."""
    reply = RecordServer(record).reply("vectors", {"stack": "self", **arguments})
    assert reply.data is not None
    assert len(reply.data) <= MAX_REPLY_BYTES
    json.dumps(reply.header, allow_nan=False)
    start, stop = arguments["keys"]
    return dict(reply.header), row_arrays(reply, stop - start)


@given(st.data(), st.integers(0, HEADS - 1))
def test_logits_and_weights_equal_the_formulas(data: st.DataObject, head: int) -> None:
    attention = data.draw(softmaxes(data.draw(counts), data.draw(counts)))
    token = data.draw(st.integers(0, attention.num_queries - 1))
    keys = data.draw(ranges(attention.num_keys))
    header, parts = requested(
        record_of(attention), layer=LAYER, head=head, token=token, keys=[keys.start, keys.stop]
    )
    logits, weights = logits_of(attention)[head, token], weights_of(attention)[head, token]
    tolerance = logit_error(attention)
    assert_allclose(parts["logits"], logits[keys], atol=tolerance)
    left_out = attention.left_out([head], slice(token, token + 1))[0, 0].numpy()
    assert_array_equal(parts["allowed"], np.isfinite(logits[keys]) - 1.0 * left_out[keys])
    assert_allclose(parts["weights"], weights[keys], atol=weights_error(attention))
    assert header["num_allowed"] == np.isfinite(logits).sum()
    assert header["weight_in_range"] == pytest.approx(weights[keys].sum(), abs=1e-5)
    assert (header["sink"] is None) == (attention.sinks is None)
    if header["sink"] is not None:
        assert header["sink"]["weight"] == pytest.approx(1 - weights.sum(), abs=1e-5)
    # Compute the logits from the queries, keys, scale, soft cap and bias in the reply.
    sums = (parts["query"] * parts["keys"] * header["scale"]).sum(axis=1)
    cap = header["softcap"]
    capped = sums if cap is None else cap * np.tanh(sums / cap)
    visible = parts["allowed"] == 1
    assert_allclose((capped + parts["bias"])[visible], logits[keys][visible], atol=2 * tolerance)
    if visible.any():
        powers = np.exp(logits[keys][visible] - header["log_sum_exp"])
        assert_allclose(powers, weights[keys][visible], atol=weights_error(attention))


@pytest.mark.parametrize("stored", CASES, ids=[stored["name"] for stored in CASES])
def test_the_fixture_of_typescript_is_what_pages_contain(stored: dict[str, Any]) -> None:
    """If this test fails, run `fixtures.make_vectors` and the tests of js."""
    assert {stored["name"] for stored in CASES} == set(OPTIONS)
    written = case(stored["name"])
    assert written["errors"] == stored["errors"]
    assert ("chosen" in written) == ("chosen" in stored)
    parts = [one[name] for one in (written, stored) for name in ("saved", "chosen") if name in one]
    for part in parts:
        # Compare decompressed data, because zlib versions compress differently.
        part["header"] = json.loads(unpacked(part["header"]))
        for array in part["arrays"].values():
            array["data"] = unpacked(array["data"])
    assert written["saved"] == stored["saved"]
    assert written.get("chosen") == stored.get("chosen")


def random_layer(dtype: torch.dtype = torch.float32) -> QueryKeyAttention:
    queries, keys = (3 * vectors(2, 40, 16, seed=seed).to(dtype) for seed in (1, 2))
    return QueryKeyAttention(queries, keys, 0.25, mask=BandMask(None, 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_short_texts_and_half_precision_are_embedded_exactly(dtype: torch.dtype) -> None:
    attention = random_layer(dtype)
    data = encode_vectors(record_of(attention))
    (errors,) = data["errors"]
    assert (errors["error"], errors["logit_error"]) == (0.0, 0.0)
    keys = data["saved"]["arrays"][f"self/{LAYER}/keys"]
    assert (
        keys["dtype"] == {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}[dtype]
    )
    assert unpacked(keys["data"]) == attention.keys.view(torch.uint8).numpy().tobytes()


def test_numbers_beyond_half_precision_are_embedded_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "MAX_EXACT_BYTES", 0)
    attention = random_layer()
    attention.keys[0, 3, 2] = 1e5
    data = encode_vectors(record_of(attention))
    assert data["saved"]["arrays"][f"self/{LAYER}/keys"]["dtype"] == "F32"
    assert data["errors"][0]["error"] == 0.0


def test_arrays_that_layers_share_are_embedded_once() -> None:
    keys, bias = vectors(2, 40, 4), DistanceBias(vectors(2, 79), 40)
    layers = {
        number: QueryKeyAttention(vectors(2, 40, 4, seed=number), keys, 0.5, bias=bias)
        for number in (1, 2, 3)
    }
    stack = AttentionStack("self", layers, Tokens.of(words(40)))
    data = encode_vectors(AttentionRecord({"self": stack}))
    # Each layer has its own queries, and all layers have the same keys and the same bias.
    texts = {array["data"] for array in data["saved"]["arrays"].values()}
    assert len(texts) == 3 + 1 + 1
    page = document("", "neuron", {}, data)
    assert page.count("<template ") == len(texts) + 1


def test_the_gate_of_the_query_is_named_if_it_is_known() -> None:
    gates = torch.tensor([[0.25] * 40, [torch.nan] * 40])
    record = AttentionRecord({"self": stack_of(random_layer(), gates=gates)})
    known, unknown = (
        requested(record, layer=LAYER, head=head, token=3, keys=[0, 5])[0] for head in (0, 1)
    )
    assert known["gate"] == 0.25
    assert "gate" not in unknown
    (described,) = describe(record)["stacks"]
    assert described["gates"] == [[0.25, None]]
    assert "gates" not in describe(record_of(random_layer()))["stacks"][0]


def test_a_request_larger_than_a_reply_is_refused() -> None:
    record = record_of(QueryKeyAttention(vectors(1, 4, 256), vectors(1, 1000, 256), 0.1))
    with pytest.raises(ValueError, match=r"1000 keys.*more than the 1000000 of a reply"):
        requested(record, layer=3, head=0, token=0, keys=[0, 1000])


def test_the_strongest_keys_of_the_whole_row_are_named() -> None:
    record = record_of(random_layer())
    row = record.stack().weights(layer=3, head=1, rows=slice(39, 40))[0]
    header, _ = requested(record, layer=3, head=1, token=39, keys=[0, 2])
    expected = sorted(range(40), key=lambda key: -row[key])[:5]
    assert [key for key, _ in header["strongest"]] == expected
