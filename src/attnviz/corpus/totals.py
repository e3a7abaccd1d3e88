"""Totals: sums of the measurements of a stack over many texts.

Totals are integers, so that their sum is exact and does not depend on the order of the texts. A
score x of one text is stored as round(x * 2**32), and a sum of weights x as round(x * 2**28).
`StackTotals` can have the totals of one text or of many texts. `StackTotals.plus` adds two of them.

Totals also have edges. An edge is a pair of a query and a key with its weight. Each head keeps a
limited number of edges, those with the largest `order`. The tokens near these edges are kept, too.
The edges of a new text are candidates until the edges to keep are selected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.edges import EdgeColumns, largest_per_head
from attnviz.corpus.measuring import StackNumbers, TokenFacts

__all__ = [
    "FIELDS",
    "KeptTokens",
    "Pool",
    "StackTotals",
    "Tables",
    "positions_near",
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
# Number of tokens that are kept before and after the query and the key of an edge.
_WINDOW = 6
# The edges to keep are selected when the candidates of all heads exceed this number plus twice the
# number of kept edges.
_MAX_CANDIDATES = 1 << 14


@dataclass(frozen=True)
class KeptTokens:
    """Tokens of one text that are near an edge.

    Attributes
    ----------
    positions : tuple of int
        Positions of the tokens in the text, in ascending order.
    tokens : tuple of str
        The tokens.
    classes : tuple of tuple of str
        For each system of classes, the class of each token, or "" for no class.
    """

    positions: tuple[int, ...]
    tokens: tuple[str, ...]
    classes: tuple[tuple[str, ...], ...]

    def select(self, flags: NDArray[np.bool_]) -> KeptTokens:
        """Return the tokens whose flag is set."""
        if flags.all():
            return self
        indices = np.flatnonzero(flags).tolist()
        return KeptTokens(
            tuple(self.positions[index] for index in indices),
            tuple(self.tokens[index] for index in indices),
            tuple(tuple(system[index] for index in indices) for system in self.classes),
        )


@dataclass(frozen=True, eq=False)
class Pool:
    """Edges of all heads of a stack: the kept edges, and candidates.

    Attributes
    ----------
    max_edges : int
        Maximum number of kept edges of a head.
    num_heads : int
        Number of heads.
    kept : EdgeColumns
        The kept edges, sorted by head. The edges of a head are sorted by descending `order`.
    candidates : tuple of EdgeColumns
        Edges that were not compared with the kept edges yet. `settled` compares them.
    """

    max_edges: int
    num_heads: int
    kept: EdgeColumns
    candidates: tuple[EdgeColumns, ...] = ()

    @cached_property
    def min_orders(self) -> NDArray[np.uint64]:
        """Smallest `order` with which an edge of each head could be kept, (heads,)."""
        counts = np.bincount(self.kept.head, minlength=self.num_heads)
        orders = np.zeros(self.num_heads, np.uint64)
        if self.max_edges:
            full = counts >= self.max_edges
            orders[full] = self.kept.order[np.cumsum(counts)[full] - 1]
        else:
            orders[:] = np.iinfo(np.uint64).max
        return orders

    @property
    def num_candidates(self) -> int:
        return sum(map(len, self.candidates))

    def plus(self, other: Pool) -> Pool:
        """Return a pool in which all edges of `other` are additional candidates."""
        candidates = [*self.candidates, *other.candidates]
        candidates += [other.kept] if len(other.kept) else []
        return replace(self, candidates=tuple(candidates))

    def renumbered(self, by: int) -> Pool:
        """Return a pool of the same edges with `by` added to each text index."""
        candidates = tuple(edges.renumbered(by) for edges in self.candidates)
        return replace(self, kept=self.kept.renumbered(by), candidates=candidates)

    def settled(self) -> Pool:
        """Return a pool without candidates, which keeps the edges with the largest `order`."""
        if not self.candidates:
            return self
        best = largest_per_head([self.kept, *self.candidates], self.max_edges, self.num_heads)
        return Pool(self.max_edges, self.num_heads, best)


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
    strongest, sampled : Pool
        Strongest edges and randomly sampled edges.
    tokens : tuple of tuple of mappings
        Tokens near edges. The outer tuple has one item if queries and keys are the same tokens,
        otherwise one item for queries and one for keys. An item is a tuple of mappings of text
        indices to tokens. `settled` joins these mappings.
    """

    layers: tuple[int, ...]
    heads_per_layer: tuple[int, ...]
    causal: bool
    one_text: bool
    scores: Mapping[str, Whole]
    offsets: Whole
    offset_counts: Whole
    tables: Mapping[str, Tables]
    strongest: Pool
    sampled: Pool
    tokens: tuple[tuple[Mapping[int, KeptTokens], ...], ...]
    # Largest number of tokens that `settled` has kept so far.
    num_tokens: int = field(default=0, compare=False)

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
        total = replace(
            self,
            causal=self.causal and other.causal,
            scores=scores,
            offsets=add_exactly(self.offsets, other.offsets),
            offset_counts=add_exactly(self.offset_counts, other.offset_counts),
            tables=tables,
            strongest=self.strongest.plus(other.strongest),
            sampled=self.sampled.plus(other.sampled),
            tokens=tuple(
                (*own_tokens, *other_tokens)
                for own_tokens, other_tokens in zip(self.tokens, other.tokens, strict=True)
            ),
        )
        num_candidates = total.strongest.num_candidates + total.sampled.num_candidates
        max_candidates = _MAX_CANDIDATES + 2 * (len(self.strongest.kept) + len(self.sampled.kept))
        # Select the edges to keep when there are many candidates, or tokens of many texts. After
        # that, edges of later texts with an `order` below `min_orders` do not become candidates.
        return (
            total.settled()
            if num_candidates > max_candidates or len(total.tokens[0]) > 64
            else total
        )

    def renumbered(self, by: int) -> StackTotals:
        """Return equal totals with `by` added to each text index."""
        return replace(
            self,
            strongest=self.strongest.renumbered(by),
            sampled=self.sampled.renumbered(by),
            tokens=tuple(
                tuple({text + by: kept for text, kept in part.items()} for part in side)
                for side in self.tokens
            ),
        )

    def settled(self) -> StackTotals:
        """Return totals without candidates.

        Keep only the edges of each head with the largest `order`, and the tokens of texts with such
        edges. If more than ``2 * num_tokens + 4096`` tokens remain, also drop the tokens that are
        not near one of these edges.
        """
        if not (self.strongest.candidates or self.sampled.candidates) and len(self.tokens[0]) <= 1:
            return self
        strongest, sampled = self.strongest.settled(), self.sampled.settled()
        edges = EdgeColumns.joined([strongest.kept, sampled.kept])
        texts = set(np.unique(edges.text).tolist())
        tokens: list[dict[int, KeptTokens]] = [
            {
                text: text_tokens
                for part in parts
                for text, text_tokens in part.items()
                if text in texts
            }
            for parts in self.tokens
        ]
        num_tokens = sum(
            len(text_tokens.positions) for side in tokens for text_tokens in side.values()
        )
        if num_tokens > 2 * self.num_tokens + 4096:
            tokens = tokens_near(tokens, edges)
            num_tokens = sum(
                len(text_tokens.positions) for side in tokens for text_tokens in side.values()
            )
        return replace(
            self,
            strongest=strongest,
            sampled=sampled,
            tokens=tuple((side,) for side in tokens),
            num_tokens=max(num_tokens, self.num_tokens),
        )

    def canonical(self) -> StackTotals:
        """Return equal totals that do not depend on the order in which texts were added."""
        settled = self.settled()
        edges = EdgeColumns.joined([settled.strongest.kept, settled.sampled.kept])
        tokens = tokens_near([side[0] if side else {} for side in settled.tokens], edges)
        num_tokens = sum(
            len(text_tokens.positions) for side in tokens for text_tokens in side.values()
        )
        return replace(
            settled,
            scores={name: settled.scores[name] for name in sorted(settled.scores)},
            tokens=tuple((side,) for side in tokens),
            num_tokens=num_tokens,
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
    num_heads = sum(heads_per_layer)
    pools = []
    for candidates in (numbers.strongest, numbers.sampled):
        empty = Pool(edges, num_heads, EdgeColumns.empty())
        pools.append(replace(empty, candidates=(candidates,) if len(candidates) else ()))
    near = EdgeColumns.joined([numbers.strongest, numbers.sampled])
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
        strongest=pools[0],
        sampled=pools[1],
        tokens=tuple(
            ({text: _kept_tokens(facts, positions)},) if len(positions) else ()
            for facts, positions in zip(sides, _positions_near_edges(near, sides), strict=True)
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


def _positions_near_edges(edges: EdgeColumns, sides: Sequence[TokenFacts]) -> list[Whole]:
    """Return, for each of `sides`, the token positions of one text that are near an edge."""
    near = []
    for number, facts in enumerate(sides):
        ends = [edges.query, edges.key] if len(sides) == 1 else [(edges.query, edges.key)[number]]
        changes = np.zeros(len(facts.tokens) + 1, np.int64)
        for positions in ends:
            np.add.at(changes, np.maximum(positions - _WINDOW, 0), 1)
            np.add.at(changes, np.minimum(positions + _WINDOW + 1, len(facts.tokens)), -1)
        near.append(np.flatnonzero(np.cumsum(changes)[:-1] > 0))
    return near


def _kept_tokens(facts: TokenFacts, indices: Whole) -> KeptTokens:
    positions = indices.tolist()
    classes = []
    for system, codes in facts.classes.items():
        names = facts.names[system]
        classes.append(tuple(names[code] if code >= 0 else "" for code in codes[indices].tolist()))
    return KeptTokens(
        tuple(positions), tuple(facts.tokens.text[index] for index in positions), tuple(classes)
    )


def positions_near(positions: Iterable[int], around: Sequence[int]) -> list[int]:
    """Return those of `positions` that are at most `_WINDOW` tokens from one of `around`."""
    return [
        position
        for position in positions
        if any(abs(position - center) <= _WINDOW for center in around)
    ]


def tokens_near(tokens: Sequence[Mapping[int, KeptTokens]], edges: EdgeColumns) -> list[Any]:
    """Return only those of `tokens` that are near an edge, in the same form.

    `tokens` has one mapping of text indices to tokens if queries and keys are the same tokens,
    otherwise one for queries and one for keys. The texts of the result are in ascending order.
    """
    if not len(edges):
        return [{} for _ in tokens]
    ranked = np.argsort(edges.text, kind="stable")
    texts, starts = np.unique(edges.text[ranked], return_index=True)
    stops = [*starts[1:], len(ranked)]
    by_side: list[dict[int, KeptTokens]] = [{} for _ in tokens]
    for text, start, stop in zip(texts.tolist(), starts, stops, strict=True):
        of_text = ranked[start:stop]
        query_and_key = [edges.query[of_text], edges.key[of_text]]
        sides = [np.concatenate(query_and_key)] if len(tokens) == 1 else query_and_key
        for number, ends in enumerate(sides):
            text_tokens = tokens[number].get(text)
            if text_tokens is None:
                continue
            positions = np.array(text_tokens.positions, np.int64)
            centers = np.unique(ends)
            after = np.searchsorted(centers, positions)
            above = centers[np.minimum(after, len(centers) - 1)]
            below = centers[np.maximum(after - 1, 0)]
            distance = np.minimum(np.abs(above - positions), np.abs(below - positions))
            by_side[number][text] = text_tokens.select(distance <= _WINDOW)
    return by_side
