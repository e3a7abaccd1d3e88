"""Visible controls of a view: as a trait, in pages, and errors."""

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


def made(name: str, **traits: Any) -> Any:
    shown = [captured_record()] if name == "EmbeddingView" else captured_record()
    return getattr(av, name)(shown, **traits)


@pytest.mark.parametrize("name", CLASSES)
def test_every_view_has_controls_that_can_be_chosen(name: str) -> None:
    assert made(name).controls == "auto"
    view = made(name, controls=False)
    assert view.controls == "none"
    view.controls = "compact"
    assert view.get_state("controls") == {"controls": "compact"}


@pytest.mark.parametrize("name", CLASSES)
def test_a_page_has_the_views_controls_unless_others_are_asked_for(name: str) -> None:
    view = made(name, controls="compact")
    assert data_of(view.to_html())["state"]["controls"] == "compact"
    assert data_of(view.to_html(controls=False))["state"]["controls"] == "none"
    assert data_of(view.to_html(controls=True))["state"]["controls"] == "auto"
    assert view.controls == "compact"


@pytest.mark.parametrize(
    ("given", "form"),
    [(True, "auto"), (False, "none"), (np.True_, "auto"), *((form, form) for form in FORMS)],
)
def test_what_may_be_given(given: Any, form: str) -> None:
    assert made("HeadView", controls=given).controls == form


@pytest.mark.parametrize("wrong", ["", "Compact", "no", None, 0, 1, 2.5, ["compact"], b"none", {}])
def test_anything_else_is_refused_with_what_there_is(wrong: Any) -> None:
    view = made("HeadView")
    with pytest.raises(TraitError, match=re.escape(f"controls={wrong!r} must be one of")):
        view.controls = wrong
    with pytest.raises(TraitError, match='"auto", "full", "compact", "none"'):
        made("HeadView", controls=wrong)
    assert view.controls == "auto"
    if wrong is not None:
        with pytest.raises(ValueError, match=re.escape(f"controls={wrong!r} must be one of")):
            view.to_html(controls=wrong)
