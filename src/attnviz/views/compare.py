"""The compare view, which shows distances between the heads of two or more records.

The distance of a head between two records is the share of its weight that is on other keys in the
second record, as a mean over the queries. The rounding error of a distance is the distance that
rounding errors alone can cause. See `attnviz.comparison.comparison.Comparison`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import traitlets

from attnviz.pages.html import Embedded
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import only_position
from attnviz.server.description import default_top_k
from attnviz.utils.filenames import file_stem
from attnviz.views.position import with_layers
from attnviz.views.record_view import RecordView
from attnviz.views.token_windows import HeatMap
from attnviz.views.trait_types import Choice, Finite, Index, as_trait_errors

if TYPE_CHECKING:
    from attnviz.comparison.comparison import Comparison

# Maximum number of models that the title of a view names.
_MAX_NAMED_MODELS = 3
# Number of significant digits of the distances that the browser gets. A view shows two digits.
_DIGITS = 6


class CompareView(HeatMap, RecordView):
    """Grid of all heads, coloured by the distance between two records, and one head in detail.

    A click on a cell of the grid, or Enter, chooses a head. The detail shows this head in both
    records, and the difference of its weights. The records of a comparison are called members. If
    there are more than two members, such as the checkpoints of a training, a slider chooses the
    member that is compared with the first member.

    Parameters
    ----------
    comparison : Comparison
        Result of `attnviz.compare`.
    include_layers : int or iterable of int, optional
        Numbers of the layers that the view offers. All by default.
    **traits
        Initial values of the traits below and of the traits `stack`, `layer`, `heads`, `token`,
        `key` and `theme` (see `attnviz.views.position.PositionedView`). `stack` is a name that both
        records have, such as ``"self"``. The view shows the first head in `heads`. If neither
        `layer` nor `heads` is passed, the view opens at the head whose distance exceeds its
        rounding error most.

    Attributes
    ----------
    compared : Comparison
        Comparison that is shown. Read only.
    member : int
        Number of the member that is compared with the first member (member 0), from 1.
    form : {"head", "matrix"}
        Form of the detail: lines as in the head view, or a heat map as in the matrix view.
    order : {"number", "distance"}
        Order of the heads in the grid: by layer and head number, or by distance, with the largest
        distance first.
    top_k : int or None
        Number of strongest keys per query that the lines show. None shows all keys. The default is
        None for texts of up to 32 tokens, 3 for longer texts, and 1 for ranks of an indexer.
    threshold : float
        Smallest weight or absolute difference that the lines show.
    query_window, key_window : list of two int, or None
        Range of queries (`query_window`) or keys (`key_window`) that the detail shows: [start,
        stop], with stop excluded. None is the default of the head view or of the matrix view,
        depending on `form`.
    comparison : dict
        Names, distances and stacks for the browser. Read only. `compared` is the `Comparison`, with
        its numbers.
    opening : dict or None
        Entries ``stack``, ``member``, ``layer``, ``head``, ``distance`` and ``rounding``, if the
        view opened at the head whose distance exceeds its rounding error most. Otherwise None. Read
        only.

    Raises
    ------
    TypeError
        If `comparison` is not a `Comparison`, or a keyword is unknown.
    traitlets.TraitError
        If a trait's value does not fit the comparison.

    Examples
    --------
    >>> import attnviz as av
    >>> a = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["he", "sat"])
    >>> b = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.2, 0.8]]]], ["she", "sat"])
    >>> view = av.CompareView(av.compare(a, b), form="matrix")    # doctest: +SKIP
    >>> view.compared.distance()                                  # doctest: +SKIP
    """

    name: ClassVar[str] = "compare"
    max_whole_text: ClassVar[int | None] = 100
    # A page needs no scores of heads for patterns such as "previous token", because this view does
    # not order heads by such scores.
    embeds: ClassVar[frozenset[Embedded]] = frozenset({"weights"})

    # Value of the trait `member`. The defaults of other traits depend on this value. They are
    # computed before the trait is set, so the value is also stored here.
    _shown_member = 1

    comparison = traitlets.Dict(read_only=True).tag(sync=True)
    member = Index(1).tag(sync=True)
    order = Choice(["number", "distance"], "number").tag(sync=True, label="Heads by", group="heads")
    form = Choice(["head", "matrix"], "head").tag(
        sync=True, label="Head as", labels={"head": "lines"}, group="heads"
    )
    top_k = Index(None, allow_none=True, min=1).tag(sync=True)
    threshold = Finite(0.0, min=0.0).tag(sync=True)

    def __init__(
        self,
        comparison: Comparison,
        *,
        include_layers: int | Iterable[int] | None = None,
        **traits: Any,
    ) -> None:
        self.check_names(traits)
        _check_comparison(comparison)
        self._compared = comparison
        # One record with the stacks of all members, and the differences from the first member.
        self._members = with_layers(comparison.record(), include_layers)
        self._described = _describe(comparison, self._members)
        self._members.model = _model_of(comparison)
        super().__init__(comparison.a, include_layers=include_layers, **traits)
        self.set_trait("comparison", self._described)

    def _default_window(self, tokens: Sized) -> list[int]:
        # The heat map shows a text of any length as a whole.
        return [0, len(tokens)] if self.form == "matrix" else super()._default_window(tokens)

    @property
    def compared(self) -> Comparison:
        """Comparison that is shown."""
        return self._compared

    @property
    def record(self) -> AttentionRecord:
        """Record of the first member, aligned with the tokens of the other members."""
        return self._record

    @record.setter
    def record(self, record: AttentionRecord) -> None:
        del record
        raise TypeError(
            "the records of a CompareView cannot be replaced. Create a new view with "
            "attnviz.show_compare_view(a, b)."
        )

    def resolve_number(self, name: str, value: Any) -> Any:
        """Replace the text of a token by its position, as in other views.

        Texts are also looked up in each member: "he" and "she" find the label ``he→she``.

        Parameters
        ----------
        name : str
            Name of the trait.
        value : object
            Value that the caller passed.

        Returns
        -------
        object
            Position of the token, or the value if it is not a text.

        Examples
        --------
        >>> view.resolve_number("token", "she")    # doctest: +SKIP
        1
        """
        if name in ("token", "key") and isinstance(value, str):
            side = "query_tokens" if name == "token" else "key_tokens"
            members = self._described["stacks"][self.stack]["members"]
            stacks = [self._stack_named(self.stack), *(self._members.stack(one) for one in members)]
            positions = {at for stack in stacks for at in getattr(stack, side).positions(value)}
            if positions:
                with as_trait_errors():
                    return only_position(sorted(positions), value, name)
        return super().resolve_number(name, value)

    def _opening(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the head at which the view opens, with its distance and rounding error.

        This is the head whose distance exceeds its rounding error most. Return None if the caller
        chose a layer or heads, if no distance exceeds its rounding error, or if the initial value
        of `member` is invalid.
        """
        named = {name for name, value in values.items() if value is not None}
        if named & {"layer", "heads"}:
            return None
        stack = self._stack_named(values.get("stack") or self._record.stack().name)
        return self._most_different(stack, stack.layers, _first_member(values))

    def _most_different(
        self, stack: AttentionStack, layers: Iterable[int], member: int
    ) -> dict[str, Any] | None:
        """Return the head that differs most, as a dict with the entries of the trait `opening`.

        This is the head, in `layers`, for which the distance of `member` from the first member
        exceeds its rounding error most. Return None if no distance exceeds its rounding error, or
        if `member` is invalid.
        """
        description = self._described["stacks"][stack.name]
        if not 0 < member < len(description["distances"]):
            return None
        best, most = None, 0.0
        for layer in layers:
            index = stack.layers.index(layer)
            rounding = description["rounding"][member]
            for head, distance in enumerate(description["distances"][member][index]):
                floor = rounding[index][head] if rounding is not None else None
                if distance is not None and distance - (floor or 0.0) > most:
                    most = distance - (floor or 0.0)
                    best = {"layer": layer, "head": head, "distance": distance, "rounding": floor}
        return None if best is None else {"stack": stack.name, "member": member, **best}

    def _first_state(self, values: dict[str, Any], stack: AttentionStack) -> dict[str, Any]:
        self._shown_member = _first_member(values)
        return super()._first_state(values, stack)

    def _default_traits(self, stack: AttentionStack, layer: int) -> dict[str, Any]:
        """Return the defaults of `heads` and `top_k`.

        `heads` contains the most different head of `layer` (see `_most_different`), or head 0 if no
        distance exceeds its rounding error. See `default_top_k` for `top_k`.
        """
        has_layer = layer in stack.layers
        most_different = (
            self._most_different(stack, [layer], self._shown_member) if has_layer else None
        )
        return {
            "heads": [0] if most_different is None else [most_different["head"]],
            "top_k": default_top_k(stack),
        }

    def _clip_heads(self) -> None:
        """Replace the chosen heads by the default if the current layer has none of them."""
        stack = self._stack_named(self.stack)
        if not set(self.heads) & set(range(stack.num_heads(self.layer))):
            self.heads = self._default_traits(stack, self.layer)["heads"]

    @property
    def file_name(self) -> str:
        """Default file name of the view without suffix: the names of the models and of the view."""
        return "-".join(filter(None, [file_stem(self._members.model), "compare-view"]))

    @property
    def served_record(self) -> AttentionRecord:
        """Record with the stacks of all members and their differences, under unique names."""
        return self._members

    def _page_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return {**state, "comparison": self._described}

    @traitlets.observe("member")
    def _remember_member(self, change: Mapping[str, Any]) -> None:
        self._shown_member = change["new"]

    @traitlets.validate("member")
    def _validate_member(self, proposal: Mapping[str, Any]) -> int:
        member: int = proposal["value"]
        first, *others = self._described["names"]
        if not 0 < member <= len(others):
            choices = ", ".join(f"{at} ({name})" for at, name in enumerate(others, 1))
            raise traitlets.TraitError(
                f"member={member!r} must be one of {choices}, which are compared with {first}"
            )
        return member


def _first_member(values: Mapping[str, Any]) -> int:
    """Return the initial value of `member`, or 0 if it is not an integer.

    No error is raised here, because the trait `member` will raise one.
    """
    member = values.get("member", 1)
    return int(member) if isinstance(member, Integral) else 0


def _model_of(comparison: Comparison) -> str:
    """Return the names of the compared models as one string, each name once.

    If there are several models, and the caller has named the members, return these names instead.
    `align_records` adds the name of a member to the name of its model. The names of members are
    removed here. The string contains at most `_MAX_NAMED_MODELS` names, and the number of further
    models.
    """
    bare = [
        member.model.removesuffix(name).removesuffix(f" ({name})")
        for member, name in zip(comparison.members, comparison.names, strict=True)
    ]
    models = [model for model in dict.fromkeys(bare) if model]
    if comparison.is_named and len(models) > 1:
        models = list(comparison.names)
    num_more = len(models) - _MAX_NAMED_MODELS
    more = f" and {num_more} more" if num_more > 0 else ""
    return ", ".join(models[:_MAX_NAMED_MODELS]) + more


def _check_comparison(comparison: object) -> None:
    from attnviz.comparison.comparison import Comparison

    if not isinstance(comparison, Comparison):
        arguments = "(record_a, record_b)" if isinstance(comparison, AttentionRecord) else ""
        raise TypeError(
            f"comparison must be a Comparison, got {type(comparison).__name__}. Create one with "
            f"attnviz.compare{arguments}."
        )


def _missing_tokens(comparison: Comparison, stack: str) -> list[dict[str, list[int]]]:
    """Return the queries and keys of a stack that each member lacks.

    The list has one dict per member. Its entry "queries" has row numbers of the compared weights,
    and its entry "keys" has column numbers. For the first member, these are the tokens that it
    lacks and member 1 has. For each other member, they are the tokens that the member lacks and the
    first member has.
    """
    pairs = [comparison.pair(member) for member in range(1, len(comparison.names))]
    sides = [dict(zip(("queries", "keys"), pair.alignment(stack), strict=True)) for pair in pairs]
    return [
        {side: np.flatnonzero(alignment.only_b).tolist() for side, alignment in sides[0].items()},
        *(
            {side: np.flatnonzero(tokens.only_a).tolist() for side, tokens in alignments.items()}
            for alignments in sides
        ),
    ]


def _describe(comparison: Comparison, shown: AttentionRecord) -> dict[str, Any]:
    """Describe a comparison for the browser, with only the stacks and layers of the record `shown`.

    Distances and rounding errors are rounded to `_DIGITS` significant digits, for a smaller page.
    The tokens that members lack are added (see `_missing_tokens`).
    """
    described = comparison.describe()
    stacks = {}
    for name, description in described["stacks"].items():
        member = description["members"][0]
        if member not in shown.stacks:
            continue
        layers = comparison.a.stack(name).layers
        indices = [layers.index(layer) for layer in shown.stack(member).layers]

        def rounded(scores: Any, indices: list[int] = indices) -> Any:
            return scores and [
                [score and float(f"{score:.{_DIGITS}g}") for score in scores[index]]
                for index in indices
            ]

        stacks[name] = {
            **description,
            "distances": [*map(rounded, description["distances"])],
            "rounding": [*map(rounded, description["rounding"])],
            "missing": _missing_tokens(comparison, name),
        }
    return {**described, "stacks": stacks}
