"""A layer's attention with some weights other than the model computed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, QueryKeyAttention, ReweightedAttention
from attnviz.record.masks import CutMask

__all__ = [
    "CutWeights",
    "EvenWeights",
    "ReplacedWeights",
    "SharedOutWeights",
    "uniform",
    "without_pairs",
]


def without_pairs(
    attention: LayerAttention,
    heads: tuple[int, ...],
    queries: NDArray[np.bool_],
    keys: NDArray[np.bool_],
    *,
    keep_own: bool = False,
) -> LayerAttention:
    """Hide some pairs before the softmax: their weight goes to the keys that are left.

    Parameters
    ----------
    heads : tuple of int
        The model's numbers of the heads in which the pairs are hidden.
    queries, keys : ndarray of bool
        (queries,) and (keys,): a pair is hidden where both are True.
    keep_own : bool, default False
        Whether a token still sees itself.

    Returns
    -------
    LayerAttention
        With the same queries and keys where these are known.
    """
    vectors = attention.vectors
    if vectors is None:
        pairs = CutMask(
            torch.tensor([True]),
            torch.from_numpy(queries),
            torch.from_numpy(keys),
            keep_own=keep_own,
        )
        return SharedOutWeights(attention, heads, pairs)
    flags = torch.tensor([head in heads for head in range(attention.num_heads)])
    cut = CutMask(
        torch.tensor([True]) if bool(flags.all()) else flags,
        torch.from_numpy(queries),
        torch.from_numpy(keys),
        vectors.mask,
        keep_own,
    )
    return replace(vectors, mask=cut)


@dataclass(frozen=True)
class CutWeights(ReweightedAttention):
    """Weights of which some are 0 after the softmax; the others stay as they are.

    Attributes
    ----------
    heads : tuple of int
        The model's numbers of the heads in which pairs are cut.
    pairs : CutMask
        Which pairs, the same in all of these heads.
    """

    heads: tuple[int, ...]
    pairs: CutMask

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns)."""
        weights = self.base.weights(head, rows, columns)
        if head in self.heads:
            weights[self.pairs.cut(0, rows, columns).numpy()] = 0.0
        return weights


@dataclass(frozen=True)
class SharedOutWeights(CutWeights):
    """Weights without some pairs, whose weight the other keys of the row share in proportion.

    It is what a softmax without these pairs gives, where only weights are known:
    exp(l) / sum of exp(l) over the keys that are left.
    """

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns)."""
        if head not in self.heads:
            return self.base.weights(head, rows, columns)
        everything = slice(0, self.num_keys)
        whole = self.base.weights(head, rows, everything).astype(np.float64)
        before = whole.sum(axis=1, keepdims=True)
        whole[self.pairs.cut(0, rows, everything).numpy()] = 0.0
        left = whole.sum(axis=1, keepdims=True)
        np.divide(whole * before, left, out=whole, where=left > 0)
        return whole[:, columns].astype(np.float32)

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether the mask lets queries attend to keys, bool, (rows, columns)."""
        flags = self.base.allowed(head, rows, columns)
        if head not in self.heads:
            return flags
        there: NDArray[np.bool_] = flags & ~self.pairs.cut(0, rows, columns).numpy()
        return there


@dataclass(frozen=True)
class ReplacedWeights(ReweightedAttention):
    """Weights of which some rows come from elsewhere.

    Attributes
    ----------
    instead : mapping of int to (LayerAttention, int)
        For each head that is replaced another attention, and which of its heads.
    rows : ndarray of bool
        (queries,): whose rows are replaced.
    """

    instead: Mapping[int, tuple[LayerAttention, int]]
    rows: NDArray[np.bool_]

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns)."""
        weights = self.base.weights(head, rows, columns)
        if head in self.instead:
            attention, its = self.instead[head]
            chosen = self.rows[rows]
            weights[chosen] = attention.weights(its, rows, columns)[chosen]
        return weights

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether the mask lets queries attend to keys, bool, (rows, columns)."""
        if head not in self.instead:
            return self.base.allowed(head, rows, columns)
        flags = np.ones((rows.stop - rows.start, columns.stop - columns.start), np.bool_)
        kept = ~self.rows[rows]
        flags[kept] = self.base.allowed(head, rows, columns)[kept]
        return flags


@dataclass(frozen=True)
class EvenWeights(ReweightedAttention):
    """Equal weights on all keys that a query of `base` may attend to."""

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns)."""
        flags = self.base.allowed(head, rows, slice(0, self.num_keys))
        counts = np.maximum(flags.sum(axis=1, keepdims=True), 1)
        even: NDArray[np.float32] = (flags[:, columns] / counts).astype(np.float32)
        return even


def uniform(attention: QueryKeyAttention) -> QueryKeyAttention:
    """The same shape and mask with equal weights on all keys that a query may attend to."""
    return QueryKeyAttention(
        torch.zeros(attention.num_heads, attention.num_queries, 1),
        torch.zeros(1, attention.num_keys, 1),
        scale=1.0,
        mask=attention.mask,
    )
