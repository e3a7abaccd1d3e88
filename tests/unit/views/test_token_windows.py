"""Views of long texts open where the reader looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.record.tokens import Candidate, Prediction
from unit.long_records import long_record
from unit.records import words

N = 2_002


def record_of(strongest: int, tokens: int = 400) -> av.AttentionRecord:
    """Return a record whose queries attend to the first token, and less to one other token."""
    weights = np.zeros((1, 2, tokens, tokens), np.float32)
    weights[..., 0] = 0.6
    weights[..., strongest] += 0.4
    return av.AttentionRecord.from_weights(weights, words(tokens))


def is_in_sight(view: Any, token: int, key: int | None = None) -> bool:
    (first, stop), (left, right) = view.query_window, view.key_window
    return first <= token < stop and (key is None or left <= key < right)


@pytest.mark.parametrize("token", [-1, 1_500, 0])
@pytest.mark.parametrize("name", ["HeadView", "Dashboard"])
def test_a_given_token_is_in_sight(name: str, token: int) -> None:
    view = getattr(av, name)(long_record(N), token=token)
    assert view.token == token % N
    assert is_in_sight(view, view.token)
    assert view.query_window[1] - view.query_window[0] == 64


@pytest.mark.parametrize("strongest", [10, 200, 349])
def test_the_strongest_key_of_a_given_token_is_in_sight(strongest: int) -> None:
    view = av.HeadView(record_of(strongest), token=350, heads=[1])
    assert is_in_sight(view, 350, strongest)
    # Near tokens have one window, as lines between them are then short.
    assert (view.query_window == view.key_window) == (strongest == 349)


def test_a_given_key_is_in_sight() -> None:
    view = av.HeadView(record_of(10), key=300)
    assert is_in_sight(view, 300, 300)


def test_a_causal_text_opens_at_its_end_and_others_at_their_beginning() -> None:
    causal = av.HeadView(long_record(400))
    assert causal.query_window == causal.key_window == [336, 400]
    assert av.HeadView(record_of(10)).query_window is None
    assert av.HeadView(long_record(100)).query_window is None
    # A dashboard and a matrix show the whole text.
    assert av.Dashboard(long_record(400)).query_window is None
    assert av.MatrixView(record_of(10), token=399).query_window is None


def test_a_generated_answer_is_in_sight() -> None:
    record = record_of(10)
    stack = record.stack()
    token = Candidate("x", 0, 0.5)
    answer = tuple(Prediction(query, token, (), query + 1) for query in range(200, 210))
    tokens = replace(stack.query_tokens, predictions=answer)
    answered = stack.derive({0: stack.attention(0)}, tokens)
    view = av.HeadView(av.AttentionRecord({"self": answered}))
    assert is_in_sight(view, 200)
    assert is_in_sight(view, 209)


def test_given_windows_are_kept() -> None:
    view = av.HeadView(record_of(10), token=350, query_window=[0, 20])
    assert view.query_window == [0, 20]
    assert view.key_window is None


def test_a_token_that_is_pinned_later_moves_the_windows() -> None:
    view = av.HeadView(long_record(400))
    view.token = 5
    assert is_in_sight(view, 5)
    assert view.query_window == view.key_window
    view.key = 300
    assert is_in_sight(view, 300, 300)
    view.query_window = [0, 40]
    view.token = 399
    assert view.query_window == [360, 400]
    matrix = av.MatrixView(record_of(10))
    matrix.token = 399
    assert matrix.query_window is None


def test_a_key_alone_opens_a_text_of_other_queries_at_its_start() -> None:
    weights = np.full((1, 1, 200, 150), 1 / 150, np.float32)
    names = [[f"{side}{i}" for i in range(count)] for side, count in (("q", 200), ("k", 150))]
    record = av.AttentionRecord.from_weights(weights, names[0], key_tokens=names[1])
    view = av.HeadView(record, key=140)
    windows = {name: view.state[name] for name in ("query_window", "key_window")}
    assert windows == {"query_window": None, "key_window": [86, 150]}
