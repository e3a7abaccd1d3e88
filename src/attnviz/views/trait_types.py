"""Kinds of traits: numpy's numbers, lists as any sequence, scores as arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import traitlets

from attnviz.record.stack import AttentionStack

__all__ = ["Finite", "HeadScores", "Index", "Numbers", "checked_scores"]

ScoresByName = dict[str, dict[str, list[list[float | None]]]]


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


class HeadScores(traitlets.Dict):
    """Scores by name, then by stack: one list a layer, one number a head."""

    def validate(self, obj: Any, value: Any) -> ScoresByName:
        """Take arrays as well, for the stack that is shown."""
        checked = checked_scores(value, obj.record.stack(obj.stack or None))
        for name, by_stack in checked.items():
            # Stacks that this view leaves out may be scored, too.
            known = [each for each in by_stack if each in obj.record.stacks]
            if by_stack and not known:
                raise traitlets.TraitError(
                    f"scores[{name!r}] are for {', '.join(map(repr, by_stack))}; this record has "
                    f"{', '.join(map(repr, obj.record.stacks))}"
                )
            for each in known:
                _check_shape(name, by_stack[each], obj.record.stacks[each])
        return checked


def checked_scores(given: Any, stack: AttentionStack) -> ScoresByName:
    """Make scores whole, or say what is wrong with them.

    Parameters
    ----------
    given : mapping or array
        Arrays by name, or one array. Each is (layers, heads), or a sequence of one sequence a
        layer where layers have different numbers of heads; or, by stack, such sequences.
    stack : AttentionStack
        The stack that an array belongs to.

    Returns
    -------
    dict
        Fit for JSON: by name, by stack, one list a layer; None where a score is no finite number.

    Raises
    ------
    traitlets.TraitError
        If a shape does not fit the stack's layers and heads, or scores are no numbers.
    """
    if isinstance(given, str):
        raise traitlets.TraitError(
            f"scores={given!r} is a name; give numbers, or order={given!r} for a pattern"
        )
    by_name = given if isinstance(given, Mapping) else {"score": given}
    checked: ScoresByName = {}
    for name, value in by_name.items():
        if not isinstance(name, str) or name == "number":
            raise traitlets.TraitError(f"scores: {name!r} cannot be a name of scores")
        if isinstance(value, Mapping):
            checked[name] = {str(each): _rows(name, rows) for each, rows in value.items()}
        else:
            rows = _rows(name, value)
            _check_shape(name, rows, stack)
            checked[name] = {stack.name: rows}
    return checked


def _rows(name: str, value: Any) -> list[list[float | None]]:
    try:
        rows = [np.asarray(row, dtype=np.float64) for row in value]
    except (TypeError, ValueError) as error:
        raise traitlets.TraitError(
            f"scores[{name!r}] must be numbers, (layers, heads); got {type(value).__name__}"
        ) from error
    if any(row.ndim != 1 for row in rows):
        raise traitlets.TraitError(
            f"scores[{name!r}] must be (layers, heads): one number for every head"
        )
    return [[float(score) if math.isfinite(score) else None for score in row] for row in rows]


def _check_shape(name: str, rows: list[list[float | None]], stack: AttentionStack) -> None:
    wanted = list(stack.heads_per_layer)
    if [len(row) for row in rows] != wanted:
        got = ", ".join(str(len(row)) for row in rows[:8])
        raise traitlets.TraitError(
            f"scores[{name!r}] has {len(rows)} layers of {got or 'no'} heads; stack "
            f"{stack.name!r} has {len(wanted)} layers of {', '.join(map(str, wanted[:8]))} heads"
        )
