"""The compact forms of masks and biases equal the originals."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import attnviz.record.masks
from attnviz.record.masks import (
    BandMask,
    Bias,
    DenseBias,
    DistanceBias,
    Mask,
    PackedMask,
    compact_bias,
    compact_mask,
)

sizes = st.integers(1, 19)


def flags_of(mask: Mask | None, heads: int, queries: int, keys: int) -> torch.Tensor:
    """Return the complete mask (heads, queries, keys)."""
    if mask is None:
        return torch.ones(heads, queries, keys, dtype=torch.bool)
    rows, columns = slice(0, queries), slice(0, keys)
    return torch.stack([mask.allowed(head, rows, columns) for head in range(heads)])


def values_of(bias: Bias | None, heads: int, queries: int, keys: int) -> torch.Tensor:
    """Return the complete bias (heads, queries, keys)."""
    if bias is None:
        return torch.zeros(heads, queries, keys)
    rows, columns = slice(0, queries), slice(0, keys)
    blocks = [bias.added(head, rows, columns).expand(queries, keys) for head in range(heads)]
    return torch.stack(blocks)


def band_by_loop(queries: int, keys: int, before: int | None, after: int | None) -> torch.Tensor:
    """Return the keys that each query sees if the last query is at the position of the last key."""
    flags = torch.zeros(1, queries, keys, dtype=torch.bool)
    for query in range(queries):
        position = query + keys - queries
        for key in range(keys):
            near = before is None or position - key <= before
            flags[0, query, key] = near and (after is None or key - position <= after)
    return flags


@settings(max_examples=100)
@given(
    st.integers(1, 3), sizes, sizes, st.randoms(use_true_random=False), st.sampled_from([0.1, 0.9])
)
def test_compact_masks_equal_the_original(
    heads: int, queries: int, keys: int, source: Random, share: float
) -> None:
    flags = torch.tensor(
        [
            [[source.random() < share for _ in range(keys)] for _ in range(queries)]
            for _ in range(heads)
        ]
    )
    assert torch.equal(flags_of(compact_mask(flags), heads, queries, keys), flags)


@settings(max_examples=150)
@given(sizes, sizes, st.none() | st.integers(0, 20), st.none() | st.integers(0, 20))
def test_every_band_is_found(
    queries: int, keys: int, before: int | None, after: int | None
) -> None:
    flags = band_by_loop(queries, keys, before, after)
    mask = compact_mask(flags)
    assert torch.equal(flags_of(mask, 1, queries, keys), flags)
    if queries <= keys:
        assert mask is None or isinstance(mask, BandMask)


def test_a_causal_mask_over_a_longer_cache_is_a_band() -> None:
    # 4 queries at positions 0 to 3 of a cache of 9. The empty part of the cache is masked.
    flags = torch.ones(1, 4, 9).tril().bool()
    mask = compact_mask(flags)
    assert isinstance(mask, BandMask)
    assert torch.equal(flags_of(mask, 1, 4, 9), flags)


def test_padding_takes_one_bit_an_entry() -> None:
    flags = torch.ones(2, 10, 21, dtype=torch.bool)
    flags[:, :, 17:] = False
    mask = compact_mask(flags)
    # The heads have equal masks, so one is stored.
    assert isinstance(mask, PackedMask)
    assert mask.bits.shape == (1, 10, 3)
    assert torch.equal(flags_of(mask, 2, 10, 21), flags)


def test_one_entry_that_breaks_a_band_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    # The entry is in a block of rows that is neither the first nor the last.
    monkeypatch.setattr(attnviz.record.masks, "_ROWS_PER_BLOCK", 4)
    for query, key in [(5, 2), (5, 9), (11, 0), (0, 11)]:
        flags = torch.ones(1, 12, 12).tril().bool()
        flags[0, query, key] ^= True
        assert torch.equal(flags_of(compact_mask(flags), 1, 12, 12), flags)


@settings(max_examples=100)
@given(st.data(), sizes, sizes)
def test_blocks_of_masks_are_slices_of_the_whole(
    data: st.DataObject, queries: int, keys: int
) -> None:
    flags = torch.from_numpy(data.draw(arrays.arrays(bool, (2, queries, keys))))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, queries)] * 2)))
    left, right = sorted(data.draw(st.tuples(*[st.integers(0, keys)] * 2)))
    rows, columns = slice(first, last), slice(left, right)
    assert torch.equal(PackedMask.pack(flags).allowed(1, rows, columns), flags[1, rows, columns])
    band = BandMask(2, 1, keys - queries)
    all_flags = band_by_loop(queries, keys, 2, 1)[0]
    assert torch.equal(band.allowed(0, rows, columns), all_flags[rows, columns])


@pytest.mark.parametrize(
    "flags",
    [torch.ones(3, 3, dtype=torch.bool), torch.ones(1, 3, 3), torch.ones(1, 1, 3, 3).bool()],
)
def test_invalid_masks_are_refused(flags: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"bool tensor \(heads or 1, queries, keys\); got"):
        compact_mask(flags)


@settings(max_examples=100)
@given(st.integers(1, 3), sizes, sizes, st.data())
def test_compact_biases_equal_the_original(
    heads: int, queries: int, keys: int, data: st.DataObject
) -> None:
    values = data.draw(
        arrays.arrays(np.float32, (heads, queries, keys), elements=st.sampled_from([-1.5, 0, 3]))
    )
    bias = compact_bias(torch.from_numpy(values))
    np.testing.assert_array_equal(values_of(bias, heads, queries, keys).numpy(), values)


@settings(max_examples=100)
@given(st.integers(1, 3), sizes, sizes, st.integers(0, 99))
def test_a_bias_of_distance_alone_is_found(heads: int, queries: int, keys: int, seed: int) -> None:
    by_distance = np.random.default_rng(seed).normal(size=(heads, queries + keys - 1))
    values = np.zeros((heads, queries, keys), np.float32)
    for query in range(queries):
        for key in range(keys):
            values[:, query, key] = by_distance[:, key - query + queries - 1]
    bias = compact_bias(torch.from_numpy(values))
    np.testing.assert_array_equal(values_of(bias, heads, queries, keys).numpy(), values)
    if queries > 1:
        assert isinstance(bias, DistanceBias)
        assert bias.values.shape == (heads, queries + keys - 1)


def test_one_entry_that_breaks_a_distance_bias_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.record.masks, "_ROWS_PER_BLOCK", 4)
    position = torch.arange(12)
    slopes = torch.tensor([0.5, 0.25])[:, None, None]
    values = -slopes * (position[:, None] - position).abs()
    assert isinstance(compact_bias(values), DistanceBias)
    values[1, 6, 7] += 1
    bias = compact_bias(values)
    assert isinstance(bias, DenseBias)
    assert torch.equal(values_of(bias, 2, 12, 12), values)


def test_equal_biases_of_heads_or_queries_are_stored_once() -> None:
    row = torch.tensor([0.0, -2.0, 3.0])
    for shape in [(1, 1, 3), (4, 1, 3), (4, 5, 3)]:
        bias = compact_bias(row.expand(shape))
        assert isinstance(bias, DenseBias)
        assert bias.values.shape == (1, 1, 3)
        assert torch.equal(values_of(bias, 4, 5, 3), row.expand(4, 5, 3))
    square = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 2]])
    bias = compact_bias(square.expand(4, 3, 3))
    assert isinstance(bias, DenseBias)
    assert bias.values.shape == (1, 3, 3)


def test_a_bias_of_zeros_is_none() -> None:
    assert compact_bias(torch.zeros(2, 3, 3, dtype=torch.bfloat16)) is None


def test_a_bias_keeps_no_buffer_of_the_model_alive() -> None:
    buffer = torch.rand(1, 4, 4)
    bias = compact_bias(buffer)
    assert isinstance(bias, DenseBias)
    before = bias.values.clone()
    buffer.zero_()
    assert torch.equal(bias.values, before)


def test_a_bias_that_hides_a_mask_is_refused() -> None:
    with pytest.raises(ValueError, match=r"bias must be finite\. Pass pairs that are not allowed"):
        compact_bias(torch.tensor([[[0.0, -torch.inf]]]))
    with pytest.raises(ValueError, match=r"bias must be \(heads or 1, queries or 1, keys\)"):
        compact_bias(torch.ones(3, 3))
