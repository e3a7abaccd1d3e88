"""Tests of the scores of the functions in `patterns`, and of errors for invalid arguments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.analysis import patterns
from unit.records import given_record

# Causal weights of the tokens a b a b.
CAUSAL = np.array(
    [
        [1.0, 0.0, 0.0, 0.0],
        [0.4, 0.6, 0.0, 0.0],
        [0.1, 0.7, 0.2, 0.0],
        [0.0, 0.3, 0.6, 0.1],
    ]
)
FULL = np.array([[0.2, 0.8, 0.0], [0.1, 0.3, 0.6], [0.5, 0.25, 0.25]])
ABAB = ["a", "b", "a", "b"]
# Mask that selects keys 1 and 2.
MIDDLE = np.array([False, True, True, False])


REPEATED = np.zeros((6, 6))
REPEATED[3, 1], REPEATED[4, 2], REPEATED[5, 3] = 0.9, 0.6, 0.3


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (patterns.previous_token(CAUSAL), (0.4 + 0.7 + 0.6) / 3),
        (patterns.next_token(FULL), (0.8 + 0.6) / 2),
        (patterns.next_token(CAUSAL), 0),
        (patterns.self_token(CAUSAL), (1.0 + 0.6 + 0.2 + 0.1) / 4),
        (patterns.first_token(CAUSAL), (1.0 + 0.4 + 0.1 + 0.0) / 4),
        (patterns.first_token([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]), 0.75),
        # float16 numbers are not summed in float16.
        (patterns.first_token(np.full((3000, 8), 0.125, np.float16)), 0.125),
        # The tokens of queries 2 and 3 occurred before, at positions 0 and 1.
        (patterns.same_token(CAUSAL, ABAB), (0.1 + 0.3) / 2),
        (patterns.same_token(CAUSAL, [7, 9, 7, 9]), (0.1 + 0.3) / 2),
        (patterns.same_token(CAUSAL, ["a", "b", "c", "d"]), np.nan),
        # "a" and "a\0" differ, although an array of strings would drop the zero byte.
        (patterns.same_token(FULL, ["a", "a\0", "b"]), np.nan),
        # Key 1 follows the "a" at 0, so key 1 counts for query 2 ("a"), and key 2 for query 3.
        (patterns.induction(CAUSAL, ABAB), (0.7 + 0.6) / 2),
        # All tokens are "a". Key 1 counts for query 1, and keys 1 and 2 count for query 2.
        (
            patterns.induction([[1.0, 0.0, 0.0], [0.2, 0.8, 0.0], [0.1, 0.3, 0.6]], ["a"] * 3),
            (0.8 + 0.9) / 2,
        ),
        # For each query q >= `length` (the second argument), key q - `length` + 1 counts.
        (patterns.repeated_induction(CAUSAL, 2), (0.7 + 0.6) / 2),
        (patterns.repeated_induction(REPEATED, 3), 0.6),
        (patterns.repeated_induction([[1.0, 0.0], [0.75, 0.25]], 1), 0.25),
        (patterns.mass_on(CAUSAL, MIDDLE), (0.6 + 0.9 + 0.9) / 4),
        # Query 0 may not attend to keys 1 and 2, so the mean omits query 0.
        (patterns.mass_on(CAUSAL, MIDDLE, allowed=np.tri(4, dtype=bool)), (0.6 + 0.9 + 0.9) / 3),
        (patterns.next_token(CAUSAL, allowed=np.tri(4, dtype=bool)), np.nan),
        # Weights of several heads give one score per head, and each head can have its own mask.
        (patterns.self_token(np.stack([CAUSAL, np.eye(4)])), [0.475, 1.0]),
        (
            patterns.mass_on(
                np.stack([CAUSAL, CAUSAL]), np.stack([np.eye(4) > 0, np.eye(4, k=-1) > 0])
            ),
            [0.475, 1.7 / 3],
        ),
    ],
)
def test_patterns_by_hand(score: NDArray[np.float64], expected: float | list[float]) -> None:
    assert score == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: patterns.self_token([0.5, 0.5]), ValueError, r"n_queries, n_keys.*\(2,\)"),
        (lambda: patterns.self_token(np.zeros((0, 0))), ValueError, "at least one"),
        (
            lambda: patterns.previous_token(given_record()),  # type: ignore[arg-type]
            TypeError,
            r"weights must be an array of real numbers; .*head_scores\(record",
        ),
        (lambda: patterns.self_token([["a"]]), TypeError, "real numbers"),
        (lambda: patterns.self_token([[np.nan]]), ValueError, "weights contains NaN"),
        (lambda: patterns.self_token([[-1.0]]), ValueError, "after the softmax"),
        (lambda: patterns.previous_token(CAUSAL[:3]), ValueError, "3 queries and 4 keys"),
        (lambda: patterns.induction(CAUSAL, [1, 2]), ValueError, "4 entries, .*; got 2"),
        (lambda: patterns.repeated_induction(CAUSAL, 3), ValueError, r"length=3.*\(.*4, 4\)"),
        (lambda: patterns.mass_on(CAUSAL, MIDDLE[:3]), ValueError, r"mask.*got \(3,\)"),
        (lambda: patterns.mass_on(CAUSAL, np.ones(4)), TypeError, r"mask\.astype\(bool\)"),
        (
            lambda: patterns.previous_token(CAUSAL, allowed=MIDDLE[:3]),
            ValueError,
            "allowed",
        ),
    ],
)
def test_errors_name_the_argument(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
