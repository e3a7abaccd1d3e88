"""Tests of scores, effects and roles of heads and tokens that users pass to a view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from traitlets import TraitError

from attnviz.interventions.head_effects import HeadEffects
from attnviz.interventions.token_effects import TokenEffects
from attnviz.views.dashboard import Dashboard
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from unit.corpus.looking_back import looking_back, statistics_of_looking_back
from unit.records import encoder_decoder_record, given_record

MEASURE = "logit of “a” minus logit of “b” after “c”"


def head_effects(*layers: Any, errors: Any = None, texts: int = 1) -> HeadEffects:
    values = tuple(np.array(heads, np.float64) for heads in layers)
    return HeadEffects(values, errors, 3.4e-6, MEASURE, "self", tuple(range(len(layers))), texts)


def test_effects_of_heads_have_their_measure_and_noise() -> None:
    view = ModelView(given_record((3,)), scores={"effect": head_effects([-2.0, np.nan, 0.5])})
    assert view.scores == {"effect": {"self": [[-2.0, None, 0.5]]}}
    assert view.order == "effect"
    note = f"effect of removing a head on: {MEASURE}; noise 3.4e−6"
    assert view.score_notes == view.state["score_notes"] == {"effect": note}
    several = ModelView(given_record((3,)), scores=head_effects([1, 2, 3], texts=1200))
    assert several.score_notes["score"].endswith(", mean of 1,200 texts; noise 3.4e−6")


def test_effects_of_several_texts_have_standard_errors() -> None:
    errors = (np.array([1, 1, 1]), np.array([0.25, np.nan]))
    effects = head_effects([0.0, 0.0, 0.0], [-2.0, 1.0], errors=errors, texts=8)
    view = ModelView(given_record((3, 2)), scores={"effect": effects}, include_layers=[1])
    assert view.scores == {"effect": {"self": [[-2.0, 1.0]]}}
    assert view.score_errors == {"effect": {"self": [[0.25, None]]}}


def test_notes_and_errors_are_dropped_with_the_scores_that_they_describe() -> None:
    effects = head_effects([-2.0, 1.0], errors=(np.array([0.5, 0.5]),), texts=8)
    view = HeadView(given_record((2,)), scores={"effect": effects, "mine": [[1, -2]]})
    view.score_notes = {**view.score_notes, "mine": "what I measured"}
    view.score_errors = {**view.score_errors, "mine": [[0.5, 0.5]]}
    view.scores = {"mine": [[1, -2]], "effect": [[0.5, 1.0]]}
    assert view.score_notes == {"mine": "what I measured"}
    assert set(view.score_errors) == {"mine"}


def test_effects_need_their_stack_and_layers() -> None:
    effects = head_effects([-1.0, 2.0])
    with pytest.raises(TraitError, match=r"scores\['effect'\] are for 'self', but this record has"):
        ModelView(encoder_decoder_record(), scores={"effect": effects})
    with pytest.raises(TraitError, match=r"1 layers of 2 heads, but stack 'self' has 2 layers"):
        ModelView(given_record((2, 3)), scores=effects)


def test_one_of_several_token_scores_is_drawn() -> None:
    scores = {"one": [1, -2, 3], "two": [0.5, 0.5, -1]}
    view = HeadView(given_record((2,), 3), token_scores=scores, token_score="two")
    assert view.token_score == "two"
    view.token_scores = {"one": [1, -2, 3]}
    assert view.token_score is None


def test_effects_of_tokens_have_their_measure_and_noise() -> None:
    record = given_record((2,), 3)
    effects = TokenEffects(
        np.array([-2.0, 1.0, np.nan]), 0.0, MEASURE, "mask", record.stack().key_tokens
    )
    view = HeadView(record, token_scores=effects)
    assert view.token_scores == {"effect": {"self": [-2.0, 1.0, None]}}
    note = f"effect of removing a token (mask) on: {MEASURE}; noise 0"
    assert view.token_score_notes == {"effect": note}
    # The browser sends the scores of tokens in this form.
    view.token_scores = {"mine": {"self": [None, np.inf, 2]}}
    assert view.token_scores == {"mine": {"self": [None, None, 2.0]}}
    assert view.token_score_notes == {}


def test_scores_of_tokens_belong_to_the_keys_of_a_stack() -> None:
    record = encoder_decoder_record()
    num_keys = len(record.stacks["cross"].key_tokens)
    view = HeadView(record, stack="cross", token_scores=[0.5] * num_keys)
    assert list(view.token_scores["score"]) == ["cross"]
    with pytest.raises(TraitError, match=rf"has {num_keys} keys. Pass .*\(tokens,\)"):
        HeadView(record, stack="cross", token_scores=[0.5] * (num_keys + 1))
    with pytest.raises(TraitError, match="are for 'other', but this record has"):
        HeadView(record, token_scores={"mine": {"other": [1.0]}})


@pytest.mark.parametrize("kind", [HeadView, MatrixView, ModelView, Dashboard])
def test_statistics_name_the_heads_of_a_view(kind: Any) -> None:
    view = kind(looking_back(0), roles=statistics_of_looking_back(), order="role")
    roles = view.roles["self"]
    assert roles["names"] == [[None, "first token", None], ["previous token", None, None]]
    # Head 0 of layer 1 has the score 1 in all texts.
    assert roles["labels"][1][0] == "previous token 1.00 ± <0.01"
    ranks = roles["ranks"]
    assert ranks[1][0] > ranks[0][1] > 0
    assert ranks[0][0] is None
    # Without roles, heads are ordered by number.
    view.roles = None
    assert (view.roles, view.order) == ({}, "number")


def test_the_roles_of_one_stack_are_accepted() -> None:
    roles = statistics_of_looking_back().stack().roles()
    by_name = HeadView(looking_back(0), roles=roles).roles
    # A browser or a linked view sends `roles` as a dict by name of the stack.
    for value in ({"self": roles}, by_name):
        assert HeadView(looking_back(0), roles=value).roles == by_name
    one_layer = HeadView(looking_back(0), include_layers=[1], roles=roles)
    assert one_layer.roles["self"]["names"] == [["previous token", None, None]]


def test_custom_roles_are_ranked_by_their_number_of_heads() -> None:
    roles = {(1, 2): "copies", (0, 1): "sums", (-1, 0): "copies"}
    view = ModelView(given_record((2, 3)), roles=roles)
    named = view.roles["self"]
    assert named["names"] == named["labels"] == [[None, "sums"], ["copies", None, "copies"]]
    assert named["ranks"] == [[None, 2.0], [1.0, None, 1.0]]
    view = HeadView(encoder_decoder_record(), roles={"cross": {(1, 4): "aligns"}})
    assert view.roles["cross"]["names"][1][4] == "aligns"


def test_a_score_named_role_is_an_order_without_roles() -> None:
    view = HeadView(given_record((2,)), scores={"role": [[1, 2]]})
    assert view.order == "role"
