"""Tests of the attention of one layer, mostly against torch and formulas in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

import attnviz.record.attention
import attnviz.record.softmax
from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.masks import BandMask, ChosenMask
from attnviz.record.softmax import weights_from_logits
from rounding import logit_error, relative_error, weights_error
from unit.formulas import allowed_pairs, logits_of, normalizers_of, weights_of
from unit.layers import (
    LAYER,
    error_of,
    heads_lists,
    masks,
    numbers_of,
    ranges,
    softmaxes,
    stack_of,
    stacks,
)
from unit.records import shares, vectors


def all_weights(attention: QueryKeyAttention) -> NDArray[np.float32]:
    weights: NDArray[np.float32] = attention.block(
        range(attention.num_heads), slice(0, attention.num_queries)
    ).numpy()
    return weights


def weights_of_torch(
    queries: torch.Tensor, keys: torch.Tensor, **options: Any
) -> NDArray[np.float32]:
    """Return torch's weights: the attention output if the values are the identity matrix."""
    values = torch.eye(keys.shape[1]).expand(len(keys), -1, -1)
    output = scaled_dot_product_attention(queries[None], keys[None], values[None], **options)
    weights: NDArray[np.float32] = output[0].numpy()
    return weights


@pytest.mark.parametrize(
    ("heads", "key_heads", "dtype"),
    [(8, 2, torch.float32), (6, 1, torch.float16), (4, 4, torch.float64), (4, 2, torch.bfloat16)],
)
def test_grouped_heads_of_any_dtype_equal_torch_in_float32(
    heads: int, key_heads: int, dtype: torch.dtype
) -> None:
    queries, keys = vectors(heads, 5, 8).to(dtype), vectors(key_heads, 5, 8, seed=1).to(dtype)
    own = weights_of_torch(queries.float(), keys.float(), scale=0.35, enable_gqa=True)
    attention = QueryKeyAttention(queries, keys, 0.35)
    weights = all_weights(attention)
    assert weights.dtype == np.float32
    assert_allclose(weights, own, atol=1e-6)
    group = heads // key_heads
    assert [attention.key_head(h) for h in range(heads)] == [h // group for h in range(heads)]


def test_masked_nan_does_not_affect_a_row() -> None:
    keys = vectors(1, 3, 4)
    keys[0, 2] = torch.nan
    attention = QueryKeyAttention(vectors(1, 3, 4, seed=1), keys, 0.5, mask=BandMask(None, 0))
    weights = all_weights(attention)[0]
    assert np.isfinite(weights[:2]).all()
    assert np.isnan(weights[2]).all()
    normalizers = attention.normalizers([0], slice(0, 3))
    assert normalizers.isnan().tolist() == [[[False, False, True]]]


def some_rows(count: int) -> st.SearchStrategy[slice | torch.Tensor]:
    """Draw a range of queries, or a list of queries in any order."""
    positions = st.lists(st.integers(0, count - 1), min_size=1, max_size=5)
    return ranges(count) | positions.map(torch.tensor)


@given(st.data())
def test_logits_and_normalizers_of_any_rows_and_keys_equal_the_formulas(
    data: st.DataObject,
) -> None:
    attention = data.draw(softmaxes(data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))))
    heads = data.draw(heads_lists)
    rows = data.draw(some_rows(attention.num_queries))
    columns = data.draw(ranges(attention.num_keys))
    indices = rows if isinstance(rows, slice) else rows.numpy()
    whole = logits_of(attention)[heads][:, indices]
    with pytest.MonkeyPatch.context() as patch:
        # With these small limits, the numbers are computed in several blocks.
        patch.setattr(attnviz.record.softmax, "_BLOCK_ENTRIES", data.draw(st.integers(1, 60)))
        patch.setattr(attnviz.record.attention, "_ROWS_PER_PRODUCT", 4)
        logits = attention.logits(heads, rows, columns)
        [normalizers] = attention.normalizers(heads, rows)
    assert logits.dtype == normalizers.dtype == torch.float32
    assert_allclose(logits, whole[..., columns], atol=logit_error(attention))
    expected_normalizers = normalizers_of(attention)[heads][:, indices]
    assert_allclose(normalizers, expected_normalizers, atol=weights_error(attention))
    assert_allclose(
        weights_from_logits(logits, normalizers),
        weights_of(attention)[heads][:, indices][..., columns],
        rtol=relative_error(attention),
    )


@given(st.data(), st.integers(1, 12), st.integers(1, 12))
def test_the_lost_weight_is_the_dense_weight_on_left_out_keys(
    data: st.DataObject, queries: int, keys: int
) -> None:
    dense = data.draw(softmaxes(queries, keys))
    chosen = data.draw(masks(queries, keys).filter(lambda mask: mask is not None))
    assert chosen is not None
    attention = replace(dense, mask=ChosenMask(chosen, dense.mask))
    heads = data.draw(heads_lists)
    rows = data.draw(some_rows(queries))
    indices = rows if isinstance(rows, slice) else rows.numpy()
    lost = attention.lost_weight(heads, rows)
    expected = np.sum(weights_of(dense), axis=2, where=~allowed_pairs(attention))
    assert_allclose(lost, expected[heads][:, indices], atol=weights_error(dense))
    # Without left-out keys, nothing is lost, to the last bit.
    is_complete = ~attention.left_out(heads, rows).any(dim=-1)
    assert not lost[is_complete.expand(lost.shape)].any()


@given(st.data())
def test_blocks_of_any_layer_equal_the_formulas(data: st.DataObject) -> None:
    stack = data.draw(stacks())
    attention = stack.attention(LAYER)
    heads = data.draw(heads_lists)
    rows = data.draw(some_rows(attention.num_queries))
    columns = data.draw(ranges(attention.num_keys) | st.none())
    indices = rows if isinstance(rows, slice) else rows.numpy()
    expected, expected_flags = (
        numbers[heads][:, indices] for numbers in (numbers_of(stack), allowed_pairs(attention))
    )
    shown = slice(None) if columns is None else columns
    with pytest.MonkeyPatch.context() as patch:
        entries = data.draw(st.integers(1, 60))
        patch.setattr(attnviz.record.softmax, "_BLOCK_ENTRIES", entries)
        patch.setattr(attnviz.record.softmax, "_TILE_ENTRIES", entries)
        block = attention.block(heads, rows, columns)
        normalizers = attention.normalizers(heads, rows)
        block_of_normalizers = attention.block(heads, rows, columns, normalizers)
        flags = attention.allowed(heads, rows, columns)
        has_allowed_key = attention.has_allowed_key(heads, rows)
    assert block.dtype == torch.float32
    assert len(normalizers) == attention.num_softmaxes
    for computed in (block, block_of_normalizers):
        assert_allclose(computed, expected[..., shown], atol=error_of(attention))
    shape = expected_flags.shape
    assert_array_equal(np.broadcast_to(has_allowed_key, shape[:2]), expected_flags.any(axis=2))
    expected_flags = expected_flags[..., shown]
    assert_array_equal(np.broadcast_to(flags, expected_flags.shape), expected_flags)
    # Keys outside `key_range` are masked and have weight 0.
    outside = np.ones(attention.num_keys, np.bool_)
    outside[attention.key_range(rows)] = False
    assert not np.broadcast_to(attention.allowed(heads, rows), shape)[..., outside].any()
    assert not attention.block(heads, rows).numpy()[..., outside].any()
    assert attention.block(heads, slice(0, 0), columns).shape == (len(heads), 0, block.shape[2])


def test_masked_blocks_are_not_computed(
    logit_blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnviz.record.softmax, "_BLOCK_ENTRIES", 64)
    monkeypatch.setattr(attnviz.record.attention, "_ROWS_PER_PRODUCT", 8)
    attention = QueryKeyAttention(vectors(1, 256, 8), vectors(1, 256, 8), 0.3)
    for mask, share in ((None, 1.0), (BandMask(None, 0), 0.52), (BandMask(15, 0), 0.1)):
        logit_blocks.clear()
        replace(attention, mask=mask).normalizers([0], slice(0, 256))
        assert sum(logit_blocks) <= share * 256 * 256
        assert max(logit_blocks) <= 64


def test_large_logits_do_not_overflow() -> None:
    attention = QueryKeyAttention(torch.tensor([[[300.0]]]), torch.tensor([[[1.0], [2.0]]]), 100.0)
    [normalizers] = attention.normalizers([0], slice(0, 1))
    assert normalizers.tolist() == [[60000.0]]
    assert_array_equal(all_weights(attention)[0, 0], [0.0, 1.0])
    logits = attention.logits([0], slice(0, 1))
    assert weights_from_logits(logits, normalizers).tolist() == [[[0.0, 1.0]]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queries": torch.zeros(3, 4)}, r"must be \(heads, tokens, head_dim\) .* got \(3, 4\)"),
        ({"keys": torch.zeros(2, 3, 5)}, "the same head_dim; got "),
        ({"keys": torch.zeros(3, 3, 4)}, "4 query heads cannot share 3 key heads"),
        ({"sinks": torch.zeros(2)}, r"sinks must be \(4,\), one logit per head; got \(2,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {"queries": torch.zeros(4, 3, 4), "keys": torch.zeros(2, 3, 4)}
    with pytest.raises(ValueError, match=message):
        QueryKeyAttention(**parts | changes, scale=1.0)


def test_returned_weights_of_stored_layers_cannot_change_the_record() -> None:
    values = shares(3, 4, 6)
    stack = stack_of(StoredWeights(torch.from_numpy(values)))
    returned = stack.weights(LAYER, 2, rows=slice(1, 3), columns=slice(0, 5))
    assert_array_equal(returned, values[2, 1:3, :5])
    returned[:] = 0
    assert values.all()


@st.composite
def stored_numbers(draw: st.DrawFn) -> torch.Tensor:
    """Draw numbers with zeros of a mask, of padding, of a window, and by chance."""
    heads, queries = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    keys = queries + draw(st.integers(-1, 3))
    keys = max(1, keys)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    numbers = torch.rand(heads, queries, keys, generator=generator) + 0.01
    if draw(st.booleans()):
        numbers = -numbers
    offset = keys - queries
    if draw(st.booleans()):
        numbers = numbers.tril(offset)
    if draw(st.booleans()):
        numbers = numbers.triu(offset - draw(st.integers(0, 3)))
    padding = draw(st.integers(0, 2))
    numbers[:, :padding] = 0
    numbers[:, :, :padding] = 0
    by_chance = torch.rand(numbers.shape, generator=generator) < draw(st.sampled_from([0, 0.5, 1]))
    return numbers.masked_fill(by_chance, 0)


@given(stored_numbers())
def test_a_recognised_mask_hides_no_weight_and_forbids_no_earlier_key(
    numbers: torch.Tensor,
) -> None:
    layer = StoredWeights(numbers)
    allowed = layer.allowed([0], slice(0, layer.num_queries))[0]
    assert not numbers[:, ~allowed].any()
    earlier = torch.ones_like(allowed).tril(layer.num_keys - layer.num_queries)
    assert_array_equal(allowed, earlier if layer.causal else torch.ones_like(allowed))


def test_a_causal_mask_is_recognised_by_its_zeros() -> None:
    weights = torch.rand(2, 6, 6).tril() + torch.eye(6)
    assert StoredWeights(weights).causal
    assert StoredWeights(weights[:, 2:]).causal, "the first keys are cached"
    padded = weights.clone()
    padded[:, :2] = padded[:, :, :2] = 0
    assert StoredWeights(padded).causal, "padding on the left"
    padded = weights.clone()
    padded[:, :, 4:] = 0
    assert StoredWeights(padded).causal, "padding on the right"
    one_head = weights.clone()
    one_head[0, 3, 3] = 0
    assert StoredWeights(one_head).causal, "a zero of one head"


def test_zeros_by_chance_are_not_a_causal_mask() -> None:
    weights = torch.rand(2, 6, 6).tril() + torch.eye(6)
    ahead = weights.clone()
    ahead[1, 0, 5] = 0.01
    assert not StoredWeights(ahead).causal
    assert not StoredWeights(weights[:, :1]).causal, "a single query"
    assert not StoredWeights(weights[..., :5]).causal, "more queries than keys"
    assert not StoredWeights(torch.zeros(2, 6, 6)).causal
    skipped = weights.clone()
    skipped[:, 2, 2] = 0
    assert not StoredWeights(skipped).causal, "a query without weight on its own key"
    previous = torch.diag(torch.ones(5), -1)[None]
    assert not StoredWeights(previous).causal, "a head that attends to the previous token only"
