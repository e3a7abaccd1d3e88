"""Edges of many texts: pairs of a query and a key. Each head keeps those with the largest order.

The order of an edge is a number that depends only on the edge: a pseudorandom number, or one that
increases with the weight. Adding corpora in any sequence keeps the same edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Edge", "EdgeColumns", "hashed", "largest_per_head"]

# splitmix64: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
_STEP, _MIX_1, _MIX_2 = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def hashed(state: Any, number: Any) -> Any:
    """Return a pseudorandom uint64 for each state and number.

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
        Number of the text.
    query, key : int
        Positions of the query and the key in the text.
    query_token, key_token : str
        Tokens of the query and the key.
    window : list of (int, str)
        Positions and tokens near the query and the key, ascending. In cross-attention only those
        near the key.
    query_window : list of (int, str)
        In cross-attention the positions and tokens near the query, otherwise `window`.

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
    """Edges of many heads, with one array for each attribute of an edge.

    Attributes
    ----------
    order : ndarray of uint64
        Rank of each edge. Edges with a larger order come first.
    head : ndarray of int32
        Index of the head among the heads of all layers of the stack.
    text : ndarray of int64
        Number of the text.
    query, key : ndarray of int32
        Positions in the text.
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
        """Return the edges of one text."""
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
        """Return columns without edges."""
        return cls.of(0, order=[], head=[], query=[], key=[], weight=[])

    @classmethod
    def joined(cls, parts: Sequence[EdgeColumns]) -> Self:
        """Concatenate the edges of `parts`."""
        if not parts:
            return cls.empty()
        return cls(
            *(
                np.concatenate([getattr(part, column.name) for part in parts])
                for column in fields(cls)
            )
        )

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: Any) -> Self:
        return type(self)(*(getattr(self, column.name)[index] for column in fields(self)))


def largest_per_head(parts: Sequence[EdgeColumns], max_edges: int, num_heads: int) -> EdgeColumns:
    """Return the `max_edges` edges of each head with the largest `order`.

    They are sorted by head. The edges of a head begin with the largest order.
    """
    edges = EdgeColumns.joined(parts)
    if not len(edges):
        return edges
    # Ties in the order are almost impossible. The other keys make the result unique even then.
    ranked = np.lexsort((edges.key, edges.query, edges.text, ~edges.order, edges.head))
    heads = edges.head[ranked]
    starts = np.searchsorted(heads, np.arange(num_heads))
    rank = np.arange(len(ranked)) - starts[heads]
    return edges[ranked[rank < max_edges]]
