"""Sums of the measurements of heads over many texts.

`Totals` has the sums over a corpus, or over a part of a corpus. `StackTotals` has those of one
stack: the attention of one kind, such as "self" or "cross", in all layers. All sums are float64 or
integers. The totals of two parts of a corpus can be added, which gives the totals of both parts.

Totals also have edges. An edge is a pair of a query and a key with its weight. For each head, a
limited number of strongest edges and of randomly sampled edges is kept: those with the largest
ranks (`EdgeColumns.order`). To join edges means to collect those of several texts in one
`KeptEdges`, and to keep only this number for each head.

A system of classes, such as parts of speech, assigns at most one class to each token. The offset of
a pair is the position of its key minus the position of its query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.columns import check_column_names
from attnviz.corpus.edges import KeptEdges
from attnviz.corpus.measuring import StackMeasurements, StackText
from attnviz.utils.arguments import format_numbers, short_repr, whole_number

Numbers = NDArray[np.float64]

#: Name of the built-in system of classes, whose classes are kinds of tokens such as punctuation.
KIND = "kind"
# Maximum number of items of the tuple `StackTotals.edges`. Joining is slow, so `StackTotals.plus`
# adds the edges of new texts as items, and joins all items only if they are more than this number.
_MAX_PARTS = 64
# `StackTotals.plus` also joins when many edges were added since the last join: more than this
# number plus twice the number of edges that the last join kept.
_MAX_EDGES = 1 << 14


@dataclass(frozen=True, eq=False)
class Settings:
    """Arguments of `HeadStatistics`, documented there, that determine how texts are measured."""

    edges: int = 100
    seed: int = 0
    columns: tuple[str, ...] = ()
    frequencies: Mapping[int | str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole_number("edges", self.edges, 0, 10_000)
        whole_number("seed", self.seed, 0)
        check_column_names(self.columns)
        if KIND in self.columns or len(set(self.columns)) < len(self.columns):
            raise ValueError(
                f"columns={short_repr(list(self.columns))}: names must be distinct, and not "
                f"{KIND!r}, which is the name of the kinds of tokens"
            )

    @property
    def class_systems(self) -> tuple[str, ...]:
        """Names of the systems of classes of tokens: `KIND`, followed by the columns."""
        return (KIND, *self.columns)


@dataclass(frozen=True, eq=False)
class ClassTotals:
    """Sums of weights by class of the query and class of the key, for one system of classes.

    Attributes
    ----------
    names : tuple of str
        Names of the classes.
    weights : ndarray, (heads, classes of queries, classes of keys)
        Sum of the weights of all pairs whose query and key have these classes.
    queries : ndarray, (heads, classes)
        Number of queries of each class whose weights are not all 0.
    """

    names: tuple[str, ...]
    weights: Numbers
    queries: Numbers

    def plus(self, other: ClassTotals) -> ClassTotals:
        """Return the sum of two totals. If their classes differ, the sum has the classes of both.

        In that case the classes are sorted by name.
        """
        names = self.names
        if other.names != names:
            names = tuple(sorted({*self.names, *other.names}))
        heads, count = len(self.weights), len(names)
        total = ClassTotals(names, np.zeros((heads, count, count)), np.zeros((heads, count)))
        index_of = {name: index for index, name in enumerate(names)}
        for part in (self, other):
            indices = np.array([index_of[name] for name in part.names], np.int64)
            total.weights[:, indices[:, None], indices] += part.weights
            total.queries[:, indices] += part.queries
        return total


@dataclass(frozen=True, eq=False)
class StackTotals:
    """Sums of the measurements of a stack over texts, with edges and the tokens near them.

    Attributes
    ----------
    layers : tuple of int
        Numbers of the layers in the model.
    heads_per_layer : tuple of int
        Number of heads of each layer. The axis "heads" of the arrays has the heads of all layers,
        one layer after the other.
    causal : bool
        Whether queries can attend only to keys at the same or an earlier position.
    one_text : bool
        Whether queries and keys are the same tokens.
    linear : bool
        Whether the layers are linear, so that the weights are shares of absolute weights.
    scores : mapping of str to ndarray, (1 + NUM_BASELINES, 4, heads)
        Four sums for each score s and each baseline b. The first axis has the baselines (see
        `StackMeasurements.scores`): the number 0 in place of a baseline, which gives the sums of s
        itself, the shuffled baseline, the baseline from position, and the baseline from the key.
        The second axis has four sums over the texts in which s and b are defined: the number of
        these texts, the sum of b, the sum of s - b, and the sum of (s - b)**2.
    offsets : ndarray, (2, heads, offsets)
        By offset, sums of weights (first item), and the numbers by which they are divided to get
        means (second item). See `offsets` and `offset_counts` of `StackMeasurements`.
    classes : mapping of str to ClassTotals
        For each system of classes, sums of weights by class.
    edges : tuple of KeptEdges
        Strongest edges, randomly sampled edges, and the tokens near them. The first item has the
        edges that the last join kept. The other items have the edges of texts that were added
        later.
    """

    layers: tuple[int, ...]
    heads_per_layer: tuple[int, ...]
    causal: bool
    one_text: bool
    linear: bool
    scores: Mapping[str, Numbers]
    offsets: Numbers
    classes: Mapping[str, ClassTotals]
    edges: tuple[KeptEdges, ...]

    @property
    def num_heads(self) -> int:
        return sum(self.heads_per_layer)

    def plus(self, other: StackTotals, max_edges: int) -> StackTotals:
        """Return the totals of the texts of `self` and `other`. No text may be in both.

        If there are many edges (`_MAX_PARTS`, `_MAX_EDGES`), join them and keep at most `max_edges`
        of each kind (strongest and sampled) for each head. Otherwise keep all edges.
        """
        scores = dict(self.scores)
        for name, sums in other.scores.items():
            scores[name] = scores[name] + sums if name in scores else sums
        total = replace(
            self,
            causal=self.causal and other.causal,
            scores=scores,
            offsets=self.offsets + other.offsets,
            classes={
                system: classes.plus(other.classes[system])
                for system, classes in self.classes.items()
            },
            edges=(*self.edges, *other.edges),
        )
        # Join all items if there are more than `_MAX_PARTS`. Also join fewer items if they have
        # many edges, because a join raises the rank that new edges need (`Totals.min_orders`).
        # Edges of later texts with a smaller rank are ignored, so fewer edges are added.
        num_collected = sum(map(len, total.edges[1:]))
        if len(total.edges) > _MAX_PARTS or num_collected > _MAX_EDGES + 2 * len(self.edges[0]):
            return total.settled(max_edges)
        return total

    def settled(self, max_edges: int) -> StackTotals:
        """Return the same totals with all items of `edges` joined to one.

        At most `max_edges` edges of each kind (strongest and sampled) are kept for each head.
        Scores are sorted by name. Except for rounding, the result does not depend on the order in
        which texts were added.
        """
        return replace(
            self,
            scores={name: self.scores[name] for name in sorted(self.scores)},
            edges=(KeptEdges.joined(self.edges, max_edges),),
        )


def totals_of_texts(numbers: StackMeasurements, texts: Sequence[StackText]) -> StackTotals:
    """Convert the measurements `numbers` of a stack in some texts to totals.

    The attribute `edges` of the result has all tokens of the texts, also tokens that are not near
    an edge.
    """
    first = texts[0]
    stack, same_tokens = first.stack, first.keys is first.queries
    edges = KeptEdges.of_texts(
        {
            text.text: [facts.tokens for facts in dict.fromkeys((text.queries, text.keys))]
            for text in texts
        },
        numbers.strongest,
        numbers.sampled,
        num_heads=sum(stack.heads_per_layer),
    )
    return StackTotals(
        layers=stack.layers,
        heads_per_layer=stack.heads_per_layer,
        causal=all(text.stack.causal for text in texts),
        one_text=same_tokens,
        linear=stack.linear,
        scores=_sums_of_scores(numbers.scores),
        offsets=np.stack([numbers.offsets.sum(axis=0), numbers.offset_counts.sum(axis=0)]),
        classes={
            system: ClassTotals(
                first.queries.names[system],
                weights.sum(axis=0),
                numbers.class_counts[system].sum(axis=0, dtype=np.float64),
            )
            for system, weights in numbers.classes.items()
        },
        edges=(edges,),
    )


def _sums_of_scores(scores: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Return four sums over texts for each score and baseline, (1 + NUM_BASELINES, 4, heads).

    The sums are the number of texts, the sum of b, of s - b, and of (s - b)**2, as in
    `StackTotals.scores`. `scores` has an array (texts, 1 + NUM_BASELINES, heads) for each score
    (`StackMeasurements.scores`). Its second axis has the score s itself, and its baselines. For the
    score itself, b is 0.
    """
    values = np.stack(list(scores.values()))
    baselines = values.copy()
    baselines[:, :, 0] = 0
    over = values[:, :, :1] - baselines
    defined = np.isfinite(over)
    over, baselines = np.where(defined, over, 0), np.where(defined, baselines, 0)
    terms = (defined, baselines, over, over**2)
    sums = np.stack([term.sum(axis=1, dtype=np.float64) for term in terms], axis=2)
    return dict(zip(scores, sums, strict=True))


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over the texts of a corpus or of a part of it.

    To add a text, `plus` makes a new object and does not change `self`. Therefore, after an
    interrupt, a text is either added completely or not at all.

    Attributes
    ----------
    settings : Settings
        Settings with which the texts were measured.
    model : str or None
        Name of the model. None if no record was added and the user passed no name.
    weights : str
        Hash of the weights of the model, or "" if the hash is not known.
    texts : tuple of (int, int)
        Indices of all texts, read or left out, as ascending half-open ranges (start, stop).
    tokens : int
        Number of tokens of the texts that were read.
    empty, too_long : int
        Numbers of texts that were left out because they are empty, or too long for the model.
    remarks : tuple of str
        Sentences for readers of the statistics, for example on layers that the records do not have.
    stacks : mapping of str to StackTotals
        Sums of each stack, by name, in the order in which the stacks were first added.
    """

    settings: Settings
    model: str | None = None
    weights: str = ""
    texts: tuple[tuple[int, int], ...] = ()
    tokens: int = 0
    empty: int = 0
    too_long: int = 0
    remarks: tuple[str, ...] = ()
    stacks: Mapping[str, StackTotals] = field(default_factory=dict)

    @property
    def num_texts(self) -> int:
        """Number of texts that were read."""
        return self.num_added - self.empty - self.too_long

    @property
    def num_added(self) -> int:
        """Number of texts that were read or left out."""
        return sum(stop - start for start, stop in self.texts)

    def settled(self) -> Totals:
        """Return the same totals with the edges of each stack joined (`StackTotals.settled`)."""
        stacks = {name: stack.settled(self.settings.edges) for name, stack in self.stacks.items()}
        return replace(self, stacks=stacks)

    def min_orders(
        self, name: str, num_heads: int
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the smallest rank that a new edge of each head of a stack needs to be kept.

        The first array, (heads,), is for strongest edges, and the second for sampled edges. Edges
        with a smaller rank (`EdgeColumns.order`) can be ignored. There are two special cases:

        - The rank is 0 if these totals do not have the stack `name`, or if the stack does not have
          `num_heads` heads. In the second case, `plus` raises an error later.
        - The rank is the largest uint64 if `settings.edges` is 0, so that nearly all edges are
          ignored. Edges with exactly this rank are rare, and the next join drops them.
        """
        if not self.settings.edges:
            none_kept = np.full(num_heads, np.iinfo(np.uint64).max, np.uint64)
            return none_kept, none_kept
        stack = self.stacks.get(name)
        if stack is None or stack.num_heads != num_heads:
            return np.zeros(num_heads, np.uint64), np.zeros(num_heads, np.uint64)
        return stack.edges[0].min_orders

    def renumbered(self, by: int) -> Totals:
        """Return the same totals with `by` added to the index of each text."""
        return replace(
            self,
            texts=tuple((start + by, stop + by) for start, stop in self.texts),
            stacks={
                name: replace(stack, edges=tuple(part.renumbered(by) for part in stack.edges))
                for name, stack in self.stacks.items()
            },
        )

    def plus(self, other: Totals) -> Totals:
        """Return the totals of the texts of `self` and `other`, with the settings of `self`.

        Raise ValueError if a text index is in both, if a stack has different layers or numbers of
        heads, or if one of the `compared_arguments` differs. These are the name of the model, the
        hash of its weights, and all settings except `frequencies`.
        """
        for name, (first, second) in compared_arguments(self, other).items():
            if first != second:
                raise ValueError(
                    f"the statistics or the record differ in {name}: {short_repr(first)} and "
                    f"{short_repr(second)}. Add only statistics and records with the same {name}."
                )
        for name in self.stacks.keys() & other.stacks.keys():
            first, second = self.stacks[name], other.stacks[name]
            if (first.layers, first.heads_per_layer) != (second.layers, second.heads_per_layer):
                raise ValueError(
                    f"stack {name!r} has layers {format_numbers(first.layers)} with "
                    f"{first.num_heads} heads, and layers {format_numbers(second.layers)} with "
                    f"{second.num_heads} heads. Use the same model and layers=."
                )
        stacks, max_edges = dict(self.stacks), self.settings.edges
        for name, added in other.stacks.items():
            stack = stacks.get(name)
            stacks[name] = (
                added.settled(max_edges) if stack is None else stack.plus(added, max_edges)
            )
        return Totals(
            self.settings,
            other.model if self.model is None else self.model,
            self.weights or other.weights,
            join_ranges(self.texts, other.texts),
            self.tokens + other.tokens,
            self.empty + other.empty,
            self.too_long + other.too_long,
            tuple(dict.fromkeys([*self.remarks, *other.remarks])),
            stacks,
        )


def compared_arguments(first: Totals, second: Totals) -> dict[str, tuple[Any, Any]]:
    """Return the values that must be equal in two totals that are added, by argument name.

    Each item has the value in `first` and the value in `second`. The names of the models are left
    out unless both are known. The hashes of their weights are left out unless both are known.
    """
    pairs: dict[str, tuple[Any, Any]] = {
        name: (getattr(first.settings, name), getattr(second.settings, name))
        for name in ("edges", "seed", "columns")
    }
    if first.model and second.model:
        pairs["model"] = first.model, second.model
    if first.weights and second.weights:
        pairs["weights of the model"] = first.weights, second.weights
    return pairs


def join_ranges(
    first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Merge two lists of half-open ranges (start, stop) into one sorted list.

    Adjacent ranges, such as (0, 3) and (3, 5), become one. Raise ValueError if two ranges overlap.
    """
    joined: list[tuple[int, int]] = []
    for start, stop in sorted([*first, *second]):
        if joined and start < joined[-1][1]:
            raise ValueError(
                f"text={start} was already added. Pass a different number for each text."
            )
        if joined and start == joined[-1][1]:
            joined[-1] = joined[-1][0], stop
        else:
            joined.append((start, stop))
    return tuple(joined)
