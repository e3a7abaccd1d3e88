"""State of the model view: the offered heads and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from attnviz.views.model import ModelView
from unit.records import given_record


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
