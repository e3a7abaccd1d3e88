"""Traits of views are linked with the functions of traitlets."""

from __future__ import annotations

import traitlets

from attnviz.views.dashboard import Dashboard
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from attnviz.views.model import ModelView
from unit.records import encoder_decoder_record, given_record

VIEWS = [HeadView, ModelView, MatrixView, Dashboard]
SHARED = {"stack", "layer", "heads", "token", "key", "pair", "order", "scores", "theme"}
SHARED |= {"prediction", "as_query"}


def test_a_link_of_stacks_replaces_invalid_state() -> None:
    record = encoder_decoder_record()
    first, second = HeadView(record), MatrixView(record)
    for name in ("stack", "layer", "token"):
        traitlets.link((first, name), (second, name))
    first.token = 5
    second.stack = "cross"
    assert (first.stack, first.layer) == ("cross", second.layer)
    assert first.token is None
    assert second.token is None


def test_a_dashboard_has_all_traits_of_its_views() -> None:
    state_names = set(Dashboard.state_names())
    assert state_names == {name for view in VIEWS[:-1] for name in view.state_names()}
    view = Dashboard(given_record(), thumbnails="lines", color_scale="log", top_k=2)
    assert (view.thumbnails, view.color_scale, view.top_k) == ("lines", "log", 2)
