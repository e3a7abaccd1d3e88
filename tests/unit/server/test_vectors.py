"""Queries, keys and other parts of logits in replies to a view and on pages."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz.pages import vectors as embedded
from attnviz.pages.vectors import encode_vectors_in_steps
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import (
    BandMask,
    Bias,
    DistanceBias,
    InsertedBias,
    InsertedMask,
    Mask,
    compact_bias,
    compact_mask,
)
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.protocol import MAX_REPLY_BYTES
from attnviz.server.server import RecordServer
from attnviz.utils.progress import run_steps
from unit.records import vectors, words

# A script writes this file without attnviz. The TypeScript tests read the same file.
FIXTURE = Path(__file__).parents[2] / "fixtures" / "vectors.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]
each_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def inflated(text: str, kind: str = "<f4") -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), kind).copy()


def layer_of(case: dict[str, Any]) -> QueryKeyAttention:
    """Return the layer of a case, from its dense mask and bias."""
    layer = case["layer"]

    def side(name: str, heads: int, tokens: int) -> torch.Tensor:
        flat = inflated(case["arrays"][layer[name]])
        return torch.from_numpy(flat.reshape(heads, tokens, layer["head_dim"]))

    allowed, bias = case["allowed"], case["bias"]
    inserted = layer["mask"] is not None and layer["mask"]["kind"] == "inserted"
    mask: Mask | None = None if allowed is None or inserted else compact_mask(torch.tensor(allowed))
    added: Bias | None = None if bias is None or inserted else compact_bias(torch.tensor(bias))
    if inserted:
        # Nothing is known about tokens that see nothing and that no query sees.
        flags = torch.tensor(allowed)
        units = torch.nonzero(flags[0].any(0)).flatten()
        sizes = flags.shape[1], flags.shape[2]
        mask = InsertedMask(compact_mask(flags[:, units][:, :, units]), units, units, *sizes)
        base = compact_bias(torch.tensor(bias)[:, units][:, :, units])
        assert base is not None
        added = InsertedBias(base, units, units, *sizes)
    return QueryKeyAttention(
        side("queries", layer["num_heads"], layer["num_queries"]),
        side("keys", layer["num_key_heads"], layer["num_keys"]),
        layer["scale"],
        mask,
        added,
        layer["softcap"],
        None if layer["sinks"] is None else torch.tensor(layer["sinks"]),
    )


def record_of(attention: QueryKeyAttention, layer: int = 3) -> AttentionRecord:
    queries = Tokens.of(words(attention.num_queries))
    same = attention.num_queries == attention.num_keys
    keys = None if same else Tokens.of(words(attention.num_keys, "k"))
    return AttentionRecord({"self": AttentionStack("self", {layer: attention}, queries, keys)})


def requested(record: AttentionRecord, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header of a reply and its parts by name."""
    reply = RecordServer(record).reply("vectors", {"stack": "self", **arguments})
    assert reply.data is not None
    assert len(reply.data) <= MAX_REPLY_BYTES
    json.dumps(reply.header, allow_nan=False)
    floats = np.frombuffer(reply.data, "<f4")
    parts = {}
    for part in reply.header["parts"]:
        size = int(np.prod(part["shape"]))
        parts[part["name"]] = floats[:size].reshape(part["shape"]).astype(np.float64)
        floats = floats[size:]
    assert not len(floats)
    return dict(reply.header), parts


@each_case
def test_weights_and_logits_are_those_of_other_attentions(case: dict[str, Any]) -> None:
    record = record_of(layer_of(case))
    num_keys = case["layer"]["num_keys"]
    for row in case["rows"]:
        request = {"layer": 3, "head": row["head"], "token": row["token"]}
        header, parts = requested(record, **request, keys=[0, num_keys])
        logits = [-np.inf if logit is None else logit for logit in row["logits"]]
        np.testing.assert_allclose(parts["logits"], logits, atol=1e-4)
        np.testing.assert_array_equal(parts["allowed"], np.isfinite(logits))
        np.testing.assert_allclose(parts["weights"], row["weights"], atol=2e-6)
        if row["sink_weight"] is None:
            assert header["sink"] is None
        else:
            assert header["sink"]["weight"] == pytest.approx(row["sink_weight"], abs=1e-5)
        assert header["num_allowed"] == np.isfinite(logits).sum()
        assert header["weight_in_range"] == pytest.approx(sum(row["weights"]), abs=1e-5)
        # Cells add up to the logit, and the logit gives the weight. The normalizer also counts keys
        # outside the requested range.
        header, parts = requested(record, **request, keys=[1, num_keys])
        sums = (parts["query"] * parts["keys"] * header["scale"]).sum(1)
        cap = header["softcap"]
        capped = sums if cap is None else cap * np.tanh(sums / cap)
        visible = parts["allowed"] == 1
        actual = (capped + parts["bias"])[visible]
        np.testing.assert_allclose(actual, parts["logits"][visible], atol=1e-4)
        assert not parts["weights"][~visible].any()
        weights = np.exp(parts["logits"][visible] - (header["log_sum_exp"] if visible.any() else 0))
        np.testing.assert_allclose(weights, parts["weights"][visible], atol=1e-5)


@each_case
def test_a_page_contains_the_smallest_form(case: dict[str, Any]) -> None:
    data = run_steps(encode_vectors_in_steps(record_of(layer_of(case)).stacks.values()))
    (layer,) = data["layers"]
    expected = case["layer"]
    fields = ["queries", "keys", "mask", "bias"]
    assert {name: value for name, value in layer.items() if name not in fields} == {
        name: pytest.approx(value) if isinstance(value, float) else value
        for name, value in expected.items()
        if name not in fields
    }
    for name in fields[:2]:
        actual = inflated(data["arrays"][layer[name]])
        np.testing.assert_array_equal(actual, inflated(case["arrays"][expected[name]]))
    kinds = {"bits": "u1", "values": "<f4", "query_places": "<i4", "key_places": "<i4"}

    def written_out(part: dict[str, Any] | None, arrays: list[str]) -> dict[str, Any] | None:
        if part is None:
            return None
        return {
            name: inflated(arrays[value], kinds[name]).tolist() if name in kinds else value
            for name, value in part.items()
            if name != "base"
        } | ({"base": written_out(part["base"], arrays)} if "base" in part else {})

    for name in fields[2:]:
        expected_form = written_out(expected[name], case["arrays"])
        assert written_out(layer[name], data["arrays"]) == expected_form


def random_layer(
    heads: int = 2, tokens: int = 40, head_dim: int = 16, dtype: torch.dtype = torch.float32
) -> QueryKeyAttention:
    queries = 3 * vectors(heads, tokens, head_dim, seed=1)
    keys = 3 * vectors(heads, tokens, head_dim, seed=2)
    return QueryKeyAttention(
        queries.to(dtype), keys.to(dtype), head_dim**-0.5, mask=BandMask(None, 0)
    )


@pytest.mark.parametrize(
    ("dtype", "encoding"),
    [
        (torch.float32, "float32"),
        (torch.float16, "float16"),
        (torch.bfloat16, "bfloat16"),
    ],
)
def test_short_texts_and_half_precision_are_embedded_exactly(
    dtype: torch.dtype, encoding: str
) -> None:
    attention = random_layer(dtype=dtype)
    data = run_steps(encode_vectors_in_steps(record_of(attention).stacks.values()))
    (layer,) = data["layers"]
    assert (layer["encoding"], layer["error"], layer["logit_error"]) == (encoding, 0.0, 0.0)
    actual = inflated(data["arrays"][layer["keys"]], "<f4" if encoding == "float32" else "<u2")
    bits = torch.int32 if dtype == torch.float32 else torch.int16
    original = attention.keys.view(bits).numpy().ravel()
    np.testing.assert_array_equal(actual.view(original.dtype), original)


def test_numbers_beyond_half_precision_are_embedded_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "MAX_EXACT_BYTES", 0)
    attention = random_layer()
    attention.keys[0, 3, 2] = 1e5
    (layer,) = run_steps(encode_vectors_in_steps(record_of(attention).stacks.values()))["layers"]
    assert (layer["encoding"], layer["error"]) == ("float32", 0.0)


def test_arrays_that_layers_share_are_embedded_once() -> None:
    bias = DistanceBias(vectors(2, 79), 40)
    layers = {
        number: QueryKeyAttention(
            vectors(2, 40, 4, seed=number), vectors(2, 40, 4, seed=9 + number), 0.5, bias=bias
        )
        for number in range(3)
    }
    stack = AttentionStack("self", layers, Tokens.of(words(40)))
    data = run_steps(encode_vectors_in_steps([stack]))
    assert len(data["arrays"]) == 3 * 2 + 1
    assert len({layer["bias"]["values"] for layer in data["layers"]}) == 1


def test_a_request_larger_than_a_reply_is_refused() -> None:
    attention = QueryKeyAttention(vectors(1, 4, 256), vectors(1, 1000, 256), 0.1)
    record = record_of(attention)
    with pytest.raises(ValueError, match=r"1000 keys.*more than the 1000000 of a reply"):
        requested(record, layer=3, head=0, token=0, keys=[0, 1000])
    _, parts = requested(record, layer=3, head=0, token=0, keys=[0, 900])
    assert parts["keys"].shape == (900, 256)


def test_the_strongest_keys_of_the_whole_row_are_named() -> None:
    record = record_of(random_layer())
    row = record.stack().weights(layer=3, head=1, rows=slice(39, 40))[0]
    header, _ = requested(record, layer=3, head=1, token=39, keys=[0, 2])
    expected = sorted(range(40), key=lambda key: -row[key])[:5]
    assert [key for key, _ in header["strongest"]] == expected
    # The first query of a causal model has only one key.
    header, _ = requested(record, layer=3, head=1, token=0, keys=[0, 2])
    assert header["strongest"] == [(0, 1.0)]
