"""Trait `controls` of views: its values and its effect on pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnviz as av
from unit.page_data import data_of
from unit.records import captured_record

CLASSES = ("HeadView", "MatrixView", "ModelView", "NeuronView", "Dashboard", "EmbeddingView")


def view_of(name: str, **traits: Any) -> Any:
    records = [captured_record()] if name == "EmbeddingView" else captured_record()
    return getattr(av, name)(records, **traits)


@pytest.mark.parametrize("name", CLASSES)
def test_a_page_has_the_controls_of_its_view_or_of_the_argument(name: str) -> None:
    assert view_of(name).controls == "auto"
    view = view_of(name, controls=False)
    assert view.controls == "none"
    view.controls = "compact"
    assert data_of(view.to_html())["state"]["controls"] == "compact"
    assert data_of(view.to_html(controls=False))["state"]["controls"] == "none"
    assert data_of(view.to_html(controls=True))["state"]["controls"] == "auto"
    assert view.controls == "compact"
    with pytest.raises(ValueError, match=r"controls=2\.5 must be one of"):
        view.to_html(controls=2.5)


@pytest.mark.parametrize(
    ("value", "controls"), [(True, "auto"), (np.True_, "auto"), ("full", "full"), ("none", "none")]
)
def test_accepted_values_of_controls(value: Any, controls: str) -> None:
    assert view_of("HeadView", controls=value).controls == controls
