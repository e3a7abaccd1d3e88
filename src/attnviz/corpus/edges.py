"""Edges of many texts, with the tokens near them.

An edge is a pair of a query and a key with their attention weight. For each head, a limited number
of strongest edges and of randomly sampled edges is kept. The edges of both kinds are chosen by
their rank (`EdgeColumns.order`): those with the largest ranks are kept. The rank of a strongest
edge increases with its weight, and the rank of a sampled edge is pseudorandom. A rank depends only
on the edge and a seed. Therefore the texts can be added in any order, and the same edges are kept.

A stack is the attention of one kind, such as "self" or "cross", in all layers.

A token is near an edge if it is the query or the key, or at most `WINDOW` tokens before or after
one of them. A system of classes, such as parts of speech, assigns at most one class to each token.
The text of a token is stored as a code: an index into `KeptEdges.words`, which has each distinct
text once. Views and exported pages use the same codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.record.tokens import Tokens

_Value = TypeVar("_Value", int, str)

#: Number of tokens that are kept before and after the query and the key of an edge.
WINDOW = 6

# Constants of splitmix64, a generator of pseudorandom numbers: Steele, Lea and Flood 2014, "Fast
# splittable pseudorandom number generators".
_STEP, _MIX_1, _MIX_2 = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def hashed(state: Any, number: Any) -> Any:
    """Mix two uint64 into a pseudorandom uint64. Arrays are broadcast against each other.

    `state` is a seed or the result of another call. Chained calls mix several numbers into a seed.

    >>> int(hashed(np.uint64(0), np.uint64(0)))
    16294208416658607535
    """
    with np.errstate(over="ignore"):
        mixed = (state ^ number) + _STEP
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
        return mixed ^ (mixed >> np.uint64(31))


@dataclass(frozen=True)
class Edge:
    """A query, a key, and the weight between them.

    Attributes
    ----------
    weight : float
        The attention weight.
    text : int
        Index of the text in the corpus.
    query, key : int
        Positions of the query and the key in the text.
    query_token, key_token : str
        Texts of the query token and the key token.
    window : list of (int, str)
        Position and text of each token near the query or the key, in ascending order of position.
        In cross-attention, this list has only tokens near the key.
    query_window : list of (int, str)
        In cross-attention, position and text of each token near the query. In self-attention, the
        same list as `window`.

    Examples
    --------
    >>> window = [(0, "the"), (1, "·cat")]
    >>> Edge(0.9, 3, 1, 0, "·cat", "the", window, window).weight
    0.9
    """

    weight: float
    text: int
    query: int
    key: int
    query_token: str
    key_token: str
    window: list[tuple[int, str]]
    query_window: list[tuple[int, str]]


@dataclass(frozen=True, eq=False)
class EdgeColumns:
    """Edges of many heads, as arrays with one entry for each edge.

    Attributes
    ----------
    order : ndarray of uint64
        Rank of each edge. If a head has too many edges, those with the largest ranks are kept.
    head : ndarray of int32
        Index of the head among the heads of all layers of the stack. In the result of
        `StackStatistics.edge_columns`, index of the head in its layer.
    text : ndarray of int64
        Index of the text in the corpus.
    query, key : ndarray of int32
        Positions of the query and the key in the text.
    weight : ndarray of float32
        Attention weights.
    """

    order: NDArray[np.uint64]
    head: NDArray[np.int32]
    text: NDArray[np.int64]
    query: NDArray[np.int32]
    key: NDArray[np.int32]
    weight: NDArray[np.float32]

    @classmethod
    def of(cls, text: Any, *, order: Any, head: Any, query: Any, key: Any, weight: Any) -> Self:
        """Return edges with the given attributes, which are converted to arrays.

        `text` can also be a single index, if all edges belong to the same text.
        """
        return cls(
            np.asarray(order, np.uint64),
            np.asarray(head, np.int32),
            np.full(len(order), text, np.int64),
            np.asarray(query, np.int32),
            np.asarray(key, np.int32),
            np.asarray(weight, np.float32),
        )

    @classmethod
    def empty(cls) -> Self:
        return cls.of(0, order=[], head=[], query=[], key=[], weight=[])

    @classmethod
    def joined(cls, parts: Sequence[EdgeColumns]) -> Self:
        if not parts:
            return cls.empty()
        return cls(
            *(
                np.concatenate([getattr(part, column.name) for part in parts])
                for column in fields(cls)
            )
        )

    def of_heads(self, start: int, stop: int) -> Self:
        """Return the edges of the heads ``start`` to ``stop - 1``.

        `self` must be sorted by head.
        """
        first, last = np.searchsorted(self.head, [start, stop])
        return self[first:last]

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: Any) -> Self:
        return type(self)(*(getattr(self, column.name)[index] for column in fields(self)))


def largest_per_head(parts: Sequence[EdgeColumns], max_edges: int, num_heads: int) -> EdgeColumns:
    """Return up to `max_edges` edges of each head from all `parts`: those with the largest ranks.

    The rank is `EdgeColumns.order`. All indices of heads must be below `num_heads`. The result is
    sorted by head. The edges of a head are sorted by descending rank.
    """
    edges = EdgeColumns.joined(parts)
    # Edges of a head can have equal ranks, which is rare. Sort these edges by text, query and key,
    # so that the result does not depend on the order of the parts.
    ranked = np.lexsort((edges.key, edges.query, edges.text, ~edges.order, edges.head))
    heads = edges.head[ranked]
    starts = np.searchsorted(heads, np.arange(num_heads))
    rank = np.arange(len(ranked)) - starts[heads]
    return edges[ranked[rank < max_edges]]


@dataclass(frozen=True, eq=False)
class NearTokens:
    """Tokens near edges, as arrays with one entry for each token, sorted by text and position.

    Attributes
    ----------
    text : ndarray of int64
        Index of the text in the corpus.
    position : ndarray of int32
        Position of the token in the text.
    codes : ndarray of int32
        Code of the token's text: an index into `KeptEdges.words`.
    """

    text: NDArray[np.int64]
    position: NDArray[np.int32]
    codes: NDArray[np.int32]

    @classmethod
    def joined(cls, parts: Sequence[NearTokens]) -> Self:
        """Return the tokens of all `parts`, sorted by text and position.

        Different parts must have tokens of different texts.
        """
        order = np.argsort(np.concatenate([part.text for part in parts]), kind="stable")
        return cls(
            np.concatenate([part.text for part in parts])[order],
            np.concatenate([part.position for part in parts])[order],
            np.concatenate([part.codes for part in parts])[order],
        )

    def of_text(self, text: int) -> Self:
        first, last = np.searchsorted(self.text, [text, text + 1])
        return self[first:last]

    def near(self, texts: NDArray[np.int64], positions: NDArray[np.int32]) -> Self:
        """Return the tokens that are near one of the given positions.

        Position i is `positions[i]` in the text with the index `texts[i]`.
        """
        distinct = np.unique(self.text)
        # To search all texts at once, combine the text (upper 32 bits) and the position of each
        # token in one number. Numbers of tokens in different texts differ by more than `WINDOW`.
        # `own` has the numbers of the tokens of `self`, and `others` those of the given positions.
        own, others = (
            (np.searchsorted(distinct, text) << 32) + position
            for text, position in ((self.text, self.position), (texts, positions))
        )
        return self[_are_near(own, others)]

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.text[index], self.position[index], self.codes[index])


@dataclass(frozen=True, eq=False)
class KeptEdges:
    """Edges of all heads of a stack, in one or many texts, with the tokens near these edges.

    Attributes
    ----------
    num_heads : int
        Number of heads.
    strongest, sampled : EdgeColumns
        Strongest edges and sampled edges. In the result of `joined`, they are sorted by head, and
        the edges of a head by descending `order`.
    tokens : tuple of NearTokens
        Tokens near the edges. In the result of `of_texts`, all tokens of the texts. The tuple has
        one item if queries and keys are the same tokens, and otherwise two: query tokens and key
        tokens.
    words : tuple of str
        Distinct texts of the tokens, in the order of their first occurrence.
    max_edges : int
        Maximum number of strongest edges, and of sampled edges, of each head in the result of
        `joined`. 0 in the result of `of_texts`, which has no maximum.

    Examples
    --------
    >>> from attnviz.record.tokens import Tokens
    >>> one = EdgeColumns.of(5, order=[9], head=[0], query=[1], key=[0], weight=[0.5])
    >>> edges = KeptEdges.of_texts({5: [Tokens.of(["the", "cat"])]}, one, one, num_heads=1)
    >>> edges.words, edges.tokens[0].codes.tolist()
    (('the', 'cat'), [0, 1])
    >>> edges.edge(edges.strongest, 0).window
    [(0, 'the'), (1, 'cat')]
    """

    num_heads: int
    strongest: EdgeColumns
    sampled: EdgeColumns
    tokens: tuple[NearTokens, ...]
    words: tuple[str, ...]
    max_edges: int = 0

    @classmethod
    def of_texts(
        cls,
        sides: Mapping[int, Sequence[Tokens]],
        strongest: EdgeColumns,
        sampled: EdgeColumns,
        *,
        num_heads: int,
    ) -> KeptEdges:
        """Return the edges `strongest` and `sampled` of some texts, with all tokens of these texts.

        `sides` maps the index of each text to its tokens: one item if queries and keys are the same
        tokens, and otherwise two, the query tokens and the key tokens.
        """
        code_of: dict[str, int] = {}
        by_text = []
        for text, of_text in sides.items():
            by_text.append(
                [
                    NearTokens(
                        np.full(len(tokens), text),
                        np.arange(len(tokens), dtype=np.int32),
                        _codes(tokens.text, code_of),
                    )
                    for tokens in of_text
                ]
            )
        near = [NearTokens.joined(of_side) for of_side in zip(*by_text, strict=True)]
        return cls(num_heads, strongest, sampled, tuple(near), tuple(code_of))

    @classmethod
    def joined(cls, parts: Sequence[KeptEdges], max_edges: int) -> KeptEdges:
        """Join the edges of all `parts`, and keep those of each head with the largest ranks.

        Different parts must have edges of different texts. For each head, the result has at most
        `max_edges` edges of each kind (strongest and sampled), with the tokens near them and their
        texts.
        """
        num_heads = parts[0].num_heads
        strongest = largest_per_head([part.strongest for part in parts], max_edges, num_heads)
        sampled = largest_per_head([part.sampled for part in parts], max_edges, num_heads)
        # Give each text of a token the same code in all parts, so that the tokens can be joined.
        code_of: dict[str, int] = {}
        recoded = []
        for part in parts:
            codes = _codes(part.words, code_of)
            recoded.append([replace(side, codes=codes[side.codes]) for side in part.tokens])
        sides = [NearTokens.joined(of_side) for of_side in zip(*recoded, strict=True)]
        texts, queries, keys = (
            np.concatenate([getattr(edges, name) for edges in (strongest, sampled)])
            for name in ("text", "query", "key")
        )
        if len(sides) == 1:
            tokens = [sides[0].near(np.tile(texts, 2), np.concatenate([queries, keys]))]
        else:
            tokens = [sides[0].near(texts, queries), sides[1].near(texts, keys)]
        # Many words are only in tokens that are not near a kept edge: number the others again.
        all_words = list(code_of)
        used: dict[int, int] = {}
        tokens = [replace(side, codes=_codes(side.codes.tolist(), used)) for side in tokens]
        words = tuple(all_words[code] for code in used)
        return cls(num_heads, strongest, sampled, tuple(tokens), words, max_edges)

    @cached_property
    def min_orders(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Smallest rank that a new edge of each head needs to be kept, as two arrays, (heads,).

        The first array is for strongest edges, the second for sampled edges. If a head already has
        `max_edges` edges of this kind, the number is the smallest of their ranks
        (`EdgeColumns.order`). Otherwise it is 0, because any new edge would be kept. `self` must be
        a result of `joined`.
        """
        by_kind = []
        for edges in (self.strongest, self.sampled):
            orders = np.zeros(self.num_heads, np.uint64)
            counts = np.bincount(edges.head, minlength=self.num_heads)
            full = counts >= max(1, self.max_edges)
            orders[full] = edges.order[np.cumsum(counts)[full] - 1]
            by_kind.append(orders)
        return by_kind[0], by_kind[1]

    def renumbered(self, by: int) -> KeptEdges:
        """Return the same edges with `by` added to each text index."""
        return replace(
            self,
            strongest=replace(self.strongest, text=self.strongest.text + by),
            sampled=replace(self.sampled, text=self.sampled.text + by),
            tokens=tuple(replace(side, text=side.text + by) for side in self.tokens),
        )

    def edge(self, edges: EdgeColumns, index: int) -> Edge:
        """Return the edge `edges[index]` with the tokens near it. Indices start at 0."""
        text, query, key = (int(column[index]) for column in (edges.text, edges.query, edges.key))
        of_query, of_key = self.tokens[0].of_text(text), self.tokens[-1].of_text(text)
        one_text = len(self.tokens) == 1
        window = self._window(of_key, [query, key] if one_text else [key])
        query_window = window if one_text else self._window(of_query, [query])
        return Edge(
            weight=float(edges.weight[index]),
            text=text,
            query=query,
            key=key,
            query_token=dict(query_window)[query],
            key_token=dict(window)[key],
            window=window,
            query_window=query_window,
        )

    def _window(self, tokens: NearTokens, around: Sequence[int]) -> list[tuple[int, str]]:
        near = tokens[_are_near(tokens.position, np.array(around))]
        return [
            (position, self.words[code])
            for position, code in zip(near.position.tolist(), near.codes.tolist(), strict=True)
        ]

    def __len__(self) -> int:
        return len(self.strongest) + len(self.sampled)


def _codes(values: Sequence[_Value], code_of: dict[_Value, int]) -> NDArray[np.int32]:
    """Return the code of each of `values` in `code_of`, to which new values are added."""
    return np.array([code_of.setdefault(value, len(code_of)) for value in values], np.int32)


def _are_near(positions: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each of `positions` differs by at most `WINDOW` from one of `others`."""
    if not len(others):
        return np.zeros(len(positions), np.bool_)
    centers = np.unique(others)
    after = np.searchsorted(centers, positions)
    above = centers[np.minimum(after, len(centers) - 1)]
    below = centers[np.maximum(after - 1, 0)]
    near: NDArray[np.bool_]
    near = np.minimum(np.abs(above - positions), np.abs(below - positions)) <= WINDOW
    return near
