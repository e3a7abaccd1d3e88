"""Test arguments and state of an atlas view, and values that the view refuses."""

from __future__ import annotations

from typing import Any

import pytest
import traitlets

import attnviz as av
from attnviz.atlas.show import show_atlas_view
from attnviz.atlas.view import AtlasView
from attnviz.views.model import ModelView
from unit.atlas.example_statistics import causal_record, cross_statistics, made_statistics


def test_every_state_can_be_set_at_once() -> None:
    chosen: dict[str, Any] = {
        "stack": "cross",
        "layer": 0,
        "heads": [1, 0],
        "color": "entropy",
        "order": "role",
        "edges": "strongest",
        "theme": "dark",
        "controls": "compact",
    }
    view = AtlasView(cross_statistics(), **chosen)
    assert (view.state, view.file_name) == (chosen, "made-atlas-view")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("stack", "cross", "stack='cross': these statistics have the stacks 'self'"),
        ("layer", 2, "layer=2: stack 'self' has layers 0, 1"),
        ("heads", [3], r"heads=\[3\]: layer 0 of stack 'self' has heads 0 to 2"),
        ("color", "roles", "color='roles' must be one of 'role', 'previous token'"),
        ("order", "size", "order='size' must be one of 'number', 'role'"),
    ],
)
def test_invalid_values_are_refused(name: str, value: Any, message: str) -> None:
    view = AtlasView(made_statistics())
    before = view.state
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(view, name, value)
    assert view.state == before
    with pytest.raises(traitlets.TraitError, match=message):
        AtlasView(made_statistics(), **{name: value})


def test_other_types_than_statistics_are_refused() -> None:
    with pytest.raises(TypeError, match="statistics must be a HeadStatistics"):
        AtlasView(causal_record(0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"model is a HeadStatistics, .*\. Omit texts, keep_edges"):
        show_atlas_view(made_statistics(), MODEL_TEXTS, keep_edges=3)
    with pytest.raises(ValueError, match="statistics has no texts yet"):
        AtlasView(av.HeadStatistics())


def test_layers_and_heads_can_be_negative_or_all() -> None:
    view = AtlasView(made_statistics(), layer=-1, heads="all")
    assert (view.layer, view.heads) == (1, [0, 1, 2])
    view.heads = [-1]
    assert view.heads == [2]


def test_another_stack_replaces_invalid_state() -> None:
    view = AtlasView(cross_statistics(), stack="decoder", heads=[1])
    view.stack = "cross"
    assert (view.stack, view.layer, view.heads) == ("cross", 0, [1])


MODEL_TEXTS = ["the cat and the dog met the cat", "", "on friday the fox did not visit the field"]


def test_one_call_measures_and_shows() -> None:
    model, tokenizer = av.demos.load("decoder")
    options: Any = {"tokenizer": tokenizer, "progress": False, "keep_edges": 3, "layer": 1}
    view = show_atlas_view(model, MODEL_TEXTS, **options)
    assert (view.statistics.texts, view.statistics.num_skipped) == (2, 1)
    assert len(view.statistics.stack().sampled(0, 0)) == 3
    assert show_atlas_view(view.statistics).statistics is view.statistics
    record = av.extract(model, MODEL_TEXTS[2], tokenizer=tokenizer)
    named = ModelView(record, roles=view.statistics)
    assert len(named.roles["self"]["names"]) == 3


def test_a_call_without_texts_is_refused() -> None:
    model, tokenizer = av.demos.load("decoder")
    with pytest.raises(TypeError, match="texts is missing"):
        show_atlas_view(model, tokenizer=tokenizer)
