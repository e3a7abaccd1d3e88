"""Tests of tokens, heads and layers that views select by argument, by default or by prediction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from traitlets import TraitError

from attnviz import (
    AttentionRecord,
    AttentionStack,
    EmbeddingView,
    HeadView,
    MatrixView,
    NeuronView,
    Tokens,
)
from attnviz.analysis import distinct_head
from attnviz.record.tokens import Candidate, Prediction
from attnviz.views.generated_token import Cursor, settled
from attnviz.views.record_view import RecordView
from unit.random_corpora import attention as random_attention
from unit.records import captured_record, shares, words

WORDS = ["[CLS]", "the", "animal", "crossed", "the", "street", ",", "it", "was", "[SEP]"]


def spoken_record() -> AttentionRecord:
    special = [word.startswith("[") for word in WORDS]
    weights = [shares(4, len(WORDS), len(WORDS), seed=layer) for layer in range(3)]
    return AttentionRecord.from_weights(weights, Tokens.of(WORDS, special=special))


def test_positions_become_numbers() -> None:
    view = HeadView(spoken_record(), token="it", key="animal", layer=-1, heads=1)
    assert (view.token, view.key, view.layer, view.heads) == (7, 2, 2, [1])
    # `get_state` returns the state that the browser receives.
    assert json.loads(json.dumps(view.get_state()))["token"] == 7
    view.token, view.key, view.layer = "street", -1, -2
    assert (view.token, view.key, view.layer) == (5, 9, 1)
    values: list[tuple[Any, list[int]]] = [
        ("all", [0, 1, 2, 3]),
        ((3, 0, -1), [3, 0]),
        (np.array([-2]), [2]),
        (np.int64(-1), [3]),
    ]
    for value, heads in values:
        view.heads = value
        assert view.heads == heads


def test_views_open_at_an_open_gate() -> None:
    layers, tokens = {layer: random_attention(5) for layer in (2, 4, 6)}, Tokens.of(words(5))

    def opened(view: type[RecordView], means: list[list[float]]) -> tuple[int, list[int]]:
        rows = [torch.tensor(mean)[:, None].expand(3, 5) for mean in means]
        gates = dict(zip(layers, rows, strict=False))
        stack = AttentionStack("self", layers, tokens, gates=gates)
        shown = view(AttentionRecord({"self": stack}))
        return shown.layer, shown.heads

    closed, third = [0.0, 0.04, 0.0], [0.0, 0.04, 0.5]
    assert opened(NeuronView, [closed, third, [1.0] * 3]) == (4, [2])
    assert opened(MatrixView, [closed, closed]) == (6, [])
    assert opened(NeuronView, [closed] * 3) == (2, [0])
    assert opened(HeadView, [closed, [0.5, 0.04, 0.5]]) == (4, [0, 2])
    assert opened(HeadView, [closed] * 3) == (2, [0, 1, 2])


def test_negative_layers_count_existing_layers() -> None:
    assert NeuronView(captured_record(), layer=-1).layer == 12
    view = HeadView(captured_record(), include_layers=[5, -2], layer=-1)
    assert (view.record.stacks["self"].layers, view.layer) == ((5, 11), 11)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("token", "the", r"token='the': 2 tokens have this text\. Pass .*: \[1, 4\]"),
        ("key", "anmial", r"key='anmial': .*did you mean 'animal'"),
        ("leave_out", ["[PAD]"], r"leave_out='\[PAD\]': no token has this text"),
    ],
)
def test_a_text_of_two_tokens_or_of_none_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(TraitError, match=message):
        HeadView(spoken_record(), **{name: value})


def test_a_word_is_chosen_by_its_text() -> None:
    tokens = Tokens.of(["un", "##do", "it", "."])
    record = AttentionRecord.from_weights([shares(2, 4, 4)], tokens)
    with pytest.raises(TraitError, match=r"A word may consist of several tokens"):
        HeadView(record, token="undo")
    assert HeadView(record.merge_words(), token="undo").token == 0


def test_keys_are_excluded_by_text() -> None:
    view = HeadView(spoken_record(), leave_out=["the", "[CLS]", "special", -1])
    assert view.leave_out == [1, 4, 0, "special", 9]
    view.leave_out = "first"  # type: ignore[assignment]
    assert view.leave_out == ["first"]


def test_the_tokens_of_a_corpus_are_those_of_the_text() -> None:
    records = [captured_record(), captured_record()]
    names = records[0].stack().query_tokens
    view = EmbeddingView(records, token=names[2], text=1, layer=-1, heads=1)
    assert (view.token, view.layer, view.heads) == (2, 12, [1])


N = 12
NUMBERED = words(N, "w")


def record_with_one_pattern() -> AttentionRecord:
    """Return a record of 3 layers of 5 heads. Only head 3 of layer 2 does not attend evenly."""
    weights = np.full((3, 5, N, N), 1 / N, np.float32)
    weights[2, 3] = np.eye(N, k=-1)
    weights[2, 3, 0, 0] = 1
    return AttentionRecord.from_weights(list(weights), NUMBERED)


RECORD = record_with_one_pattern()


def test_a_view_opens_at_the_distinct_head() -> None:
    view = HeadView(RECORD)
    assert (view.layer, view.heads) == (2, [3])
    distinct = distinct_head(RECORD.stack())
    assert distinct is not None
    assert view.opening == {
        "stack": "self",
        "layer": 2,
        "head": 3,
        "pattern": "previous token",
        "score": distinct.score,
        "baseline": pytest.approx(1 / N),
        "num_queries": None,
    }
    with pytest.raises(TraitError, match="read-only"):
        view.opening = {"layer": 1}


@pytest.mark.parametrize(
    ("arguments", "heads"),
    [
        ({"layer": 0}, []),
        ({"heads": [1]}, [1]),
        ({"token": 3}, []),
        ({"order": "previous token"}, []),
        ({"scores": np.zeros((3, 5))}, []),
        # `include_layers` leaves out layer 2, which has the distinct head.
        ({"include_layers": [0, 1]}, []),
    ],
)
def test_a_position_from_the_caller_is_kept(arguments: dict[str, Any], heads: list[int]) -> None:
    view = HeadView(RECORD, **arguments)
    assert (view.layer, view.heads, view.opening) == (0, heads, None)


def test_another_layer_without_the_distinct_head_shows_its_default() -> None:
    weights = [np.asarray(RECORD.stack().weights(layer=2)), np.full((2, N, N), 1 / N, np.float32)]
    view = HeadView(AttentionRecord.from_weights(weights, NUMBERED))
    assert (view.layer, view.heads) == (0, [3])
    # The view itself selected head 3. Layer 1 has no head 3, but there must be no warning (tests
    # turn warnings into errors).
    view.layer = 1
    assert view.heads == [0, 1]


def prediction(query: int, row: int | None) -> Prediction:
    token = Candidate(f"t{query + 1}", query, 0.5)
    return Prediction(query, token, (token,), row)


# A prompt of two tokens, two generated tokens, and a last generated token that the model did not
# read. js/test/ui/generated-token/cursor.test.ts tests the same cases.
FIXTURE = json.loads((Path(__file__).parents[2] / "fixtures" / "generated_token.json").read_text())
PREDICTIONS = tuple(prediction(query, row) for query, row in FIXTURE["predictions"])
TOKENS = replace(Tokens.of(words(4)), predictions=PREDICTIONS)


def predicted_record() -> AttentionRecord:
    return AttentionRecord.from_weights([shares(2, 4, 4)], TOKENS)


@pytest.mark.parametrize("case", FIXTURE["cases"], ids=lambda case: case["why"])
def test_other_traits_follow_the_changed_one(case: dict[str, Any]) -> None:
    before, now, after = (Cursor(*case[name]) for name in ("before", "now", "after"))
    cursor = settled(PREDICTIONS, before, now)
    assert cursor == after
    # A settled cursor does not change when it is settled again.
    assert settled(PREDICTIONS, cursor, cursor) == cursor
    assert settled(PREDICTIONS, before, cursor) == cursor


def cursor_of(view: RecordView) -> tuple[int | None, int | None, bool]:
    return view.token, view.prediction, view.as_query


def test_the_first_cursor_is_complete() -> None:
    assert cursor_of(HeadView(predicted_record(), prediction=1)) == (2, 1, False)
    assert cursor_of(HeadView(predicted_record(), prediction=1, as_query=True)) == (3, 1, True)
    assert cursor_of(HeadView(predicted_record(), token=2)) == (2, 1, False)
    assert cursor_of(HeadView(predicted_record(), token=2, as_query=True)) == (2, 0, True)
    assert cursor_of(HeadView(predicted_record(), token=0, prediction=1)) == (0, None, False)


def test_negative_predictions_count_from_the_end_and_missing_ones_are_refused() -> None:
    view = HeadView(predicted_record(), prediction=-1)
    assert view.prediction == len(PREDICTIONS) - 1
    for value in (-4, 3):
        with pytest.raises(TraitError, match=f"prediction={value}: .* has predictions 0 to"):
            view.prediction = value
