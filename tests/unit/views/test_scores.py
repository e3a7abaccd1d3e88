"""Numbers and names of heads and tokens from the caller: effects, scores and roles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import traitlets
from traitlets import TraitError

import attnviz as av
from attnviz.embedding.view import EmbeddingView
from attnviz.interventions.head_effects import HeadEffects
from attnviz.interventions.token_effects import TokenEffects
from attnviz.views.dashboard import Dashboard
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from unit.corpus.looking_back import looking_back, statistics_of_looking_back
from unit.random_corpora import corpus
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
    # The note describes the replaced numbers, so it is dropped.
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


@pytest.mark.parametrize("view", [HeadView, MatrixView, ModelView, Dashboard])
def test_statistics_name_the_heads_of_a_view(view: Any) -> None:
    view_of_record = view(looking_back(0), roles=statistics_of_looking_back(), order="role")
    named = view_of_record.roles["self"]
    assert named["names"] == [[None, "first token", None], ["previous token", None, None]]
    # The score is 1 in all texts.
    assert named["labels"][1][0] == "previous token 1.00 ± 0.00"
    ranks = named["ranks"]
    assert ranks[1][0] > ranks[0][1] > 0
    assert ranks[0][0] is None
    # Without roles, heads are ordered by number.
    view_of_record.roles = None
    assert (view_of_record.roles, view_of_record.order) == ({}, "number")


def test_the_roles_of_one_stack_are_accepted() -> None:
    head_statistics = statistics_of_looking_back()
    by_name = HeadView(looking_back(0), roles=head_statistics.stack().roles()).roles
    assert by_name == HeadView(looking_back(1), roles=head_statistics).roles
    assert (
        HeadView(looking_back(0), roles={"self": head_statistics.stack().roles()}).roles == by_name
    )
    # The roles that a browser or a linked view returns.
    assert HeadView(looking_back(0), roles=by_name).roles == by_name


def test_custom_roles_are_ranked_by_their_number_of_heads() -> None:
    view = ModelView(
        given_record((2, 3)), roles={(1, 2): "copies", (0, 1): "sums", (-1, 0): "copies"}
    )
    named = view.roles["self"]
    assert named["names"] == named["labels"] == [[None, "sums"], ["copies", None, "copies"]]
    assert named["ranks"] == [[None, 2.0], [1.0, None, 1.0]]
    cross_view = HeadView(encoder_decoder_record(), roles={"cross": {(1, 4): "aligns"}})
    assert cross_view.roles["cross"]["names"][1][4] == "aligns"


def test_roles_of_omitted_layers_are_omitted() -> None:
    view = HeadView(looking_back(0), include_layers=[1], roles=statistics_of_looking_back())
    assert view.roles["self"]["names"] == [["previous token", None, None]]


def test_the_embedding_view_has_roles() -> None:
    view = EmbeddingView(corpus([4, 6]), roles={(0, 1): "copies"}, order="role")
    assert view.order == "role"
    view.roles = {}
    assert view.order == "number"
    with pytest.raises(traitlets.TraitError, match='order="role" needs roles='):
        view.order = "role"


def test_a_score_named_role_is_an_order_without_roles() -> None:
    view = HeadView(given_record((2,)), scores={"role": [[1, 2]]})
    assert view.order == "role"
