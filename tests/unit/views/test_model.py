"""State of the model view: the offered heads and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from traitlets import TraitError

from attnviz.views.model import ModelView
from unit.records import captured_record, encoder_decoder_record, given_record


def test_nothing_is_open_at_first() -> None:
    view = ModelView(given_record())
    assert (view.stack, view.layer, view.heads) == ("self", 0, [])
    assert (view.thumbnails, view.include_heads) == ("heat-map", None)
    assert json.loads(json.dumps(view.state))["include_heads"] is None


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


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([3], r"include_heads=\[3\]: no layer has head 3; there are heads 0 to 2"),
        ([-1], "no layer has head -1"),
        (-1, "no layer has head -1"),
        ({0: [2]}, r"layer 0 has heads 0 to 1, not head 2"),
        ({5: [0]}, r"there is no layer 5: stack 'self' has layers 0, 1"),
        ([], r"include_heads=\[\] contains no head. Omit it to offer all"),
        ({}, "contains no head"),
        ({0: []}, "contains no head"),
        (1.5, r"must be heads such as \[0, 1\], or heads by layer such as {3: \[0, 1\]}. Got 1.5"),
        ("01", "Got '01'"),
        ({0: 1.5}, r"Got {0: 1.5}"),
        ([0.5], "0.5 is not the number of a layer or head"),
        ({"first": [0]}, "'first' is not the number"),
        ([None], "None is not the number"),
    ],
)
def test_unknown_heads_are_refused(value: Any, message: str) -> None:
    with pytest.raises(TraitError, match=message):
        ModelView(given_record((2, 3)), include_heads=value)
    view = ModelView(given_record((2, 3)), include_heads=[1])
    with pytest.raises(TraitError, match=message):
        view.include_heads = value
    assert view.include_heads == [1]


def test_heads_of_any_stack_may_be_named() -> None:
    # The decoder alone has a layer 2, and the cross-attention alone a head 4.
    view = ModelView(encoder_decoder_record(), include_heads={2: [1], 1: [4]})
    assert view.include_heads == {"1": [4], "2": [1]}
    assert ModelView(encoder_decoder_record(), include_heads=[4]).include_heads == [4]


def test_layers_that_are_not_included_have_no_heads_to_offer() -> None:
    with pytest.raises(TraitError, match=r"there is no layer 2: stack 'self' has layers 5, 11"):
        ModelView(captured_record(), include_layers=[5, 11], include_heads={2: [0]})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("thumbnails", "bars", "any of"),
        ("color_scale", "square", "any of"),
        ("pooled", "median", "any of"),
        ("query_window", [0, 6], r"query_window=\[0, 6\] must be \[start, stop\] within the 5"),
        ("key_window", [3, 3], "key_window"),
    ],
)
def test_values_that_do_not_fit_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(TraitError, match=message):
        ModelView(given_record(), **{name: value})


def test_a_page_contains_the_state() -> None:
    page = ModelView(given_record(), include_heads=[1], thumbnails="lines").to_html()
    assert '"view": "model"' in page
    assert '"include_heads": [1]' in page
    assert '"thumbnails": "lines"' in page
