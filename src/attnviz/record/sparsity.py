"""Exact zeros among weights that were given: what sparsemax and entmax leave out.

A softmax gives every allowed key a weight above 0; sparsemax (Martins and Astudillo 2016, arXiv
1602.02068) and entmax (Peters et al. 2019, arXiv 1905.05702) give most keys exactly 0, and how many
is what they are used for. Weights alone do not say which zeros a mask has made, so those that look
like a mask's are not counted (see `count_zeros`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.masks import BandMask, compact_mask
from attnviz.record.softmax import tiles

__all__ = ["ZeroCount", "count_zeros"]


@dataclass(frozen=True)
class ZeroCount:
    """How many of a head's weights are exactly 0 without a mask that would explain it.

    `counted` are the pairs of query and key that a mask does not explain.

    >>> ZeroCount(zeros=3, counted=4).share
    0.75
    """

    zeros: int
    counted: int

    @property
    def share(self) -> float:
        """Share of the pairs counted, from 0 to 1; 0 where none is."""
        return self.zeros / self.counted if self.counted else 0.0


def count_zeros(layers: Mapping[int, LayerAttention]) -> dict[int, tuple[ZeroCount, ...]]:
    """Count the exact zeros of each known head of the layers whose weights were given.

    Taken for a mask, and not counted, are

    - all keys of a query without any weight: rows of sparsemax and entmax sum to 1;
    - all keys ahead, where no query of any head and layer has weight there: causal attention (the
      queries are taken for the last of the keys);
    - all zeros of a layer whose heads, two at least, have theirs in the same places: padding,
      windows, blocks. Of a single head, those outside a band that has none inside.

    One key a query is not a mask in the last two cases, as it would leave nothing to attend to.

    >>> from attnviz.record.attention import GivenWeights
    >>> weights = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.3, 0.0, 0.7]]])
    >>> count_zeros({0: GivenWeights(weights)})[0]
    (ZeroCount(zeros=1, counted=6),)
    """
    found = {
        number: _look(values)
        for number, layer in layers.items()
        if (values := layer.given_weights) is not None
    }
    causal = bool(found) and not any(each.ahead for each in found.values())
    return {number: each.counts(causal=causal) for number, each in found.items()}


@dataclass(frozen=True)
class _Look:
    """What one pass over a layer's weights says of its zeros.

    Attributes
    ----------
    weighted : ndarray
        int64, (heads, queries): keys with weight.
    ahead : bool
        Whether a query has weight on a key after its own, or there are no such keys.
    alike : bool
        Whether all heads have weight in the same places.
    """

    values: torch.Tensor
    weighted: NDArray[np.int64]
    ahead: bool
    alike: bool

    def counts(self, *, causal: bool) -> tuple[ZeroCount, ...]:
        num_queries, num_keys = self.values.shape[1:]
        # How many keys each query may see.
        ends = np.full(num_queries, num_keys)
        if causal:
            ends = np.arange(num_queries) + _offset(self.values) + 1
        counted = (ends * (self.weighted > 0)).sum(axis=1).tolist()
        weighted = self.weighted.sum(axis=1).tolist()
        counts = [
            ZeroCount(all_ - some, all_) for all_, some in zip(counted, weighted, strict=True)
        ]
        if any(count.zeros for count in counts) and self._is_mask():
            return tuple(ZeroCount(0, count.counted - count.zeros) for count in counts)
        return tuple(counts)

    def _is_mask(self) -> bool:
        """Whether the places of the zeros are those of a mask that all heads share."""
        if not self.alike or int(self.weighted.max()) < 2:
            return False
        return len(self.values) > 1 or isinstance(compact_mask(self.values != 0), BandMask)


def _look(values: torch.Tensor) -> _Look:
    heads, num_queries, num_keys = values.shape
    weighted = np.zeros((heads, num_queries), np.int64)
    # Where the first query already sees every key, nothing lies ahead.
    ahead = _offset(values) < 0 or num_queries == 1
    alike = True
    # Flags of all heads are held at once: those of all rows would take a quarter of the weights.
    for rows in tiles(slice(0, num_queries), heads * num_keys):
        # As numbers: flags are slow to reduce, and so is a comparison that makes them.
        flags = values[:, rows].bool().view(torch.uint8)
        weighted[:, rows] = flags.sum(dim=2, dtype=torch.int32).cpu().numpy()
        some = flags.amax(dim=0)
        ahead = ahead or bool(some.triu(_offset(values) + 1 + rows.start).any())
        alike = alike and bool(torch.equal(some, flags.amin(dim=0)))
    return _Look(values, weighted, ahead, alike)


def _offset(values: torch.Tensor) -> int:
    return values.shape[2] - values.shape[1]
