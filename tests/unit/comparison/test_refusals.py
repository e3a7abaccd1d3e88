"""Records and arguments that a comparison refuses, and what the errors say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Tokens
from unit.comparison.test_comparison import THREE, random_record, record

WORDS = ["a", " b", " c"]
A = random_record(0, WORDS, layers=[0, 1])


def scores() -> av.AttentionRecord:
    weights = [[[[2.0, 0.0, 0.0]] * 3] * 3] * 2
    return av.AttentionRecord.from_weights(weights, WORDS, normalized=False)


def image() -> av.AttentionRecord:
    grid = PatchGrid(image=0, start=0, rows=1, columns=3)
    patches = Tokens(
        text=("[1]", "[2]", "[3]"), special=(False,) * 3, sequence=(0,) * 3, grids=(grid,)
    )
    pixels = [np.zeros((2, 6, 3), np.uint8)]
    return av.AttentionRecord.from_weights([[THREE]], patches, images=pixels)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: av.compare(A, "text"), TypeError, "b is a str; pass two records"),
        (lambda: av.compare(A, A, "text"), TypeError, "Do not pass c"),
        (lambda: av.compare(A, A, tokenizer=1), TypeError, "Do not pass tokenizer"),
        (lambda: av.compare(object(), "text"), TypeError, "a model and two inputs"),
        (lambda: av.compare((object(),), "text"), TypeError, "a is 1 models"),
        (
            lambda: av.compare((object(), object()), "one", "two"),
            TypeError,
            "there are two inputs",
        ),
        (lambda: av.compare(iter([])), TypeError, "a is 0 models"),
        (lambda: av.compare(iter([A])), TypeError, "a is 1 models"),
        (lambda: av.compare(A, A, names="ab"), ValueError, "must be at least two strings"),
        (lambda: av.compare(A, A, names=("a", "")), ValueError, "must be at least two strings"),
        (lambda: av.compare(A, A, names=("a", "a")), ValueError, "must be different"),
        (lambda: av.compare([A] * 3, names=["x", "y"]), ValueError, "2 names for 3 members"),
        (
            lambda: av.compare(A, A).distance(measure="cosine"),  # type: ignore[arg-type]
            ValueError,
            "must be one of 'total variation', 'Jensen-Shannon'",
        ),
        (lambda: av.compare(A, A).to_pandas(top_k=0), ValueError, "top_k=0 must be at least 1"),
        (lambda: av.compare(A, A).distance("cross"), KeyError, "this record has 'self'"),
        (lambda: av.compare([A] * 4).pair(4), IndexError, "must be one of 1 to 3"),
        (lambda: av.compare([A] * 4).pair("4"), KeyError, "Pass one of '0', '1'"),
        (
            lambda: av.compare(A.only(0), A.only(1)),
            ValueError,
            "no layer in common: a has 0, b has 1",
        ),
        (
            lambda: av.compare(A, random_record(0, WORDS, stack="cross")),
            ValueError,
            "no stack in common: a has 'self', b has 'cross'",
        ),
        (lambda: av.compare(A, scores()), ValueError, "Pass both with the same normalized="),
        (
            lambda: av.compare(A, av.compare(A, random_record(1, WORDS)).difference),
            ValueError,
            r"of b has signed numbers \(difference\)",
        ),
        (
            lambda: av.compare(A, random_record(0, ["x", " y", " z", " q"])),
            ValueError,
            "a and b have no token in common: 3 tokens such as 'a'",
        ),
        (
            lambda: av.compare(record(THREE, WORDS), image()),
            ValueError,
            r"3 tokens such as 'a' and 3 patches such as '\[1\]'",
        ),
    ],
)
def test_an_invalid_comparison_is_refused(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
