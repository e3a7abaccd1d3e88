"""Tests that `extract` and views have the options of `ExtractOptions`, with equal defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
import torch

import attnviz as av
from attnviz.extraction.options import ExtractOptions, RecordOptions
from attnviz.views.show import ShowFunction

# First parameters of `extract` and of views, which are not in `ExtractOptions`.
OWN = {"model", "inputs", "target"}
SHOW: list[Callable[..., Any]] = [
    av.show_head_view,
    av.show_model_view,
    av.show_neuron_view,
    av.show_matrix_view,
    av.show_dashboard,
]


def options_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: parameter for name, parameter in parameters.items() if name not in OWN}


def test_extract_takes_its_options() -> None:
    options = options_of(av.extract)
    assert set(options) == set(ExtractOptions.__annotations__)
    hints = get_type_hints(ExtractOptions)
    hints_of_extract = get_type_hints(av.extract, localns={"torch": torch})
    assert {name: hints_of_extract[name] for name in options} == hints
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in options.values())


@pytest.mark.parametrize("function", SHOW)
def test_views_take_the_same_options(function: Callable[..., Any]) -> None:
    options, view_options = options_of(av.extract), options_of(function)
    for name in set(ExtractOptions.__annotations__) - {"decoder_input_ids", "progress"}:
        assert view_options[name].default == options[name].default, name
    view = getattr(av, str(inspect.signature(function).return_annotation))
    own_parameters = inspect.signature(ShowFunction.__call__).parameters.keys()
    assert view_options.keys() <= own_parameters | set(view.state_names())


def test_the_embedding_takes_the_same_options() -> None:
    options, view_options = options_of(av.extract), options_of(av.show_embedding_view)
    # Each point is one token of a text.
    for name in RecordOptions.__annotations__.keys() - {"generate", "passages"}:
        assert view_options[name].default == options[name].default, name
