"""Scores of heads and tokens in views, such as the effects of interventions.

A score has a name, and one number for each head or token of a stack. If a view has several scores,
it shows one of them at a time. A note is a sentence that describes what a score measures. A stack
is the attention of one kind, such as "self" or "cross", in all layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import numpy as np
import traitlets

from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import short_repr
from attnviz.utils.arrays import as_array
from attnviz.utils.numbers import describe_noise
from attnviz.views.position import PositionedView, same_tokens

# Maximum number of characters of a note, which is displayed below a picture.
_MAX_NOTE_LENGTH = 1000

# Scores of the heads of one layer, or of the keys of one stack. None stands for a number that is
# NaN or infinite.
Row = list[float | None]

_Of = Literal["head", "token"]
_Numbers = TypeVar("_Numbers")


def note_of(value: Any, of: _Of) -> str | None:
    """Return a note that describes a `HeadEffects` or `TokenEffects`, or None for other values.

    `of` says whether the effects are of heads or of tokens. The two classes are recognized by their
    attributes, so that this module does not need to import `interventions`.

    Examples
    --------
    >>> note_of([[0.5]], "head")
    """
    if not hasattr(value, "measure") or not hasattr(value, "noise"):
        return None
    what = "removing a head"
    if of == "token":
        what = f"removing a token ({getattr(value, 'removal', 'mask')})"
    texts = getattr(value, "num_texts", 1)
    mean = f", mean of {texts:,} texts" if texts > 1 else ""
    noise = describe_noise(np.hstack(value.values).tolist(), value.noise)
    sinks = getattr(value, "sinks_in_words", "")
    return f"effect of {what} on: {value.measure}{mean}; {noise}{'; ' * bool(sinks)}{sinks}"


def notes_of(scores: Any, of: _Of) -> dict[str, str]:
    """Return the note of each score that is a `HeadEffects` or `TokenEffects`, by name.

    A score may also be a mapping of such values by stack. Its note is that of the first value that
    has a note.
    """
    notes: dict[str, str] = {}
    for name, value in by_name(scores).items():
        for effects in value.values() if isinstance(value, Mapping) else [value]:
            note = note_of(effects, of)
            if note is not None:
                notes.setdefault(str(name), note)
    return notes


def about_scores(
    change: Mapping[str, Any], before: Mapping[str, _Numbers], new: Mapping[str, _Numbers]
) -> dict[str, _Numbers]:
    """Return the notes or the standard errors of a view's scores after the scores changed.

    `before` has the notes or errors from before the change, by name of the score. They are kept for
    scores that were neither replaced nor removed. For all other names, the result has the entries
    of `new`, which are the notes or errors that the new scores contain. `change` is the change of
    the trait with the scores, as traitlets passes it to observers.
    """
    old = change["old"] or {}
    replaced = {name for name in old if old[name] != change["new"].get(name)}
    return {**new, **{name: one for name, one in before.items() if name not in replaced}}


def check_stacks(what: str, names: Iterable[Any], stacks: Mapping[str, Any]) -> None:
    """Raise TraitError if values were passed for stacks, and the record has none of these stacks.

    `names` are the names of the stacks for which values were passed, and `stacks` are the stacks of
    the record. `what` names the values in the error.
    """
    names = list(names)
    if names and not any(name in stacks for name in names):
        raise traitlets.TraitError(
            f"{what} are for {', '.join(map(short_repr, names))}, but this record has "
            f"{', '.join(map(repr, stacks))}"
        )


def read_scores(
    trait: str,
    scores: Any,
    stack: AttentionStack,
    stacks: Mapping[str, AttentionStack],
    read: Callable[[str, Any, AttentionStack | None], _Numbers],
) -> dict[str, dict[str, _Numbers]]:
    """Convert scores of heads or tokens to a dict by name of the score, then by stack name.

    `scores` is a single score, or a mapping by name. A score is a mapping by stack name, or the
    numbers of one stack. Numbers without a stack name belong to `stack`, except a `HeadEffects`,
    which contains the name of its stack. `stacks` are the stacks of the record. `read` converts the
    numbers of one stack. Its arguments are a name for error messages, the numbers, and the stack,
    or None if the record does not have this stack. Raise TraitError if the name of a score is
    invalid, or if the record has none of the stacks of a score. `trait` is the name of the trait.
    """
    if isinstance(scores, str):
        raise traitlets.TraitError(f"{trait}={short_repr(scores)} is a string. Pass numbers.")
    checked: dict[str, dict[str, _Numbers]] = {}
    for name, value in by_name(scores).items():
        if not isinstance(name, str):
            raise traitlets.TraitError(f"{trait}: {name!r} cannot be a name of scores")
        what = f"{trait}[{name!r}]"
        own = getattr(value, "stack", stack.name) if note_of(value, "head") else stack.name
        by_stack = value if isinstance(value, Mapping) else {own: value}
        check_stacks(what, by_stack, stacks)
        checked[name] = {
            str(key): read(what, numbers, stacks.get(key)) for key, numbers in by_stack.items()
        }
    return checked


def by_name(scores: Any) -> Mapping[Any, Any]:
    """Return scores by name. A mapping is returned unchanged.

    A single `TokenEffects` gets the name "effect", and any other single score the name "score".
    """
    if isinstance(scores, Mapping):
        return scores
    return {"effect" if hasattr(scores, "removal") else "score": scores}


def row_of(what: str, shape: str, values: Any) -> Row:
    """Convert a one-dimensional array or list of numbers to a list.

    NaN and infinity become None. Raise TraitError for other values. In the error, `what` names the
    numbers, and `shape` is the expected shape, such as "(tokens,)".
    """
    try:
        numbers = as_array(values)
        # Reject strings such as "1.5", which `astype` would convert. Accept arrays of objects,
        # because converted scores contain None, which `astype` converts to NaN.
        is_row = numbers.dtype.kind in "biufO" and numbers.ndim == 1
        floats = numbers.astype(np.float64).tolist() if is_row else []
    except (OverflowError, RuntimeError, TypeError, ValueError):
        is_row = False
    if not is_row:
        raise traitlets.TraitError(f"{what} must be numbers, {shape}. Got {short_repr(values)}")
    return [number if math.isfinite(number) else None for number in floats]


class Notes(traitlets.Dict):
    """Trait type for notes of scores, by name of the score."""

    def __init__(self) -> None:
        super().__init__(value_trait=traitlets.Unicode(), key_trait=traitlets.Unicode())

    def validate(self, obj: Any, value: Any) -> dict[str, str]:
        notes: dict[str, str] = super().validate(obj, value) or {}
        for name, note in notes.items():
            if len(note) > _MAX_NOTE_LENGTH:
                raise traitlets.TraitError(
                    f"{self.name}[{name!r}] has {len(note):,} characters. Pass at most "
                    f"{_MAX_NOTE_LENGTH:,}."
                )
        return notes


class _TokenScores(traitlets.Dict):
    """Trait for scores of the keys, by name of the score and by stack name."""

    wire = dict[str, dict[str, Row]]

    def validate(self, obj: Any, value: Any) -> dict[str, dict[str, Row]]:
        """Convert scores to lists. Scores without a stack name are for the shown stack."""

        def read(what: str, scores: Any, stack: AttentionStack | None) -> Row:
            is_effect = note_of(scores, "token") is not None
            row = row_of(what, "(tokens,)", scores.values if is_effect else scores)
            if stack is not None and len(row) != len(stack.key_tokens):
                raise traitlets.TraitError(
                    f"{what} has {len(row):,} numbers, but stack {stack.name!r} has "
                    f"{len(stack.key_tokens):,} keys. Pass one number per key, (tokens,)."
                )
            return row

        shown = obj.record.stack(obj.stack or None)
        checked = read_scores("token_scores", value, shown, obj.record.stacks, read)
        # traitlets can call this method a second time, with the converted scores, which have no
        # notes. Then keep the notes of the first call.
        if not obj.trait_has_value("token_scores") or checked != obj.token_scores:
            obj._notes_of_token_scores = notes_of(value, "token")
        return checked


class TokenScores(PositionedView):
    """Base class of views that draw a bar for a score beside each key.

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

    # Notes of the `TokenEffects` that `token_scores` was last set to, by name of the score.
    _notes_of_token_scores: Mapping[str, str] = {}

    def _fit_to_record(self, before: AttentionRecord) -> None:
        super()._fit_to_record(before)
        if not same_tokens(before, self.record):
            # Remove the scores, because they belong to the tokens of the previous record.
            self.token_scores = {}

    @traitlets.observe("token_scores")
    def _follow_notes(self, change: Mapping[str, Any]) -> None:
        self.token_score_notes = about_scores(
            change, self.token_score_notes, self._notes_of_token_scores
        )
        if self.token_score not in change["new"]:
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
