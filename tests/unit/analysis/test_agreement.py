"""Tests of `kendall_tau` and `movable_weight`, which changes weights but not the head's output."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from attnviz.analysis import kendall_tau, movable_weight


def test_tau_counts_pairs() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 12))
    pairs = list(combinations(range(12), 2))
    alike = sum(np.sign(a[i] - a[j]) == np.sign(b[i] - b[j]) for i, j in pairs)
    assert kendall_tau(a, b) == pytest.approx((2 * alike - len(pairs)) / len(pairs))
    assert kendall_tau(a, -a) == pytest.approx(-1)
    with_nan = a.copy()
    with_nan[3] = np.nan
    assert kendall_tau(with_nan, b) == kendall_tau(np.delete(a, 3), np.delete(b, 3))


@pytest.mark.parametrize("keys", [4, 40])
def test_moved_weight_gives_the_same_output(keys: int) -> None:
    generator = np.random.default_rng(1)
    weights = generator.dirichlet(np.ones(keys) / 2)
    values = generator.normal(size=(keys, 8))
    moved = movable_weight(weights, values)
    assert np.abs(moved.weights @ values - weights @ values).max() < 1e-8
    assert moved.weights.sum() == pytest.approx(1)
    assert moved.weights.min() > -1e-9
    assert moved.share == pytest.approx(np.abs(moved.weights - weights).sum() / 2, abs=1e-9)
    # With 4 keys, the values (8 dimensions) are linearly independent, so no other weights give
    # the same output.
    assert (moved.share > 0.2) == (keys == 40)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (kendall_tau, ([1, 2], [1, 2, 3]), "same shape"),
        (kendall_tau, ([1, np.nan], [1, 2]), "1 pairs"),
        (movable_weight, ([0.5, 0.5], [[1.0]]), "weights"),
        (movable_weight, ([1.5, -0.5], [[1.0], [2.0]]), "weights"),
        (movable_weight, ([0.5, 0.5], [[1.0], [np.inf]]), "weights"),
    ],
)
def test_invalid_numbers_are_refused(function: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(*arguments)
