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


def test_a_link_over_stacks_moves_what_does_not_fit() -> None:
    record = encoder_decoder_record()
    one, other = HeadView(record), MatrixView(record)
    for name in ("stack", "layer", "token"):
        traitlets.link((one, name), (other, name))
    one.token = 5
    other.stack = "cross"
    assert (one.stack, one.layer) == ("cross", other.layer)
    assert one.token is None
    assert other.token is None


def test_a_dashboard_has_all_that_its_views_have() -> None:
    own = set(Dashboard.state_names())
    assert own == {name for view in VIEWS[:-1] for name in view.state_names()}
    view = Dashboard(given_record(), thumbnails="lines", color_scale="log", top_k=2)
    assert (view.thumbnails, view.color_scale, view.top_k) == ("lines", "log", 2)
