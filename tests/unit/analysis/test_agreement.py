"""Tests of `kendall_tau`."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from attnviz.analysis import kendall_tau


def test_tau_counts_pairs() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 12))
    pairs = list(combinations(range(12), 2))
    alike = sum(np.sign(a[i] - a[j]) == np.sign(b[i] - b[j]) for i, j in pairs)
    assert kendall_tau(a, b) == pytest.approx((2 * alike - len(pairs)) / len(pairs))
    assert kendall_tau(a, -a) == pytest.approx(-1)
    with_nan = a.copy()
    with_nan[3] = np.nan
    assert kendall_tau(with_nan, b) == kendall_tau(np.delete(a, 3), np.delete(b, 3))


@pytest.mark.parametrize(
    ("a", "b", "message"), [([1, 2], [1, 2, 3], "same shape"), ([1, np.nan], [1, 2], "1 pairs")]
)
def test_invalid_numbers_are_refused(a: Any, b: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kendall_tau(a, b)
