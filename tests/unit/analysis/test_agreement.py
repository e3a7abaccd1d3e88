"""Agreement of rankings, and weights that other weights with the same output can replace."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from attnviz.analysis import kendall_tau, movable_weight


def test_tau_counts_pairs() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 12))
    pairs = list(combinations(range(12), 2))
    alike = sum(np.sign(a[i] - a[j]) == np.sign(b[i] - b[j]) for i, j in pairs)
    assert kendall_tau(a, b) == pytest.approx((2 * alike - len(pairs)) / len(pairs))
    assert kendall_tau(a, a) == pytest.approx(1)
    assert kendall_tau(a, -a) == pytest.approx(-1)
    holes = a.copy()
    holes[3] = np.nan
    valid = np.arange(12) != 3
    assert kendall_tau(holes, b) == kendall_tau(a[valid], b[valid])


def test_tau_refuses_invalid_rankings() -> None:
    with pytest.raises(ValueError, match="a has 2 numbers and b has 3"):
        kendall_tau([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="1 pairs"):
        kendall_tau([1, np.nan], [1, 2])


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
    # If there are as many dimensions as keys, only the original weights give this output.
    assert (moved.share > 0.2) == (keys == 40)


@pytest.mark.parametrize(
    ("weights", "values"),
    [
        ([0.5, 0.5], [[1.0]]),
        ([], np.zeros((0, 2))),
        ([1.5, -0.5], [[1.0], [2.0]]),
        ([0.5, 0.5], [[1.0], [np.inf]]),
    ],
)
def test_invalid_rows_are_refused(weights: Any, values: Any) -> None:
    with pytest.raises(ValueError, match="weights"):
        movable_weight(weights, values)
