"""Views of numbers that are not weights open at the head with the largest number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnviz as av
from unit.records import given_record

SCORES = [[0.1, -0.9], [0.3, 0.2, 0.5]]


def position(view: Any) -> tuple[int, list[int]]:
    return view.layer, list(view.heads)


@pytest.mark.parametrize("name", ["HeadView", "ModelView", "MatrixView", "Dashboard"])
def test_scores_open_at_the_largest(name: str) -> None:
    view = getattr(av, name)
    record = given_record()
    assert position(view(record, scores=SCORES)) == (0, [1])
    positive = [[0.1, 0.9], [0.3, 0.2, 0.95]]
    assert position(view(record, scores={"first": positive, "other": SCORES})) == (1, [2])
    ordered = view(record, scores={"first": positive, "other": SCORES}, order="other")
    assert position(ordered) == (0, [1])


def test_a_given_place_is_kept() -> None:
    record = given_record()
    assert av.HeadView(record, scores=SCORES, layer=1).layer == 1
    assert position(av.HeadView(record, scores=SCORES, heads=[0])) == (0, [0])
    assert position(av.HeadView(record, scores=[[None, None], [None] * 3])) == (0, [0, 1])
    # The view opens at a head that it offers, and in the stack that the caller chose.
    assert position(av.ModelView(record, scores=SCORES, include_heads={1: [1]})) == (0, [])
    model, tokenizer = av.demos.load("encoder-decoder")
    dates = av.extract(model, "3 May 2021", target="2021", tokenizer=tokenizer)
    scores = {"cross": [[0, 0, 0, 0], [0, 0, 9, 0]], "encoder": [[0, 1, 0, 0], [0, 0, 0, 0]]}
    assert av.HeadView(dates, scores={"own": scores}).stack == "cross"
    chosen = av.HeadView(dates, scores={"own": scores}, stack="encoder")
    assert (chosen.stack, *position(chosen)) == ("encoder", 0, [1])
    other = av.HeadView(dates, scores={"own": {"cross": scores["cross"]}}, stack="decoder")
    assert other.stack == "decoder"


@pytest.mark.parametrize("name", ["HeadView", "MatrixView", "Dashboard"])
def test_an_attribution_opens_at_the_largest_value(name: str) -> None:
    values = np.zeros((3, 4, 5, 5), np.float32)
    values[2, 1, 4, 0] = -0.5
    values[0, 3, 4, 0] = 0.4
    record = av.AttentionRecord.from_weights(
        values, list("abcde"), signed=True, measure="attribution"
    )
    assert position(getattr(av, name)(record)) == (2, [1])


def test_a_real_attribution_does_not_open_empty() -> None:
    model, tokenizer = av.demos.load("decoder")
    record = av.attribute(model, "the cat sat on the mat", tokenizer=tokenizer)
    view = av.HeadView(record)
    stack = record.stack()
    sizes = np.stack([np.abs(stack.weights(layer=layer)).max(axis=(1, 2)) for layer in (0, 1, 2)])
    assert sizes[view.layer, view.heads[0]] == sizes.max() > 0
