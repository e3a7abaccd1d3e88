"""Trait `controls` of views: its values, its effect on pages, and its errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from traitlets import TraitError

import attnviz as av
from unit.page_data import data_of
from unit.records import captured_record

FORMS = ("auto", "full", "compact", "none")
CLASSES = ("HeadView", "MatrixView", "ModelView", "NeuronView", "Dashboard", "EmbeddingView")


def view_of(name: str, **traits: Any) -> Any:
    records = [captured_record()] if name == "EmbeddingView" else captured_record()
    return getattr(av, name)(records, **traits)


@pytest.mark.parametrize("name", CLASSES)
def test_every_view_has_controls_that_can_be_chosen(name: str) -> None:
    assert view_of(name).controls == "auto"
    view = view_of(name, controls=False)
    assert view.controls == "none"
    view.controls = "compact"
    assert view.get_state("controls") == {"controls": "compact"}


@pytest.mark.parametrize("name", CLASSES)
def test_a_page_has_the_controls_of_its_view_or_of_the_argument(name: str) -> None:
    view = view_of(name, controls="compact")
    assert data_of(view.to_html())["state"]["controls"] == "compact"
    assert data_of(view.to_html(controls=False))["state"]["controls"] == "none"
    assert data_of(view.to_html(controls=True))["state"]["controls"] == "auto"
    assert view.controls == "compact"


@pytest.mark.parametrize(
    ("value", "form"),
    [(True, "auto"), (False, "none"), (np.True_, "auto"), *((form, form) for form in FORMS)],
)
def test_accepted_values_of_controls(value: Any, form: str) -> None:
    assert view_of("HeadView", controls=value).controls == form


@pytest.mark.parametrize(
    "invalid", ["", "Compact", "no", None, 0, 1, 2.5, ["compact"], b"none", {}]
)
def test_invalid_values_are_refused_with_the_valid_ones(invalid: Any) -> None:
    view = view_of("HeadView")
    with pytest.raises(TraitError, match=re.escape(f"controls={invalid!r} must be one of")):
        view.controls = invalid
    with pytest.raises(TraitError, match='"auto", "full", "compact", "none"'):
        view_of("HeadView", controls=invalid)
    assert view.controls == "auto"
    if invalid is not None:
        with pytest.raises(ValueError, match=re.escape(f"controls={invalid!r} must be one of")):
            view.to_html(controls=invalid)
