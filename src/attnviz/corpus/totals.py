"""Totals: sums of the measurements of a stack over many texts.

Totals are integers, so that their sum is exact and does not depend on the order of the texts. A
score x of one text is stored as round(x * 2**32), and a sum of weights x as round(x * 2**28).
`StackTotals` can have the totals of one text or of many texts. `StackTotals.plus` adds two of them.

Totals also have edges, pairs of a query and a key with their weight (`attnviz.corpus.edges`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.edges import KeptEdges, TokenCodes
from attnviz.corpus.measuring import StackNumbers, TokenFacts

__all__ = [
    "FIELDS",
    "StackTotals",
    "Tables",
    "to_floats",
    "totals_of_text",
]

Whole = NDArray[np.int64]
Numbers = NDArray[np.float64]

#: Names of the sums of each score. The first line has the number of texts, the sum of the scores,
#: and the sum of the squared scores. Each other line belongs to a baseline. It has the number of
#: texts, the sum of the baselines, the sum of the differences (score minus baseline), and the sum
#: of the squared differences.
FIELDS = (
    *("texts", "sum", "squares"),
    *("shuffled texts", "shuffled sum", "over shuffled", "squares over shuffled"),
    *("position texts", "position sum", "over position", "squares over position"),
)
_SCALE = 1 << 32
_PAIR_SCALE = 1 << 28


@dataclass(frozen=True, eq=False)
class Tables:
    """Sums of weights by the classes of query and key, for one system of classes.

    Attributes
    ----------
    names : tuple of str
        Names of the classes.
    sums : ndarray of int64, (heads, classes, classes)
        Sums of weights by class of query and class of key.
    counts : ndarray of int64, (heads, classes)
        Number of queries of each class whose weights are not all 0.
    """

    names: tuple[str, ...]
    sums: Whole
    counts: Whole

    def plus(self, other: Tables) -> Tables:
        """Return the sum of two tables. If the classes differ, the sum has all of them, sorted."""
        if self.names == other.names:
            return Tables(
                self.names,
                add_exactly(self.sums, other.sums),
                add_exactly(self.counts, other.counts),
            )
        names = tuple(sorted({*self.names, *other.names}))
        first, second = self._with_names(names), other._with_names(names)
        return Tables(
            names, add_exactly(first.sums, second.sums), add_exactly(first.counts, second.counts)
        )

    def _with_names(self, names: tuple[str, ...]) -> Tables:
        indices = np.array([names.index(name) for name in self.names], np.int64)
        sums = np.zeros((len(self.sums), len(names), len(names)), np.int64)
        counts = np.zeros((len(self.sums), len(names)), np.int64)
        if len(indices):
            sums[:, indices[:, None], indices] = self.sums
            counts[:, indices] = self.counts
        return Tables(names, sums, counts)


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
    scores : mapping of str to ndarray of int64, (fields, heads)
        Sums of each score. The rows are listed in `FIELDS`.
    offsets, offset_counts : ndarray of int64, (heads, offsets)
        Sums of the `offsets` and the `offset_counts` of `StackNumbers`.
    tables : mapping of str to Tables
        For each system of classes, sums of weights by class.
    edges : KeptEdges
        Strongest edges and randomly sampled edges, with the tokens near them.
    """

    layers: tuple[int, ...]
    heads_per_layer: tuple[int, ...]
    causal: bool
    one_text: bool
    scores: Mapping[str, Whole]
    offsets: Whole
    offset_counts: Whole
    tables: Mapping[str, Tables]
    edges: KeptEdges

    @property
    def num_heads(self) -> int:
        return sum(self.heads_per_layer)

    def plus(self, other: StackTotals) -> StackTotals:
        """Return the totals of the texts of `self` and `other`."""
        scores = dict(self.scores)
        for name, numbers in other.scores.items():
            scores[name] = add_exactly(scores[name], numbers) if name in scores else numbers
        tables = dict(self.tables)
        for name, table in other.tables.items():
            tables[name] = tables[name].plus(table) if name in tables else table
        return replace(
            self,
            causal=self.causal and other.causal,
            scores=scores,
            offsets=add_exactly(self.offsets, other.offsets),
            offset_counts=add_exactly(self.offset_counts, other.offset_counts),
            tables=tables,
            edges=self.edges.plus(other.edges),
        )

    def renumbered(self, by: int) -> StackTotals:
        """Return equal totals with `by` added to each text index."""
        return replace(self, edges=self.edges.renumbered(by))

    def canonical(self) -> StackTotals:
        """Return equal totals that do not depend on the order in which texts were added."""
        names = [table.names for table in self.tables.values()]
        return replace(
            self,
            scores={name: self.scores[name] for name in sorted(self.scores)},
            edges=self.edges.settled().with_class_names(names),
        )


def add_exactly(first: Whole, second: Whole) -> Whole:
    """Return the sum of two arrays. Raise OverflowError if a sum does not fit into 64 bits."""
    total = first + second
    # A sum has overflowed if its sign differs from the sign of both summands.
    if (((first ^ total) & (second ^ total)) < 0).any():
        raise OverflowError("too many texts: their sums do not fit into 64 bits")
    return total


def to_floats(sums: Whole, *, pairs: bool = False) -> Numbers:
    """Convert integer sums back to floats. Pass `pairs=True` for sums of weights."""
    return sums / (_PAIR_SCALE if pairs else _SCALE)


def totals_of_text(
    numbers: StackNumbers,
    *,
    layers: tuple[int, ...],
    heads_per_layer: tuple[int, ...],
    causal: bool,
    sides: Sequence[TokenFacts],
    text: int,
    edges: int,
) -> StackTotals:
    """Convert the measurements of one text to totals.

    `sides` has one item if queries and keys are the same tokens, otherwise the query tokens and the
    key tokens. `edges` is the maximum number of kept edges of a head.
    """
    return StackTotals(
        layers=layers,
        heads_per_layer=heads_per_layer,
        causal=causal,
        one_text=len(sides) == 1,
        scores=_fields(numbers.scores),
        offsets=_to_integers(numbers.offsets, _PAIR_SCALE),
        offset_counts=numbers.offset_counts,
        tables={
            name: Tables(
                sides[0].names[name],
                _to_integers(sums, _PAIR_SCALE),
                numbers.class_counts[name],
            )
            for name, sums in numbers.classes.items()
        },
        edges=KeptEdges.of_text(
            text,
            numbers.strongest,
            numbers.sampled,
            [
                TokenCodes(facts.tokens.text, [*facts.classes.values()], [*facts.names.values()])
                for facts in sides
            ],
            max_edges=edges,
            num_heads=sum(heads_per_layer),
        ),
    )


def _fields(scores: Mapping[str, Numbers]) -> dict[str, Whole]:
    """Compute the sums `FIELDS` of each score of one text, (fields, heads).

    `scores` has arrays (3, heads): the score, the shuffled baseline, and the position baseline.
    """
    values = np.stack(list(scores.values()))
    score = values[:, 0]
    fields = np.empty((len(values), len(FIELDS), values.shape[2]), np.int64)
    fields[:, 0], fields[:, 1], fields[:, 2] = (
        np.isfinite(score),
        _to_integers(score),
        _to_integers(score**2),
    )
    baselines = values[:, 1:]
    over = score[:, None] - baselines
    defined = np.isfinite(over)
    fields[:, 3::4], fields[:, 4::4] = defined, _to_integers(np.where(defined, baselines, 0))
    fields[:, 5::4], fields[:, 6::4] = _to_integers(over), _to_integers(over**2)
    return dict(zip(scores, fields, strict=True))


def _to_integers(values: Numbers, scale: int = _SCALE) -> Whole:
    """Multiply numbers by `scale` and round them to integers. Convert NaN to 0."""
    scaled = np.rint(np.where(np.isnan(values), 0.0, values) * scale)
    if not (np.abs(scaled) < 2.0**62).all():
        raise OverflowError("a number is too large to be added")
    integers: Whole = scaled.astype(np.int64)
    return integers
