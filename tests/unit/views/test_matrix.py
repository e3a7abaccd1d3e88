"""State of the matrix view: arguments, errors and dependent traits."""

from __future__ import annotations

import json

from attnviz.views.matrix import MatrixView
from unit.page_data import data_of
from unit.records import captured_record, given_record

OWN = {"color_scale", "pooled", "query_window", "key_window"}


def test_the_default_state() -> None:
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


def test_another_layer_keeps_the_windows() -> None:
    view = MatrixView(captured_record(), query_window=[1, 3], key_window=[0, 2])
    view.layer = 12
    assert (view.query_window, view.key_window) == ([1, 3], [0, 2])


def test_the_page_contains_the_state() -> None:
    view = MatrixView(given_record(), color_scale="log", key_window=[1, 3])
    page = data_of(view.to_html())
    assert page["view"] == "matrix"
    assert page["state"]["color_scale"] == "log"
    assert page["state"]["key_window"] == [1, 3]
