"""State of the head view: arguments, errors and dependent traits."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import pytest
import traitlets
from traitlets import TraitError

import attnviz.pages.html
from attnviz.record.record import AttentionRecord
from attnviz.views.head import HeadView
from unit.records import captured_record, encoder_decoder_record, given_record, shares


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


@pytest.mark.parametrize(("num_heads", "chosen"), [(1, [0]), (4, [0, 1, 2, 3]), (5, []), (64, [])])
def test_up_to_four_heads_are_chosen(num_heads: int, chosen: list[int]) -> None:
    assert HeadView(given_record((num_heads,))).heads == chosen


@pytest.mark.parametrize(("num_tokens", "top_k"), [(2, None), (32, None), (33, 3)])
def test_long_texts_show_three_lines_per_query(num_tokens: int, top_k: int | None) -> None:
    assert HeadView(given_record((1,), num_tokens)).top_k == top_k


def test_every_state_can_be_set_at_once() -> None:
    chosen: dict[str, Any] = {
        "stack": "cross",
        "layer": 1,
        "heads": [4, 0],
        "token": 3,
        "key": 5,
        "as_query": True,
        "combine": "max",
        "top_k": 7,
        "threshold": 0.25,
        "leave_out": ["special", "first", 2],
        "renormalize": True,
        "answer": None,
        "changes": [
            {
                "kind": "knockout",
                "stack": "cross",
                "layer": 1,
                "head": 4,
                "query": 3,
                "key": 5,
                "renormalize": False,
            },
        ],
        "pair": "all",
        "query_window": [0, 2],
        "key_window": [1, 6],
        "orientation": "horizontal",
        "order": "mine",
        "min_score": 0.5,
        "scores": {"mine": {"cross": [[0.25], [0.5] * 5]}},
        "theme": "dark",
        "controls": "compact",
    }
    view = HeadView(encoder_decoder_record(), **chosen)
    assert view.state == view.state | chosen


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("stack", "self", "stack='self': this record has 'encoder', 'decoder', 'cross'"),
        ("stack", 7, "stack.*7"),
        ("layer", 2, "layer=2: stack 'encoder' has layers 0, 1"),
        ("layer", -3, "layer=-3: stack 'encoder' has layers 0, 1"),
        ("layer", "0", "expected an int"),
        ("heads", [3], r"heads=\[3\]: layer 0 of stack 'encoder' has heads 0 to 2"),
        ("heads", [0, -4], r"heads=\[0, -4\]: layer 0 of stack 'encoder' has heads 0 to 2"),
        ("heads", 3, r"heads=\[3\]: layer 0 of stack 'encoder' has heads 0 to 2"),
        ("heads", 1.5, "expected a list"),
        ("heads", np.array([0.5]), "int"),
        ("heads", "most", "heads='most': pass an integer, a list .* or \"all\""),
        ("heads", ["0"], "heads='0': pass an integer"),
        ("heads", ["0", "1"], "int"),
        ("token", 6, "token=6: stack 'encoder' has queries 0 to 5"),
        ("token", -7, "token=-7: stack 'encoder' has queries 0 to 5"),
        ("token", "t0", r"token='t0': no token has this text\. .* a number from 0 to 5"),
        ("token", 1.5, "int"),
        ("key", 6, "key=6: stack 'encoder' has keys 0 to 5"),
        ("combine", "sum", "any of"),
        ("top_k", 0, "should not be less than 1"),
        ("top_k", 1.5, "int"),
        ("threshold", 1.5, "must be between 0 and 1"),
        ("threshold", -0.1, "should not be less than 0"),
        ("threshold", "half", "float"),
        ("threshold", math.nan, "threshold=nan must be a finite number"),
        ("min_score", math.nan, "min_score=nan must be a finite number; None sets no limit"),
        ("min_score", -math.inf, "min_score=-inf must be a finite number"),
        ("leave_out", ["last"], r"leave_out='last': no token has this text\. .*\"special\" or"),
        ("leave_out", [-9], "leave_out"),
        ("leave_out", [1.5], "leave_out"),
        ("renormalize", "yes", "boolean"),
        ("pair", "b", "any of"),
        ("query_window", [0, 7], r"query_window=\[0, 7\] must be \[start, stop\] within the 6"),
        ("query_window", [3, 3], r"query_window=\[3, 3\] must be"),
        ("key_window", [4, 2], r"key_window=\[4, 2\] must be"),
        ("key_window", [1], "length 2"),
        ("orientation", "diagonal", "any of"),
        ("theme", "blue", "any of"),
    ],
)
def test_values_that_do_not_fit_are_refused(name: str, value: Any, message: str) -> None:
    view = HeadView(encoder_decoder_record())
    before = view.state
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(view, name, value)
    assert view.state == before
    with pytest.raises(traitlets.TraitError, match=message):
        HeadView(encoder_decoder_record(), **{name: value})


def test_unknown_attributes_are_refused() -> None:
    view = HeadView(given_record())
    with pytest.raises(AttributeError, match=r"HeadView has no attribute 'head'; did .* 'heads'"):
        view.head = 1
    with pytest.raises(AttributeError, match=r"has no attribute 'foo'$"):
        view.foo = []


def test_an_unknown_keyword_lists_the_valid_ones() -> None:
    with pytest.raises(TypeError, match=r"no argument 'head'; did you mean 'heads'\?; it takes"):
        HeadView(given_record(), head=1)
    with pytest.raises(TypeError, match=r"'include_heads'; did you mean 'heads'\?; it takes"):
        HeadView(given_record(), include_heads=[0])
    with pytest.raises(TypeError, match="no argument '_esm'"):
        HeadView(given_record(), _esm="alert(1)")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (lambda: [given_record()] * 3, r"a list of 3 records, but a view shows one. Pass record"),
        (lambda: (given_record(),), "a list of 1 records"),
        (lambda: [shares(1, 2, 2)], r"must be an AttentionRecord, got list\. .*attnviz.extract"),
        (lambda: None, "must be an AttentionRecord, got NoneType"),
        (lambda: "the cat", "must be an AttentionRecord, got str"),
    ],
)
def test_a_view_shows_one_record(record: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        HeadView(record())


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


def test_excluded_keys_must_exist() -> None:
    view = HeadView(encoder_decoder_record(), heads=[0], leave_out=["first", 5, 2])
    with pytest.raises(traitlets.TraitError, match=r"leave_out=\[6\]: stack 'encoder' has keys 0"):
        view.leave_out = [6]
    view.stack = "decoder"
    assert view.leave_out == ["first", 2]


def test_pair_needs_two_texts() -> None:
    view = HeadView(captured_record(), heads=[0], pair="a-b")
    view.stack = "cross"
    assert view.pair == "all"
    with pytest.raises(traitlets.TraitError, match="pair='b-a': the tokens of stack 'cross'"):
        view.pair = "b-a"


def test_the_browser_sets_several_traits_at_once() -> None:
    view = HeadView(encoder_decoder_record(), stack="decoder", layer=2, heads=[1, 0])
    changes: list[str] = []
    view.observe(lambda change: changes.append(change["name"]), ["stack", "layer", "heads"])
    # Set like ipywidgets does. No value fits the old stack.
    view.set_state({"stack": "cross", "layer": 1, "heads": [4, 2], "key": 5, "key_window": [4, 6]})
    assert (view.stack, view.layer, view.heads, view.key) == ("cross", 1, [4, 2], 5)
    assert sorted(changes) == ["heads", "layer", "stack"]


def test_the_browser_may_leave_the_layer_to_python() -> None:
    view = HeadView(encoder_decoder_record(), stack="decoder", layer=2, heads=[1])
    view.set_state({"stack": "cross", "heads": [4]})
    assert (view.stack, view.layer, view.heads) == ("cross", 1, [4])


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


def test_layers_can_be_chosen() -> None:
    view = HeadView(captured_record(), include_layers=[5, 11])
    assert view.record.stacks["self"].layers == (5, 11)
    assert list(view.record.stacks) == ["self"]
    assert view.layer == 5
    with pytest.raises(traitlets.TraitError, match="layer=2: stack 'self' has layers 5, 11"):
        view.layer = 2
    with pytest.raises(traitlets.TraitError, match="layer=2"):
        HeadView(captured_record(), include_layers=[5, 11], layer=2)
    with pytest.raises(IndexError, match=r"layers=\[4\]: this record has layers 0, 2, 3"):
        HeadView(captured_record(), include_layers=[4])
    with pytest.raises(TypeError, match=r"include_layers must be .*\. Got 'all'"):
        HeadView(captured_record(), include_layers="all")  # type: ignore[arg-type]


def test_a_missing_bundle_is_an_error_with_instructions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(attnviz.pages.html, "_STATIC", tmp_path)
    with pytest.raises(FileNotFoundError, match="the front-end of the head view is missing"):
        HeadView(given_record())


def test_a_threshold_may_exceed_one_if_weights_do() -> None:
    record = AttentionRecord.from_weights(
        [np.full((1, 2, 2), 3.0, np.float32)], ["a", "b"], normalized=False
    )
    assert HeadView(record, threshold=2.5).threshold == 2.5


def test_the_warning_about_dropped_heads_points_to_the_caller() -> None:
    view = HeadView(encoder_decoder_record(), stack="cross", layer=1, heads=[4])
    with pytest.warns(UserWarning, match="layer 0 has 1 heads") as caught:
        view.layer = 0
    assert caught[0].filename == __file__


def test_scores_can_be_arrays_and_order_the_heads() -> None:
    view = HeadView(encoder_decoder_record(), stack="cross", scores=[[0.5], [1, 2, 3, np.nan, 5]])
    assert view.order == "score"
    assert view.scores == {"score": {"cross": [[0.5], [1.0, 2.0, 3.0, None, 5.0]]}}
    view.scores = {"mine": [[1], range(5)]}
    view.order = "mine"
    assert view.scores["mine"]["cross"][1] == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1.0]], "has 1 layers of 1 heads, but stack 'self' has 1 layers of 3 heads"),
        ("induction", "order='induction'"),
        ([["a", "b", "c"]], "must be numbers"),
        (7, "must be numbers"),
        ({"number": [[1, 2, 3]]}, "cannot be a name"),
        ({"pinned": [[1, 2, 3]]}, "'pinned' cannot be a name of scores"),
        ({"mine": {"cross": [[1, 2, 3]]}}, "are for 'cross', but this record has 'self'"),
        (
            {"mine": {"self": [[1, 2]]}},
            "has 1 layers of 2 heads, but stack 'self' has 1 layers of 3",
        ),
    ],
)
def test_scores_that_do_not_fit_are_refused(scores: Any, message: str) -> None:
    with pytest.raises(TraitError, match=message):
        HeadView(given_record((3,)), scores=scores)


def test_an_order_is_reset_if_its_scores_are_removed() -> None:
    view = HeadView(given_record((3,)), scores={"mine": [[1, 2, 3]], "yours": [[3, 2, 1]]})
    view.scores = {"mine": [[1, 2, 3]]}
    assert view.order == "mine"
    view.scores = {}
    assert view.order == "number"


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("yours", "must be one of 'number', 'pinned', 'mine'"),
        ("induction", r"order='induction': no stack .*Pass one of 'first token'"),
    ],
)
def test_an_unknown_order_lists_the_valid_ones(order: str, message: str) -> None:
    with pytest.raises(TraitError, match=message):
        HeadView(given_record((3,)), scores={"mine": [[1, 2, 3]]}, order=order)


def test_numbers_of_numpy_are_accepted() -> None:
    scores = np.array([[0.5, 0.25, 0.75]], dtype=np.float32)
    view = HeadView(given_record((3,)), scores=scores, min_score=scores.mean(), heads=[True])
    view.threshold = np.float32(0.25)
    assert json.dumps([view.min_score, view.threshold, view.heads]) == "[0.5, 0.25, [1]]"


def test_patterns_order_no_heads_of_signed_numbers() -> None:
    numbers = np.random.default_rng(0).normal(size=(1, 2, 3, 3))
    record = AttentionRecord.from_weights(numbers, ["a", "b", "c"], signed=True)
    with pytest.raises(TraitError, match=r"order='self': .* are signed\. Pass scores="):
        HeadView(record, order="self")
    assert HeadView(record, scores=[[0.5, 0.25]]).order == "score"
