"""Kinds of traits that take numpy's numbers, and lists as any sequence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import traitlets

__all__ = ["Finite", "Index", "Numbers"]


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


class Numbers(traitlets.List):  # type: ignore[type-arg]
    """A list of heads or points, which may be given as any sequence of whole numbers."""

    def validate(self, obj: Any, value: Any) -> Any:
        """Make a list of what reads as one."""
        if isinstance(value, (list, range, tuple, np.ndarray)):
            value = [_plain(number) for number in value]
        return super().validate(obj, value)
