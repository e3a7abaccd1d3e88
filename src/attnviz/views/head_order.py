"""The order in which a view offers heads: by number, or by a score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import traitlets

from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import MOST_NUMBERS, shown
from attnviz.views.position import PositionedView
from attnviz.views.trait_types import Finite

__all__ = ["HeadOrder"]

# By name, then by stack: one list a layer, one number a head; None where it is not finite.
_ScoresByName = dict[str, dict[str, list[list[float | None]]]]


class _HeadScores(traitlets.Dict):
    """Scores by name, then by stack: one list a layer, one number a head."""

    def validate(self, obj: Any, value: Any) -> _ScoresByName:
        """Take arrays as well, for the stack that is shown."""
        checked = _checked_scores(value, obj.record.stack(obj.stack or None))
        for name, by_stack in checked.items():
            # Stacks that this view leaves out may be scored, too.
            there = [each for each in by_stack if each in obj.record.stacks]
            if by_stack and not there:
                raise traitlets.TraitError(
                    f"scores[{name!r}] are for {', '.join(map(repr, by_stack))}; this record has "
                    f"{', '.join(map(repr, obj.record.stacks))}"
                )
            for each in there:
                _check_shape(name, by_stack[each], obj.record.stacks[each])
        return checked


class HeadOrder(PositionedView):
    """What views have that offer heads in an order.

    Attributes
    ----------
    order : str
        What heads are ordered by: ``"number"``, the name of one of `scores`, or of a pattern of
        `attnviz.analysis.head_scores` (``"previous token"``, ...). The strongest come first.
    least_score : float or None
        Where heads are ordered by a score: those with a lower one are not offered.
    scores : dict
        Scores of your own, by name: each an array (layers, heads), or a sequence of one sequence
        a layer, for the stack that is shown first. A single array is named ``"score"``. Heads are
        ordered by the first of them unless `order` says otherwise.
    """

    order = traitlets.Unicode("number").tag(sync=True)
    least_score = Finite(None, allow_none=True).tag(sync=True)
    scores = _HeadScores().tag(sync=True)

    def _first_state(self, given: dict[str, Any], stack: AttentionStack) -> dict[str, Any]:
        if "scores" in given:
            scores = _checked_scores(given["scores"], stack)
            given = {"order": next(iter(scores), "number")} | given | {"scores": scores}
        return super()._first_state(given, stack)

    @traitlets.validate("order")
    def _validate_order(self, proposal: Mapping[str, Any]) -> str:
        from attnviz.analysis import PATTERNS, patterns_of

        order: str = proposal["value"]
        known = ["number", *self.scores, *PATTERNS]
        if order not in known:
            raise traitlets.TraitError(
                f"order={order[:100]!r} must be one of {', '.join(map(repr, known))}"
            )
        possible = {name for stack in self.record.stacks.values() for name in patterns_of(stack)}
        if order in PATTERNS and order not in possible | set(self.scores):
            if not possible:
                raise traitlets.TraitError(
                    f"order={order!r}: patterns are scored by attention weights, and the numbers "
                    "of this record are signed; give scores= to order its heads by"
                )
            raise traitlets.TraitError(
                f"order={order!r}: no stack of this record can show it (where no token stands "
                f"twice there is no induction); it can be {', '.join(map(repr, sorted(possible)))}"
            )
        return order

    @traitlets.observe("scores")
    def _forget_order(self, change: Mapping[str, Any]) -> None:
        """Scores that are gone order nothing."""
        gone = set(change["old"] or {}) - set(change["new"])
        if self.order in gone:
            self.order = "number"


def _checked_scores(given: Any, stack: AttentionStack) -> _ScoresByName:
    """Scores as JSON can hold them, of what `HeadOrder.scores` takes.

    `stack` is the one that an array belongs to.
    """
    if isinstance(given, str):
        raise traitlets.TraitError(
            f"scores={shown(given)} is a name; give numbers, or order={shown(given)} for a pattern"
        )
    by_name = given if isinstance(given, Mapping) else {"score": given}
    checked: _ScoresByName = {}
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
        rows = [np.asarray(row, dtype=np.float64) for row in islice(value, MOST_NUMBERS)]
    except (MemoryError, OverflowError, TypeError, ValueError) as error:
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
