"""Trait types for views.

These types accept more values than the types of traitlets. The types for numbers also accept numpy
numbers, and the types for lists also accept ranges, sets and arrays. Some types also accept values
such as ``token="it"`` or ``layer=-1``. The view converts these values to non-negative numbers
(`attnviz.views.position.PositionedView`), and the trait contains the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import traitlets

from attnviz.utils.arguments import short_repr


@contextmanager
def as_trait_errors(before: str = "", after: str = "") -> Iterator[None]:
    """Convert an IndexError, KeyError, TypeError or ValueError in the `with` block to a TraitError.

    `before` and `after` are added to the message.
    """
    try:
        yield
    except (IndexError, KeyError, TypeError, ValueError) as error:
        message = str(error.args[0]) if error.args else type(error).__name__
        raise traitlets.TraitError(f"{before}{message}{after}") from None


def _plain(number: Any) -> Any:
    """Convert a bool, or a number of numpy or torch, to a Python number.

    True becomes 1, and False becomes 0. Return other values unchanged.
    """
    if not isinstance(number, type) and getattr(number, "shape", None) == ():
        number = number.item()
    return int(number) if isinstance(number, bool) else number


def _entries(value: Any) -> Any:
    """Convert a list, tuple, set, range or array to a list with entries converted by `_plain`.

    Any other value is converted by `_plain`.
    """
    value = _plain(value)
    if not isinstance(value, type) and hasattr(value, "shape") and hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (list, tuple, set, frozenset, range)):
        return value
    return [_plain(entry) for entry in value]


class Index(traitlets.Int):  # type: ignore[type-arg]
    """Integer trait that also accepts numpy integers, such as ``scores.argmax()``."""

    def validate(self, obj: Any, value: Any) -> Any:
        return super().validate(obj, _plain(value))


class Finite(traitlets.Float):  # type: ignore[type-arg]
    """Float trait that accepts numpy numbers, but not NaN or infinity, which JSON does not have."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Convert the value to a Python number, and check that it is finite."""
        checked = super().validate(obj, _plain(value))
        if not math.isfinite(checked):
            rest = "; None sets no limit" if self.allow_none else ""
            raise traitlets.TraitError(f"{self.name}={checked!r} must be a finite number{rest}")
        return checked


class Choice(traitlets.Enum):  # type: ignore[type-arg]
    """Trait whose value is one of several strings."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Raise TraitError if the value is not one of the strings.

        Without this check, the comparison in `traitlets.Enum` would raise another error for an
        array.
        """
        words = self.values or []
        if not isinstance(value, str) or value not in words:
            forms = ", ".join(f'"{word}"' for word in words)
            raise traitlets.TraitError(f"{self.name}={short_repr(value)}: expected any of {forms}")
        return super().validate(obj, value)


class Controls(traitlets.Unicode):  # type: ignore[type-arg]
    """Trait `controls` of views. True is converted to "auto", and False to "none"."""

    FORMS = ("auto", "full", "compact", "none")

    @classmethod
    def read(cls, value: Any) -> str:
        """Convert a value to one of the strings in `FORMS`. Raise ValueError for invalid values."""
        if isinstance(value, (bool, np.bool_)):
            return "auto" if value else "none"
        if isinstance(value, str) and value in cls.FORMS:
            return value
        forms = ", ".join(f'"{form}"' for form in cls.FORMS)
        raise ValueError(
            f'controls={short_repr(value)} must be one of {forms}, or True for "auto" or False for '
            '"none"'
        )

    def validate(self, obj: Any, value: Any) -> Any:
        """Convert the value to one of the strings in `FORMS`."""
        del obj
        with as_trait_errors():
            return self.read(value)


def with_controls(state: Mapping[str, Any], controls: str | bool | None) -> dict[str, Any]:  # noqa: FBT001 - the value that a user passes
    """Return a copy of a view's state with other controls. None keeps the controls."""
    return {**state} if controls is None else {**state, "controls": Controls.read(controls)}


class Numbers(traitlets.List):  # type: ignore[type-arg]
    """Trait for a list of integers that identify heads, or points of the embedding view.

    The trait also accepts tuples, ranges, sets and arrays.
    """

    def validate(self, obj: Any, value: Any) -> Any:
        return super().validate(obj, _entries(value))


class ResolvedIndex(Index):
    """Trait for the number of a layer or prediction, or for the position of a token.

    The trait can also be set to a negative number. A trait for the position of a token can also be
    set to the text of the token.
    """

    def validate(self, obj: Any, value: Any) -> Any:
        """Convert the value to a non-negative number with `resolve_number` of the view `obj`."""
        value = _plain(value)
        if isinstance(value, int | str):
            value = obj.resolve_number(self.name, value)
        return super().validate(obj, value)


class Heads(Numbers):
    """Trait for a list of head numbers. It can also be set to one number or to ``"all"``."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Convert the value to a list of non-negative numbers."""
        value = _entries(value)
        # Before traitlets calls this method, it puts a string into a list. Take the string out of
        # the list.
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            value = value[0]
        return super().validate(obj, obj.resolve_heads(value))


class Keys(traitlets.List):  # type: ignore[type-arg]
    """Trait for a list of keys. Each entry is a position, ``"special"`` or ``"first"``.

    ``"special"`` stands for all special tokens, and ``"first"`` for the first token. The trait can
    also be set to texts of tokens, or to one entry without a list.
    """

    def __init__(self) -> None:
        kinds = [traitlets.Enum(["special", "first"]), traitlets.Int(min=0)]
        super().__init__(traitlets.Union(kinds))

    def validate(self, obj: Any, value: Any) -> Any:
        """Convert the value to a list, and texts and negative numbers to positions."""
        value = _entries(value)
        if isinstance(value, int):
            value = [value]
        if isinstance(value, list):
            value = obj.resolve_keys(self.name, value)
        return super().validate(obj, value)
