"""The order in which a view offers heads, by number or by a score, and the scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import traitlets

from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import MAX_NUMBERS, short_repr
from attnviz.views.effects import Notes, note_of, notes_of
from attnviz.views.head_roles import HeadRoles
from attnviz.views.trait_types import Finite

__all__ = ["HeadOrder"]

# Scores by name, then by stack: one list per layer with one number per head. None is a number that
# is not finite.
_ScoresByName = dict[str, dict[str, list[list[float | None]]]]


class _HeadScores(traitlets.Dict):
    """Scores of heads by name and stack (`_ScoresByName`)."""

    def validate(self, obj: Any, value: Any) -> _ScoresByName:
        """Convert scores to lists. Arrays without a stack name are for the shown stack."""
        stack = obj.record.stack(obj.stack or None)
        checked = _checked_scores(value, stack, obj.record.stacks)
        _check_stacks("scores", checked, obj.record.stacks)
        obj._notes_of_scores = _notes(value)
        obj._errors_of_scores = _errors(value, stack, obj.record.stacks)
        return checked


class _HeadErrors(traitlets.Dict):
    """Standard errors of the scores of heads, by name and stack like the scores."""

    def validate(self, obj: Any, value: Any) -> _ScoresByName:
        """Convert errors to lists. Arrays without a stack name are for the shown stack."""
        stack = obj.record.stack(obj.stack or None)
        checked = _checked_scores(value, stack, obj.record.stacks, "score_errors")
        _check_stacks("score_errors", checked, obj.record.stacks)
        for name, by_stack in checked.items():
            numbers = [entry for rows in by_stack.values() for row in rows for entry in row]
            if any(number is not None and number < 0 for number in numbers):
                raise traitlets.TraitError(
                    f"score_errors[{name!r}] has negative numbers. Standard errors must be at "
                    "least 0."
                )
        return checked


class HeadOrder(HeadRoles):
    """Base class of views that can order heads by a score.

    Attributes
    ----------
    order : str
        Order of the heads. ``"number"`` orders by layer and head number. ``"pinned"`` orders by the
        weight from the pinned query to the pinned key or, if no key is pinned, by the largest
        weight of the pinned query. The name of an entry of `scores`, or of a pattern of
        `attnviz.analysis.head_scores` such as ``"previous token"``, orders by these scores.
        ``"role"`` orders by `roles`. The head with the largest score comes first. If scores are
        both positive and negative, or are a result of `attnviz.head_effects`, the head with the
        largest absolute value comes first.
    min_score : float or None
        Smallest score of the heads that are offered, if heads are ordered by a score. If they are
        ordered by absolute value, it is the smallest absolute value. None offers all heads.
    scores : dict
        Your own scores of heads, by name. A value is an array with the shape (layers, heads), or a
        list with one sequence per layer, for the current stack. A value can also be a dict of such
        arrays by stack name, or a result of `attnviz.head_effects`. A single array without a name
        is named ``"score"``. If `scores` are passed without `order`, heads are ordered by the first
        scores. Results of `head_effects`, and scores that are both positive and negative, are drawn
        as bars around a zero line below each head.
    score_notes : dict
        Sentences that describe what the scores measure, by name of the scores. The results of
        `attnviz.head_effects` have a description by default.
    score_errors : dict
        Standard errors of the scores, in the same form as `scores`. They are drawn as thin lines
        over the bars. Results of `attnviz.head_effects` over several texts contain standard errors.
    """

    order = traitlets.Unicode("number").tag(sync=True)
    min_score = Finite(None, allow_none=True).tag(sync=True)
    scores = _HeadScores().tag(sync=True)
    score_notes = Notes().tag(sync=True)
    score_errors = _HeadErrors().tag(sync=True)

    # Notes and standard errors of the effects in the latest value of `scores`.
    _notes_of_scores: Mapping[str, str] = {}
    _errors_of_scores: Mapping[str, dict[str, list[list[float | None]]]] = {}

    def _first_state(self, values: dict[str, Any], stack: AttentionStack) -> dict[str, Any]:
        if "scores" in values:
            scores = _checked_scores(values["scores"], stack, self.record.stacks)
            values = {"order": next(iter(scores), "number")} | values
            notes = _notes(values["scores"])
            if notes and isinstance(values.get("score_notes", {}), Mapping):
                values["score_notes"] = notes | dict(values.get("score_notes", {}))
            errors = _errors(values["scores"], stack, self.record.stacks)
            if errors and isinstance(values.get("score_errors", {}), Mapping):
                values["score_errors"] = errors | dict(values.get("score_errors", {}))
            values["scores"] = scores
        return super()._first_state(values, stack)

    @traitlets.validate("order")
    def _validate_order(self, proposal: Mapping[str, Any]) -> str:
        from attnviz.analysis import MEASURES, measures_of

        order: str = proposal["value"]
        valid = ["number", "pinned", *self.scores, *MEASURES]
        if order == "role" and order not in self.scores:
            if not self.roles:
                raise traitlets.TraitError(
                    'order="role" needs roles=, such as attnviz.head_statistics(model, texts)'
                )
            return order
        if order not in valid:
            raise traitlets.TraitError(
                f"order={order[:100]!r} must be one of {', '.join(map(repr, valid))}"
            )
        possible = {name for stack in self.record.stacks.values() for name in measures_of(stack)}
        if order in MEASURES and order not in possible | set(self.scores):
            if not possible:
                raise traitlets.TraitError(
                    f"order={order!r}: patterns need attention weights, but the numbers of this "
                    "record are signed. Pass scores= to order its heads."
                )
            raise traitlets.TraitError(
                f"order={order!r}: no stack of this record can show this pattern (induction needs "
                f"a repeated token). Pass one of {', '.join(map(repr, sorted(possible)))}."
            )
        return order

    @traitlets.observe("roles")
    def _forget_role_order(self, change: Mapping[str, Any]) -> None:
        """Reset an order by role to the order by number if `roles` is now empty."""
        if self.order == "role" and not change["new"] and "role" not in self.scores:
            self.order = "number"

    @traitlets.observe("scores")
    def _forget_order(self, change: Mapping[str, Any]) -> None:
        """Adapt the order, the notes and the standard errors to new scores.

        An order by removed scores becomes the order by number. Notes and errors of replaced scores
        are removed, and those of new effects are added.
        """
        old, new = change["old"] or {}, change["new"]
        if self.order in set(old) - set(new):
            self.order = "number"
        replaced = {name for name in old if old[name] != new.get(name)}
        remaining = {name: note for name, note in self.score_notes.items() if name not in replaced}
        self.score_notes = remaining | {
            name: note for name, note in self._notes_of_scores.items() if name not in remaining
        }
        errors = {name: rows for name, rows in self.score_errors.items() if name not in replaced}
        self.score_errors = {**self._errors_of_scores, **errors}


def _notes(scores: Any) -> dict[str, str]:
    """Return the note of each entry of `scores` that is a `HeadEffects`, by name."""
    by_name = scores if isinstance(scores, Mapping) else {"score": scores}
    return notes_of(by_name, "head")


def _errors(
    scores: Any, stack: AttentionStack, stacks: Mapping[str, AttentionStack]
) -> _ScoresByName:
    """Return the standard errors of each `HeadEffects` in `scores`, by name and stack."""
    by_name = scores if isinstance(scores, Mapping) else {"score": scores}
    errors: _ScoresByName = {}
    for name, value in by_name.items():
        standard_errors = (
            None if note_of(value, "head") is None else getattr(value, "standard_errors", None)
        )
        if standard_errors is not None:
            own = _own_stack(str(name), value, stack, stacks)
            rows = _select_layers(value, own, standard_errors)
            errors[str(name)] = {own.name: _rows(str(name), rows, "score_errors")}
    return errors


def _check_stacks(trait: str, checked: _ScoresByName, stacks: Mapping[str, AttentionStack]) -> None:
    """Raise TraitError for scores whose stacks the record lacks, or whose shape does not fit.

    `trait` is the name of the trait in the message.
    """
    for name, by_stack in checked.items():
        # Ignore stacks that the record lacks if it has at least one of the others.
        names = [key for key in by_stack if key in stacks]
        if by_stack and not names:
            raise traitlets.TraitError(
                f"{trait}[{name!r}] are for {', '.join(map(repr, by_stack))}, but this record has "
                f"{', '.join(map(repr, stacks))}"
            )
        for stack_name in names:
            _check_shape(name, by_stack[stack_name], stacks[stack_name], trait)


def _checked_scores(
    scores: Any,
    stack: AttentionStack,
    stacks: Mapping[str, AttentionStack],
    trait: str = "scores",
) -> _ScoresByName:
    """Check scores, and convert them to lists by name and stack. Raise TraitError if invalid.

    Scores without a stack name belong to `stack`, except results of `attnviz.head_effects`, which
    contain the name of one of `stacks`. `trait` is the name of the trait in error messages.
    """
    if isinstance(scores, str):
        instead = f", or order={short_repr(scores)} for a pattern" if trait == "scores" else ""
        raise traitlets.TraitError(
            f"{trait}={short_repr(scores)} is a string. Pass numbers{instead}."
        )
    by_name = scores if isinstance(scores, Mapping) else {"score": scores}
    checked: _ScoresByName = {}
    for name, value in by_name.items():
        if not isinstance(name, str) or name in ("number", "pinned"):
            raise traitlets.TraitError(f"{trait}: {name!r} cannot be a name of scores")
        if isinstance(value, Mapping):
            checked[name] = {
                str(stack_name): _rows(name, rows, trait) for stack_name, rows in value.items()
            }
        else:
            own = _own_stack(name, value, stack, stacks)
            rows = _rows(name, _select_layers(value, own, value), trait)
            _check_shape(name, rows, own, trait)
            checked[name] = {own.name: rows}
    return checked


def _own_stack(
    name: str, value: Any, stack: AttentionStack, stacks: Mapping[str, AttentionStack]
) -> AttentionStack:
    """Return the stack to which scores belong: for `HeadEffects` their own, otherwise `stack`."""
    if note_of(value, "head") is None:
        return stack
    own = getattr(value, "stack", stack.name)
    if own not in stacks:
        raise traitlets.TraitError(
            f"scores[{name!r}] are for {own!r}, but this record has {', '.join(map(repr, stacks))}"
        )
    return stacks[own]


def _select_layers(effects: Any, stack: AttentionStack, rows: Any) -> Any:
    """Select the rows of the layers in `stack`.

    `rows` are the effects or their standard errors, with one row per layer of `effects`. `rows` are
    returned unchanged if `effects` are plain numbers or lack a layer.
    """
    layers = getattr(effects, "layers", None)
    if note_of(effects, "head") is None or layers is None or not set(stack.layers) <= set(layers):
        return rows
    return [rows[layers.index(layer)] for layer in stack.layers]


def _rows(name: str, value: Any, trait: str) -> list[list[float | None]]:
    try:
        rows = [np.asarray(row, dtype=np.float64) for row in islice(value, MAX_NUMBERS)]
    except (MemoryError, OverflowError, TypeError, ValueError) as error:
        raise traitlets.TraitError(
            f"{trait}[{name!r}] must be numbers, (layers, heads). Got {type(value).__name__}"
        ) from error
    if any(row.ndim != 1 for row in rows):
        raise traitlets.TraitError(
            f"{trait}[{name!r}] must be (layers, heads), with one number per head"
        )
    return [[float(score) if math.isfinite(score) else None for score in row] for row in rows]


def _check_shape(
    name: str, rows: list[list[float | None]], stack: AttentionStack, trait: str
) -> None:
    num_heads = list(stack.heads_per_layer)
    if [len(row) for row in rows] != num_heads:
        got = ", ".join(str(len(row)) for row in rows[:8])
        raise traitlets.TraitError(
            f"{trait}[{name!r}] has {len(rows)} layers of {got or 'no'} heads, but stack "
            f"{stack.name!r} has {len(num_heads)} layers of "
            f"{', '.join(map(str, num_heads[:8]))} heads"
        )
