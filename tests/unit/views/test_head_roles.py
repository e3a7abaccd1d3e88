"""Roles of heads found over a corpus, in the views of one text."""

from __future__ import annotations

from typing import Any

import pytest
import traitlets

from attnviz.embedding.view import EmbeddingView
from attnviz.views.dashboard import Dashboard
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from unit.corpus.looking_back import looking_back, statistics_of_looking_back
from unit.random_corpora import corpus
from unit.records import encoder_decoder_record, given_record


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
