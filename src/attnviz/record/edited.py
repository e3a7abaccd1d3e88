"""Attention of a layer in which weights were removed, replaced or made equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import (
    Columns,
    Heads,
    LayerAttention,
    Normalizers,
    ReweightedAttention,
)
from attnviz.record.linear import StateAttention
from attnviz.record.masks import ChosenMask, CutMask, Rows, WindowMask
from attnviz.record.units import UnitAttention


def remove_pairs(
    attention: LayerAttention,
    heads: tuple[int, ...],
    queries: NDArray[np.bool_],
    keys: NDArray[np.bool_],
    own_keys: NDArray[np.int64] | None = None,
) -> LayerAttention:
    """Return a copy of `attention` from which query-key pairs are removed before the softmax.

    Parameters
    ----------
    heads : tuple of int
        Numbers of the heads in which the pairs are removed.
    queries, keys : ndarray of bool
        (queries,) and (keys,). A pair is removed if the flag of its query and the flag of its key
        are both True.
    own_keys : ndarray of int64, optional
        (queries,): for each query, the index of the key that is the same token, or -1 if no key is
        the same token. The pair of a query and this key is not removed. By default, it is removed
        like all other selected pairs.

    Returns
    -------
    LayerAttention
        If `attention` stores queries and keys, a copy with a mask that also forbids the pairs. If
        it stores weights, `RenormalizedWeights`. If it is linear, `CutWeights`. If it is a
        `UnitAttention` without merged tokens, a copy in which the pairs are removed from its
        `base`.
    """
    if isinstance(attention, UnitAttention) and not attention.merged:
        query_units, key_units = attention.units_of_tokens()
        if own_keys is not None:
            token_of_unit = np.full(attention.num_keys + 1, -1)
            token_of_unit[key_units] = np.arange(len(key_units))
            own_keys = token_of_unit[own_keys[query_units]]
        pairs = queries[query_units], keys[key_units]
        return replace(attention, base=remove_pairs(attention.base, heads, *pairs, own_keys))
    vectors = attention.vectors
    flags = torch.tensor([head in heads for head in range(attention.num_heads)])
    kept = None
    if own_keys is not None:
        # This mask allows only the pair of each query and its own key, so only this pair is kept.
        kept = WindowMask(torch.from_numpy(own_keys), torch.arange(attention.num_keys))
    mask = None if vectors is None else vectors.mask
    # A removed pair could not be chosen, so the pairs are cut from the base of the choice.
    chosen = mask.chosen if isinstance(mask, ChosenMask) else None
    cut = CutMask(
        torch.tensor([True]) if vectors is None or bool(flags.all()) else flags,
        torch.from_numpy(queries),
        torch.from_numpy(keys),
        mask.base if isinstance(mask, ChosenMask) else mask,
        kept,
    )
    if vectors is not None:
        return replace(vectors, mask=cut if chosen is None else ChosenMask(chosen, cut))
    # Linear layers have no softmax that would give the weight of the pairs to other keys.
    kind = CutWeights if isinstance(attention, StateAttention) else RenormalizedWeights
    return kind(attention, heads, cut)


@dataclass(frozen=True)
class CutWeights(ReweightedAttention):
    """Weights in which some pairs are set to 0 after the softmax. Other weights are unchanged.

    Attributes
    ----------
    heads : tuple of int
        Numbers of the heads in which pairs are set to 0.
    pairs : CutMask
        Mask that cuts these pairs in its head 0. The same pairs are set to 0 in each of `heads`.
    """

    heads: tuple[int, ...]
    pairs: CutMask

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        del normalizers
        weights = self.base.block(heads, rows, columns)
        return weights.masked_fill(self._cut(heads, rows, columns).to(weights.device), 0.0)

    def _cut(self, heads: Heads, rows: Rows, columns: slice | None) -> torch.Tensor:
        """Return whether each pair is set to 0, bool, (heads, rows, columns), on the CPU."""
        columns = columns or slice(0, self.num_keys)
        is_changed = torch.tensor([head in self.heads for head in heads])
        return self.pairs.cut(0, rows, columns) & is_changed[:, None, None]


@dataclass(frozen=True)
class RenormalizedWeights(CutWeights):
    """Weights in which some pairs are set to 0 and each row is scaled to its original sum.

    If the original rows sum to 1, the result is that of a softmax over the remaining keys, but is
    computed without logits. A row without remaining weight is 0.
    """

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        del normalizers
        exact = self.base.block(heads, rows).double()
        remaining = exact.masked_fill(self._cut(heads, rows, None).to(exact.device), 0.0)
        row_sums, remaining_sums = (w.sum(dim=-1, keepdim=True) for w in (exact, remaining))
        scaled = remaining * row_sums / remaining_sums
        weights = torch.where(remaining_sums > 0, scaled, remaining).float()
        return weights if columns is None else weights[..., columns]

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        return self.base.allowed(heads, rows, columns) & ~self._cut(heads, rows, columns)


@dataclass(frozen=True)
class ReplacedWeights(ReweightedAttention):
    """Weights in which some rows of some heads are replaced by the same rows of other attentions.

    Attributes
    ----------
    replacements : mapping of int to (LayerAttention, int)
        Number of each head with replaced rows, and the attention and the head from which these rows
        are taken.
    rows : ndarray of bool
        (queries,): whether each row is replaced. The allowed keys of a replaced row are also those
        of the other attention.
    """

    replacements: Mapping[int, tuple[LayerAttention, int]]
    rows: NDArray[np.bool_]

    @property
    def causal(self) -> bool:
        return self.base.causal and all(source.causal for source, _ in self.replacements.values())

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        del normalizers
        weights = self.base.block(heads, rows, columns).clone()
        for number, attention, head in self._replaced(heads):
            replacement = attention.block([head], rows, columns)[0].to(weights.device)
            is_replaced = self._is_replaced(rows).to(weights.device)
            weights[number, is_replaced] = replacement[is_replaced]
        return weights

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        allowed = self.base.allowed(heads, rows, columns)
        allowed = allowed.expand(len(heads), -1, -1).clone()
        is_replaced = self._is_replaced(rows)
        for number, attention, head in self._replaced(heads):
            allowed[number, is_replaced] = attention.allowed([head], rows, columns)[0, is_replaced]
        return allowed

    def _replaced(self, heads: Heads) -> Iterator[tuple[int, LayerAttention, int]]:
        """Yield three items for each of `heads` with replaced rows.

        These are its index in `heads`, and the attention and the head that replace its rows.
        """
        for number, head in enumerate(heads):
            if head in self.replacements:
                yield number, *self.replacements[head]

    def _is_replaced(self, rows: Rows) -> torch.Tensor:
        return torch.from_numpy(self.rows)[rows]


@dataclass(frozen=True)
class UniformWeights(ReweightedAttention):
    """Uniform attention: each query has equal weights on all keys that it may attend to in `base`.

    A row without such keys is 0.
    """

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        del normalizers
        flags = self.base.allowed(heads, rows)
        counts = flags.sum(dim=-1, keepdim=True).clamp_min(1)
        shown = flags if columns is None else flags[..., columns]
        uniform = (shown.double() / counts).float()
        return uniform.expand(len(heads), -1, -1).contiguous()
