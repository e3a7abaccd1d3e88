"""Attention of a layer in which weights were removed, replaced or made equal."""

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
    "RenormalizedWeights",
    "ReplacedWeights",
    "UniformWeights",
    "remove_pairs",
    "uniform_attention",
]


def remove_pairs(
    attention: LayerAttention,
    heads: tuple[int, ...],
    queries: NDArray[np.bool_],
    keys: NDArray[np.bool_],
    *,
    keep_own: bool = False,
) -> LayerAttention:
    """Return the attention after a softmax that omits selected query-key pairs.

    Parameters
    ----------
    heads : tuple of int
        Numbers of the heads in which the pairs are omitted.
    queries, keys : ndarray of bool
        (queries,) and (keys,). A pair is omitted if the flags of its query and its key are True.
    keep_own : bool, default False
        Whether a token may still attend to itself.

    Returns
    -------
    LayerAttention
        A `QueryKeyAttention` if `attention` is one, otherwise `RenormalizedWeights`.
    """
    vectors = attention.vectors
    if vectors is None:
        pairs = CutMask(
            torch.tensor([True]),
            torch.from_numpy(queries),
            torch.from_numpy(keys),
            keep_own=keep_own,
        )
        return RenormalizedWeights(attention, heads, pairs)
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
    """Weights in which some pairs are set to 0 after the softmax. Other weights are unchanged.

    Attributes
    ----------
    heads : tuple of int
        Numbers of the heads in which pairs are set to 0.
    pairs : CutMask
        Mask that cuts these pairs. Its entries for head 0 apply to all of `heads`.
    """

    heads: tuple[int, ...]
    pairs: CutMask

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        weights = self.base.weights(head, rows, columns)
        if head in self.heads:
            weights[self.pairs.cut(0, rows, columns).numpy()] = 0.0
        return weights


@dataclass(frozen=True)
class RenormalizedWeights(CutWeights):
    """Weights in which some pairs are set to 0 and each row is scaled to its original sum.

    Without sinks, the result equals a softmax over the remaining keys, but is computed without
    logits. A row without remaining weight is 0.
    """

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        if head not in self.heads:
            return self.base.weights(head, rows, columns)
        all_keys = slice(0, self.num_keys)
        weights = self.base.weights(head, rows, all_keys).astype(np.float64)
        row_sums = weights.sum(axis=1, keepdims=True)
        weights[self.pairs.cut(0, rows, all_keys).numpy()] = 0.0
        remaining = weights.sum(axis=1, keepdims=True)
        np.divide(weights * row_sums, remaining, out=weights, where=remaining > 0)
        return weights[:, columns].astype(np.float32)

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        flags = self.base.allowed(head, rows, columns)
        if head not in self.heads:
            return flags
        allowed: NDArray[np.bool_] = flags & ~self.pairs.cut(0, rows, columns).numpy()
        return allowed


@dataclass(frozen=True)
class ReplacedWeights(ReweightedAttention):
    """Weights in which some rows of some heads are replaced by rows of other attentions.

    Attributes
    ----------
    replacements : mapping of int to (LayerAttention, int)
        For each head with replaced rows, the attention and the head that provide these rows.
    rows : ndarray of bool
        (queries,): whether each row is replaced. A replaced row allows the keys that it allows in
        the attention that provides it.
    """

    replacements: Mapping[int, tuple[LayerAttention, int]]
    rows: NDArray[np.bool_]

    @property
    def causal(self) -> bool:
        return self.base.causal and all(source.causal for source, _ in self.replacements.values())

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        weights = self.base.weights(head, rows, columns)
        if head in self.replacements:
            attention, source_head = self.replacements[head]
            replaced = self.rows[rows]
            weights[replaced] = attention.weights(source_head, rows, columns)[replaced]
        return weights

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        allowed = self.base.allowed(head, rows, columns)
        if head in self.replacements:
            attention, source_head = self.replacements[head]
            replaced = self.rows[rows]
            allowed[replaced] = attention.allowed(source_head, rows, columns)[replaced]
        return allowed


@dataclass(frozen=True)
class UniformWeights(ReweightedAttention):
    """Equal weights in each row on all keys that the query may attend to in `base`."""

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        flags = self.base.allowed(head, rows, slice(0, self.num_keys))
        counts = np.maximum(flags.sum(axis=1, keepdims=True), 1)
        uniform: NDArray[np.float32] = (flags[:, columns] / counts).astype(np.float32)
        return uniform


def uniform_attention(attention: QueryKeyAttention) -> QueryKeyAttention:
    """Return an attention with the same mask, but with equal weights on all allowed keys."""
    return QueryKeyAttention(
        torch.zeros(attention.num_heads, attention.num_queries, 1),
        torch.zeros(1, attention.num_keys, 1),
        scale=1.0,
        mask=attention.mask,
    )
