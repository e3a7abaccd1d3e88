"""Walking through the tokens that a model produced: pin, prediction and switch stay one place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import traitlets
from traitlets import TraitError

from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Candidate, Prediction, Tokens
from attnviz.views.generated_token import Cursor, settled
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from attnviz.views.neuron import NeuronView
from attnviz.views.record_view import RecordView
from unit.records import captured_record, shares, words


def prediction(query: int, row: int | None) -> Prediction:
    token = Candidate(f"t{query + 1}", query, 0.5)
    return Prediction(query, token, (token,), row)


# Two tokens of a prompt; the third and the fourth were produced, and one that was never read.
PREDICTIONS = (prediction(1, 2), prediction(2, 3), prediction(3, None))
TOKENS = replace(Tokens.of(words(4)), predictions=PREDICTIONS)


def predicted_record() -> AttentionRecord:
    return AttentionRecord.from_weights([shares(2, 4, 4)], TOKENS)


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        # Nothing is chosen.
        ((None, None, False), (None, None, False), (None, None, False)),
        ((None, None, False), (None, None, True), (None, None, True)),
        # A token is chosen, by number: the pin goes to the query that predicted it.
        ((None, None, False), (None, 1, False), (2, 1, False)),
        ((0, None, False), (0, 0, False), (1, 0, False)),
        ((1, 0, False), (1, 2, False), (3, 2, False)),
        # Where it is itself the query.
        ((None, None, True), (None, 0, True), (2, 0, True)),
        ((1, 0, False), (1, 0, True), (2, 0, True)),
        ((2, 0, True), (2, 0, False), (1, 0, False)),
        # The last was never read: there is no such row.
        ((2, 0, True), (2, 2, True), (3, 2, False)),
        ((3, 2, False), (3, 2, True), (3, 2, False)),
        # A query is pinned: what it predicted, or what it is.
        ((None, None, False), (2, None, False), (2, 1, False)),
        ((1, 0, False), (3, 0, False), (3, 2, False)),
        ((2, 0, True), (3, 0, True), (3, 1, True)),
        ((1, 0, False), (0, 0, False), (0, None, False)),
        ((2, 0, True), (1, 0, True), (1, None, True)),
        # Taken away, on either side.
        ((2, 1, False), (None, 1, False), (None, None, False)),
        ((2, 1, False), (2, None, False), (None, None, False)),
        ((2, 0, True), (None, 0, True), (None, None, True)),
        # Both at once: the same place, or the pin counts.
        ((None, None, False), (2, 1, False), (2, 1, False)),
        ((None, None, False), (2, 0, True), (2, 0, True)),
        ((None, None, False), (0, 1, False), (0, None, False)),
        ((None, None, False), (2, 9, False), (2, 1, False)),
    ],
)
def test_the_others_follow_what_was_set(
    before: tuple[int | None, int | None, bool],
    now: tuple[int | None, int | None, bool],
    after: tuple[int | None, int | None, bool],
) -> None:
    found = settled(PREDICTIONS, Cursor(*before), Cursor(*now))
    assert found == Cursor(*after)
    # A place that all three agree on stays.
    assert settled(PREDICTIONS, found, found) == found
    assert settled(PREDICTIONS, Cursor(*before), found) == found


def place_of(view: RecordView) -> tuple[int | None, int | None, bool]:
    return view.token, view.prediction, view.as_query


@pytest.mark.parametrize("kind", [HeadView, MatrixView, ModelView])
def test_a_view_walks(kind: type[RecordView]) -> None:
    view = kind(predicted_record())
    assert place_of(view) == (None, None, False)
    seen: list[tuple[int | None, int | None, bool]] = []
    view.observe(lambda _: seen.append(place_of(view)), ["token", "prediction", "as_query"])
    view.prediction = np.int64(0)
    assert place_of(view) == (1, 0, False)
    view.as_query = True
    assert place_of(view) == (2, 0, True)
    view.token = 3
    assert place_of(view) == (3, 1, True)
    # There is no row where the last is the query: the switch goes back.
    view.prediction = 2
    assert place_of(view) == (3, 2, False)
    view.token = 0
    assert place_of(view) == (0, None, False)
    view.prediction = 1
    view.prediction = None
    assert place_of(view) == (None, None, False)
    assert seen[-1] == (None, None, False)


def test_what_is_given_at_first_is_whole() -> None:
    assert place_of(HeadView(predicted_record(), prediction=1)) == (2, 1, False)
    assert place_of(HeadView(predicted_record(), prediction=1, as_query=True)) == (3, 1, True)
    assert place_of(HeadView(predicted_record(), token=2)) == (2, 1, False)
    assert place_of(HeadView(predicted_record(), token=2, as_query=True)) == (2, 0, True)
    assert place_of(HeadView(predicted_record(), token=0, prediction=1)) == (0, None, False)


def test_the_browser_may_set_them_together_or_one_by_one() -> None:
    view = HeadView(predicted_record())
    view.set_state({"prediction": 1, "token": 2})
    assert place_of(view) == (2, 1, False)
    view.set_state({"as_query": True, "token": 3})
    assert place_of(view) == (3, 1, True)
    view.set_state({"token": 2})
    assert place_of(view) == (2, 0, True)


def test_views_are_linked_by_any_of_them() -> None:
    record = predicted_record()
    for names in (["token"], ["prediction"], ["token", "prediction", "as_query"]):
        one, other = HeadView(record), MatrixView(record)
        links = [traitlets.link((one, name), (other, name)) for name in names]
        one.prediction = 1
        assert place_of(other) == (2, 1, False)
        other.token = 1
        assert place_of(one) == (1, 0, False)
        if "as_query" in names:
            one.as_query = True
            assert place_of(other) == (2, 0, True)
        for link in links:
            link.unlink()


def test_another_stack_has_its_own() -> None:
    record = AttentionRecord.from_weights(
        encoder_attentions=[shares(2, 6, 6)],
        decoder_attentions=[shares(2, 4, 4)],
        cross_attentions=[shares(2, 4, 6)],
        encoder_tokens=words(6, "e"),
        decoder_tokens=TOKENS,
    )
    view = HeadView(record, stack="cross", prediction=1)
    view.stack = "decoder"
    assert place_of(view) == (2, 1, False)
    view.stack = "encoder"
    assert view.prediction is None
    view.stack = "cross"
    assert (view.token, view.prediction) in [(2, 1), (None, None)]


@pytest.mark.parametrize("value", [-1, 3, 99])
def test_a_prediction_that_is_not_there(value: int) -> None:
    view = HeadView(predicted_record())
    with pytest.raises(TraitError, match=rf"prediction={value}: stack 'self' has predictions 0 to"):
        view.prediction = value
    assert place_of(view) == (None, None, False)
    with pytest.raises(TraitError):
        view.prediction = 1.5


def test_a_record_without_predictions() -> None:
    view = NeuronView(captured_record())
    with pytest.raises(TraitError, match=r"nothing is predicted in stack 'self'; .*generate="):
        view.prediction = 0
    view.as_query = True
    view.token = 3
    assert place_of(view) == (3, None, True)
