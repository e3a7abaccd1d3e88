"""Masks with inserted tokens, which see nothing and are not seen, compared with plain indexing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import (
    BandMask,
    Bias,
    DenseBias,
    DistanceBias,
    InsertedBias,
    InsertedMask,
    Mask,
    PackedMask,
    WindowBias,
    WindowMask,
    from_parts,
)
from attnviz.record.record import AttentionRecord, AttentionStack, load
from attnviz.record.tokens import Tokens
from unit.records import vectors

HEADS, QUERIES, KEYS = 3, 6, 7
QUERY_UNITS, KEY_UNITS = torch.tensor([0, 1, 4, 5, 6, 9]), torch.tensor([1, 2, 3, 5, 6, 7, 10])
NUM_QUERIES, NUM_KEYS = 10, 12

_windows = torch.tensor([0, 0, 0, 1, 1, 1, 1])
MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal": BandMask(None, 0),
    "last queries": BandMask(None, 0, KEYS - QUERIES),
    "sliding": BandMask(2, 1),
    "packed": PackedMask.pack(
        torch.rand(HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(0)) < 0.5
    ),
    "windows": WindowMask(_windows[:QUERIES], _windows),
}
BIASES: dict[str, Bias] = {
    "distance": DistanceBias(vectors(HEADS, QUERIES + KEYS - 1, seed=1), QUERIES),
    "dense": DenseBias(vectors(HEADS, QUERIES, KEYS, seed=2)),
    "shared": DenseBias(vectors(1, 1, KEYS, seed=3)),
    "in windows": WindowBias(
        vectors(1, HEADS, 4, 4, seed=4),
        _windows[:QUERIES],
        _windows,
        torch.tensor([0, 1, 2, 0, 1, 2]),
        torch.tensor([0, 1, 2, 0, 1, 2, 3]),
    ),
}
BLOCKS = [
    (slice(0, NUM_QUERIES), slice(0, NUM_KEYS)),
    (slice(2, 7), slice(3, 11)),
    (slice(2, 4), slice(0, 5)),
    (slice(0, 3), slice(8, 10)),
    (torch.tensor([9, 2, 0, 5]), slice(1, 8)),
    (torch.tensor([3]), slice(0, NUM_KEYS)),
]


def inserted(mask: Mask | None) -> InsertedMask:
    return InsertedMask(mask, QUERY_UNITS, KEY_UNITS, NUM_QUERIES, NUM_KEYS)


def all_flags(mask: Mask | None, head: int) -> torch.Tensor:
    """Return the complete mask, written into a matrix of zeros."""
    flags = torch.zeros(NUM_QUERIES, NUM_KEYS, dtype=torch.bool)
    base = torch.ones(QUERIES, KEYS, dtype=torch.bool)
    if mask is not None:
        base = mask.allowed(head, slice(0, QUERIES), slice(0, KEYS))
    flags[QUERY_UNITS[:, None], KEY_UNITS] = base
    return flags


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_blocks_of_a_mask(mask: Mask | None, block: Any) -> None:
    rows, columns = block
    inserted_mask = inserted(mask)
    assert inserted_mask.fits(HEADS, NUM_QUERIES, NUM_KEYS)
    for head in range(inserted_mask.num_heads):
        expected = all_flags(mask, head)[rows]
        assert torch.equal(inserted_mask.allowed(head, rows, columns), expected[:, columns])
        visible = inserted_mask.fully_visible_keys(rows, columns)
        assert columns.start <= visible.start <= visible.stop <= columns.stop
        assert expected[:, visible].all()
        key_range = inserted_mask.key_range(rows, NUM_KEYS)
        assert not expected[:, : key_range.start].any()
        assert not expected[:, key_range.stop :].any()


@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_blocks_of_a_bias(bias: Bias, block: Any) -> None:
    rows, columns = block
    inserted_bias = InsertedBias(bias, QUERY_UNITS, KEY_UNITS, NUM_QUERIES, NUM_KEYS)
    assert inserted_bias.fits(HEADS, NUM_QUERIES, NUM_KEYS)
    for head in range(inserted_bias.num_heads):
        expected = torch.zeros(NUM_QUERIES, NUM_KEYS)
        expected[QUERY_UNITS[:, None], KEY_UNITS] = bias.added(
            head, slice(0, QUERIES), slice(0, KEYS)
        ).expand(QUERIES, KEYS)
        assert torch.equal(inserted_bias.added(head, rows, columns), expected[rows][:, columns])
    of_head_2 = inserted_bias.only_head(2)
    everything = slice(0, NUM_QUERIES), slice(0, NUM_KEYS)
    assert torch.equal(of_head_2.added(0, *everything), inserted_bias.added(2, *everything))
    dense = inserted_bias.without_windows(HEADS, NUM_QUERIES, NUM_KEYS)
    assert torch.equal(dense.added(1, *everything), inserted_bias.added(1, *everything))


def test_keys_in_runs_without_a_gap_are_fully_visible() -> None:
    """Only keys near the diagonal need their flags in a causal text with one more token."""
    units = torch.cat([torch.arange(100), torch.arange(101, 1000)])
    mask = InsertedMask(BandMask(None, 0), units, units, 1000, 1000)
    assert mask.causal
    assert mask.offset == 0
    assert mask.fully_visible_keys(slice(500, 600), slice(0, 1000)) == slice(101, 501)
    assert mask.key_range(slice(500, 600), 1000) == slice(0, 600)
    assert mask.key_range(slice(100, 101), 1000) == slice(0, 0)
    assert not inserted(BandMask(None, 0)).causal
    assert not inserted(None).causal


def layer(mask: Mask | None, bias: Bias | None = None, **options: Any) -> QueryKeyAttention:
    """Return queries and keys with inserted zeros."""
    queries, keys = vectors(HEADS, QUERIES, 8, seed=5), vectors(HEADS, KEYS, 8, seed=6)
    sides = torch.zeros(HEADS, NUM_QUERIES, 8), torch.zeros(HEADS, NUM_KEYS, 8)
    sides[0][:, QUERY_UNITS], sides[1][:, KEY_UNITS] = queries, keys
    added = bias and InsertedBias(bias, QUERY_UNITS, KEY_UNITS, NUM_QUERIES, NUM_KEYS)
    return QueryKeyAttention(*sides, 0.7, inserted(mask), added, **options)


def stack_of(attention: QueryKeyAttention) -> AttentionStack:
    queries, keys = (
        Tokens.of([f" {side}{number}" for number in range(count)])
        for side, count in (("q", NUM_QUERIES), ("k", NUM_KEYS))
    )
    return AttentionStack("self", {0: attention}, queries, keys)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_saved_and_read_again(mask: Mask | None, tmp_path: Path) -> None:
    record = AttentionRecord({"self": stack_of(layer(mask, BIASES["distance"]))})
    loaded = load(record.save(tmp_path / "record.safetensors"), verify=True)
    for head in range(HEADS):
        before, after = (
            saved.stack().weights(layer=0, head=head).tobytes() for saved in (record, loaded)
        )
        assert before == after
    attention = loaded.stack().attention(0).vectors
    assert attention is not None
    assert attention.mask is not None
    assert attention.mask.equals(inserted(mask))


def test_invalid_insertions_are_refused() -> None:
    good = inserted(BandMask(None, 0))
    numbers, tensors = good.to_parts()
    assert good.equals(from_parts(numbers, tensors.__getitem__))
    deep: dict[str, Any] = {**numbers, "base": None}
    for _ in range(1000):
        deep = {**numbers, "base": deep}
    with pytest.raises(ValueError, match="nested too deeply"):
        from_parts(deep, lambda name: tensors[name.rpartition("base.")[2]])
    bias = BIASES["shared"].to_parts()
    with pytest.raises(TypeError, match="the base of a mask must be a mask"):
        from_parts(
            {**numbers, "base": bias[0]},
            lambda name: tensors[name] if name in tensors else bias[1][name.removeprefix("base.")],
        )
    for wrong in (
        inserted(PackedMask.pack(torch.ones(1, 2, 2, dtype=torch.bool))),
        InsertedMask(None, QUERY_UNITS.flip(0), KEY_UNITS, NUM_QUERIES, NUM_KEYS),
        InsertedMask(None, QUERY_UNITS.int(), KEY_UNITS, NUM_QUERIES, NUM_KEYS),
        InsertedMask(None, QUERY_UNITS, KEY_UNITS + 5, NUM_QUERIES, NUM_KEYS),
        InsertedMask(None, QUERY_UNITS[:0], KEY_UNITS, NUM_QUERIES, NUM_KEYS),
        InsertedMask(None, QUERY_UNITS, KEY_UNITS, NUM_QUERIES - 1, NUM_KEYS),
    ):
        assert not wrong.fits(HEADS, NUM_QUERIES, NUM_KEYS)


def test_another_order_is_a_permutation_of_rows_and_columns() -> None:
    units = torch.tensor([0, 2, 3])
    mask = InsertedMask(BandMask(None, 0), units, units, 4, 4)
    order = torch.tensor([3, 1, 0, 2])
    everything = slice(0, 4), slice(0, 4)
    expected = mask.allowed(0, *everything)[order][:, order]
    assert torch.equal(mask.permute(order).allowed(0, *everything), expected)
    assert np.array_equal(
        mask.without_windows(4, 4).allowed(0, *everything), mask.allowed(0, *everything)
    )
