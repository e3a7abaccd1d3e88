"""State of views: defaults, accepted values, and traits that depend on each other."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from traitlets import TraitError

from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.views.dashboard import Dashboard
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from attnviz.views.neuron import NeuronView
from unit.page_data import data_of
from unit.records import captioned_record, captured_record, encoder_decoder_record, given_record


def test_the_default_state() -> None:
    view = HeadView(given_record((2, 3)))
    # The traits that are shared with the browser, without those of ipywidgets.
    assert set(view.state_names()) == set(view.state) < set(view.get_state())
    assert json.loads(json.dumps(view.state)) == {
        "stack": "self",
        "layer": 0,
        "heads": [0, 1],
        "token": None,
        "key": None,
        "prediction": None,
        "as_query": False,
        "combine": "separate",
        "top_k": None,
        "threshold": 0.0,
        "leave_out": [],
        "renormalize": False,
        "answer": None,
        "changes": [],
        "run": "before",
        "pair": "all",
        "query_window": None,
        "key_window": None,
        "orientation": "vertical",
        "order": "number",
        "min_score": None,
        "scores": {},
        "score_notes": {},
        "score_errors": {},
        "roles": {},
        "token_scores": {},
        "token_score_notes": {},
        "token_score": None,
        "theme": "auto",
        "controls": "auto",
    }
    assert HeadView(captured_record()).layer == 2
    assert HeadView(encoder_decoder_record(), stack="cross", layer=1).heads == []


def test_a_dashboard_has_all_traits_of_its_views() -> None:
    views = (HeadView, ModelView, MatrixView)
    assert set(Dashboard.state_names()) == {name for view in views for name in view.state_names()}
    view = Dashboard(given_record(), thumbnails="lines", color_scale="log", top_k=2)
    assert (view.thumbnails, view.color_scale, view.top_k) == ("lines", "log", 2)


@pytest.mark.parametrize(("num_heads", "chosen"), [(1, [0]), (4, [0, 1, 2, 3]), (5, []), (64, [])])
def test_up_to_four_heads_are_chosen(num_heads: int, chosen: list[int]) -> None:
    assert HeadView(given_record((num_heads,))).heads == chosen


@pytest.mark.parametrize(("num_tokens", "top_k"), [(2, None), (32, None), (33, 3)])
def test_long_texts_show_three_lines_per_query(num_tokens: int, top_k: int | None) -> None:
    assert HeadView(given_record((1,), num_tokens)).top_k == top_k


def test_a_layer_with_fewer_heads_drops_some_with_a_warning() -> None:
    view = HeadView(given_record((3, 2)), heads=[2, 1])
    with pytest.warns(
        UserWarning, match=r"layer 1 has 2 heads: heads=\[2, 1\] is reduced to \[1\]"
    ):
        view.layer = 1
    assert view.heads == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
    view.layer = 0
    view.heads = [2]
    with pytest.warns(UserWarning, match=r"layer 0 has 1 heads: heads=\[2\] is reduced to \[\]"):
        view.stack = "cross"
    assert view.state == before | {
        "stack": "cross",
        "layer": 0,
        "heads": [],
        "token": None,
        "query_window": None,
        "key_window": [0, 6],
    }


def test_another_stack_drops_a_pair_and_keys_that_it_lacks() -> None:
    view = HeadView(captured_record(), heads=[0], pair="a-b", leave_out=["first", 5, 1])
    view.stack = "cross"
    assert (view.pair, view.leave_out) == ("all", ["first", 1])


def test_the_browser_sets_several_traits_at_once() -> None:
    view = HeadView(encoder_decoder_record(), stack="decoder", layer=2, heads=[1, 0])
    changes: list[str] = []
    view.observe(lambda change: changes.append(change["name"]), ["stack", "layer", "heads"])
    # Set like ipywidgets does. No value fits the old stack.
    view.set_state({"stack": "cross", "layer": 1, "heads": [4, 2], "key": 5, "key_window": [4, 6]})
    assert (view.stack, view.layer, view.heads, view.key) == ("cross", 1, [4, 2], 5)
    assert sorted(changes) == ["heads", "layer", "stack"]


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    view = HeadView(encoder_decoder_record(), stack="decoder", layer=2, heads=[1])
    before = view.state
    for state in (
        {"stack": "encoder", "layer": 9},
        {"stack": "nowhere", "layer": 0},
        {"layer": 0, "heads": [0, 7]},
        {"token": 99, "theme": "dark"},
    ):
        with pytest.raises(traitlets.TraitError):
            view.set_state(state)
        assert view.state == before


def test_a_threshold_may_exceed_one_if_weights_do() -> None:
    record = AttentionRecord.from_weights(
        [np.full((1, 2, 2), 3.0, np.float32)], ["a", "b"], normalized=False
    )
    assert HeadView(record, threshold=2.5).threshold == 2.5


def test_scores_can_be_arrays_and_order_the_heads() -> None:
    view = HeadView(encoder_decoder_record(), stack="cross", scores=[[0.5], [1, 2, 3, np.nan, 5]])
    assert view.order == "score"
    assert view.scores == {"score": {"cross": [[0.5], [1.0, 2.0, 3.0, None, 5.0]]}}
    view.scores = {"mine": [[1], range(5)]}
    view.order = "mine"
    assert view.scores["mine"]["cross"][1] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_numbers_of_numpy_are_accepted() -> None:
    scores = np.array([[0.5, 0.25, 0.75]], dtype=np.float32)
    view = HeadView(given_record((3,)), scores=scores, min_score=scores.mean(), heads=[True])
    view.threshold = np.float32(0.25)
    assert json.dumps([view.min_score, view.threshold, view.heads]) == "[0.5, 0.25, [1]]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([2, 0, 2], [0, 2]),
        (range(2), [0, 1]),
        (np.array([1]), [1]),
        ({1}, [1]),
        (1, [1]),
        ({-1: -1}, {"1": [2]}),
        ("all", None),
        ({1: [2, 0], 0: (1,)}, {"0": [1], "1": [0, 2]}),
        ({np.int64(1): np.arange(2)}, {"1": [0, 1]}),
        # The state that the browser returns.
        ({"1": [2]}, {"1": [2]}),
        (None, None),
    ],
)
def test_heads_to_offer_are_stored_as_json(value: Any, expected: Any) -> None:
    view = ModelView(given_record((2, 3)), include_heads=value)
    assert view.include_heads == expected
    assert json.loads(json.dumps(view.state))["include_heads"] == expected
    changed = ModelView(given_record((2, 3)))
    changed.include_heads = value
    assert changed.include_heads == expected


def test_a_page_has_the_controls_of_its_view_or_of_the_argument() -> None:
    view = HeadView(given_record(), controls="compact")
    assert data_of(view.to_html())["state"]["controls"] == "compact"
    assert data_of(view.to_html(controls=False))["state"]["controls"] == "none"
    assert data_of(view.to_html(controls=True))["state"]["controls"] == "auto"
    assert view.controls == "compact"
    with pytest.raises(ValueError, match=r"controls=2\.5 must be one of"):
        view.to_html(controls=2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "controls"), [(True, "auto"), (np.True_, "auto"), ("full", "full"), ("none", "none")]
)
def test_accepted_values_of_controls(value: Any, controls: str) -> None:
    assert HeadView(given_record(), controls=value).controls == controls


def test_stacks_with_vectors_keep_the_images_of_the_record() -> None:
    record = captioned_record()
    [stack] = record.stacks.values()
    weights_only = AttentionStack(
        "given", {0: StoredWeights(torch.from_numpy(stack.weights(layer=0)))}, stack.query_tokens
    )
    both = AttentionRecord({"self": stack, "given": weights_only}, images=record.images)
    served = NeuronView(both).served_record
    assert list(served.stacks) == ["self"]
    np.testing.assert_array_equal(served.images[0], record.images[0])


def test_stacks_of_weights_are_omitted_if_others_remain() -> None:
    record = captured_record()
    assert list(record.stacks) == ["self", "cross"]
    view = NeuronView(record)
    assert list(view.record.stacks) == ["self"]
    assert (view.record.model, view.record.notes) == (record.model, record.notes)
    with pytest.raises(TraitError, match="cross"):
        view.stack = "cross"
    # The original record is unchanged.
    assert list(record.stacks) == ["self", "cross"]
    alone = AttentionRecord({"self": record.stack("self")})
    assert NeuronView(alone).record is alone


def test_a_page_contains_vectors_and_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.pages.html.bundle", lambda *_: "export const a = 1;")
    html = NeuronView(captured_record()).to_html()
    data = data_of(html)
    assert data["view"] == "neuron"
    assert data["blocks"] == []
    layers = [
        (layer_data["stack"], layer_data["layer"]) for layer_data in data["vectors"]["layers"]
    ]
    assert layers == [("self", layer) for layer in (2, 3, 5, 7, 11, 12)]
