"""Test arguments and state of an embedding view, and values that the view refuses."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import numpy as np
import pytest
import traitlets

from attnviz.corpus.columns import COLORINGS
from attnviz.corpus.corpus import Corpus
from attnviz.embedding.placement import Placing
from attnviz.embedding.server.plots import PlotOptions
from attnviz.embedding.view import EmbeddingView
from attnviz.record.record import AttentionRecord
from unit.random_corpora import corpus, cross_record, record
from unit.records import hybrid_record


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ({"text": 2}, "text=2: the corpus has texts 0 to 1"),
        ({"text": 1, "token": 6}, "token=6: stack 'self' has queries 0 to 5"),
        ({"text": 1, "key": 6}, "key=6: stack 'self' has keys 0 to 5"),
        ({"stack": "cross"}, "this corpus has the stacks 'self'"),
        ({"color": "entropy"}, "color='entropy' must be one of 'type', 'position'"),
        ({"selected": [3, 20]}, "there is no point 20; stack 'self' has points 0 to 19"),
        ({"dimensions": 4}, "'dimensions' trait"),
        ({"method": "mds"}, "mds"),
    ],
)
def test_positions_outside_the_corpus_are_refused(traits: dict[str, Any], message: str) -> None:
    with pytest.raises(traitlets.TraitError, match=re.escape(message)):
        EmbeddingView(corpus([4, 6]), **traits)


def test_a_corpus_of_a_hybrid_model_has_no_linear_layers() -> None:
    linear = hybrid_record(linear=(2, 3)).stacks["linear"]
    view = EmbeddingView(Corpus([AttentionRecord({"self": record(5).stack(), "linear": linear})]))
    assert (view.stack, view.layer) == ("self", 0)
    with pytest.raises(traitlets.TraitError, match="layers 0, 1"):
        view.layer = 2


def test_a_column_is_a_colour() -> None:
    example = corpus([4, 6], columns={"kind": ["a", "b"]})
    view = EmbeddingView(example, color="kind")
    for color in COLORINGS:
        view.color = color
    with pytest.raises(traitlets.TraitError, match=r"'text', 'kind'\. Pass your own columns"):
        view.color = "sort"
    assert view.color == "text"


def test_a_token_belongs_to_its_text() -> None:
    view = EmbeddingView(corpus([4, 9, 6]), text=1, token=8, key=5)
    assert view.record is view.corpus.records[1]
    view.text = 2
    assert (view.token, view.key) == (None, 5)
    view.text = 0
    assert view.key is None
    with view.hold_trait_notifications():
        view.token, view.text = 7, 1
    assert (view.text, view.token) == (1, 7)
    view.set_state({"token": 3, "text": 0, "key": None})
    assert (view.text, view.token, view.key) == (0, 3, None)
    view.set_state({"token": 8, "text": 1})
    # Without a text, the view shows text 0, which has no token 8.
    view.text = None
    assert view.record is view.corpus.records[0]
    assert view.token is None


def test_another_stack_has_other_points() -> None:
    records = [cross_record(3, 8, decoder=True), cross_record(4, 5, decoder=True)]
    view = EmbeddingView(records, layer=2, selected=[1, 2], text=1, key=3)
    view.stack = "cross"
    assert (view.layer, view.selected, view.key) == (1, [], 3)
    view.selected = [0, 19]
    assert [point["kind"] for point in view.selection()] == ["query", "key"]
    assert view.selection()[1]["token"] == "e4"
    view.text = 0
    view.key = 7
    view.stack = "decoder"
    assert view.key is None


def test_the_lasso_selection_contains_tokens() -> None:
    view = EmbeddingView(corpus([4, 6]))
    view.set_trait("selected", np.array([13, 5, 0, 5]))
    assert view.selected == [0, 5, 13]
    assert view.selection() == [
        {"point": 0, "kind": "query", "text": 0, "position": 0, "token": "t0"},
        {"point": 5, "kind": "query", "text": 1, "position": 1, "token": "t1"},
        {"point": 13, "kind": "key", "text": 0, "position": 3, "token": "t3"},
    ]
    assert EmbeddingView(corpus([4, 6])).selection() == []


def test_include_layers_limits_the_picture_and_not_the_points() -> None:
    example = corpus([4, 6])
    view = EmbeddingView(example, include_layers=[1])
    assert view.layer == 1
    assert view.record.stack().layers == (1,)
    assert view.corpus.points() is example.points()
    assert {row["layer"] for row in view.trust()} == {1}
    with pytest.raises(IndexError, match=r"include_layers: layers=\[7\]"):
        EmbeddingView(example, include_layers=[7])


@pytest.mark.skipif(
    importlib.util.find_spec("openTSNE") is None, reason="openTSNE is not installed"
)
def test_closing_a_view_cancels_its_projection() -> None:
    view = EmbeddingView(corpus([400, 300]))
    answers = view._answers()
    request = PlotOptions("self", 0, Placing(), "tsne", head=0)
    view_work = answers.plot(request).work
    assert view_work is not None
    assert view_work.state == "running"
    view.close()
    view_work = answers.plot(request).work
    assert view_work is not None
    assert view_work.state == "cancelled"
