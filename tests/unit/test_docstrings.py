"""Public docstrings explain every parameter, the result and the errors, and have an example."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import docstring_parser
import numpy as np
import pytest

import attnviz
from attnviz import analysis, comparison, corpus, integrations, interventions, record

PUBLIC_MODULES = (attnviz, analysis, comparison, corpus, integrations, interventions, record)


def public_objects() -> Iterator[tuple[str, Any]]:
    """Yield the names and objects of the public interface: functions, classes and their methods."""
    for module in PUBLIC_MODULES:
        for name in module.__all__:
            item = getattr(module, name)
            if isinstance(item, ModuleType) or not callable(item):
                continue
            yield f"{module.__name__}.{name}", item
            if inspect.isclass(item):
                for member, value in vars(item).items():
                    function = value.__func__ if isinstance(value, classmethod) else value
                    if not member.startswith("_") and inspect.isfunction(function):
                        yield f"{module.__name__}.{name}.{member}", function


OBJECTS = dict(public_objects())
PACKAGE = Path(attnviz.__file__).parent
WITH_EXAMPLES = [
    path.relative_to(PACKAGE)
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
FUNCTIONS = {name: item for name, item in OBJECTS.items() if inspect.isfunction(item)}


def documented(item: Any) -> docstring_parser.Docstring:
    style = docstring_parser.DocstringStyle.NUMPYDOC
    return docstring_parser.parse(inspect.getdoc(item) or "", style)


@pytest.mark.parametrize("name", OBJECTS)
def test_a_docstring_begins_with_one_sentence(name: str) -> None:
    summary = documented(OBJECTS[name]).short_description
    assert summary, f"{name} has no docstring"
    assert summary.endswith("."), f"{name}: {summary}"


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=str)
def test_examples_run(path: Path) -> None:
    module = importlib.import_module(".".join(("attnviz", *path.with_suffix("").parts)))
    output: list[str] = []
    runner = doctest.DocTestRunner()
    for example in doctest.DocTestFinder().find(module, extraglobs={"np": np}):
        runner.run(example, out=output.append)
    assert runner.failures == 0, "".join(output)


def parameters_of(function: Callable[..., Any]) -> set[str]:
    return {
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in {"self", "cls"}
        and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_is_explained_and_no_other(name: str) -> None:
    function = FUNCTIONS[name]
    explained = {
        parameter_name.strip().lstrip("*")
        for parameter in documented(function).params
        if parameter.args[0] == "param"
        for parameter_name in parameter.arg_name.split(",")
    }
    signature = inspect.signature(function).parameters.values()
    # Options of a view or an extraction are forwarded with ``**``, so the signature lacks their
    # names.
    forwards = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature)
    parameters = parameters_of(function)
    assert parameters == (explained & parameters if forwards else explained)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_explained(name: str) -> None:
    function = FUNCTIONS[name]
    if inspect.signature(function).return_annotation in {"None", None}:
        return
    doc = documented(function)
    assert doc.returns is not None, f"{name} does not say what it returns"


# Functions and classes that a user calls. Classes that these only return explain their attributes.
CALLED = [
    name
    for name in OBJECTS
    if name.rpartition(".")[0] in {"attnviz", "attnviz.analysis", "attnviz.integrations"}
    and name.rpartition(".")[2] not in {"HeadTrust", "Placed", "Plots"}
]


@pytest.mark.parametrize("name", CALLED)
def test_a_public_function_has_an_example(name: str) -> None:
    text = inspect.getdoc(OBJECTS[name]) or ""
    assert "Examples\n--------\n" in text, f"{name} has no example"
