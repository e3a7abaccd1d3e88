"""A view whose caller chose no position opens at the head with the most distinct pattern."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import traitlets

import attnviz as av
from attnviz.analysis import distinct_head
from unit.page_data import data_of
from unit.records import encoder_decoder_record

if TYPE_CHECKING:
    from attnviz.views.record_view import RecordView

N, PLANTED = 12, (2, 3)
WORDS = [f"w{position}" for position in range(N)]


def record() -> av.AttentionRecord:
    """Return three layers of five uniform heads, except for one previous-token head."""
    weights = np.full((3, 5, N, N), 1 / N, np.float32)
    weights[PLANTED] = np.eye(N, k=-1)
    weights[PLANTED][0, 0] = 1
    return av.AttentionRecord.from_weights(list(weights), WORDS)


RECORD = record()


@pytest.mark.parametrize("view", [av.HeadView, av.MatrixView, av.Dashboard])
def test_a_view_opens_at_the_distinct_head(view: type[RecordView]) -> None:
    opened = view(RECORD)
    assert (opened.layer, opened.heads) == (2, [3])
    distinct = distinct_head(RECORD.stack())
    assert distinct is not None
    assert opened.opening == {
        "stack": "self",
        "layer": 2,
        "head": 3,
        "pattern": "previous token",
        "score": distinct.score,
        "baseline": pytest.approx(1 / N),
        "num_queries": None,
    }
    # The page also reports the opening.
    state = data_of(opened.to_html())["state"]
    assert (state["opening"]["layer"], state["opening"]["head"]) == (2, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"layer": 0},
        {"heads": [1]},
        {"heads": []},
        {"token": 3},
        {"order": "previous token"},
        {"scores": np.zeros((3, 5))},
    ],
)
def test_a_position_from_the_caller_is_kept(arguments: dict[str, Any]) -> None:
    view = av.HeadView(RECORD, **arguments)
    assert (view.layer, view.opening) == (0, None)
    assert view.heads == arguments.get("heads", [])


def test_a_view_without_a_distinct_head_opens_at_the_first_layer() -> None:
    view = av.HeadView(encoder_decoder_record(), stack="cross")
    assert (view.layer, view.opening) == (0, None)
    one_head = RECORD.stack().weights(layer=2)[3:4]
    view = av.HeadView(av.AttentionRecord.from_weights([one_head], WORDS))
    assert (view.heads, view.opening) == ([0], None)
    # The distinct head is in layer 2.
    view = av.HeadView(RECORD, include_layers=[0, 1])
    assert (view.layer, view.heads, view.opening) == (0, [], None)


def test_another_layer_keeps_the_head_and_one_without_it_shows_its_default() -> None:
    view = av.HeadView(RECORD)
    view.layer = 1
    assert view.heads == [3]
    weights = [
        np.asarray(RECORD.stack().weights(layer=2)),
        np.full((2, N, N), 1 / N, np.float32),
    ]
    view = av.HeadView(av.AttentionRecord.from_weights(weights, WORDS))
    assert (view.layer, view.heads) == (0, [3])
    with warnings.catch_warnings():
        # The user did not choose this head, so dropping it causes no warning.
        warnings.simplefilter("error")
        view.layer = 1
    assert view.heads == [0, 1]


def test_the_opening_cannot_be_set() -> None:
    with pytest.raises(TypeError, match="opening"):
        av.HeadView(RECORD, opening={"layer": 1})
    with pytest.raises(traitlets.TraitError, match="read-only"):
        av.HeadView(RECORD).opening = {"layer": 1}
