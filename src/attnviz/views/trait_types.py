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

from attnviz.utils.arguments import MAX_NUMBERS, short_repr

__all__ = [
    "Choice",
    "Controls",
    "Finite",
    "Heads",
    "Index",
    "Keys",
    "Numbers",
    "Place",
    "with_controls",
]

# A lasso may hold all points of a corpus.
_MOST_POINTS = 100_000_000


def _plain(number: Any) -> Any:
    """Numbers of numpy and torch, also alone in an array, as Python's, which JSON can hold."""
    if not isinstance(number, type) and getattr(number, "shape", None) == ():
        number = number.item()
    return int(number) if isinstance(number, bool) else number


def _entries(name: str | None, value: Any, most: int = MAX_NUMBERS) -> Any:
    """A list of what is given as any sequence; anything else as it is.

    TraitError where it has too many entries: a range may have more than any memory holds.
    """
    value = _plain(value)
    arrays = not isinstance(value, type) and hasattr(value, "shape") and hasattr(value, "tolist")
    if not arrays and not isinstance(value, (list, tuple, set, frozenset, range)):
        return value
    # The length of a long range is more than len() gives.
    counted = value[: most + 1] if isinstance(value, range) else value
    if len(counted) > most:
        raise traitlets.TraitError(f"{name}={short_repr(value)} has more than {most:,} entries")
    return [_plain(each) for each in (value.tolist() if arrays else value)]


class Index(traitlets.Int):  # type: ignore[type-arg]
    """A whole number, numpy's too: `layer=scores.argmax()`."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make it Python's own."""
        return super().validate(obj, _plain(value))


class Finite(traitlets.Float):  # type: ignore[type-arg]
    """A number, numpy's too: `least_score=scores.mean()`. JSON knows no NaN and no infinity."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make it Python's own."""
        checked = super().validate(obj, _plain(value))
        if not math.isfinite(checked):
            rest = "; None sets no limit" if self.allow_none else ""
            raise traitlets.TraitError(f"{self.name}={checked!r} must be a finite number{rest}")
        return checked


class Choice(traitlets.Enum):  # type: ignore[type-arg]
    """One of several words."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Refuse what cannot be compared with a word, as an array."""
        words = self.values or []
        if not isinstance(value, str) or value not in words:
            forms = ", ".join(f'"{word}"' for word in words)
            raise traitlets.TraitError(f"{self.name}={short_repr(value)}: expected any of {forms}")
        return super().validate(obj, value)


class Controls(traitlets.Unicode):  # type: ignore[type-arg]
    """Which controls of a view are in sight; True and False stand for "auto" and "none"."""

    FORMS = ("auto", "full", "compact", "none")

    @classmethod
    def read(cls, given: Any) -> str:
        """What is meant; ValueError for anything else."""
        if isinstance(given, (bool, np.bool_)):
            return "auto" if given else "none"
        if isinstance(given, str) and given in cls.FORMS:
            return given
        forms = ", ".join(f'"{form}"' for form in cls.FORMS)
        raise ValueError(
            f'controls={short_repr(given)} must be one of {forms}, or True for "auto" or False for '
            '"none"'
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
        return super().validate(obj, _entries(self.name, value, _MOST_POINTS))


class Place(Index):
    """The number of a layer, a token or a prediction, or whatever says which one is meant."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make it a number."""
        value = _plain(value)
        if isinstance(value, int | str):
            value = obj.number_of_place(self.name, value)
        if value is not None and not isinstance(value, int):
            raise traitlets.TraitError(
                f"{self.name}={short_repr(value)}: expected an int, a whole number"
            )
        return super().validate(obj, value)


class Heads(Numbers):
    """The numbers of heads; one alone, or ``"all"``."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make a list of numbers."""
        value = _entries(self.name, value)
        # A list trait puts a text into a list before it asks.
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            value = value[0]
        return super().validate(obj, obj.numbers_of_heads(value))


class Keys(traitlets.List):  # type: ignore[type-arg]
    """Keys: ``"special"``, ``"first"``, numbers and texts, or one of these alone."""

    def __init__(self) -> None:
        kinds = [traitlets.Enum(["special", "first"]), traitlets.Int(min=0)]
        super().__init__(traitlets.Union(kinds))

    def validate(self, obj: Any, value: Any) -> Any:
        """Make numbers of texts."""
        value = _entries(self.name, value)
        if isinstance(value, int):
            value = [value]
        if isinstance(value, list):
            value = obj.numbers_of_keys(self.name, value)
        return super().validate(obj, value)
