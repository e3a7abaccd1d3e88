"""Public docstrings explain all parameters and the result, and their examples run."""

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
import train_demos
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
WITH_EXAMPLES = [
    ".".join(path.relative_to(folder.parent).with_suffix("").parts)
    for folder in (Path(attnviz.__file__).parent, Path(train_demos.__file__).parent)
    for path in sorted(folder.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def documented(item: Any) -> docstring_parser.Docstring:
    style = docstring_parser.DocstringStyle.NUMPYDOC
    return docstring_parser.parse(inspect.getdoc(item) or "", style)


@pytest.mark.usefixtures("own_measures")
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    output: list[str] = []
    runner = doctest.DocTestRunner()
    for example in doctest.DocTestFinder().find(module, extraglobs={"np": np}):
        runner.run(example, out=output.append)
    assert runner.failures == 0, "".join(output)


# Functions and classes that a user calls. Their docstrings need an example.
CALLED = {
    name
    for name in OBJECTS
    if name.rpartition(".")[0] in {"attnviz", "attnviz.analysis", "attnviz.integrations"}
    and name.rpartition(".")[2] not in {"HeadTrust", "Placed", "Plots"}
}


def faults_of_object(name: str, item: Any) -> Iterator[str]:
    summary = documented(item).short_description or ""
    if not summary.endswith("."):
        yield "the docstring does not begin with one sentence"
    if name in CALLED and "Examples\n--------\n" not in (inspect.getdoc(item) or ""):
        yield "there is no example"


def faults_of_function(function: Callable[..., Any]) -> Iterator[str]:
    doc, signature = documented(function), inspect.signature(function)
    kinds = {parameter.name: parameter.kind for parameter in signature.parameters.values()}
    variable = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    parameters = {name for name, kind in kinds.items() if kind not in variable} - {"self", "cls"}
    explained = {
        name.strip().lstrip("*")
        for parameter in doc.params
        if parameter.args[0] == "param"
        for name in parameter.arg_name.split(",")
    }
    # The docstring also explains options that are forwarded with ``**``, which the signature does
    # not name.
    if inspect.Parameter.VAR_KEYWORD in kinds.values():
        explained &= parameters
    if parameters != explained:
        yield f"the parameters are {sorted(parameters)}, but {sorted(explained)} are explained"
    if signature.return_annotation not in {"None", None} and doc.returns is None:
        yield "the result is not explained"


def test_public_docstrings_explain_parameters_and_results_and_have_an_example() -> None:
    faults = []
    for name, item in OBJECTS.items():
        faults += [f"{name}: {fault}" for fault in faults_of_object(name, item)]
        if inspect.isfunction(item):
            faults += [f"{name}: {fault}" for fault in faults_of_function(item)]
    assert faults == []
