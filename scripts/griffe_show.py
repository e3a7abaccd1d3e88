"""Griffe extension that adds the `show_...` functions to the API reference.

Griffe reads the source code, and does not find functions that are created at run time.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe


class ShowFunctions(griffe.Extension):
    """Griffe extension that adds the `show_...` functions, which `_show_function` creates."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.parent is None or not str(attr.value or "").startswith("_show_function("):
            return
        function = getattr(importlib.import_module(attr.parent.path), attr.name)
        signature = inspect.signature(function)
        made = griffe.Function(
            attr.name,
            lineno=attr.lineno,
            endlineno=attr.endlineno,
            parameters=griffe.Parameters(*map(_parameter, signature.parameters.values())),
            returns=_text(signature.return_annotation),
            docstring=griffe.Docstring(inspect.getdoc(function) or "", lineno=attr.lineno),
        )
        attr.parent.set_member(attr.name, made)


def _parameter(parameter: inspect.Parameter) -> griffe.Parameter:
    default = parameter.default
    return griffe.Parameter(
        parameter.name,
        annotation=_text(parameter.annotation),
        kind=griffe.ParameterKind(parameter.kind.description),
        default=None if default is inspect.Parameter.empty else repr(default),
    )


def _text(annotation: Any) -> str | None:
    """Return an annotation as source code, or None if it is missing."""
    if annotation is inspect.Signature.empty:
        return None
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
