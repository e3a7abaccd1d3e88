"""Records from queries and keys: weights by the formula, and errors that name the fault."""

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
from attnviz.record.tokens import Tokens
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
    """Return the weights of a softmax in float64."""
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
        pytest.param(torch.stack(Q)[:, None], torch.stack(K)[:, None], id="one, with a batch"),
        pytest.param(torch.stack(Q).numpy(), torch.stack(K).numpy(), id="one array"),
        pytest.param([q.tolist() for q in Q], [k.tolist() for k in K], id="nested lists"),
        pytest.param([q.requires_grad_() for q in torch.stack(Q).clone()], K, id="with gradients"),
        pytest.param([q.mT.contiguous().mT for q in Q], K, id="columns first"),
    ],
)
def test_every_shape_and_kind_is_accepted(queries: Any, keys: Any) -> None:
    stack = record_of(queries, keys).stack()
    assert stack.layers == (0, 1, 2)
    assert stack.heads_per_layer == (4, 4, 4)
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


def test_nothing_is_copied() -> None:
    batch = torch.stack(Q)[:, None].to(torch.bfloat16)
    record = record_of(list(batch), [k.numpy() for k in K])
    for layer in range(3):
        assert attention_of(record, layer).queries.data_ptr() == batch[layer].data_ptr()
        assert attention_of(record, layer).keys.data_ptr() == K[layer].data_ptr()
    whole = record_of(batch, torch.stack(K))
    assert attention_of(whole, 2).queries.data_ptr() == batch[2].data_ptr()


def test_without_tokens_positions_are_shown() -> None:
    same = record_of(tokens=None).stack()
    assert same.key_tokens is same.query_tokens
    assert list(same.query_tokens) == ["[0]", "[1]", "[2]", "[3]", "[4]"]
    fewer = [q[:, :2] for q in Q]
    cross = record_of(fewer, K, None, stack="cross").stack()
    assert (cross.name, list(cross.query_tokens)) == ("cross", ["[0]", "[1]"])
    assert list(cross.key_tokens) == ["[0]", "[1]", "[2]", "[3]", "[4]"]
    # Causal queries have the same numbers as the last keys.
    assert list(record_of(fewer, K, None, causal=True).stack().query_tokens) == ["[3]", "[4]"]
    assert record_of(tokens=None, sentence_b_start=2).tokens.sequence == (0, 0, 1, 1, 1)


def test_tokens_are_read_like_those_of_weights() -> None:
    assert list(record_of(tokens=["Ġthe", "Ġcat", "s", "a", "t"]).tokens)[:2] == ["·the", "·cat"]
    own = Tokens.of(TOKENS, special=[True] + [False] * 4)
    assert record_of(tokens=own, sentence_b_start=2).tokens.sequence == (None, 0, 1, 1, 1)
    cross = record_of([q[:, :3] for q in Q], K, words(3), key_tokens=TOKENS).stack()
    assert (len(cross.query_tokens), list(cross.key_tokens)) == (3, TOKENS)


def test_layers_may_have_numbers_and_settings_of_their_own() -> None:
    flags = torch.ones(5, 5, dtype=torch.bool).tril()
    bias = vectors(4, 1, 5, seed=7)
    sinks = vectors(3, 4, seed=8)
    record = record_of(
        layers=[3, 7, 11],
        scale=[0.5, 1.0, 2.0],
        window=[None, 2, None],
        mask=[flags, None, flags[None, None]],
        bias=[None, None, bias],
        softcap=[None, 3.0, None],
        sinks=sinks,
    )
    stack = record.stack()
    assert stack.layers == (3, 7, 11)
    ahead = np.arange(5) - np.arange(5)[:, None]
    settings_of: list[dict[str, Any]] = [
        {"scale": 0.5, "allowed": ahead <= 0},
        {"scale": 1.0, "allowed": np.abs(ahead) < 2, "softcap": 3.0},
        {"scale": 2.0, "allowed": ahead <= 0, "bias": bias},
    ]
    for position, number in enumerate(stack.layers):
        expected = by_formula(
            Q[position], K[position], sinks=sinks[position], **settings_of[position]
        )
        assert_allclose(stack.weights(layer=number), expected, atol=2e-6)
    one_for_all = record_of(sinks=sinks[0], scale=0.5).stack()
    assert_allclose(
        one_for_all.weights(layer=2), by_formula(Q[2], K[2], scale=0.5, sinks=sinks[0]), atol=2e-6
    )


def test_masks_are_kept_in_their_smallest_form() -> None:
    assert attention_of(record_of(causal=True)).mask == BandMask(None, 0)
    assert attention_of(record_of(causal=True, window=3)).mask == BandMask(2, 0)
    assert attention_of(record_of(window=3)).mask == BandMask(2, 2)
    flags = torch.ones(5, 5, dtype=torch.bool).tril()
    assert attention_of(record_of(mask=flags)).mask == BandMask(None, 0)
    added = torch.zeros(1, 1, 5, 5, dtype=torch.float16).masked_fill(~flags, -65504.0)
    assert attention_of(record_of(mask=added)).mask == BandMask(None, 0)
    assert attention_of(record_of(mask=added)).bias is None
    assert attention_of(record_of(mask=flags | True)).mask is None
    assert attention_of(record_of(mask=flags.numpy())).mask == BandMask(None, 0)
    other = record_of(mask=flags.flip(0), bias=vectors(4, 1, 5))
    assert isinstance(attention_of(other).mask, PackedMask)
    assert isinstance(attention_of(other).bias, DenseBias)
    # A mask or bias of all layers is stored and saved once.
    assert attention_of(other, 0).mask is attention_of(other, 2).mask
    assert attention_of(other, 0).bias is attention_of(other, 2).bias


def test_131072_tokens_allocate_nothing_for_every_pair() -> None:
    length, heads, dims = 131_072, 2, 4
    q, k = vectors(heads, length, dims), vectors(1, length, dims, seed=1)
    last = slice(length - 1, length)
    with LiveTensors() as tensors:
        record = record_of([q, q], [k, k], None, causal=True, window=[None, 4096])
        description = describe(record)
        tracemalloc.start()
        rows = [record.stack().weights(layer=layer, head=1, rows=last) for layer in (0, 1)]
    _, python_peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # No tensor is larger than the vectors themselves.
    assert tensors.largest <= q.nbytes
    # numpy and Python allocate less than a dozen rows of float32.
    assert python_peak < 12 * 4 * length
    assert len(description["stacks"][0]["query_tokens"]["text"]) == length
    positions = np.arange(length)
    for row, first in zip(rows, (0, length - 4096), strict=True):
        expected = by_formula(q[1:, -1:], k, allowed=positions >= first)
        assert_allclose(row, expected[0], atol=1e-7)


def with_value(value: float) -> list[torch.Tensor]:
    """Return three layers of queries with `value` in layer 1, head 2, query 3, dimension 4."""
    layers = [q.clone() for q in Q]
    layers[1][2, 3, 4] = value
    return layers


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"queries": with_value(np.nan)},
            r"queries\[1\] is NaN at head 2, query 3, head_dim 4",
        ),
        (
            {"keys": [K[0], K[1], K[2] * np.inf]},
            r"keys\[2\] is infinite at key head 0, key 0, head_dim 0",
        ),
        (
            {"queries": [torch.stack([q] * 3) for q in Q]},
            r"a batch of 3 examples, .* for example \[layer\[i : i \+ 1\] for layer in queries\]",
        ),
        (
            {"queries": Q[0]},
            r"one array of shape \(4, 5, 8\); .*one layer, heads 4, .*: pass queries\[None\]",
        ),
        (
            {"keys": [k[0] for k in K]},
            r"has shape \(5, 8\); .*one head, .*: pass layer\[None\]; or all heads .*layer.reshape",
        ),
        (
            {"keys": [k.repeat(1, 1, 2) for k in K]},
            r"head_dim 8, keys\[0\] has .* head_dim 16: head_dim must be the same",
        ),
        (
            {"keys": [torch.cat([k, k[:1]]) for k in K]},
            r"heads 4, .* key heads 3, .*: heads must be a multiple of key heads",
        ),
        (
            {"queries": [Q[0], Q[1], Q[2][:, :4]]},
            "layer 2 has queries 4 .*, but layer 0 queries 5 .* over the same tokens",
        ),
        ({"keys": K[:2]}, "queries has 3 layers but keys has 2; pass both for each layer"),
        ({"queries": []}, "queries is empty; pass one array"),
        ({"queries": [Q[0][:0]]}, r"queries\[0\] has shape \(0, 5, 8\), which contains no numbers"),
        (
            {"tokens": words(4)},
            r"tokens has 4 tokens, .* queries 5, .*seem to be .*: pass layer.swapaxes\(-3, -2\)",
        ),
        (
            {"key_tokens": words(6)},
            r"key_tokens has 6 tokens, but keys\[0\] has key heads 2, keys 5, head_dim 8",
        ),
        ({"scale": np.nan}, "scale=nan must be a finite number"),
        ({"scale": [1.0, 2.0]}, r"scale is a list of 2 for 3 layers\. Pass one item per layer"),
        ({"softcap": 0.0}, r"softcap=0.0 must be above 0"),
        ({"window": 0}, "window=0 must be a whole number of at least 1"),
        ({"window": True}, "window=True must be a whole number"),
        (
            {"keys": [k[:, :3] for k in K], "causal": True, "key_tokens": words(3)},
            "causal=True needs queries that are the last of the keys, but there are 5 queries",
        ),
        (
            {"mask": torch.ones(5, 4, dtype=torch.bool)},
            r"mask has shape \(5, 4\); it must be .* with heads 4, queries 5, keys 5",
        ),
        ({"mask": [None, torch.ones(1, 5).bool(), None]}, r"mask\[1\] has shape \(1, 5\)"),
        ({"mask": torch.full((5, 5), np.nan)}, r"mask contains NaN or plus infinity\. It is added"),
        ({"bias": torch.full((5, 5), -np.inf)}, r"bias contains NaN or infinity\. .* as mask="),
        ({"sinks": torch.ones(3)}, r"sinks has shape \(3,\); it must be \(heads,\) with heads 4"),
        ({"sinks": torch.full((4,), np.nan)}, "sinks is NaN at head 0"),
    ],
)
def test_invalid_numbers_and_shapes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        record_of(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"queries": [q.double() for q in Q]},
            r"queries\[0\] is float64\. Pass float32, .* for example queries.float\(\)",
        ),
        ({"keys": [k.to(torch.int8) for k in K]}, r"keys\[0\] is int8"),
        ({"queries": 7}, "queries must be a sequence with one array per layer; got int"),
        ({"keys": [None, *K[1:]]}, r"keys\[0\] is not an array of numbers"),
        ({"causal": torch.ones(5, 5)}, r"causal must be True or False; got Tensor\. Pass a mask"),
        ({"mask": torch.ones(5, 5, dtype=torch.int64)}, "mask is int64, which is ambiguous"),
        ({"mask": "causal"}, "mask is not an array of numbers"),
        (
            {"queries": [q[:, :3] for q in Q], "tokens": words(3)},
            "key_tokens is missing: there are 3 queries and 5 keys",
        ),
    ],
)
def test_other_types_than_arrays_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        record_of(**change)


def test_the_record_has_model_notes_and_images() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    record = record_of(model="mine", images=[image])
    assert record.model == "mine"
    assert len(record.images) == 1
    assert record.stack().has_vectors
