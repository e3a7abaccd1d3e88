"""Tests of masks and biases, also in compact forms, against dense arrays of all entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_array_equal

import attnviz as av
import attnviz.record.masks
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import (
    BandMask,
    ChosenMask,
    CutMask,
    DenseBias,
    DistanceBias,
    PackedMask,
    WindowBias,
    compact_bias,
    compact_mask,
    from_parts,
)
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from unit.formulas import bias_of, mask_of
from unit.layers import HEADS, biases, masks, ranges
from unit.records import vectors

sizes = st.integers(1, 19)


@st.composite
def blocks(draw: st.DrawFn, queries: int, keys: int) -> tuple[Any, slice]:
    """Draw rows (a slice or a tensor of positions) and a slice of keys."""
    positions = st.lists(st.integers(0, queries - 1), min_size=1, max_size=5).map(torch.tensor)
    return draw(ranges(queries) | positions), draw(ranges(keys))


@given(st.data(), sizes, sizes)
def test_blocks_of_any_mask_equal_the_formula(data: st.DataObject, queries: int, keys: int) -> None:
    mask = data.draw(masks(queries, keys).filter(lambda mask: mask is not None))
    assert mask is not None
    assert mask.fits(HEADS, queries, keys)
    flags = torch.from_numpy(mask_of(mask, HEADS, queries, keys))
    rows, columns = data.draw(blocks(queries, keys))
    could_attend = flags
    if isinstance(mask, ChosenMask):
        could_attend = torch.from_numpy(mask_of(mask.base, HEADS, queries, keys))
    for head in range(mask.num_heads):
        assert torch.equal(mask.allowed(head, rows, columns), flags[head, rows, columns])
        left_out = (could_attend & ~flags)[head, rows, columns]
        assert torch.equal(mask.left_out(head, rows, columns), left_out)
    visible = mask.fully_visible_keys(rows, columns)
    assert columns.start <= visible.start <= visible.stop <= columns.stop
    assert flags[:, rows, visible].all()
    hidden = torch.ones(keys, dtype=torch.bool)
    hidden[mask.key_range(rows, keys)] = False
    assert not flags[:, rows][:, :, hidden].any()
    if mask.causal and queries == keys and mask.offset <= 0:
        assert not flags.triu(1).any()
    numbers, tensors = mask.to_parts()
    assert mask.equals(from_parts(numbers, tensors.__getitem__))


@given(st.data(), sizes)
def test_another_order_is_a_permutation_of_rows_and_columns(data: st.DataObject, size: int) -> None:
    order = torch.tensor(data.draw(st.permutations(range(size))))
    mask, bias = data.draw(masks(size, size)), data.draw(biases(size, size))
    if mask is not None:
        flags = torch.from_numpy(mask_of(mask, HEADS, size, size))[:, order][:, :, order]
        assert_array_equal(mask_of(mask.permute(order), HEADS, size, size), flags)
    if isinstance(bias, WindowBias):
        added = torch.from_numpy(bias_of(bias, HEADS, size, size))[:, order][:, :, order]
        assert_array_equal(bias_of(bias.permute(order), HEADS, size, size), added)


@given(st.data(), sizes, sizes)
def test_blocks_of_any_bias_equal_the_formula(data: st.DataObject, queries: int, keys: int) -> None:
    bias = data.draw(biases(queries, keys).filter(lambda bias: bias is not None))
    assert bias is not None
    assert bias.fits(HEADS, queries, keys)
    added = torch.from_numpy(bias_of(bias, HEADS, queries, keys))
    rows, columns = data.draw(blocks(queries, keys))
    for head in range(bias.num_heads):
        expected = added[head, rows, columns]
        block = bias.added(head, rows, columns)
        assert block.dtype == torch.float32
        assert_array_equal(block.expand(expected.shape), expected)


@given(st.data(), st.integers(1, 3), sizes, sizes)
def test_compact_masks_equal_the_original(
    data: st.DataObject, heads: int, queries: int, keys: int
) -> None:
    flags = data.draw(arrays.arrays(bool, (heads, queries, keys)))
    assert_array_equal(mask_of(compact_mask(torch.from_numpy(flags)), heads, queries, keys), flags)


@given(sizes, sizes, st.none() | st.integers(0, 20), st.none() | st.integers(0, 20))
def test_every_band_is_found(
    queries: int, keys: int, before: int | None, after: int | None
) -> None:
    # The last query is at the position of the last key.
    flags = mask_of(BandMask(before, after, keys - queries), 1, queries, keys)
    mask = compact_mask(torch.from_numpy(flags))
    assert_array_equal(mask_of(mask, 1, queries, keys), flags)
    if queries <= keys:
        assert mask is None or isinstance(mask, BandMask)


def test_a_causal_mask_over_a_longer_cache_is_a_band() -> None:
    # A KV cache has room for 9 keys, and 4 of them are filled. The empty keys 4 to 8 are masked.
    flags = torch.ones(1, 4, 9).tril().bool()
    mask = compact_mask(flags)
    assert isinstance(mask, BandMask)
    assert_array_equal(mask_of(mask, 1, 4, 9), flags)


def test_equal_masks_of_heads_take_one_bit_an_entry() -> None:
    flags = torch.ones(2, 10, 21, dtype=torch.bool)
    flags[:, :, 17:] = False
    mask = compact_mask(flags)
    assert isinstance(mask, PackedMask)
    assert mask.bits.shape == (1, 10, 3)
    assert_array_equal(mask_of(mask, 2, 10, 21), flags)


def test_one_entry_that_breaks_a_band_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rows are compared in three blocks of 4. Change an entry in each block.
    monkeypatch.setattr(attnviz.record.masks, "_ROWS_PER_BLOCK", 4)
    for query, key in [(5, 2), (5, 9), (11, 0), (0, 11)]:
        flags = torch.ones(1, 12, 12).tril().bool()
        flags[0, query, key] ^= True
        assert_array_equal(mask_of(compact_mask(flags), 1, 12, 12), flags)


def test_pairs_that_another_mask_allows_are_not_cut() -> None:
    """A window of one token on each side, and a global token (3)."""
    local = torch.arange(5) != 3
    cut = CutMask(torch.tensor([True]), local, local, kept=BandMask(1, 1))
    numbers, tensors = cut.to_parts()
    for mask in (cut, from_parts(numbers, tensors.__getitem__)):
        assert isinstance(mask, CutMask)
        flags = mask.all_allowed(5, 5)[0]
        for query in range(5):
            for key in range(5):
                assert flags[query, key] == (abs(query - key) <= 1 or 3 in (query, key))


def test_heads_may_cut_different_keys() -> None:
    keys = torch.tensor([[True, False, False], [False, True, False]])
    cut = CutMask(torch.tensor([True]), torch.arange(3) > 0, keys, BandMask(None, 0))
    assert cut.num_heads == 2
    assert cut.fits(2, 3, 3)
    assert not cut.fits(3, 3, 3)
    expected = [[[1, 0, 0], [0, 1, 0], [0, 1, 1]], [[1, 0, 0], [1, 0, 0], [1, 0, 1]]]
    assert cut.all_allowed(3, 3).int().tolist() == expected
    assert cut.fully_visible_keys(slice(1, 2), slice(0, 2)) == slice(0, 0)


def test_the_base_of_a_cut_is_a_mask() -> None:
    flags = torch.ones(3, dtype=torch.bool)
    numbers, tensors = CutMask(flags[:1], flags, flags, BandMask(None, 0)).to_parts()
    bias, values = DenseBias(torch.zeros(1, 1, 3)).to_parts()
    arrays_by_name = tensors | {f"base.{name}": value for name, value in values.items()}
    with pytest.raises(TypeError, match="base of a mask must be a mask"):
        from_parts({**numbers, "base": bias}, arrays_by_name.__getitem__)


@given(st.integers(1, 3), sizes, sizes, st.data())
def test_compact_biases_equal_the_original(
    heads: int, queries: int, keys: int, data: st.DataObject
) -> None:
    values = data.draw(
        arrays.arrays(np.float32, (heads, queries, keys), elements=st.sampled_from([-1.5, 0, 3]))
    )
    bias = compact_bias(torch.from_numpy(values))
    assert_array_equal(bias_of(bias, heads, queries, keys), values)


@given(st.integers(1, 3), st.integers(2, 19), sizes, st.integers(0, 99))
def test_a_bias_of_distance_alone_is_found(heads: int, queries: int, keys: int, seed: int) -> None:
    by_distance = DistanceBias(vectors(heads, queries + keys - 1, seed=seed), queries)
    values = bias_of(by_distance, heads, queries, keys)
    bias = compact_bias(torch.from_numpy(values).float())
    assert isinstance(bias, DistanceBias)
    assert_array_equal(bias_of(bias, heads, queries, keys), values)


def test_one_entry_that_breaks_a_distance_bias_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.record.masks, "_ROWS_PER_BLOCK", 4)
    position = torch.arange(12)
    slopes = torch.tensor([0.5, 0.25])[:, None, None]
    values = -slopes * (position[:, None] - position).abs()
    assert isinstance(compact_bias(values), DistanceBias)
    values[1, 6, 7] += 1
    bias = compact_bias(values)
    assert isinstance(bias, DenseBias)
    assert_array_equal(bias_of(bias, 2, 12, 12), values)


def test_equal_biases_of_heads_or_queries_are_stored_once() -> None:
    row = torch.tensor([0.0, -2.0, 3.0])
    for shape in [(1, 1, 3), (4, 1, 3), (4, 5, 3)]:
        bias = compact_bias(row.expand(shape))
        assert isinstance(bias, DenseBias)
        assert bias.values.shape == (1, 1, 3)
        assert_array_equal(bias_of(bias, 4, 5, 3), row.expand(4, 5, 3))
    assert compact_bias(torch.zeros(2, 3, 3)) is None


def test_a_bias_keeps_no_buffer_of_the_model_alive() -> None:
    buffer = torch.rand(1, 4, 4)
    bias = compact_bias(buffer)
    assert isinstance(bias, DenseBias)
    before = bias.values.clone()
    buffer.zero_()
    assert torch.equal(bias.values, before)


@given(st.data(), sizes, sizes)
def test_queries_with_a_single_key_are_those_of_the_formula(
    data: st.DataObject, queries: int, keys: int
) -> None:
    layers, single = {}, np.ones(queries, np.bool_)
    for layer in range(2):
        mask = data.draw(masks(queries, keys))
        q, k = vectors(HEADS, queries, 2), vectors(HEADS, keys, 2)
        layers[layer] = QueryKeyAttention(q, k, 0.1, mask)
        if mask is not None:
            base = mask.base if isinstance(mask, ChosenMask) else mask
            single &= (mask_of(base, HEADS, queries, keys).sum(-1) == 1).all(0)
        else:
            single &= keys == 1
    tokens = Tokens.of(["q"] * queries), Tokens.of(["k"] * keys)
    stack = AttentionStack("self", layers, *tokens)
    assert_array_equal(stack.forced_queries, np.flatnonzero(single))


def test_stored_weights_have_a_single_key_if_all_other_weights_are_zero() -> None:
    weights = np.zeros((2, 2, 3, 3), np.float32)
    weights[:, :, :, 0] = 1
    weights[1, 1, 1] = [0.5, 0.5, 0]
    record = av.AttentionRecord.from_weights(weights, ["a", "b", "c"])
    assert record.stack().forced_queries == (0, 2)
    # One head reads the own token, the other one the previous token: nothing forces a key on them.
    own, previous = np.eye(4, dtype=np.float32), np.eye(4, k=-1, dtype=np.float32)
    previous[0, 0] = 1
    hard = av.AttentionRecord.from_weights([[own, previous]], ["a", "b", "c", "d"])
    assert hard.stack().forced_queries == (0,)


def test_numbers_that_a_mask_does_not_force_have_no_such_queries() -> None:
    tokens, lower = ["a", "b", "c"], np.tril(np.ones((3, 3), np.float32))
    signed = av.AttentionRecord.from_weights([[lower * 0.2]], tokens, signed=True)
    norms = av.AttentionRecord.from_weights([[lower * 0.2]], tokens, normalized=False)
    vectors = [np.ones((1, 3, 2), np.float32)] * 2
    record = av.AttentionRecord.from_qk([vectors[0]], [vectors[1]], tokens, causal=True)
    sink = av.AttentionRecord.from_qk(
        [vectors[0]], [vectors[1]], tokens, causal=True, sinks=[[0.0]]
    )
    # The first query gives the weight that the sink leaves to its only key.
    assert 0 < sink.stack().weights(layer=0)[0, 0, 0] < 1
    forced = [one.stack().forced_queries for one in (record, signed, norms, sink)]
    assert forced == [(0,), (), (), ()]
