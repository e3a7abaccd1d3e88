"""Tests of the zeros in replies about models that choose keys before the softmax."""

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

from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.masks import BandMask, ChosenMask, PackedMask
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import decode
from attnviz.server.server import RecordServer
from attnviz.server.zeros import SCORED_ZERO
from rounding import weights_error
from unit.formulas import weights_of
from unit.layers import HEADS, LAYER, heads_lists, stack_of
from unit.records import vectors

N = 9
CAUSAL = np.tri(N, dtype=bool)


def chooses(*, per_head: bool = False, scale: float = 0.5) -> tuple[QueryKeyAttention, Any]:
    """Return a causal layer that chooses about half of the keys, and which pairs it chose."""
    shape = (HEADS if per_head else 1, N, N)
    chosen = np.random.default_rng(3).random(shape) < 0.5
    mask = ChosenMask(PackedMask.pack(torch.from_numpy(chosen)), BandMask(None, 0))
    queries, keys = vectors(HEADS, N, 8), vectors(HEADS, N, 8, seed=1)
    return QueryKeyAttention(queries, keys, scale, mask), np.broadcast_to(chosen, (HEADS, N, N))


def kind_of(allowed: NDArray[np.bool_], left_out: NDArray[np.bool_]) -> str:
    if allowed.any():
        return "scored"
    return "not chosen" if left_out.any() else "masked"


def kinds_in(numbers: NDArray[np.float32]) -> list[list[str]]:
    """Return the kind of each cell, as a view reads it."""

    def kind(number: float) -> str:
        return "scored" if number > 0 else "masked" if np.signbit(number) else "not chosen"

    return [[kind(number) for number in row] for row in numbers]


def read(stack: AttentionStack, **arguments: Any) -> NDArray[np.float32]:
    server = RecordServer(AttentionRecord({"self": stack}))
    whole = {"stack": "self", "layer": LAYER, "rows": [0, N], "columns": [0, N]}
    return decode(server.reply("read", whole | arguments))


@pytest.mark.parametrize("per_head", [False, True])
# With the scale 40, some of the scored weights are 0 in float32.
@pytest.mark.parametrize("scale", [0.5, 40.0])
def test_a_block_tells_masked_left_out_and_small_weights_apart(
    scale: float, *, per_head: bool
) -> None:
    attention, chosen = chooses(per_head=per_head, scale=scale)
    block = read(stack_of(attention), heads=[2, 0], rows=[1, N], columns=[0, N - 1])
    for matrix, head in zip(block, [2, 0], strict=True):
        expected = [
            [kind_of(CAUSAL[q, k] & chosen[head, q, k], CAUSAL[q, k]) for k in range(N - 1)]
            for q in range(1, N)
        ]
        assert kinds_in(matrix) == expected
    assert (block == SCORED_ZERO).any() == (scale > 1)
    assert_allclose(block, weights_of(attention)[[2, 0], 1:, :-1], atol=weights_error(attention))


@pytest.mark.parametrize("per_head", [False, True])
@given(heads=heads_lists, pooled=st.sampled_from(["mean", "max"]), level=st.sampled_from([0, 1, 2]))
def test_a_cell_is_left_out_if_all_its_pairs_that_are_not_masked_are(
    heads: list[int], pooled: str, level: int, *, per_head: bool
) -> None:
    attention, chosen = chooses(per_head=per_head)
    size = 2**level
    reduce = {"kind": "cells", "pooled": pooled, "length": size}
    [cells] = read(stack_of(attention), heads=heads, combine="mean", reduce=reduce)
    starts = range(0, N, size)
    allowed = (CAUSAL & chosen[heads]).any(axis=0)
    parts = [[(slice(q, q + size), slice(k, k + size)) for k in starts] for q in starts]
    expected = [[kind_of(allowed[part], CAUSAL[part]) for part in row] for row in parts]
    assert kinds_in(cells) == expected


def test_other_stacks_have_zeros_of_one_kind() -> None:
    attention = replace(chooses()[0], mask=BandMask(None, 0))
    block = read(stack_of(attention), heads=[0])
    assert_array_equal(block[0] == 0, ~CAUSAL)
    assert not np.signbit(block).any()
    described = RecordServer(AttentionRecord({"self": stack_of(attention)})).reply("describe", {})
    assert "chooses_keys" not in described.header["stacks"][0]


def test_the_lost_weight_is_that_of_the_dense_softmax() -> None:
    attention, chosen = chooses(per_head=True)
    server = RecordServer(AttentionRecord({"self": stack_of(attention)}))
    assert server.reply("describe", {}).header["stacks"][0]["chooses_keys"] is True
    dense = weights_of(replace(attention, mask=BandMask(None, 0)))
    expected = (dense * ~chosen).sum(axis=2)
    lost = read(stack_of(attention), heads=[3, 1], rows=[6, 8], reduce={"kind": "lost"})
    assert_allclose(lost[..., 0], expected[[3, 1], 6:8], atol=weights_error(attention))
    mean = read(
        stack_of(attention), heads=[3, 1], rows=[6, 8], reduce={"kind": "lost"}, combine="mean"
    )
    assert_allclose(mean[..., 0], lost[..., 0].mean(axis=0)[None], rtol=1e-6)
    row = {"stack": "self", "layer": LAYER, "head": 3, "token": 6, "keys": [0, N]}
    header = server.reply("vectors", row).header
    assert header["lost"] == pytest.approx(lost[0, 0, 0])
    assert header["num_left_out"] == (CAUSAL[6] & ~chosen[3, 6]).sum()


def test_a_layer_without_queries_and_keys_has_no_lost_weight() -> None:
    weights = StoredWeights(torch.ones(1, 1, 1))
    ask = {"rows": [0, 1], "columns": [0, 1], "reduce": {"kind": "lost"}}
    assert read(stack_of(weights), heads=[0], **ask).shape == (1, 1, 0)
