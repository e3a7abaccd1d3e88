"""The cursor in produced tokens: `token`, `prediction` and `as_query` stay consistent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from traitlets import TraitError

from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Candidate, Prediction, Tokens
from attnviz.views.generated_token import Cursor, settled
from attnviz.views.head import HeadView
from attnviz.views.record_view import RecordView
from unit.records import shares, words


def prediction(query: int, row: int | None) -> Prediction:
    token = Candidate(f"t{query + 1}", query, 0.5)
    return Prediction(query, token, (token,), row)


# Two tokens of the prompt, two produced tokens, and a last prediction that was not read as a token.
# js/test/ui/generated-token/cursor.test.ts reads the same cases.
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
    # A consistent cursor does not change.
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


def test_another_stack_has_its_own_predictions() -> None:
    record = AttentionRecord.from_weights(
        encoder_attentions=[shares(2, 6, 6)],
        decoder_attentions=[shares(2, 4, 4)],
        cross_attentions=[shares(2, 4, 6)],
        encoder_tokens=words(6, "e"),
        decoder_tokens=TOKENS,
    )
    view = HeadView(record, stack="cross", prediction=1)
    view.stack = "decoder"
    assert cursor_of(view) == (2, 1, False)
    view.stack = "encoder"
    assert view.prediction is None


def test_negative_predictions_count_from_the_end_and_missing_ones_are_refused() -> None:
    view = HeadView(predicted_record(), prediction=-1)
    assert view.prediction == len(PREDICTIONS) - 1
    for value in (-4, 3):
        with pytest.raises(TraitError, match=f"prediction={value}: .* has predictions 0 to"):
            view.prediction = value
    with pytest.raises(TraitError):
        view.prediction = 1.5
    assert view.prediction == len(PREDICTIONS) - 1
