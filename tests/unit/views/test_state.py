"""Tests of the state of views, and of traits that depend on each other."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from traitlets import TraitError

from attnviz.atlas.view import AtlasView
from attnviz.comparison.compare import compare
from attnviz.embedding.view import EmbeddingView
from attnviz.record.ranks import IndexerRanks
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.utils.docstrings import documented_names
from attnviz.views.base import View
from attnviz.views.compare import CompareView
from attnviz.views.dashboard import Dashboard
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from attnviz.views.neuron import NeuronView
from unit.page_data import data_of
from unit.records import (
    captured_record,
    encoder_decoder_record,
    given_record,
    hybrid_record,
    image_record,
    vectors,
)


def test_the_default_state() -> None:
    view = HeadView(given_record((2, 3)))
    # `state` has the traits that the browser receives, except those of ipywidgets.
    assert set(view.state_names()) == set(view.state) < set(view.get_state())
    # All other traits are None, 0, False or empty.
    assert {name: value for name, value in view.state.items() if value} == {
        "stack": "self",
        "heads": [0, 1],
        "combine": "separate",
        "run": "before",
        "pair": "all",
        "order": "number",
        "maps": "chosen",
        "theme": "auto",
        "controls": "auto",
    }
    json.dumps(view.state)
    assert HeadView(captured_record()).layer == 2


def test_a_dashboard_has_all_traits_of_its_views() -> None:
    views = (HeadView, ModelView, MatrixView)
    assert set(Dashboard.state_names()) == {name for view in views for name in view.state_names()}


@pytest.mark.parametrize(
    "view",
    [HeadView, ModelView, NeuronView, MatrixView, CompareView, Dashboard, EmbeddingView, AtlasView],
)
def test_declarations_of_traits_agree(view: type[View]) -> None:
    kinds = {
        name: kind
        for source in reversed(view.__mro__)
        for name, kind, words in documented_names(source)
        if words and not words.startswith("See ")
    }
    for name in view.state_names():
        trait: Any = view.class_traits()[name]
        words = getattr(trait, "values", None) or []
        assert set(trait.metadata.get("labels", ())) <= set(words), name
        assert set(trait.metadata.get("when", ())) <= set(view.state_names()), name
        assert "group" not in trait.metadata or trait.metadata["label"], name
        forms = {
            traitlets.Enum: "{" + ", ".join(f'"{word}"' for word in words) + "}",
            traitlets.Bool: "bool",
            traitlets.Int: "int",
            traitlets.Float: "float",
        }
        form = next((form for kind, form in forms.items() if isinstance(trait, kind)), "")
        # The docstring of an integer with few values lists them.
        if form and not kinds[name].startswith("{2"):
            assert kinds[name] == form + " or None" * trait.allow_none, name


@pytest.mark.parametrize(
    ("num_heads", "num_tokens", "heads", "top_k"),
    [(4, 32, [0, 1, 2, 3], None), (5, 33, [], 3)],
)
def test_a_view_opens_with_few_heads_and_lines(
    num_heads: int, num_tokens: int, heads: list[int], top_k: int | None
) -> None:
    view = HeadView(given_record((num_heads,), num_tokens))
    assert (view.heads, view.top_k) == (heads, top_k)


@pytest.mark.parametrize("num_tokens", [5, 40])
def test_lines_to_ranks_are_few_while_the_reader_chooses_no_other_number(num_tokens: int) -> None:
    ranks = IndexerRanks(
        vectors(2, num_tokens, 4), vectors(1, num_tokens, 4), torch.ones(2, num_tokens)
    )
    stack = given_record((2,), num_tokens).stack()
    indexer = AttentionStack("indexer", {0: ranks}, stack.query_tokens, measure="rank")
    record = AttentionRecord({"self": stack, "indexer": indexer})
    view = HeadView(record)
    default = view.top_k
    assert default == (None if num_tokens == 5 else 3)
    for name, top_k in (("indexer", 1), ("self", default)):
        view.stack = name
        assert view.top_k == top_k
    assert HeadView(record, stack="indexer").top_k == 1
    assert CompareView(compare(record, record), stack="indexer").top_k == 1
    view.top_k = 8
    view.stack = "indexer"
    assert view.top_k == 8


def test_a_layer_with_fewer_heads_drops_some_with_a_warning() -> None:
    view = HeadView(given_record((3, 2)), heads=[2, 1])
    with pytest.warns(
        UserWarning, match=r"layer 1 has 2 heads: heads=\[2, 1\] is reduced to \[1\]"
    ):
        view.layer = 1
    assert view.heads == [1]
    # Going back to layer 0 drops no head. If the view warned here, the test would fail.
    view.layer = 0
    assert view.heads == [1]


def test_another_stack_replaces_invalid_state() -> None:
    view = HeadView(encoder_decoder_record(), stack="decoder", layer=2, heads=[1], token=3, key=3)
    view.query_window = [1, 4]
    view.stack = "encoder"
    # The nearest existing layer is chosen. Tokens and windows that still exist stay.
    assert (view.layer, view.heads, view.token, view.key) == (1, [1], 3, 3)
    assert view.query_window == [1, 4]
    view.token, view.query_window, view.key_window = 5, [2, 6], [0, 6]
    before = view.state
    with pytest.warns(UserWarning, match=r"layer 0 has 1 heads: heads=\[1\] is reduced to \[\]"):
        view.set_state({"stack": "cross", "layer": 0})
    changed = {"stack": "cross", "layer": 0, "heads": [], "token": None, "query_window": None}
    assert view.state == before | changed


def test_another_stack_drops_a_pair_and_keys_that_it_lacks() -> None:
    view = HeadView(captured_record(), heads=[0], pair="a-b", leave_out=["first", 5, 1])
    view.stack = "cross"
    assert (view.pair, view.leave_out) == ("all", ["first", 1])


def test_the_browser_sets_several_traits_at_once() -> None:
    view = HeadView(encoder_decoder_record(), stack="decoder", layer=2, heads=[1, 0])
    changes: list[str] = []
    view.observe(lambda change: changes.append(change["name"]), ["stack", "layer", "heads"])
    # Set all values at once, as ipywidgets does. The heads and keys do not fit the old stack.
    view.set_state({"stack": "cross", "layer": 1, "heads": [4, 2], "key": 5, "key_window": [4, 6]})
    assert (view.stack, view.layer, view.heads, view.key) == ("cross", 1, [4, 2], 5)
    assert sorted(changes) == ["heads", "layer", "stack"]


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    view = HeadView(encoder_decoder_record(), stack="decoder", layer=2, heads=[1])
    before = view.state
    for state in (
        {"stack": "encoder", "layer": 9},
        {"token": 99, "theme": "dark"},
    ):
        with pytest.raises(traitlets.TraitError):
            view.set_state(state)
        assert view.state == before


def test_a_layer_of_another_kind_changes_the_stack() -> None:
    view = HeadView(hybrid_record(), layer=3, heads=[1], token=2)
    linked = HeadView(hybrid_record(), layer=3)
    link = traitlets.link((view, "layer"), (linked, "layer"))
    layers: list[int] = []
    for one in (view, linked):
        one.observe(lambda change: layers.append(change["new"]), "layer")
    view.layer = 0
    assert [(one.stack, one.layer) for one in (view, linked)] == [("linear", 0)] * 2
    # Each view changes its layer once. It does not first change to layer 2, which is the nearest to
    # layer 3 in the new stack.
    assert layers == [0, 0]
    assert (view.heads, view.token) == ([1], 2)
    # Both stacks have layer 1.
    view.layer = 1
    assert (linked.stack, linked.layer) == ("linear", 1)
    link.unlink()
    # A browser sends a layer alone, or a layer and its stack.
    view.set_state({"layer": 3})
    assert (view.stack, view.layer, view.heads) == ("self", 3, [1])
    view.set_state({"layer": 2, "stack": "linear"})
    assert (view.stack, view.layer) == ("linear", 2)
    assert HeadView(hybrid_record(), layer=0).stack == "linear"
    with pytest.raises(TraitError, match="Layer 2 is in another stack: use stack='linear'"):
        HeadView(hybrid_record(), stack="self", layer=2)
    with pytest.raises(TraitError, match="'linear' has layers 0 to 2"):
        view.layer = 9
    assert (view.stack, view.layer) == ("linear", 2)
    # The stacks of an encoder-decoder are not siblings, so a layer does not change the stack.
    with pytest.raises(TraitError, match="layer=2"):
        HeadView(encoder_decoder_record(), stack="encoder", layer=2)


def test_a_threshold_may_exceed_one_if_weights_do() -> None:
    record = AttentionRecord.from_weights(np.full((1, 1, 2, 2), 3.0), ["a", "b"], normalized=False)
    assert HeadView(record, threshold=2.5).threshold == 2.5


def test_scores_can_be_arrays_and_order_the_heads() -> None:
    view = HeadView(encoder_decoder_record(), stack="cross", scores=[[0.5], [1, 2, 3, np.nan, 5]])
    assert view.order == "score"
    assert view.scores == {"score": {"cross": [[0.5], [1.0, 2.0, 3.0, None, 5.0]]}}
    view.scores = {"mine": [[1], np.arange(5, dtype=np.float32)]}
    view.order, view.threshold = "mine", np.float32(0.25)
    assert view.scores["mine"]["cross"][1] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert json.dumps(view.threshold) == "0.25"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([2, 0, 2], [0, 2]),
        (np.array([1]), [1]),
        (1, [1]),
        ({-1: -1}, {"1": [2]}),
        ({np.int64(1): [2, 0], 0: (1,)}, {"0": [1], "1": [0, 2]}),
        # The browser sends the trait in this form.
        ({"1": [2]}, {"1": [2]}),
        ("all", None),
    ],
)
def test_heads_to_offer_are_stored_as_json(value: Any, expected: Any) -> None:
    view = ModelView(given_record((2, 3)), include_heads=value)
    assert json.loads(json.dumps(view.state))["include_heads"] == expected


def test_a_page_has_the_controls_of_its_view_or_of_the_argument() -> None:
    view = HeadView(given_record(), controls="compact")
    assert data_of(view.to_html())["state"]["controls"] == "compact"
    assert data_of(view.to_html(controls=False))["state"]["controls"] == "none"
    assert data_of(view.to_html(controls=True))["state"]["controls"] == "auto"
    assert view.controls == "compact"
    assert HeadView(given_record(), controls=np.True_).controls == "auto"
    with pytest.raises(ValueError, match=r"controls=2\.5 must be one of"):
        view.to_html(controls=2.5)  # type: ignore[arg-type]


def test_the_neuron_view_omits_stacks_of_weights() -> None:
    stack, image_stack = captured_record().stack("self"), image_record().stack()
    record = AttentionRecord(
        {"self": stack, "image": image_stack},
        images=image_record().images,
        notes=["by hand", "A number of stack “image” is large."],
    )
    served_record = NeuronView(record).served_record
    assert list(served_record.stacks) == ["self"]
    assert served_record.notes == (
        "by hand",
        "Not in this view: stack “image”, without queries and keys of a softmax.",
    )
    np.testing.assert_array_equal(served_record.images[0], record.images[0])
    with pytest.raises(TraitError, match="image"):
        NeuronView(record, stack="image")
    assert list(record.stacks) == ["self", "image"]
    alone = AttentionRecord({"self": stack})
    assert NeuronView(alone).record is alone
