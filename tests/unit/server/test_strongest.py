"""Tests of the strongest keys of queries, against complete rows of weights in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import attnviz.record.softmax
import attnviz.server.row_normalizers
import attnviz.server.strongest
from attnviz.server.strongest import Strongest, StrongestKeys, find_strongest_keys
from attnviz.server.weights import Combine
from unit.formulas import Floats, combined
from unit.layers import LAYER, error_of, heads_lists, numbers_of, ranges, stacks
from unit.selected import selected


def assert_strongest(strongest: StrongestKeys, included: Floats, k: int, error: float) -> None:
    """Compare the strongest keys with the `k` largest absolute numbers of each row."""
    sizes = -np.sort(-np.abs(included), axis=2)[:, :, :k]
    assert_allclose(np.abs(strongest.weights), sizes, atol=error)
    present = strongest.keys >= 0
    assert_array_equal(present, strongest.weights != 0)
    # Look up the numbers at the returned keys, because keys with equal numbers may be in any order.
    keys = np.maximum(strongest.keys, 0).astype(np.int64)
    numbers_at_keys = np.take_along_axis(included, keys, axis=2)
    assert_allclose(strongest.weights, np.where(present, numbers_at_keys, 0), atol=error)
    for row in strongest.keys.reshape(-1, strongest.keys.shape[2]):
        assert len(set(row[row >= 0])) == (row >= 0).sum()


@given(st.data(), st.sampled_from(["separate", "mean", "max"]), heads_lists, st.integers(1, 25))
def test_strongest_keys_and_sums_are_those_of_complete_rows(
    data: st.DataObject, combine: Combine, heads: list[int], k: int
) -> None:
    stack = data.draw(stacks())
    num_keys = len(stack.key_tokens)
    rows = data.draw(ranges(len(stack.query_tokens)))
    left_out = data.draw(st.sets(st.integers(0, num_keys - 1), max_size=4))
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            # With these small limits, a few weights are computed at a time, as for long texts.
            patch.setattr(attnviz.server.row_normalizers, "_MAX_RECOMPUTED_KEYS", 0)
            patch.setattr(attnviz.server.strongest, "_MAX_WEIGHTS", 20)
            patch.setattr(attnviz.record.softmax, "_TILE_ENTRIES", 12)
        strongest = find_strongest_keys(
            selected(stack, LAYER, heads, rows, combine=combine),
            Strongest(k=k, exclude=tuple((key, key + 1) for key in left_out)),
        )
    matrices = combined(numbers_of(stack)[heads], combine)[:, rows]
    included = matrices.copy()
    included[:, :, sorted(left_out)] = 0
    error = 2 * error_of(stack.attention(LAYER))
    assert_strongest(strongest, included, min(k, num_keys), error)
    sizes = np.abs(matrices)
    sum_error = num_keys * error
    assert_allclose(strongest.sums[..., 0], np.abs(included).sum(axis=2), atol=sum_error)
    sum_left_out = sizes[:, :, sorted(left_out)].sum(axis=2)
    assert_allclose(strongest.sums[..., 1], sum_left_out, atol=sum_error)
