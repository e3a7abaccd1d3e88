"""Tests of cells of one length, which are computed from all or sampled queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import attnviz.record.softmax
import attnviz.server.cells
import attnviz.server.row_normalizers
from attnviz.interventions.attributed import (
    GradientAttribution,
    HeadVectors,
    NormAttribution,
    ValueNorms,
)
from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.masks import BandMask, Mask, PackedMask
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.server.cells import Cells, _sampling_interval
from attnviz.server.codec import decode
from attnviz.server.protocol import Reply
from attnviz.server.row_normalizers import RowNormalizers
from unit.formulas import Floats, pool, square_cells, weights_of
from unit.layers import HEADS, LAYER, error_of, heads_lists, numbers_of, stack_of, stacks
from unit.records import vectors
from unit.selected import selected

TILE = 4


def encoded_tile(
    stack: AttentionStack,
    row_normalizers: RowNormalizers | None = None,
    *,
    heads: Sequence[int] = (0,),
    level: int = 0,
    pooled: Any = "mean",
    row: int = 0,
    column: int = 0,
) -> Reply:
    """Return the reply with a tile: at most `TILE` rows and columns of cells of length 2^level."""
    span = TILE << level
    rows, columns = (
        slice(index * span, min((index + 1) * span, len(tokens)))
        for index, tokens in ((row, stack.query_tokens), (column, stack.key_tokens))
    )
    weights = selected(
        stack, LAYER, heads, rows, columns, combine="mean", row_normalizers=row_normalizers
    )
    return Cells(pooled=pooled, length=1 << level).reply(weights)


def tile(stack: AttentionStack, **request: Any) -> NDArray[np.float32]:
    cells: NDArray[np.float32] = decode(encoded_tile(stack, **request))[0]
    return cells


def all_tiles(
    stack: AttentionStack, level: int, **request: Any
) -> tuple[NDArray[np.float32], int | None]:
    """Return all cells of a zoom level as one matrix, and the sampling interval (None if exact)."""
    normalizers, span, intervals = RowNormalizers(), TILE << level, set()
    lines: list[list[NDArray[np.float32]]] = []
    for row in range(-(-len(stack.query_tokens) // span)):
        lines.append([])
        for column in range(-(-len(stack.key_tokens) // span)):
            encoded = encoded_tile(
                stack, normalizers, level=level, row=row, column=column, **request
            )
            assert max(encoded.header["shape"]) <= TILE
            lines[-1].append(decode(encoded)[0])
            intervals.add(encoded.header.get("sampling_interval"))
    (interval,) = intervals
    return np.block(lines), interval


@contextmanager
def small_sizes(*, sample: bool = False) -> Iterator[pytest.MonkeyPatch]:
    """Set limits so low that tiles of small matrices are computed like tiles of large ones.

    Queries are sampled only if `sample` is True.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attnviz.server.cells, "TILE", TILE)
        patch.setattr(attnviz.server.cells, "MAX_EXACT_PAIRS", 0)
        patch.setattr(attnviz.server.cells, "_MIN_QUERIES_PER_TILE", 2)
        if not sample:
            patch.setattr(attnviz.server.cells, "_MAX_SAMPLED_PAIRS", 1 << 40)
            patch.setattr(attnviz.server.cells, "_MAX_QUERIES_PER_ROW", 1 << 20)
        patch.setattr(attnviz.server.row_normalizers, "_MAX_RECOMPUTED_KEYS", 0)
        patch.setattr(attnviz.record.softmax, "_TILE_ENTRIES", 50)
        patch.setattr(attnviz.record.softmax, "_BLOCK_ENTRIES", 20)
        yield patch


def assert_cells(
    actual: NDArray[Any],
    matrix: Floats,
    cells_of: Callable[[Floats], Floats],
    error: float,
    relative: float = 2e-3,
) -> None:
    """Compare cells with `cells_of(matrix)`, up to an absolute and a relative error."""
    expected = cells_of(matrix)
    assert_allclose(np.abs(actual), np.abs(expected), atol=error, rtol=relative)
    # If positive and negative numbers nearly balance, rounding may decide the sign of a cell, so
    # the sign is not compared.
    is_clear = np.abs(expected + cells_of(-matrix)) < 1e-9
    assert_allclose(actual[is_clear], expected[is_clear], atol=error, rtol=relative)


@given(st.data(), st.integers(0, 5), st.sampled_from(["mean", "max"]), heads_lists)
def test_all_tiles_together_are_the_matrix(
    data: st.DataObject, level: int, pooled: str, heads: list[int]
) -> None:
    stack = data.draw(stacks())
    with small_sizes() as patch:
        # Cached normalizers are used only for matrices of more than `MAX_EXACT_PAIRS` pairs.
        max_exact_pairs = data.draw(st.sampled_from([0, 1 << 24]))
        patch.setattr(attnviz.server.cells, "MAX_EXACT_PAIRS", max_exact_pairs)
        actual, interval = all_tiles(stack, level, heads=heads, pooled=pooled)
    assert interval is None
    assert_cells(
        actual,
        numbers_of(stack)[heads].mean(axis=0),
        lambda matrix: square_cells(matrix, 2**level, pooled),
        error_of(stack.attention(LAYER)),
    )


@given(st.data(), st.integers(1, 3), st.sampled_from(["mean", "max"]), heads_lists)
def test_cells_pool_sampled_queries_over_all_keys(
    data: st.DataObject, level: int, pooled: str, heads: list[int]
) -> None:
    stack = data.draw(stacks("softmax", "difference"))
    with small_sizes(sample=True) as patch:
        max_pairs = data.draw(st.sampled_from([1, 100, 1000]))
        patch.setattr(attnviz.server.cells, "_MAX_SAMPLED_PAIRS", max_pairs)
        actual, interval = all_tiles(stack, level, heads=heads, pooled=pooled)
    assume(interval is not None)
    assert interval is not None
    size, span = 2**level, TILE << level
    # `small_sizes` requires at least two sampled queries per tile for any number of heads.
    assert interval <= span // 2
    num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
    sampled: list[int] = []
    for start in range(0, num_queries, span):
        count = -(-min(span, num_queries - start) // interval)
        queries = start + sample_queries(count * interval, count)
        sampled += np.minimum(queries, num_queries - 1).tolist()
    # If the interval is larger than a cell, several rows of cells show the same queries.
    height = max(size, interval)
    queries_of_rows = [
        [query for query in sampled if query // height == top // height]
        for top in range(0, num_queries, size)
    ]
    key_edges = [*range(0, num_keys, size), num_keys]
    assert_cells(
        actual,
        numbers_of(stack)[heads].mean(axis=0),
        lambda matrix: np.vstack(
            [pool(matrix[rows], [0, len(rows)], key_edges, pooled) for rows in queries_of_rows]
        ),
        error_of(stack.attention(LAYER)),
    )


def attributions(kind: str) -> tuple[LayerAttention, Floats]:
    """Return a layer of norm or gradient attributions, and the attributions by a formula."""
    flags = torch.from_numpy(np.random.default_rng(5).random((1, 53, 101)) < 0.3)
    queries, keys = vectors(HEADS, 53, 8), vectors(2, 101, 8, seed=1)
    attention = QueryKeyAttention(3 * queries, keys, 0.5, mask=PackedMask.pack(flags))
    weights = weights_of(attention)
    if kind == "norms":
        norms = vectors(HEADS, 101, seed=32).abs()
        by_norms = NormAttribution(attention, ValueNorms(norms=norms))
        return by_norms, weights * norms.double()[:, None].numpy()
    values, gradients = vectors(2, 101, 6, seed=30), vectors(HEADS, 53, 6, seed=31)
    values_of_heads = values.double().repeat_interleave(2, 0).numpy()
    outputs = weights @ values_of_heads
    by_weights = gradients.double().numpy() @ values_of_heads.swapaxes(1, 2)
    along = (gradients.double().numpy() * outputs).sum(axis=-1, keepdims=True)
    float_outputs = torch.from_numpy(outputs).float()
    layer = GradientAttribution(attention, HeadVectors(values, float_outputs, gradients), "logits")
    return layer, weights * (by_weights - along) / (1 - weights)


@pytest.mark.parametrize("kind", ["norms", "gradients"])
def test_attributions_in_steps_equal_the_formulas(kind: str) -> None:
    layer, numbers = attributions(kind)
    stack = stack_of(layer, signed=kind == "gradients", normalized=False)
    # Gradient attributions divide by 1 - weight, which is inexact for weights near 1.
    digits = 1e-2 if kind == "gradients" else 2e-3
    with small_sizes():
        for heads, level, pooled in (([2], 3, "mean"), ([0, 3], 2, "max")):
            actual, _ = all_tiles(stack, level, heads=heads, pooled=pooled)
            expected = square_cells(numbers[heads].mean(axis=0), 2**level, pooled)
            assert_allclose(np.abs(actual), np.abs(expected), atol=2e-5, rtol=digits)


@pytest.mark.parametrize(("number", "sign"), [(-0.3, 1), (-0.30000001, 1), (-0.301, -1)])
def test_equal_positive_and_negative_sums_count_as_positive(number: float, sign: int) -> None:
    # A difference of causal attentions can begin with 2 x 2 numbers like these: 0, 0, d, about -d.
    stack = stack_of(StoredWeights(torch.tensor([[[0.0, 0.0], [0.3, number]]])), signed=True)
    assert np.sign(tile(stack, level=1, pooled="mean")) == sign


def softmax_stack(mask: Mask | None = None) -> AttentionStack:
    queries, keys = vectors(HEADS, 53, 4), vectors(HEADS, 53, 4, seed=1)
    return stack_of(QueryKeyAttention(queries, keys, 0.5, mask=mask))


@pytest.mark.parametrize(
    ("tokens", "num_heads", "expected"),
    [
        # For one head, texts of up to 4,096 tokens are exact, and so are tiles of up to 4,096 x
        # 4,096 pairs (levels 0 to 4).
        (4096, 1, [None] * 5),
        (8192, 1, [None, None, 2, 8, 32]),
        (131_072, 1, [None, None, 16, 64, 256]),
        # With many heads the minimum of 64 sampled queries per tile decides.
        (131_072, 32, [None, 64, 128, 512, 2048]),
    ],
)
def test_tiles_with_many_pairs_sample_queries(
    tokens: int, num_heads: int, expected: list[int | None]
) -> None:
    layer = QueryKeyAttention(vectors(num_heads, tokens, 1), vectors(1, tokens, 1), 1.0)
    heads = range(num_heads)
    part = selected(stack_of(layer), LAYER, heads, slice(0, 256))
    intervals = [_sampling_interval(part, 2**level) for level in (0, 4, 5, 7, 9)]
    assert intervals == expected


def test_masked_tiles_take_no_work(logit_blocks: list[int]) -> None:
    with small_sizes():
        assert not tile(softmax_stack(mask=BandMask(None, 0)), level=1, column=2).any()
    assert logit_blocks == []
