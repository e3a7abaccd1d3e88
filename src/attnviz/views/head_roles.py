"""Roles of heads in views.

A role is a pattern that a head has over a corpus, such as "induction". Views of one text show the
roles that `attnviz.HeadStatistics` found in a corpus, or roles that the user names. If a head has
several roles, the view shows its main role (see `attnviz.corpus.roles.Roles`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

import msgspec
import traitlets

from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import short_repr
from attnviz.views.effects import check_stacks
from attnviz.views.position import PositionedView
from attnviz.views.trait_types import as_trait_errors

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
        return _rows(stack, _entries_of_roles(roles), list(roles.candidates))
    if isinstance(roles, Mapping) and set(roles) == {"names", "labels", "ranks"}:
        return _check_named_heads(roles, stack)
    if isinstance(roles, Mapping):
        return _rows(stack, _entries_of_names(roles, stack), list(dict.fromkeys(roles.values())))
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


def _rows(stack: AttentionStack, named: Iterator[_Named], kinds: list[str]) -> NamedHeads:
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
