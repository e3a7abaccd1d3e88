"""The order in which a view offers heads: by number, weight, score, or role.

The weight is that of the pinned query, which is a token that the reader chose with a click.

A role is a pattern that a head has over a corpus, such as "induction". Views of one text show the
roles that `attnviz.HeadStatistics` found in a corpus, or roles that the user names. If a head has
several roles, the view shows its main role (see `attnviz.corpus.roles.Roles`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypedDict

import msgspec
import traitlets

from attnviz.record.notes import of_kind
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import short_repr
from attnviz.views.effects import (
    Notes,
    Row,
    about_scores,
    by_name,
    check_stacks,
    note_of,
    notes_of,
    read_scores,
    row_of,
)
from attnviz.views.position import PositionedView
from attnviz.views.trait_types import as_trait_errors

# Scores of the heads of a stack: one list per layer, with one number or None per head.
_Scores = list[Row]
_ScoresByName = dict[str, dict[str, _Scores]]
_HINT = (
    "pass attnviz.HeadStatistics, the result of its stack(name).roles(), or names by layer and "
    "head, such as {(1, 0): 'induction'}"
)
# Maximum length in characters of a role's name that the user passes.
_MAX_NAME_LENGTH = 80


class NamedHeads(TypedDict):
    """Main roles of the heads of a stack.

    Each attribute is a list with one inner list per layer. Each inner list has one entry per head,
    which is None for a head without a role.

    Attributes
    ----------
    names : list of list of (str or None)
        Name of the main role of each head.
    labels : list of list of (str or None)
        Text that the view writes beside the head: the main role with its score, such as
        ``induction 0.98 ± 0.01``, or only its name if it has no score.
    ranks : list of list of (float or None)
        Number by which heads are sorted in descending order. The heads with the rarest role come
        first. Among heads with the same role, the head with the largest score comes first.
    """

    names: list[list[str | None]]
    labels: list[list[str | None]]
    ranks: list[list[float | None]]


class _Roles(traitlets.Dict):
    """Trait for roles of heads. The value is a dict of `NamedHeads` by stack name."""

    wire = dict[str, NamedHeads]

    def validate(self, obj: Any, value: Any) -> dict[str, NamedHeads]:
        """Convert statistics, roles or names to `NamedHeads`."""
        return checked_roles(value, obj.record.stack(obj.stack or None), obj.record.stacks)


class HeadRoles(PositionedView):
    """Base class of views that show the roles of heads.

    Attributes
    ----------
    roles : dict
        Roles of heads over a corpus. Pass `HeadStatistics` of the same model. Alternatively, pass
        the roles of the current stack: the result of ``statistics.stack(name).roles()``, or a dict
        of names by layer and head, such as ``{(1, 0): "induction"}``. For several stacks, pass a
        dict of such roles by stack name. The view writes the role beside each head.
        ``order="role"`` groups heads with the same role.
    """

    roles = _Roles().tag(sync=True)


def checked_roles(
    roles: Any, stack: AttentionStack, stacks: Mapping[str, AttentionStack]
) -> dict[str, NamedHeads]:
    """Convert roles in any form that `HeadRoles` accepts to `NamedHeads` by stack name.

    Roles without a stack name belong to `stack`. `stacks` are the stacks of the record. Roles of
    other stacks are ignored. Raise TraitError if all roles are of other stacks, or if a role is
    invalid.
    """
    if roles is None:
        return {}
    by_stack = {stack.name: roles}
    if hasattr(roles, "stack_names"):
        check_stacks("roles", roles.stack_names, stacks)
        by_stack = {name: roles.stack(name).roles() for name in roles.stack_names if name in stacks}
    elif isinstance(roles, Mapping) and all(isinstance(key, str) for key in roles):
        check_stacks("roles", roles, stacks)
        by_stack = {name: of for name, of in roles.items() if name in stacks}
    return {name: _convert(of, stacks[name]) for name, of in by_stack.items()}


def _convert(roles: Any, stack: AttentionStack) -> NamedHeads:
    if hasattr(roles, "candidates"):
        return _rows_of_roles(stack, _entries_of_roles(roles), list(roles.candidates))
    if isinstance(roles, Mapping) and set(roles) == {"names", "labels", "ranks"}:
        return _check_named_heads(roles, stack)
    if isinstance(roles, Mapping):
        return _rows_of_roles(
            stack, _entries_of_names(roles, stack), list(dict.fromkeys(roles.values()))
        )
    raise traitlets.TraitError(f"roles={short_repr(roles)}: {_HINT}")


# A head with its main role: layer, head, name of the role, text that the view writes beside the
# head (such as "induction 0.98 ± 0.01"), and score of the role. If the role has no score, the text
# is the name of the role, and the score is 0.
_Named = tuple[int, int, str, str, float]


def _entries_of_roles(roles: Any) -> Iterator[_Named]:
    for layer, head, role in roles.main_roles():
        yield layer, head, role.name, roles.label(layer, head), role.score


def _entries_of_names(names: Mapping[Any, Any], stack: AttentionStack) -> Iterator[_Named]:
    for key, name in names.items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise traitlets.TraitError(
                f"roles: {short_repr(key)} must be (layer, head), such as (1, 0)"
            )
        if not isinstance(name, str) or not name.strip() or len(name) > _MAX_NAME_LENGTH:
            raise traitlets.TraitError(
                f"roles[{short_repr(key)}]={short_repr(name)} must be a name of at most "
                f"{_MAX_NAME_LENGTH} characters"
            )
        with as_trait_errors(f"roles[{short_repr(key)}]: "):
            layer = stack.layer_number(key[0])
            head = stack.head_number(layer, key[1])
        yield layer, head, name, name, 0.0


def _rows_of_roles(stack: AttentionStack, named: Iterator[_Named], kinds: list[str]) -> NamedHeads:
    """Arrange the heads `named`, with their main roles, by layer and head.

    `kinds` contains the names of all roles. If two roles are equally rare, the role that comes
    first in `kinds` also comes first in the order of heads. Raise TraitError if a layer of `stack`
    lacks one of the heads.
    """
    grids: list[list[list[Any]]] = [
        [[None] * num_heads for num_heads in stack.heads_per_layer] for _ in range(3)
    ]
    names, labels, ranks = grids
    # Skip roles in layers that the view does not offer.
    offered = [entry for entry in named if entry[0] in stack.layers]
    counts = Counter(name for _, _, name, _, _ in offered)
    rare_first = sorted(counts, key=lambda name: (counts[name], kinds.index(name)))
    for layer, head, name, label, score in offered:
        at = stack.layers.index(layer)
        if head >= len(names[at]):
            raise traitlets.TraitError(
                f"roles come from another model: they have head {head} in layer {layer}, but stack "
                f"{stack.name!r} has {len(names[at])} heads in this layer"
            )
        names[at][head], labels[at][head] = name, label
        ranks[at][head] = len(counts) - rare_first.index(name) + min(0.999, max(0.0, score))
    return {"names": names, "labels": labels, "ranks": ranks}


def _check_named_heads(roles: Mapping[str, Any], stack: AttentionStack) -> NamedHeads:
    """Check roles that already have the form of `NamedHeads`, as in the trait of another view.

    Raise TraitError if they do not have the layers and heads of the stack.
    """
    try:
        checked = msgspec.convert(roles, NamedHeads)
        fits = all(
            [len(row) for row in rows] == list(stack.heads_per_layer)
            for rows in (checked["names"], checked["labels"], checked["ranks"])
        )
    except msgspec.ValidationError:
        fits = False
    if not fits:
        raise traitlets.TraitError(
            f"roles of {stack.name!r}: names, labels and ranks must have one list per layer, with "
            "one entry per head"
        )
    return checked


class _HeadScores(traitlets.Dict):
    """Trait for scores of heads, by name of the score and by stack name (`_ScoresByName`)."""

    wire = _ScoresByName

    def validate(self, obj: Any, value: Any) -> _ScoresByName:
        """Convert scores to lists. Arrays without a stack name are for the shown stack."""
        scores = _read("scores", value, obj)
        # traitlets can call this method a second time, with the converted scores, which have no
        # notes and errors. Then keep the notes and errors of the first call.
        if not obj.trait_has_value("scores") or scores != obj.scores:
            obj._given_notes = notes_of(value, "head")
            averages = {
                name: effects
                for name, effects in by_name(value).items()
                if note_of(effects, "head") and effects.standard_errors is not None
            }
            obj._given_errors = _read("score_errors", averages, obj)
        return scores


class _HeadErrors(traitlets.Dict):
    """Trait for standard errors of the scores of heads, by name of the score and by stack name."""

    wire = _ScoresByName

    def validate(self, obj: Any, value: Any) -> _ScoresByName:
        """Convert errors to lists. Arrays without a stack name are for the shown stack.

        Raise TraitError if an error is negative.
        """
        errors = _read("score_errors", value, obj)
        for name, by_stack in errors.items():
            numbers = [entry for rows in by_stack.values() for row in rows for entry in row]
            if any(number is not None and number < 0 for number in numbers):
                raise traitlets.TraitError(
                    f"score_errors[{name!r}] has negative numbers. Standard errors must be at "
                    "least 0."
                )
        return errors


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
    scores = _HeadScores().tag(sync=True)
    score_notes = Notes().tag(sync=True)
    score_errors = _HeadErrors().tag(sync=True)

    # If `scores` was last set to results of `attnviz.head_effects`, the notes of these results, by
    # name of the score. The trait `scores` itself contains no notes.
    _given_notes: Mapping[str, str] = {}
    # If `scores` was last set to results of `attnviz.head_effects` over several texts, the standard
    # errors of these results, by name of the score, then by stack name.
    _given_errors: Mapping[str, dict[str, _Scores]] = {}

    def _first_state(self, values: dict[str, Any], stack: AttentionStack) -> dict[str, Any]:
        names = list(by_name(values.get("scores", {})))
        order = {"order": names[0]} if names else {}
        return super()._first_state(order | values, stack)

    def _largest_head(self, stacks: Collection[str]) -> tuple[str, int, int] | None:
        """Return stack, layer and head with the first of the order by own scores."""
        scores = self.scores.get(self.order)
        if not scores:
            return super()._largest_head(stacks)
        numbers: list[tuple[float, tuple[str, int, int]]] = [
            (number, (name, layer, head))
            for name, rows in scores.items()
            if name in stacks
            for layer, row in zip(self._stack_named(name).layers, rows, strict=True)
            for head, number in enumerate(row)
            if number
        ]
        by_size = self.order in self._given_notes or any(number < 0 for number, _ in numbers)
        size = abs if by_size else float
        return max(numbers, key=lambda entry: size(entry[0]))[1] if numbers else None

    @traitlets.validate("order")
    def _validate_order(self, proposal: Mapping[str, Any]) -> str:
        from attnviz.analysis import MEASURES, measures_of

        order: str = proposal["value"]
        stacks = self.record.stacks.values()
        measures = list(dict.fromkeys(name for stack in stacks for name in measures_of(stack)))
        valid = ["number", "pinned", *self.scores, *measures, *(["role"] if self.roles else [])]
        if order in valid:
            return order
        why = ""
        if order == "role":
            why = " Pass roles=, such as attnviz.head_statistics(model, texts)."
        elif order in MEASURES and MEASURES[order].reads == "gates":
            why = " The heads of the record have no gates."
        elif order in MEASURES and MEASURES[order].reads == "lost weight":
            why = " The record has no left-out keys. Merged words never have any."
        elif order in MEASURES and MEASURES[order].kind == "heads":
            # If outputs were requested, notes say which layers have none, and why.
            notes = of_kind(self.record.notes, "no outputs")
            notes = notes or ["Pass a record of attnviz.extract(..., outputs=True)."]
            why = " " + " ".join(notes)
        elif order in MEASURES and MEASURES[order].kind == "maps":
            why = " Orders by maps need one image, and no region (pass scores= for a region)."
        elif order in MEASURES and not measures:
            why = " Measures need attention weights."
        elif order in MEASURES:
            description = MEASURES[order].description or order
            why = f" The record has no pair of this measure (weight on {description})."
        raise traitlets.TraitError(
            f"order={short_repr(order)} must be one of {', '.join(map(repr, valid))}.{why}"
        )

    @traitlets.observe("roles")
    def _forget_role_order(self, change: Mapping[str, Any]) -> None:
        """Change an order by role to the order by number if `roles` is now empty.

        If the name of a score is "role", the order is kept, because it is the order by this score.
        """
        if self.order == "role" and not change["new"] and "role" not in self.scores:
            self.order = "number"

    @traitlets.observe("scores")
    def _forget_order(self, change: Mapping[str, Any]) -> None:
        """Adapt the order, the notes and the standard errors to new scores.

        If `order` is the name of removed scores, it becomes "number". Notes and errors of replaced
        or removed scores are removed. Notes and errors that new results of `attnviz.head_effects`
        contain are added.
        """
        if self.order in set(change["old"] or {}) - set(change["new"]):
            self.order = "number"
        self.score_notes = about_scores(change, self.score_notes, self._given_notes)
        self.score_errors = about_scores(change, self.score_errors, self._given_errors)


def _read(trait: str, scores: Any, view: HeadOrder) -> _ScoresByName:
    """Check scores or standard errors, and convert them to lists by score and by stack name.

    `trait` is "scores" or "score_errors". The standard errors of a result of
    `attnviz.head_effects` are its `standard_errors`. Scores without a stack name are for the shown
    stack of the view. Raise TraitError if scores are invalid.
    """
    for name in ("number", "pinned"):
        if name in by_name(scores):
            raise traitlets.TraitError(f"{trait}: {name!r} cannot be a name of scores")

    def read(what: str, value: Any, stack: AttentionStack | None) -> _Scores:
        if not note_of(value, "head"):
            return _rows(what, value, stack)
        rows = value if trait == "scores" else value.standard_errors
        if rows is not None and stack is not None and set(stack.layers) <= set(value.layers):
            rows = [rows[value.layers.index(layer)] for layer in stack.layers]
        return _rows(what, rows, stack)

    shown = view.record.stack(view.stack or None)
    return read_scores(trait, scores, shown, view.record.stacks, read)


def _rows(what: str, rows: Any, stack: AttentionStack | None) -> _Scores:
    """Convert scores or standard errors to one list per layer, with one number or None per head.

    Raise TraitError if `rows` does not have the layers and heads of `stack`. If `stack` is None,
    the record does not have the stack of the scores, and the numbers of layers and heads are not
    checked. `what` names the scores in errors.
    """
    shape = "(layers, heads)"
    if not isinstance(rows, Iterable):
        raise traitlets.TraitError(f"{what} must be numbers, {shape}. Got {type(rows).__name__}")
    checked = [row_of(what, shape, row) for row in rows]
    num_heads = [] if stack is None else list(stack.heads_per_layer)
    if stack is not None and [len(row) for row in checked] != num_heads:
        got = ", ".join(str(len(row)) for row in checked[:8])
        raise traitlets.TraitError(
            f"{what} has {len(checked)} layers of {got or 'no'} heads, but stack {stack.name!r} "
            f"has {len(num_heads)} layers of {', '.join(map(str, num_heads[:8]))} heads"
        )
    return checked
