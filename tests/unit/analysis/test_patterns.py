"""Head patterns on matrices worked out by hand, and their bounds on any matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.analysis import patterns
from unit.records import given_record

# A causal matrix for the tokens a b a b, with sums that are easy to do by hand.
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


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (patterns.previous_token(CAUSAL), (0.4 + 0.7 + 0.6) / 3),
        (patterns.next_token(FULL), (0.8 + 0.6) / 2),
        (patterns.next_token(CAUSAL), 0),
        (patterns.self_token(CAUSAL), (1.0 + 0.6 + 0.2 + 0.1) / 4),
        (patterns.first_token(CAUSAL), (1.0 + 0.4 + 0.1 + 0.0) / 4),
        (patterns.first_token([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]), 0.75),
        # Query 2 ("a") attends to the token after the "a" at 0: key 1. Query 3 ("b"): key 2.
        (patterns.induction(CAUSAL, ABAB), (0.7 + 0.6) / 2),
        (patterns.mass_on(CAUSAL, np.array([False, True, True, False])), (0.6 + 0.9 + 0.9) / 4),
        (patterns.next_token(CAUSAL, allowed=np.tri(4, dtype=bool)), np.nan),
        (patterns.same_token(CAUSAL, ["a", "b", "c", "d"]), np.nan),
        # The tokens end in a zero byte, which numpy removes from its strings.
        (patterns.same_token(FULL, ["a", "a\0", "b"]), np.nan),
        # One result for each leading index, and a mask for each head.
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
    assert score.dtype == np.float64


@pytest.mark.parametrize("tokens", [ABAB, [7, 9, 7, 9], np.array([7, 9, 7, 9])])
def test_same_token_by_hand(tokens: list[str]) -> None:
    # The tokens of queries 2 and 3 occurred before, at 0 and at 1.
    assert patterns.same_token(CAUSAL, tokens) == pytest.approx((0.1 + 0.3) / 2)


def test_induction_counts_the_query_itself_if_its_token_is_the_previous_one() -> None:
    weights = [[1.0, 0.0, 0.0], [0.2, 0.8, 0.0], [0.1, 0.3, 0.6]]
    # Query 1: key 1 (after the "a" at 0). Query 2: keys 1 and 2.
    assert patterns.induction(weights, ["a", "a", "a"]) == pytest.approx((0.8 + 0.9) / 2)


def test_repeated_induction_by_hand() -> None:
    assert patterns.repeated_induction(CAUSAL, 2) == pytest.approx((0.7 + 0.6) / 2)
    weights = np.zeros((6, 6))
    weights[3, 1], weights[4, 2], weights[5, 3] = 0.9, 0.6, 0.3
    assert patterns.repeated_induction(weights, 3) == pytest.approx(0.6)
    # The only query of the second half counts its own position.
    assert patterns.repeated_induction([[1.0, 0.0], [0.75, 0.25]], 1) == pytest.approx(0.25)


def test_repeated_induction_equals_induction_if_tokens_occur_once_in_each_half() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(12), size=12)
    tokens = [*range(6), *range(6)]
    score = patterns.repeated_induction(weights, 6)
    assert score == pytest.approx(float(patterns.induction(weights, tokens)))


def test_mass_on_counts_queries_that_may_see_a_chosen_key() -> None:
    mask = np.array([False, True, True, False])
    allowed = np.tri(4, dtype=bool)
    # Query 0 sees neither of the two keys.
    score = patterns.mass_on(CAUSAL, mask, allowed=allowed)
    assert score == pytest.approx((0.6 + 0.9 + 0.9) / 3)


def test_float16_is_summed_exactly_enough() -> None:
    weights = np.full((3000, 8), 0.125, dtype=np.float16)
    assert patterns.first_token(weights) == 0.125


WRONG: list[tuple[str, Callable[[], object], type[Exception], str]] = [
    ("a row", lambda: patterns.self_token([0.5, 0.5]), ValueError, r"n_queries, n_keys.*\(2,\)"),
    ("nothing", lambda: patterns.self_token(np.zeros((0, 0))), ValueError, "at least one"),
    (
        "a record",
        lambda: patterns.previous_token(given_record()),  # type: ignore[arg-type]
        TypeError,
        r"weights must be an array; .*head_scores\(record",
    ),
    ("text", lambda: patterns.self_token([["a"]]), TypeError, "real numbers"),
    ("bool", lambda: patterns.self_token([[True]]), TypeError, "real numbers"),
    ("NaN", lambda: patterns.self_token([[np.nan]]), ValueError, "weights contains NaN"),
    ("infinite", lambda: patterns.self_token([[np.inf]]), ValueError, "infinite"),
    ("logits", lambda: patterns.self_token([[-1.0]]), ValueError, "after the softmax"),
    ("not square", lambda: patterns.previous_token(CAUSAL[:3]), ValueError, "3 queries and 4 keys"),
    (
        "few tokens",
        lambda: patterns.induction(CAUSAL, [1, 2]),
        ValueError,
        "4 entries, one per row of weights; got 2",
    ),
    ("one text", lambda: patterns.same_token(CAUSAL, "abab"), TypeError, "got one string"),
    ("a batch", lambda: patterns.same_token([[1.0]], [[1]]), TypeError, "not a batch"),  # type: ignore[list-item]
    ("length", lambda: patterns.repeated_induction(CAUSAL, 3), ValueError, "length=3.*4 tokens"),
    ("mask", lambda: patterns.mass_on(CAUSAL, np.ones(3, bool)), ValueError, r"mask.*got \(3,\)"),
    (
        "allowed",
        lambda: patterns.previous_token(CAUSAL, allowed=np.ones(3, bool)),
        ValueError,
        "allowed",
    ),
    (
        "numbers as a mask",
        lambda: patterns.mass_on(CAUSAL, np.ones(4)),
        TypeError,
        r"mask\.astype\(bool\)",
    ),
]


@pytest.mark.parametrize(
    ("call", "error", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_errors_name_the_argument(
    call: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call()
