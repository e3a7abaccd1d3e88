"""Tests that `AttentionRecord.from_qk` gives softmax weights, and that errors name arguments."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DenseBias, PackedMask
from attnviz.record.record import AttentionRecord
from attnviz.server.description import describe
from models.counting import LiveTensors
from unit.formulas import Floats, weights_of
from unit.records import vectors, words

Q = [vectors(4, 5, 8, seed=layer) for layer in range(3)]
K = [vectors(2, 5, 8, seed=layer + 10) for layer in range(3)]
TOKENS = words(5)


def record_of(
    queries: Any = Q, keys: Any = K, tokens: Any = TOKENS, **options: Any
) -> AttentionRecord:
    return AttentionRecord.from_qk(queries, keys, tokens, **options)


def by_formula(
    queries: torch.Tensor,
    keys: torch.Tensor,
    *,
    scale: float | None = None,
    allowed: NDArray[np.bool_] | None = None,
    bias: torch.Tensor | None = None,
    **options: Any,
) -> Floats:
    """Return the softmax weights (heads, queries, keys) of one layer in float64."""
    shape = len(queries), queries.shape[1], keys.shape[1]
    attention = QueryKeyAttention(
        queries,
        keys,
        queries.shape[-1] ** -0.5 if scale is None else scale,
        mask=None
        if allowed is None
        else PackedMask.pack(torch.from_numpy(np.broadcast_to(allowed, shape).copy())),
        bias=None if bias is None else DenseBias(bias),
        **options,
    )
    return weights_of(attention)


def attention_of(record: AttentionRecord, layer: int = 0) -> QueryKeyAttention:
    attention = record.stack().attention(layer)
    assert isinstance(attention, QueryKeyAttention)
    return attention


@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        pytest.param(tuple(q[None] for q in Q), tuple(k[None] for k in K), id="batches of one"),
        pytest.param(torch.stack(Q)[:, None], torch.stack(K).numpy(), id="one array"),
        pytest.param([q.tolist() for q in Q], [k.tolist() for k in K], id="nested lists"),
        pytest.param(torch.stack(Q).double().numpy(), torch.stack(K).double(), id="float64"),
        pytest.param([q.requires_grad_() for q in torch.stack(Q).clone()], K, id="with gradients"),
        pytest.param([q.mT.contiguous().mT for q in Q], K, id="columns first"),
    ],
)
def test_every_shape_and_kind_is_accepted(queries: Any, keys: Any) -> None:
    stack = record_of(queries, keys).stack()
    assert (stack.layers, stack.heads_per_layer) == ((0, 1, 2), (4, 4, 4))
    for layer in range(3):
        expected = by_formula(Q[layer].detach(), K[layer])
        assert_allclose(stack.weights(layer=layer), expected, atol=1e-6)


@settings(max_examples=60)
@given(st.data())
def test_weights_are_a_softmax_in_double_precision(data: st.DataObject) -> None:
    key_heads, group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    num_keys, dims = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 5))
    num_queries = data.draw(st.integers(1, num_keys))
    heads, seed = key_heads * group, data.draw(st.integers(0, 99))
    q = vectors(heads, num_queries, dims, seed=seed)
    k = vectors(key_heads, num_keys, dims, seed=seed + 1)
    ahead = np.arange(num_keys) - (np.arange(num_queries)[:, None] + num_keys - num_queries)
    allowed = np.ones((heads, num_queries, num_keys), bool)
    causal, window = data.draw(st.booleans()), data.draw(st.none() | st.integers(1, 8))
    if causal:
        allowed &= ahead <= 0
    if window is not None:
        allowed &= np.abs(ahead) < window
    masks: dict[str, Any] = {"causal": causal, "window": window}
    shape = data.draw(st.sampled_from([1, heads])), num_queries, num_keys
    flags = torch.from_numpy(np.random.default_rng(seed).random(shape) < 0.7)
    kind = data.draw(st.sampled_from(["none", "bool", "added"]))
    if kind != "none":
        added = torch.zeros(flags.shape).masked_fill(~flags, -torch.inf)
        masks["mask"] = flags if kind == "bool" else added
        allowed &= flags.numpy()
    bias = vectors(heads, num_queries, num_keys, seed=seed + 2)
    options: dict[str, Any] = {
        "bias": data.draw(st.sampled_from([None, bias])),
        "scale": data.draw(st.none() | st.floats(0.1, 2)),
        "softcap": data.draw(st.none() | st.floats(1, 5)),
        "sinks": data.draw(st.sampled_from([None, vectors(heads, seed=seed + 3)])),
    }
    record = record_of([q], [k], None, **masks, **options)
    expected = by_formula(q, k, allowed=allowed, **options)
    assert_allclose(record.stack().weights(layer=0), expected, atol=2e-6)


def test_vectors_are_not_copied() -> None:
    batch = torch.stack(Q)[:, None].to(torch.bfloat16)
    for queries in (batch, list(batch)):
        record = record_of(queries, [k.numpy() for k in K])
        for layer in range(3):
            assert attention_of(record, layer).queries.data_ptr() == batch[layer].data_ptr()
            assert attention_of(record, layer).keys.data_ptr() == K[layer].data_ptr()


def test_without_tokens_positions_are_shown() -> None:
    same = record_of(tokens=None).stack()
    assert same.key_tokens is same.query_tokens
    assert list(same.query_tokens) == ["[0]", "[1]", "[2]", "[3]", "[4]"]
    fewer = [q[:, :2] for q in Q]
    assert list(record_of(fewer, K, None).stack().query_tokens) == ["[0]", "[1]"]
    # With `causal`, the 2 queries are the last 2 of the 5 tokens.
    assert list(record_of(fewer, K, None, causal=True).stack().query_tokens) == ["[3]", "[4]"]


def test_layers_may_have_numbers_and_settings_of_their_own() -> None:
    flags = torch.ones(5, 5, dtype=torch.bool).tril()
    bias = vectors(4, 1, 5, seed=7)
    sinks = vectors(3, 4, seed=8)
    stack = record_of(
        layers=[3, 7, 11],
        scale=[0.5, 1.0, 2.0],
        window=[None, 2, None],
        mask=[flags, None, flags[None, None]],
        bias=[None, None, bias],
        softcap=[None, 3.0, None],
        sinks=sinks,
    ).stack()
    assert stack.layers == (3, 7, 11)
    ahead = np.arange(5) - np.arange(5)[:, None]
    options: list[dict[str, Any]] = [
        {"scale": 0.5, "allowed": ahead <= 0},
        {"scale": 1.0, "allowed": np.abs(ahead) < 2, "softcap": 3.0},
        {"scale": 2.0, "allowed": ahead <= 0, "bias": bias},
    ]
    for position, number in enumerate(stack.layers):
        expected = by_formula(Q[position], K[position], sinks=sinks[position], **options[position])
        assert_allclose(stack.weights(layer=number), expected, atol=2e-6)


def test_masks_are_kept_in_their_smallest_form() -> None:
    flags = torch.ones(5, 5, dtype=torch.bool).tril()
    added = torch.zeros(1, 1, 5, 5, dtype=torch.float16).masked_fill(~flags, -65504.0)
    for options, mask in (
        ({"causal": True}, BandMask(None, 0)),
        ({"causal": True, "window": 3}, BandMask(2, 0)),
        ({"window": 3}, BandMask(2, 2)),
        ({"mask": flags.numpy()}, BandMask(None, 0)),
        ({"mask": added}, BandMask(None, 0)),
        ({"mask": flags | True}, None),
    ):
        attention = attention_of(record_of(**options))
        assert (attention.mask, attention.bias) == (mask, None)
    other = record_of(mask=flags.flip(0), bias=vectors(4, 1, 5))
    assert isinstance(attention_of(other).mask, PackedMask)
    assert isinstance(attention_of(other).bias, DenseBias)
    # A mask or bias without an axis of layers is stored once, and all layers share it.
    assert attention_of(other, 0).mask is attention_of(other, 2).mask
    assert attention_of(other, 0).bias is attention_of(other, 2).bias


def test_131072_tokens_allocate_nothing_for_every_pair() -> None:
    length, window = 131_072, 4096
    q, k = vectors(2, length, 4), vectors(1, length, 4, seed=1)
    with LiveTensors() as tensors:
        record = record_of([q, q], [k, k], None, causal=True, window=[None, window])
        description = describe(record)
        tracemalloc.start()
        last = slice(length - 1, length)
        rows = [record.stack().weights(layer=layer, head=1, rows=last) for layer in (0, 1)]
    _, python_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tensors.largest <= q.nbytes
    # The peak memory of Python and numpy is smaller than 12 rows of float32 weights.
    assert python_peak < 12 * 4 * length
    assert len(description["stacks"][0]["query_tokens"]["text"]) == length
    for row, first in zip(rows, (0, length - window), strict=True):
        expected = by_formula(q[1:, -1:], k, allowed=np.arange(length) >= first)
        assert_allclose(row, expected[0], atol=1e-7)


NAN_QUERIES = [q.clone() for q in Q]
NAN_QUERIES[1][2, 3, 4] = torch.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": NAN_QUERIES}, r"queries\[1\] is nan at the position \(2, 3, 4\)"),
        (
            {"queries": Q[0]},
            r"queries\[0\] has shape \(5, 8\); it must be \(heads, queries, ",
        ),
        (
            {"keys": [k[0] for k in K]},
            r"keys\[0\] has shape \(5, 8\); it must be \(key heads",
        ),
        (
            {"keys": [k.repeat(1, 1, 2) for k in K]},
            r"the same head_dim; got \(4, 5, 8\) and \(2, 5, 16\)",
        ),
        ({"keys": [k[[0, 1, 0]] for k in K]}, "4 query heads cannot share 3 key heads"),
        ({"queries": [Q[0], Q[1], Q[2][:, :4]]}, "layer 2: the attention has 4 queries"),
        ({"keys": K[:2]}, "queries has 3 layers but keys has 2; pass both for each layer"),
        ({"tokens": words(4)}, "5 queries and 5 keys, but query_tokens has 4 tokens"),
        ({"key_tokens": words(6)}, "5 queries and 5 keys, but query_.* and key_tokens 6"),
        ({"scale": np.nan}, "scale=nan must be a finite number"),
        ({"scale": [1.0, 2.0]}, r"scale is a list of 2 for 3 layers\. Pass one item per layer"),
        ({"softcap": 0.0}, r"softcap=0.0 must be a finite number above 0"),
        ({"window": 0}, "window=0 must be at least 1, a key is allowed if"),
        (
            {"keys": [k[:, :3] for k in K], "causal": True, "key_tokens": words(3)},
            "need queries that are the last of the keys, but there are 5 queries",
        ),
        ({"mask": [None, torch.ones(1, 5).bool(), None]}, r"mask\[1\] has shape \(1, 5\); it must"),
        ({"mask": torch.full((5, 5), np.nan)}, r"mask contains NaN or plus infinity\. It is added"),
        ({"bias": torch.full((5, 5), -np.inf)}, r"bias contains NaN or infinity\. .* as mask="),
        ({"sinks": torch.ones(3)}, r"sinks must be \(4,\), one logit per head; got \(3,\)"),
    ],
)
def test_invalid_numbers_and_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        record_of(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 2.5}, "window=2.5 must be a whole number"),
        ({"causal": torch.ones(5, 5)}, r"causal must be True or False; got Tensor\. Pass a mask"),
        ({"mask": torch.ones(5, 5, dtype=torch.int64)}, "mask is torch.int64, which is ambiguous"),
        (
            {"queries": [q[:, :3] for q in Q], "tokens": words(3)},
            "key_tokens is missing: there are",
        ),
    ],
)
def test_invalid_types_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        record_of(**change)
