"""Tests that weights are pooled into cells as by `unit.formulas`, in one or several blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from attnviz.record.pooling import cell_starts, pool, pool_max
from unit.formulas import equal_cells


@settings(max_examples=60)
@given(st.integers(1, 2), st.integers(1, 40), st.integers(1, 40), st.integers(1, 20))
def test_pooling_equals_the_formula(heads: int, rows: int, columns: int, size: int) -> None:
    weights = np.random.default_rng(rows).random((heads, rows, columns), np.float32)
    expected = [equal_cells(matrix, size) for matrix in weights]
    assert_array_equal(pool_max(weights, size), expected)


@settings(max_examples=60)
@given(st.data())
def test_blocks_together_are_pooled_like_the_whole(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    starts = cell_starts(shape[0], 5), cell_starts(shape[1], 5)
    numbers = np.random.default_rng(0).integers(0, 9, (2, *shape)).astype(np.float64)
    cells, expected = np.zeros((2, 2, *map(len, starts)))
    rows = np.arange(shape[0])
    pool(expected, numbers, (rows, slice(0, shape[1])), starts, np.add)
    row, column = (data.draw(st.integers(0, size)) for size in shape)
    for some_rows in filter(len, (rows[:row], rows[row:])):
        for columns in (slice(0, column), slice(column, shape[1])):
            if columns.start < columns.stop:
                block = numbers[:, some_rows, columns]
                pool(cells, block, (some_rows, columns), starts, np.add)
    assert_array_equal(cells, expected)
