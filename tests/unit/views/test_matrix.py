"""The matrix view's state: what it takes, what it refuses and what it moves along."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from traitlets import TraitError

from attnviz.views.matrix import MatrixView
from unit.records import captured_record, encoder_decoder_record, given_record

OWN = {"color_scale", "pooled", "query_window", "key_window"}


def test_what_is_shown_first() -> None:
    view = MatrixView(given_record((2, 3)))
    assert set(view.state) >= OWN
    assert json.loads(json.dumps(view.state)) == view.state
    # The mean of all heads and the whole matrix.
    assert view.heads == []
    assert {name: view.state[name] for name in OWN} == {
        "color_scale": "linear",
        "pooled": "mean",
        "query_window": None,
        "key_window": None,
    }


def test_everything_can_be_said_at_once() -> None:
    chosen: dict[str, Any] = {
        "stack": "cross",
        "layer": 1,
        "heads": [4, 0],
        "token": 3,
        "key": 5,
        "color_scale": "log",
        "pooled": "max",
        "query_window": [0, 2],
        "key_window": [1, 6],
    }
    view = MatrixView(encoder_decoder_record(), **chosen)
    assert {name: view.state[name] for name in chosen} == chosen


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("color_scale", "square root", "any of"),
        ("pooled", "median", "any of"),
        ("query_window", [0, 7], r"query_window=\[0, 7\] must be \[start, stop\] within the 6"),
        ("query_window", [3, 3], r"query_window=\[3, 3\] must be"),
        ("key_window", [-1, 2], r"key_window=\[-1, 2\] must be"),
        ("key_window", [4, 2], r"key_window=\[4, 2\] must be"),
        ("key_window", [1], "length 2"),
        ("heads", [3], r"heads=\[3\]: layer 0 of stack 'encoder' has heads 0 to 2"),
        ("token", 6, "queries 0 to 5"),
    ],
)
def test_values_that_do_not_fit_are_refused(name: str, value: Any, message: str) -> None:
    view = MatrixView(encoder_decoder_record())
    before = view.state
    with pytest.raises(TraitError, match=message):
        setattr(view, name, value)
    assert view.state == before
    with pytest.raises(TraitError, match=message):
        MatrixView(encoder_decoder_record(), **{name: value})


def test_an_unknown_keyword_is_named_with_those_that_there_are() -> None:
    with pytest.raises(TypeError, match=r"MatrixView has no argument 'color'.*color_scale"):
        MatrixView(given_record(), color="log")


def test_another_stack_keeps_the_windows_that_fit() -> None:
    view = MatrixView(encoder_decoder_record(), query_window=[2, 6], key_window=[0, 6])
    # Four queries and six keys.
    view.stack = "cross"
    assert view.state["query_window"] is None
    assert view.state["key_window"] == [0, 6]


def test_another_layer_keeps_the_windows() -> None:
    view = MatrixView(captured_record(), query_window=[1, 3], key_window=[0, 2])
    view.layer = 12
    assert (view.query_window, view.key_window) == ([1, 3], [0, 2])


def test_heads_are_any_sequence_and_none_of_them_is_needed() -> None:
    view = MatrixView(given_record((2, 3)), heads=np.array([1]))
    assert view.heads == [1]
    view.heads = []
    assert view.heads == []


def test_the_page_contains_the_state() -> None:
    view = MatrixView(given_record(), color_scale="log", key_window=[1, 3])
    data = view.to_html().split('id="attnviz-data">')[1].split("</script>")[0]
    page = json.loads(data)
    assert page["view"] == "matrix"
    assert page["state"]["color_scale"] == "log"
    assert page["state"]["key_window"] == [1, 3]
