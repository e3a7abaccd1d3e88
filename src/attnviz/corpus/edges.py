"""Edges of many texts. An edge is a pair of a query and a key with their attention weight.

Only a limited number of edges of each head is kept: those with the largest rank. The rank of an
edge (`EdgeColumns.order`) is a number that depends only on the edge and a seed. For the strongest
edges, it increases with the weight. For sampled edges, it is pseudorandom. Therefore the same edges
are kept if the texts are added in another sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Edge", "EdgeColumns", "hashed", "largest_per_head"]

# Constants of splitmix64: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
# generators".
_STEP, _MIX_1, _MIX_2 = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def hashed(state: Any, number: Any) -> Any:
    """Mix two uint64 into a pseudorandom uint64. Arrays are broadcast.

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
        Tokens of the query and the key.
    window : list of (int, str)
        Position and token of each token near the query or the key, in ascending order of position.
        In cross-attention, tokens near the key only.
    query_window : list of (int, str)
        In cross-attention, position and token of each token near the query. In self-attention, the
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
        Rank of each edge. Edges with a larger rank are kept first.
    head : ndarray of int32
        Index of the head among the heads of all layers of the stack.
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
    def of(cls, text: int, *, order: Any, head: Any, query: Any, key: Any, weight: Any) -> Self:
        """Convert arrays of edges of the text `text` to the right dtypes."""
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

    def renumbered(self, by: int) -> Self:
        """Return the same edges with `by` added to each text index."""
        return replace(self, text=self.text + by)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: Any) -> Self:
        return type(self)(*(getattr(self, column.name)[index] for column in fields(self)))


def largest_per_head(parts: Sequence[EdgeColumns], max_edges: int, num_heads: int) -> EdgeColumns:
    """Return up to `max_edges` edges of each head: those with the largest `order`.

    The result is sorted by head. The edges of a head are sorted by descending `order`.
    """
    edges = EdgeColumns.joined(parts)
    if not len(edges):
        return edges
    # Edges of a head with equal `order`, which are rare, are sorted by text, query and key.
    ranked = np.lexsort((edges.key, edges.query, edges.text, ~edges.order, edges.head))
    heads = edges.head[ranked]
    starts = np.searchsorted(heads, np.arange(num_heads))
    rank = np.arange(len(ranked)) - starts[heads]
    return edges[ranked[rank < max_edges]]
