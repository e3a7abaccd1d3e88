"""Sums of the measurements of heads over many texts.

`Totals` has the sums of a corpus, or of a part of a corpus, and `StackTotals` those of one stack.
All numbers are float64 or integers, and the totals of two parts add to the totals of both.

Totals also have edges. An edge is a pair of a query and a key with its weight. Each head keeps a
limited number of edges.

A system of classes, such as parts of speech, assigns at most one class to each token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.measures import TokenFacts
from attnviz.corpus.columns import check_column_names
from attnviz.corpus.edges import KeptEdges, TokenCodes
from attnviz.corpus.measuring import StackNumbers
from attnviz.utils.arguments import format_numbers, short_repr, whole_number

Numbers = NDArray[np.float64]

#: Name of the built-in system of classes, whose classes are kinds of tokens.
KIND = "kind"
# Joining edges is slow, so the edges of newly added texts are first collected in parts. All parts
# are joined if there are more than `_MAX_PARTS` parts, or if the collected edges are more than
# `_MAX_EDGES` plus twice the edges that the last join kept.
_MAX_PARTS = 64
_MAX_EDGES = 1 << 14


@dataclass(frozen=True, eq=False)
class Settings:
    """Settings of head statistics, which are arguments of `HeadStatistics`."""

    edges: int = 100
    seed: int = 0
    columns: tuple[str, ...] = ()
    frequencies: Mapping[int | str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError if a setting is invalid."""
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
        """Names of the systems of classes of tokens."""
        return (KIND, *self.columns)


@dataclass(frozen=True, eq=False)
class ClassTotals:
    """Sums of weights by the classes of query and key, for one system of classes.

    Attributes
    ----------
    names : tuple of str
        Names of the classes.
    weights : ndarray, (heads, classes, classes)
        Sums of weights by class of query and class of key.
    queries : ndarray, (heads, classes)
        Number of queries of each class whose weights are not all 0.
    """

    names: tuple[str, ...]
    weights: Numbers
    queries: Numbers

    def plus(self, other: ClassTotals) -> ClassTotals:
        """Return the sum. If the two have different classes, the sum has all of them, sorted."""
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
        Number of heads of each layer. The heads of all layers form one axis of the arrays.
    causal : bool
        Whether queries can attend only to keys at the same or an earlier position.
    one_text : bool
        Whether queries and keys are the same tokens.
    scores : mapping of str to ndarray, (3, 4, heads)
        Sums of each score over the texts that define it. The first axis has 0, which stands for the
        score itself, and two baselines: with shuffled keys, and from position. The second axis has
        the number of texts, and the sums of the baseline, of the score minus the baseline, and of
        the square of this difference.
    offsets : ndarray, (2, heads, offsets)
        Sums of weights, and numbers of pairs, by offset (`StackNumbers.offsets`).
    classes : mapping of str to ClassTotals
        For each system of classes, sums of weights by class.
    edges : tuple of KeptEdges
        Strongest edges, randomly sampled edges, and the tokens near them. The first item has the
        edges that the last join kept. Each other item has the edges of texts that were added after
        it. `settled` joins all items to one.
    """

    layers: tuple[int, ...]
    heads_per_layer: tuple[int, ...]
    causal: bool
    one_text: bool
    scores: Mapping[str, Numbers]
    offsets: Numbers
    classes: Mapping[str, ClassTotals]
    edges: tuple[KeptEdges, ...]
    # Number of edges in all items of `edges` except the first.
    num_unsettled: int = 0

    @property
    def num_heads(self) -> int:
        return sum(self.heads_per_layer)

    def plus(self, other: StackTotals, max_edges: int) -> StackTotals:
        """Return the totals of the texts of `self` and `other`, which have different texts.

        At most `max_edges` strongest edges, and as many sampled edges, of each head are kept.
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
            num_unsettled=self.num_unsettled + sum(map(len, other.edges)),
        )
        # Join the edges only if there are many, because this is slow. After that, edges of later
        # texts that cannot be kept are ignored (`Totals.min_orders`).
        max_unsettled = _MAX_EDGES + 2 * len(self.edges[0])
        is_small = len(total.edges) <= _MAX_PARTS and total.num_unsettled <= max_unsettled
        return total if is_small else total.settled(max_edges)

    def settled(self, max_edges: int) -> StackTotals:
        """Return equal totals in which `edges` is joined to one item.

        Except for rounding, the result does not depend on the order in which texts were added.
        """
        edges = KeptEdges.joined(self.edges, max_edges)
        names = [classes.names for classes in self.classes.values()]
        return replace(
            self,
            scores={name: self.scores[name] for name in sorted(self.scores)},
            edges=(edges.with_class_names(names),),
            num_unsettled=0,
        )


def totals_of_text(
    numbers: StackNumbers,
    *,
    layers: tuple[int, ...],
    heads_per_layer: tuple[int, ...],
    causal: bool,
    sides: Sequence[TokenFacts],
    text: int,
) -> StackTotals:
    """Convert the measurements of one text to totals, which have all tokens of the text.

    `sides` has one item if queries and keys are the same tokens, otherwise the query tokens and the
    key tokens.
    """
    edges = KeptEdges.of_text(
        text,
        numbers.strongest,
        numbers.sampled,
        [
            TokenCodes(facts.tokens.text, [*facts.classes.values()], [*facts.names.values()])
            for facts in sides
        ],
        num_heads=sum(heads_per_layer),
    )
    return StackTotals(
        layers=layers,
        heads_per_layer=heads_per_layer,
        causal=causal,
        one_text=len(sides) == 1,
        scores=_sums_of_scores(numbers.scores),
        offsets=np.stack([numbers.offsets, numbers.offset_counts]),
        classes={
            system: ClassTotals(
                sides[0].names[system], weights, numbers.class_counts[system].astype(np.float64)
            )
            for system, weights in numbers.classes.items()
        },
        edges=(edges,),
    )


def _sums_of_scores(scores: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Return the sums of each score for one text, (3, 4, heads), as in `StackTotals.scores`.

    `scores` has arrays (3, heads): the score, the shuffled baseline, and the position baseline.
    """
    values = np.stack(list(scores.values()))
    baselines = values.copy()
    baselines[:, 0] = 0
    over = values[:, :1] - baselines
    defined = np.isfinite(over)
    over, baselines = np.where(defined, over, 0), np.where(defined, baselines, 0)
    sums = np.stack([defined, baselines, over, over**2], axis=2)
    return dict(zip(scores, sums, strict=True))


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over the texts of a corpus or of a part of it.

    To add a text, the whole object is replaced. Therefore an interrupt cannot leave a text that is
    only partly added.

    Attributes
    ----------
    settings : Settings
        Settings with which the texts were measured.
    model : str or None
        Name of the model.
    weights : str
        Hash of the weights of the model, or "" if the hash is not known.
    texts : tuple of (int, int)
        Indices of all texts, read or left out, as ascending half-open ranges (start, stop).
    tokens : int
        Number of tokens of the texts that were read.
    empty, too_long : int
        Numbers of texts that were left out.
    remarks : tuple of str
        Sentences for readers, for example on layers that the records do not show.
    stacks : mapping of str to StackTotals
        Sums of each stack, in the order of the records.
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
        return sum(stop - start for start, stop in self.texts) - self.empty - self.too_long

    def settled(self) -> Totals:
        """Return equal totals in which the edges of each stack are joined."""
        stacks = {name: stack.settled(self.settings.edges) for name, stack in self.stacks.items()}
        return replace(self, stacks=stacks)

    def min_orders(
        self, name: str, num_heads: int
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return, for each head of a stack, the smallest `order` of a new edge that could be kept.

        The two arrays, (heads,), are for strongest edges and sampled edges.
        """
        if not self.settings.edges:
            none_kept = np.full(num_heads, np.iinfo(np.uint64).max, np.uint64)
            return none_kept, none_kept
        stack = self.stacks.get(name)
        if stack is None or stack.num_heads != num_heads:
            return np.zeros(num_heads, np.uint64), np.zeros(num_heads, np.uint64)
        return stack.edges[0].min_orders

    def renumbered(self, by: int) -> Totals:
        """Return a copy with `by` added to each text index."""
        return replace(
            self,
            texts=tuple((start + by, stop + by) for start, stop in self.texts),
            stacks={
                name: replace(stack, edges=tuple(part.renumbered(by) for part in stack.edges))
                for name, stack in self.stacks.items()
            },
        )

    def plus(self, other: Totals) -> Totals:
        """Return the sum, which has the settings of `self`.

        Raise ValueError if the two have a common text, or another model or other settings.
        """
        self._check_same(other)
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

    def _check_same(self, other: Totals) -> None:
        pairs = {
            name: (getattr(self.settings, name), getattr(other.settings, name))
            for name in ("edges", "seed", "columns")
        }
        # Compare the models, and their weights, only if both are known.
        if self.model and other.model:
            pairs["model"] = self.model, other.model
        if self.weights and other.weights:
            pairs["weights of the model"] = self.weights, other.weights
        for name, (first, second) in pairs.items():
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


def join_ranges(
    first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Return the union of two lists of half-open ranges, sorted and with adjacent ranges joined.

    Raise ValueError if two ranges overlap.
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
