"""Traits that accept numbers of numpy, any sequence as a list, and symbolic positions.

The view resolves a position such as ``token="it"`` or ``layer=-1`` to a number
(`attnviz.views.position.PositionedView`). The trait contains the number.
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
    "ResolvedIndex",
    "with_controls",
]

# A lasso selection may contain all points of a corpus.
_MAX_POINTS = 100_000_000


def _plain(number: Any) -> Any:
    """Convert numbers of numpy and torch, and arrays with one entry, to Python numbers for JSON."""
    if not isinstance(number, type) and getattr(number, "shape", None) == ():
        number = number.item()
    return int(number) if isinstance(number, bool) else number


def _entries(name: str | None, value: Any, max_entries: int = MAX_NUMBERS) -> Any:
    """Convert a sequence to a list. Return other values unchanged.

    Raises TraitError for too many entries: a range may have more than fit into memory.
    """
    value = _plain(value)
    is_array = not isinstance(value, type) and hasattr(value, "shape") and hasattr(value, "tolist")
    if not is_array and not isinstance(value, (list, tuple, set, frozenset, range)):
        return value
    # len() fails for a range with more than sys.maxsize entries.
    counted = value[: max_entries + 1] if isinstance(value, range) else value
    if len(counted) > max_entries:
        raise traitlets.TraitError(
            f"{name}={short_repr(value)} has more than {max_entries:,} entries"
        )
    return [_plain(entry) for entry in (value.tolist() if is_array else value)]


class Index(traitlets.Int):  # type: ignore[type-arg]
    """Integer. Accepts integers of numpy, as in `layer=scores.argmax()`."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Convert to a Python integer."""
        return super().validate(obj, _plain(value))


class Finite(traitlets.Float):  # type: ignore[type-arg]
    """Finite number, as JSON requires. Accepts numbers of numpy."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Convert to a Python number, and check that it is finite."""
        checked = super().validate(obj, _plain(value))
        if not math.isfinite(checked):
            rest = "; None sets no limit" if self.allow_none else ""
            raise traitlets.TraitError(f"{self.name}={checked!r} must be a finite number{rest}")
        return checked


class Choice(traitlets.Enum):  # type: ignore[type-arg]
    """One of several strings."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Raise TraitError for values that are not one of the strings, including arrays."""
        words = self.values or []
        if not isinstance(value, str) or value not in words:
            forms = ", ".join(f'"{word}"' for word in words)
            raise traitlets.TraitError(f"{self.name}={short_repr(value)}: expected any of {forms}")
        return super().validate(obj, value)


class Controls(traitlets.Unicode):  # type: ignore[type-arg]
    """Controls that a view shows. True stands for "auto" and False for "none"."""

    FORMS = ("auto", "full", "compact", "none")

    @classmethod
    def read(cls, value: Any) -> str:
        """Convert True and False to a string. Raise ValueError for invalid values."""
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
        """Convert to one of the strings."""
        del obj
        try:
            return self.read(value)
        except ValueError as error:
            raise traitlets.TraitError(str(error)) from None


def with_controls(state: Mapping[str, Any], controls: str | bool | None) -> dict[str, Any]:  # noqa: FBT001 - what a user gives
    """Return a view's state with other controls, or unchanged if `controls` is None."""
    return {**state} if controls is None else {**state, "controls": Controls.read(controls)}


class Numbers(traitlets.List):  # type: ignore[type-arg]
    """List of heads or points, which accepts any sequence of integers."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Convert to a list."""
        return super().validate(obj, _entries(self.name, value, _MAX_POINTS))


class ResolvedIndex(Index):
    """Number of a layer, token or prediction. Accepts other ways to choose one."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Resolve to a number."""
        value = _plain(value)
        if isinstance(value, int | str):
            value = obj.resolve_number(self.name, value)
        if value is not None and not isinstance(value, int):
            raise traitlets.TraitError(
                f"{self.name}={short_repr(value)}: expected an int, a whole number"
            )
        return super().validate(obj, value)


class Heads(Numbers):
    """Numbers of heads. Accepts one number or ``"all"``."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Convert to a list of numbers."""
        value = _entries(self.name, value)
        # A list trait puts a string into a list before it calls validate.
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            value = value[0]
        return super().validate(obj, obj.resolve_heads(value))


class Keys(traitlets.List):  # type: ignore[type-arg]
    """Keys: ``"special"``, ``"first"``, numbers and texts of tokens, or one of these alone."""

    def __init__(self) -> None:
        kinds = [traitlets.Enum(["special", "first"]), traitlets.Int(min=0)]
        super().__init__(traitlets.Union(kinds))

    def validate(self, obj: Any, value: Any) -> Any:
        """Resolve texts of tokens to numbers."""
        value = _entries(self.name, value)
        if isinstance(value, int):
            value = [value]
        if isinstance(value, list):
            value = obj.resolve_keys(self.name, value)
        return super().validate(obj, value)
