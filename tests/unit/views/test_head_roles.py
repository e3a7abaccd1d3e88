"""Roles of heads found over a corpus, in the views of one text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import traitlets

from attnviz.corpus.statistics import HeadStatistics
from attnviz.embedding.view import EmbeddingView
from attnviz.record.record import AttentionRecord
from attnviz.views.dashboard import Dashboard
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from unit.random_corpora import corpus
from unit.records import encoder_decoder_record, given_record, words


def looking_back(text: int) -> AttentionRecord:
    """Return a record of a previous-token head 1.0, a first-token head 0.1 and uniform heads."""
    count = 6 + text % 3
    even = np.ones((count, count))
    before = np.eye(count, k=-1) + np.eye(count) * np.eye(count, 1)
    before[0, 0] = 1
    first = np.zeros((count, count))
    first[:, 0] = 1
    layers = [np.stack([even, first, even]), np.stack([before, even, even])]
    weights = [layer / layer.sum(-1, keepdims=True) for layer in layers]
    return AttentionRecord.from_weights(weights, words(count), model="made")


def statistics(texts: int = 8) -> HeadStatistics:
    head_statistics = HeadStatistics()
    for text in range(texts):
        head_statistics.add(looking_back(text))
    return head_statistics


@pytest.mark.parametrize("view", [HeadView, MatrixView, ModelView, Dashboard])
def test_statistics_name_the_heads_of_a_view(view: Any) -> None:
    view_of_record = view(looking_back(0), roles=statistics(), order="role")
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
    head_statistics = statistics()
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
    view = HeadView(looking_back(0), include_layers=[1], roles=statistics())
    assert view.roles["self"]["names"] == [["previous token", None, None]]


def test_the_embedding_view_has_roles() -> None:
    view = EmbeddingView(corpus([4, 6]), roles={(0, 1): "copies"}, order="role")
    assert view.order == "role"
    view.roles = {}
    assert view.order == "number"
    with pytest.raises(traitlets.TraitError, match='order="role" needs roles='):
        view.order = "role"


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (3, "roles=3: pass attnviz.HeadStatistics"),
        ("induction", "roles='induction': pass"),
        (np.zeros((2, 3)), "pass attnviz.HeadStatistics"),
        ({(9, 9): "a"}, r"roles\[\(9, 9\)\]: stack 'self' has no such head"),
        ({(0, -1): "a"}, "has no such head"),
        ({(0, 0): 3}, "must be a name of at most 80"),
        ({(0, 0): " "}, "must be a name of at most 80"),
        ({(0, 0): "a" * 81}, "of at most 80 characters"),
        ({0: "a"}, r"0 must be \(layer, head\)"),
        ({(True, 0): "a"}, r"must be \(layer, head\)"),
        ({"cross": {(0, 0): "a"}}, "roles are for 'cross', but this record has 'self'"),
        ({"self": 3}, "roles of 'self'"),
        ({"self": {"names": [], "labels": [], "ranks": []}}, "2 layers of 2, 3 heads"),
        (
            {"self": {"names": [[1, 2], [3, 4, 5]], "labels": [], "ranks": []}},
            "names must have 2 layers of 2, 3 heads",
        ),
    ],
)
def test_invalid_roles_are_refused(roles: Any, message: str) -> None:
    view = HeadView(given_record((2, 3)))
    with pytest.raises(traitlets.TraitError, match=message):
        view.roles = roles
    assert view.roles == {}


def test_roles_of_another_model_are_refused() -> None:
    with pytest.raises(
        traitlets.TraitError, match="roles come from another model: they have head 1"
    ):
        HeadView(given_record((1, 3)), roles=statistics())
    with pytest.raises(
        traitlets.TraitError, match="roles are for 'self', but this record has 'encoder'"
    ):
        HeadView(encoder_decoder_record(), roles=statistics())


def test_a_view_without_roles_is_not_ordered_by_them() -> None:
    with pytest.raises(traitlets.TraitError, match=r'order="role" needs roles=, such as attnviz'):
        HeadView(given_record((2, 3)), order="role")
    # A score named "role" is a valid order.
    view = HeadView(given_record((2,)), scores={"role": [[1, 2]]})
    assert view.order == "role"
