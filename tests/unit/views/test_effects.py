"""Effects of interventions on heads and tokens as traits of views, with their measure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from traitlets import TraitError

import attnviz as av
from attnviz.interventions.head_effects import HeadEffects
from attnviz.interventions.token_effects import TokenEffects
from attnviz.views.head import HeadView
from attnviz.views.model import ModelView
from unit.records import encoder_decoder_record, given_record

MEASURE = "logit of “a” minus logit of “b” after “c”"


def head_effects(values: Any, layers: tuple[int, ...], texts: int = 1) -> HeadEffects:
    arrays = tuple(np.array(layer_values, np.float64) for layer_values in values)
    return HeadEffects(arrays, None, 3.4e-6, MEASURE, "self", layers, texts)


def token_effects(record: av.AttentionRecord, values: Any) -> TokenEffects:
    tokens = record.stack().key_tokens
    return TokenEffects(np.array(values, np.float64), 0.0, MEASURE, "delete", tokens)


def test_effects_of_heads_have_their_measure_and_noise() -> None:
    effects = head_effects([[-2.0, np.nan, 0.5]], (0,))
    view = ModelView(given_record((3,)), scores={"effect": effects})
    assert view.scores == {"effect": {"self": [[-2.0, None, 0.5]]}}
    assert view.order == "effect"
    words = f"effect of removing a head on: {MEASURE}; noise 3.4e−6"
    assert view.score_notes == {"effect": words}
    assert view.state["score_notes"] == {"effect": words}
    several = ModelView(given_record((3,)), scores=head_effects([[1, 2, 3]], (0,), texts=1200))
    assert several.score_notes["score"].endswith(", mean of 1,200 texts; noise 3.4e−6")


def test_effects_of_several_texts_have_standard_errors() -> None:
    values, errors = np.array([-2.0, 1.0, 0.5]), np.array([0.25, 0.5, np.nan])
    effects = HeadEffects((values,), (errors,), 0.0, MEASURE, "self", (0,), num_texts=8)
    record = given_record((3,))
    view = ModelView(record, scores={"effect": effects, "mine": [[1, -2, 3]]})
    assert view.score_errors == {"effect": {"self": [[0.25, 0.5, None]]}}
    view.score_errors = {**view.score_errors, "mine": [[0.5, 0.5, 0.5]]}
    # Errors belong to the scores that they came with.
    view.scores = {"effect": [[0.5, 1.0, 1.0]], "mine": [[1, -2, 3]]}
    assert set(view.score_errors) == {"mine"}
    layers = HeadEffects(
        (np.zeros(2), np.ones(2)), (np.ones(2), np.full(2, 0.5)), 0.0, MEASURE, "self", (0, 1), 2
    )
    part = ModelView(given_record((2, 2)), include_layers=1, scores={"e": layers})
    assert part.score_errors == {"e": {"self": [[0.5, 0.5]]}}


def test_one_of_several_token_scores_is_drawn() -> None:
    scores = {"one": [1, -2, 3], "two": [0.5, 0.5, -1]}
    view = HeadView(given_record((2,), 3), token_scores=scores, token_score="two")
    assert view.token_score == "two"
    with pytest.raises(TraitError, match=r"'three' must be one of the names of .*: 'one', 'two'"):
        view.token_score = "three"
    view.token_scores = {"one": [1, -2, 3]}
    assert view.state["token_score"] is None


def test_a_note_is_dropped_with_its_scores() -> None:
    effects = head_effects([[-2.0, 1.0, 0.5]], (0,))
    view = HeadView(given_record((3,)), scores={"effect": effects, "mine": [[1, -2, 3]]})
    assert set(view.score_notes) == {"effect"}
    view.score_notes = {**view.score_notes, "mine": "what I measured"}
    view.scores = {"mine": [[1, -2, 3]], "effect": [[0.5, 1.0, 1.0]]}
    # The note describes other numbers, so it is dropped.
    assert view.score_notes == {"mine": "what I measured"}


def test_effects_need_their_stack_and_layers() -> None:
    record = given_record((2, 3))
    effects = head_effects([[-1.0, 2.0], [0.5, 0.0, -3.0]], (0, 1))
    view = ModelView(record, scores={"effect": effects}, include_layers=[1])
    assert view.scores["effect"]["self"] == [[0.5, 0.0, -3.0]]
    with pytest.raises(TraitError, match=r"scores\['effect'\] are for 'self', but this record has"):
        ModelView(encoder_decoder_record(), scores={"effect": effects})
    with pytest.raises(TraitError, match=r"1 layers of 2 heads, but stack 'self' has 2 layers"):
        ModelView(record, scores=head_effects([[1, 2]], (0,)))


def test_effects_of_tokens_have_their_measure_and_noise() -> None:
    record = given_record((2,))
    count = len(record.stack().key_tokens)
    values = [-2.0] * (count - 1) + [np.nan]
    view = HeadView(record, token_scores=token_effects(record, values))
    assert view.token_scores == {"effect": {"self": [*values[:-1], None]}}
    note = f"effect of removing a token (delete) on: {MEASURE}; noise 0"
    assert view.token_score_notes == {"effect": note}
    view.set_trait("token_scores", np.arange(count))
    assert view.token_scores == {"score": {"self": list(range(count))}}
    assert view.token_score_notes == {}
    # The state of the browser, by stack. Numbers that are not finite become None.
    view.token_scores = {"mine": {"self": [None, np.inf, *range(2, count)]}}
    assert view.token_scores["mine"]["self"][:3] == [None, None, 2.0]


def test_scores_of_tokens_belong_to_the_keys_of_a_stack() -> None:
    record = encoder_decoder_record()
    num_keys = len(record.stacks["cross"].key_tokens)
    view = HeadView(record, stack="cross", token_scores=[0.5] * num_keys)
    assert list(view.token_scores["score"]) == ["cross"]
    with pytest.raises(TraitError, match=rf"has {num_keys} keys. Pass .*\(tokens,\)"):
        HeadView(record, stack="cross", token_scores=[0.5] * (num_keys + 1))
    with pytest.raises(TraitError, match="are for 'other', but this record has"):
        HeadView(record, token_scores={"mine": {"other": [1.0]}})
