"""Traits for scores of tokens, such as the effects of interventions.

A note is a sentence that describes what a score measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import traitlets

from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import short_repr
from attnviz.utils.numbers import format_small
from attnviz.views.position import PositionedView, same_tokens

__all__ = ["Notes", "TokenScores", "note_of", "notes_of"]

# Maximum number of characters of a note, which is displayed below a picture.
_MAX_NOTE_LENGTH = 1000

# Scores by name, then by stack: one number per key. None is a missing number.
_ScoresByName = dict[str, dict[str, list[float | None]]]


def note_of(value: Any, of: Literal["head", "token"]) -> str | None:
    """Return a note that describes a `HeadEffects` or `TokenEffects`, or None for other values.

    `of` says whether the effects are of heads or of tokens. The two classes are recognized by their
    attributes, so that this module does not need to import `interventions`.

    Examples
    --------
    >>> note_of([[0.5]], "head")
    """
    measure, noise = getattr(value, "measure", None), getattr(value, "noise", None)
    if (
        isinstance(value, type)
        or not isinstance(measure, str)
        or not isinstance(noise, int | float)
    ):
        return None
    what = "removing a head"
    if of == "token":
        what = f"removing a token ({getattr(value, 'removal', 'mask')})"
    texts = getattr(value, "num_texts", 1)
    mean = f", mean of {texts:,} texts" if texts > 1 else ""
    return f"effect of {what} on: {measure}{mean}; noise {format_small(noise)}"


def notes_of(by_name: Mapping[Any, Any], of: Literal["head", "token"]) -> dict[str, str]:
    """Return the note of each value that is a `HeadEffects` or `TokenEffects`, by name.

    A value may also be a mapping of such values by stack.
    """
    notes: dict[str, str] = {}
    for name, value in by_name.items():
        for scores in value.values() if isinstance(value, Mapping) else [value]:
            note = note_of(scores, of)
            if note is not None:
                notes.setdefault(str(name), note)
    return notes


class Notes(traitlets.Dict):
    """Notes of scores, by name of the score."""

    def validate(self, obj: Any, value: Any) -> dict[str, str]:
        del obj
        if not isinstance(value, Mapping):
            raise traitlets.TraitError(
                f"{self.name}={short_repr(value)} must be a dict from names of scores to strings"
            )
        for name, note in value.items():
            if not isinstance(name, str) or not isinstance(note, str):
                raise traitlets.TraitError(
                    f"{self.name}[{short_repr(name)}]={short_repr(note)}: names and notes must be "
                    "strings"
                )
            if len(note) > _MAX_NOTE_LENGTH:
                raise traitlets.TraitError(
                    f"{self.name}[{name!r}] has {len(note):,} characters. Pass at most "
                    f"{_MAX_NOTE_LENGTH:,}."
                )
        return dict(value)


class _TokenScores(traitlets.Dict):
    """Scores of the keys in each stack, by name of the score and by stack."""

    def validate(self, obj: Any, value: Any) -> _ScoresByName:
        """Convert scores to lists. Scores without a stack name are for the shown stack."""
        checked = _check_token_scores(value, obj.record.stack(obj.stack or None), obj.record.stacks)
        obj._notes_of_token_scores = _notes(value)
        return checked


class TokenScores(PositionedView):
    """Base class of views that draw a number beside each key.

    Attributes
    ----------
    token_scores : dict
        Scores of the keys, by name. A value is an array with one number per key of the current
        stack, a dict of such arrays by stack name, or a result of `attnviz.token_effects`. A value
        without a name is named ``"score"``, or ``"effect"`` if it is a result of `token_effects`.
        The scores named `token_score` are drawn as bars around a zero line beside the keys. NaN
        draws no bar.
    token_score_notes : dict
        Sentences that describe what the scores measure, by name of the scores. The results of
        `attnviz.token_effects` have a description by default.
    token_score : str or None
        Name of the scores that are drawn. None draws the first scores.
    """

    token_scores = _TokenScores().tag(sync=True)
    token_score_notes = Notes().tag(sync=True)
    token_score = traitlets.Unicode(None, allow_none=True).tag(sync=True)

    # Notes of the effects in the latest value of `token_scores`.
    _notes_of_token_scores: Mapping[str, str] = {}

    def _first_state(self, values: dict[str, Any], stack: AttentionStack) -> dict[str, Any]:
        if "token_scores" in values:
            scores = _check_token_scores(values["token_scores"], stack, self.record.stacks)
            notes = _notes(values["token_scores"])
            own = values.get("token_score_notes", {})
            values = values | {"token_scores": scores}
            if notes and isinstance(own, Mapping):
                values["token_score_notes"] = notes | dict(own)
        return super()._first_state(values, stack)

    def _fit_to_record(self, before: AttentionRecord) -> None:
        super()._fit_to_record(before)
        if not same_tokens(before, self.record):
            # Remove the scores, because they belong to the tokens of the previous record.
            self.token_scores = {}

    @traitlets.observe("token_scores")
    def _follow_notes(self, change: Mapping[str, Any]) -> None:
        """Remove the notes of scores that were replaced, and add the notes of new effects."""
        old, new = change["old"] or {}, change["new"]
        replaced = {name for name in old if old[name] != new.get(name)}
        notes = self.token_score_notes
        remaining = {name: note for name, note in notes.items() if name not in replaced}
        self.token_score_notes = {**self._notes_of_token_scores, **remaining}
        if self.token_score not in new:
            self.token_score = None

    @traitlets.validate("token_score")
    def _validate_token_score(self, proposal: Mapping[str, Any]) -> str | None:
        name: str | None = proposal["value"]
        if name is not None and name not in self.token_scores:
            valid = ", ".join(map(repr, self.token_scores)) or "none"
            raise traitlets.TraitError(
                f"token_score={short_repr(name)} must be one of the names of token_scores: {valid}"
            )
        return name


def _by_name(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    return {"score" if note_of(value, "token") is None else "effect": value}


def _notes(value: Any) -> dict[str, str]:
    return notes_of(_by_name(value), "token")


def _check_token_scores(
    scores: Any, stack: AttentionStack, stacks: Mapping[str, AttentionStack]
) -> _ScoresByName:
    """Convert scores to lists for JSON. Scores without a stack name belong to `stack`."""
    if isinstance(scores, str):
        raise traitlets.TraitError(
            f"token_scores={short_repr(scores)} is a string. Pass one number per key."
        )
    checked: _ScoresByName = {}
    for name, value in _by_name(scores).items():
        if not isinstance(name, str):
            raise traitlets.TraitError(f"token_scores: {name!r} cannot be a name of scores")
        by_stack = value if isinstance(value, Mapping) else {stack.name: value}
        names = [stack_name for stack_name in by_stack if stack_name in stacks]
        if by_stack and not names:
            raise traitlets.TraitError(
                f"token_scores[{name!r}] are for {', '.join(map(repr, by_stack))}, but this record "
                f"has {', '.join(map(repr, stacks))}"
            )
        checked[name] = {key: _numbers(name, by_stack[key], stacks[key]) for key in names}
    return checked


def _numbers(name: str, value: Any, stack: AttentionStack) -> list[float | None]:
    values = value if note_of(value, "token") is None else value.values
    try:
        numbers = np.asarray(values)
        if numbers.dtype.kind == "O":
            # Scores that come from the state of a view have None for missing numbers.
            numbers = np.array([np.nan if entry is None else entry for entry in values])
        # Check the type of the numbers. Strings such as "1.5" are invalid, but numpy would convert
        # them.
        plain = numbers.dtype.kind in "biuf"
    except (MemoryError, OverflowError, RuntimeError, TypeError, ValueError):
        plain = False
    if not plain:
        raise traitlets.TraitError(
            f"token_scores[{name!r}] must be numbers, (tokens,). Got {short_repr(values)}"
        )
    num_keys = len(stack.key_tokens)
    if numbers.shape != (num_keys,):
        raise traitlets.TraitError(
            f"token_scores[{name!r}] has the shape {numbers.shape}, but stack {stack.name!r} has "
            f"{num_keys:,} keys. Pass one number per key, (tokens,)."
        )
    floats = map(float, numbers.tolist())
    return [number if math.isfinite(number) else None for number in floats]
