"""Kinds of traits that take numpy's numbers, lists as any sequence, and places as people say them.

A place said by a text (``token="it"``) or from the end (``layer=-1``) is looked up by the view
(`attnviz.views.position.PositionedView`); the trait holds the number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import traitlets

__all__ = ["Controls", "Finite", "Heads", "Index", "LeftOut", "Numbers", "Place", "with_controls"]


def _plain(number: Any) -> Any:
    """Numpy's whole numbers and truth values as Python's numbers, which JSON can hold."""
    return int(number) if isinstance(number, (bool, np.integer)) else number


class Index(traitlets.Int):  # type: ignore[type-arg]
    """A whole number, numpy's too: `layer=scores.argmax()`."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make it Python's own."""
        return super().validate(obj, _plain(value))


class Finite(traitlets.Float):  # type: ignore[type-arg]
    """A number, numpy's too: `least_score=scores.mean()`. JSON knows no NaN and no infinity."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make it Python's own."""
        if isinstance(value, (np.floating, np.integer)):
            value = float(value)
        checked = super().validate(obj, value)
        if not math.isfinite(checked):
            rest = "; None sets no limit" if self.allow_none else ""
            raise traitlets.TraitError(f"{self.name}={checked!r} must be a finite number{rest}")
        return checked


class Controls(traitlets.Unicode):  # type: ignore[type-arg]
    """Which controls of a view are in sight; True and False stand for "auto" and "none"."""

    FORMS = ("auto", "full", "compact", "minimal", "none")

    @classmethod
    def read(cls, given: Any) -> str:
        """What is meant; ValueError for anything else."""
        if isinstance(given, (bool, np.bool_)):
            return "auto" if given else "none"
        if isinstance(given, str) and given in cls.FORMS:
            return given
        forms = ", ".join(f'"{form}"' for form in cls.FORMS)
        raise ValueError(
            f'controls={given!r} must be one of {forms}, or True for "auto" or False for "none"'
        )

    def validate(self, obj: Any, value: Any) -> Any:
        """Make it one of the words."""
        del obj
        try:
            return self.read(value)
        except ValueError as error:
            raise traitlets.TraitError(str(error)) from None


def with_controls(state: Mapping[str, Any], controls: str | bool | None) -> dict[str, Any]:  # noqa: FBT001 - what a user gives
    """A view's state with other controls; None keeps its own."""
    return {**state} if controls is None else {**state, "controls": Controls.read(controls)}


class Numbers(traitlets.List):  # type: ignore[type-arg]
    """A list of heads or points, which may be given as any sequence of whole numbers."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make a list of what reads as one."""
        if isinstance(value, (list, range, tuple, np.ndarray)):
            value = [_plain(number) for number in value]
        return super().validate(obj, value)


class Place(Index):
    """The number of a layer, a token or a prediction, or whatever says which one is meant."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make it a number."""
        return super().validate(obj, obj.number_of_place(self.name, _plain(value)))


class Heads(Numbers):
    """The numbers of heads; one alone, or ``"all"``."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make a list of numbers."""
        # A list trait puts a text into a list before it asks.
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            value = value[0]
        return super().validate(obj, obj.numbers_of_heads(value))


class LeftOut(traitlets.List):  # type: ignore[type-arg]
    """Keys: ``"special"``, ``"first"``, numbers and texts, or one of these alone."""

    def __init__(self) -> None:
        kinds = [traitlets.Enum(["special", "first"]), traitlets.Int(min=0)]
        super().__init__(traitlets.Union(kinds))

    def validate(self, obj: Any, value: Any) -> Any:
        """Make numbers of texts."""
        if isinstance(value, int | np.integer):
            value = [value]
        if isinstance(value, (list, tuple, set, range, np.ndarray)):
            value = obj.numbers_of_keys(self.name, [_plain(each) for each in value])
        return super().validate(obj, value)
