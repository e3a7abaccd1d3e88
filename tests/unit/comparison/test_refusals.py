"""Test the errors for records and arguments that a comparison refuses."""

from __future__ import annotations

from typing import Any

import pytest

import attnviz as av
from unit.comparison.test_comparison import random_record

WORDS = ["a", " b", " c"]
A = random_record(0, WORDS, layers=[0, 1])


def scores() -> av.AttentionRecord:
    weights = [[[[2.0, 0.0, 0.0]] * 3] * 3] * 2
    return av.AttentionRecord.from_weights(weights, WORDS, normalized=False)


OTHER_STACK = random_record(0, WORDS, stack="cross")
OTHER_WORDS = random_record(0, ["x", " y", " z", " q"])
DIFFERENCE = av.compare(A, random_record(1, WORDS)).difference


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((A, "text"), {}, TypeError, "pass two records"),
        ((A, A), {"tokenizer": 1}, TypeError, "Do not pass tokenizer"),
        ((object(), "text"), {}, TypeError, "a model and two inputs"),
        (([],), {}, TypeError, "a has 0 models"),
        ((A, A), {"names": "ab"}, ValueError, "must be 2 different strings"),
        ((A, A), {"names": ("a", "a")}, ValueError, "must be 2 different strings"),
        (([A] * 3,), {"names": ["x", "y"]}, ValueError, "names has 2 entries for 3 members"),
        ((A.only(0), A.only(1)), {}, ValueError, "no layer in common: a has 0, b has 1"),
        ((A, OTHER_STACK), {}, ValueError, "no stack in common: a has 'self', b has 'cross'"),
        ((A, scores()), {}, ValueError, "Pass both with the same normalized="),
        ((A, DIFFERENCE), {}, ValueError, r"of b has signed numbers \(difference\)"),
        ((A, OTHER_WORDS), {}, ValueError, "no token in common: 3 tokens such as 'a'"),
    ],
)
def test_records_and_arguments_that_do_not_fit_are_refused(
    arguments: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        av.compare(*arguments, **options)


def test_invalid_questions_to_a_comparison_are_refused() -> None:
    comparison = av.compare([A] * 4)
    with pytest.raises(ValueError, match="must be one of 'total variation', 'Jensen-Shannon'"):
        comparison.distance(measure="cosine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top_k=0 must be at least 1"):
        comparison.to_pandas(top_k=0)
    with pytest.raises(KeyError, match="this record has 'self'"):
        comparison.distance("cross")
    with pytest.raises(IndexError, match=r"member=4: .* with the first are 1 to 3"):
        comparison.pair(4)
    with pytest.raises(KeyError, match=r"member='a': .* with the first are '1', '2', '3'"):
        comparison.pair("a")
