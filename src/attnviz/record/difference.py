"""The difference of two attentions over the same rows and columns, computed on demand.

    difference[i, j] = b[i, j] - a[i, j]

Differences of softmax weights are between -1 and 1. Each row sums to 0, except with sinks. Heads
with the same number are compared. A query without an allowed key on one side, such as a token that
only the other text has, has no difference: its row is zero and allows no key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.masks import Rows

__all__ = ["DifferenceAttention"]


@dataclass(frozen=True)
class DifferenceAttention(LayerAttention):
    """Difference of a layer's attention `b` and `a`. Only the two attentions are stored.

    >>> import torch
    >>> from attnviz.record.attention import StoredWeights
    >>> a = StoredWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
    >>> b = StoredWeights(torch.tensor([[[1.0, 0.0], [0.75, 0.25]]]))
    >>> DifferenceAttention(a, b).weights(0, slice(0, 2), slice(0, 2))
    array([[ 0. ,  0. ],
           [ 0.5, -0.5]], dtype=float32)
    """

    a: LayerAttention
    b: LayerAttention

    def __post_init__(self) -> None:
        """Raise ValueError if the rows or columns differ."""
        shapes = [(attention.num_queries, attention.num_keys) for attention in (self.a, self.b)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"a has {shapes[0][0]} queries and {shapes[0][1]} keys, b {shapes[1][0]} and "
                f"{shapes[1][1]}; both must have the same rows and columns"
            )

    @property
    def num_heads(self) -> int:
        """Number of heads that both sides have."""
        return min(self.a.num_heads, self.b.num_heads)

    @property
    def num_queries(self) -> int:
        return self.a.num_queries

    @property
    def num_keys(self) -> int:
        return self.a.num_keys

    @property
    def causal(self) -> bool:
        """Whether no query of either side may attend to a later key."""
        return self.a.causal and self.b.causal

    @property
    def merged(self) -> bool:
        """Whether rows and columns of either side are words, merged from several tokens."""
        return self.a.merged or self.b.merged

    @property
    def bound(self) -> float | None:
        """Upper bound of the absolute differences, or None if weights are stored."""
        bound_a, bound_b = self.a.bound, self.b.bound
        if bound_a is None or bound_b is None:
            return None
        # Weights are not negative. The bounds of nested differences add up.
        signed = isinstance(self.a, DifferenceAttention) or isinstance(self.b, DifferenceAttention)
        return bound_a + bound_b if signed else max(bound_a, bound_b)

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        difference = self.b.weights(head, rows, columns)
        difference -= self.a.weights(head, rows, columns)
        difference[~self.has_allowed_key(head, rows)] = 0.0
        return difference

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Return whether either side allows each pair, for queries with an allowed key on both."""
        either = self.a.allowed(head, rows, columns) | self.b.allowed(head, rows, columns)
        return either & self.has_allowed_key(head, rows)[:, None]

    def key_range(self, rows: Rows) -> slice:
        """Return the range of keys outside which `rows` have no weight on either side."""
        range_a, range_b = self.a.key_range(rows), self.b.key_range(rows)
        if range_a.start == range_a.stop or range_b.start == range_b.stop:
            # A query without an allowed key on one side has no difference.
            return slice(0, 0)
        return slice(min(range_a.start, range_b.start), max(range_a.stop, range_b.stop))

    def has_allowed_key(self, head: int, rows: slice) -> NDArray[np.bool_]:
        """Return whether each query has an allowed key on both sides, bool, (rows,)."""
        return self.a.has_allowed_key(head, rows) & self.b.has_allowed_key(head, rows)

    def weights_of_rows(
        self, head: int, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        weights_b, allowed_b = self.b.weights_of_rows(head, rows)
        weights_a, allowed_a = self.a.weights_of_rows(head, rows)
        has_keys = np.logical_and(allowed_a.any(axis=1), allowed_b.any(axis=1))
        return np.where(has_keys[:, None], weights_b - weights_a, np.float32(0)), (
            allowed_a | allowed_b
        ) & has_keys[:, None]
