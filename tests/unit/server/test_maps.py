"""Tests of small maps of heads, whose cells show the largest number of a block of weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from attnviz.record import rows as sampled
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.pooling import pool_max
from attnviz.record.stack import AttentionStack
from attnviz.server.cells import Cells, pool_on_device
from attnviz.server.codec import decode
from attnviz.server.protocol import Reply
from attnviz.server.weights import Weights
from unit.formulas import equal_cells, weights_of
from unit.layers import (
    HEADS,
    LAYER,
    counts,
    error_of,
    heads_lists,
    numbers_of,
    ranges,
    softmaxes,
    stacks,
)
from unit.long_records import long_record
from unit.selected import selected


def maps_of(weights: Weights, size: int) -> Reply:
    return Cells(pooled="max", max_cells=size).reply(weights)


@given(st.data(), st.integers(1, 30), heads_lists)
def test_maps_show_the_largest_number_of_each_cell(
    data: st.DataObject, size: int, heads: list[int]
) -> None:
    stack = data.draw(stacks())
    rows = data.draw(ranges(len(stack.query_tokens)))
    columns = data.draw(ranges(len(stack.key_tokens)))
    maps = maps_of(selected(stack, LAYER, heads, rows, columns), size)
    header = maps.header
    assert "sampled" not in header
    numbers = numbers_of(stack)
    error = header["error"] + error_of(stack.attention(LAYER))
    for head, cells, (cell, largest) in zip(heads, decode(maps), header["largest"], strict=True):
        expected = equal_cells(numbers[head, rows, columns], size)
        assert_allclose(np.abs(cells), np.abs(expected), atol=error, rtol=2e-3)
        # A cell shows the number with the largest absolute value. If a positive and a negative
        # number are tied, the sign depends on rounding and is not compared.
        is_clear = np.abs(expected + equal_cells(-numbers[head, rows, columns], size)) < 1e-9
        assert_allclose(cells[is_clear], expected[is_clear], atol=error)
        # `largest` is the exact largest number, and `cell` the index of the cell that contains it.
        exact = error_of(stack.attention(LAYER))
        assert abs(largest) == pytest.approx(np.abs(expected).max(), abs=exact)
        assert abs(expected.flat[cell]) == pytest.approx(abs(largest), abs=exact)
    if stack.signed:
        assert header["encoding"] == "int8-sqrt"


@given(st.data(), st.integers(1, 30), st.integers(0, HEADS - 1))
def test_a_device_pools_the_same_cells(data: st.DataObject, size: int, head: int) -> None:
    # The function for accelerators also runs on a CPU.
    attention = data.draw(softmaxes(data.draw(counts), data.draw(counts)))
    rows, columns = data.draw(ranges(attention.num_queries)), data.draw(ranges(attention.num_keys))
    pooled = pool_on_device(attention, head, rows, columns, size)
    expected = equal_cells(weights_of(attention)[head, rows, columns], size)
    assert_allclose(pooled, expected, atol=error_of(attention))


def test_each_row_of_a_long_text_s_map_is_one_query_of_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, size = 600, 8
    monkeypatch.setattr(sampled, "_MAX_ENTRIES", tokens * tokens - 1)
    record = long_record(tokens, heads=4)
    maps = maps_of(selected(record.stack(), 0, [1, 3]), size)
    queries = maps.header["sampled"]
    assert [query // (tokens // size) for query in queries] == [*range(size)]
    weights = weights_of(record.stack().attention(0))[[1, 3]][:, queries]
    expected = weights.reshape(2, size, size, -1).max(axis=3)
    assert_allclose(decode(maps), expected, atol=maps.header["error"] + 1e-6)
    # The reply lists the sampled queries. If all pairs of the range are computed, it has no list.
    part = selected(record.stack(), 0, [1], slice(0, 100), slice(0, 100))
    assert "sampled" not in maps_of(part, size).header


@pytest.mark.gpu
def test_maps_are_pooled_on_the_device() -> None:
    record = long_record(6000, heads=2, key_heads=1, head_dim=16)
    layer = record.stack().attention(0)
    assert isinstance(layer, QueryKeyAttention)
    on_device = replace(layer, queries=layer.queries.cuda(), keys=layer.keys.cuda())
    stack = AttentionStack("self", {0: on_device}, record.stack().query_tokens)
    maps = maps_of(selected(stack, 0, [1]), 32)
    assert "sampled" not in maps.header
    weights = record.stack().weights(layer=0, head=1)
    assert_allclose(decode(maps)[0], pool_max(weights[None], 32)[0], atol=maps.header["error"])
