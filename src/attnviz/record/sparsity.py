"""Exact zeros among stored weights: the keys that sparsemax and entmax exclude.

A softmax gives every allowed key a weight above 0. Sparsemax (Martins and Astudillo 2016, arXiv
1602.02068) and entmax (Peters et al. 2019, arXiv 1905.05702) give many keys a weight of exactly 0.
Weights alone do not show which zeros come from a mask. Zeros that a mask may have caused are
therefore not counted (see `count_zeros`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, StoredWeights
from attnviz.record.masks import BandMask, compact_mask
from attnviz.record.softmax import row_tiles


@dataclass(frozen=True)
class ZeroCount:
    """Number of exact zeros among the weights of a head, without zeros that a mask may have caused.

    `counted` is the number of query-key pairs that were examined. `zeros` of them have weight 0.

    >>> ZeroCount(zeros=3, counted=4).share
    0.75
    """

    zeros: int
    counted: int

    @property
    def share(self) -> float:
        """Share of zeros among the counted pairs, from 0 to 1, or 0 if no pair was counted."""
        return self.zeros / self.counted if self.counted else 0.0


def count_zeros(layers: Mapping[int, LayerAttention]) -> dict[int, tuple[ZeroCount, ...]]:
    """Count the exact zeros of each head, for the layers whose weights are stored.

    Return one `ZeroCount` per head for each of these layers, by layer number.

    The following query-key pairs are attributed to a mask and not counted:

    - All pairs of a query that has no weight on any key. Such a row is not a result of sparsemax or
      entmax, whose rows sum to 1.
    - All pairs with a later key, if no query of any head and layer has weight on a later key
      (causal attention). The last query is assumed to be at the position of the last key.
    - The pairs of a layer that have weight 0, if these are the same pairs in all of its heads
      (padding, windows, blocks). If the layer has a single head, this holds only if the other pairs
      are those that a causal mask or a sliding window allows (a `BandMask`). Exception: if each
      query of the layer has weight on at most one key, the zeros are counted. A mask that allows
      only one key per query is unlikely, because it would determine all weights.

    >>> from attnviz.record.attention import StoredWeights
    >>> weights = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.3, 0.0, 0.7]]])
    >>> count_zeros({0: StoredWeights(weights)})[0]
    (ZeroCount(zeros=1, counted=6),)
    """
    stored = {
        number: layer.weights
        for number, layer in layers.items()
        if isinstance(layer, StoredWeights)
    }
    scans = {number: _scan(values) for number, values in stored.items()}
    causal = bool(scans) and not any(ahead for _, ahead, _ in scans.values())
    counts = {}
    for number, (num_weighted, _, alike) in scans.items():
        values = stored[number]
        num_queries, num_keys = values.shape[1:]
        # Number of keys among which zeros are counted for each query: all keys, or in causal
        # attention the keys up to the position of the query.
        num_visible = np.full(num_queries, num_keys)
        if causal:
            num_visible = np.arange(num_queries) + _offset(values) + 1
        counted = (num_visible * (num_weighted > 0)).sum(axis=1)
        zeros = counted - num_weighted.sum(axis=1)
        # Zeros at the same pairs in all heads may be the result of a mask, unless each query has
        # weight on at most one key: a mask that allows only one key is unlikely. With a single
        # head, zeros are ascribed to a mask only if the other pairs form a band.
        is_mask = alike and int(num_weighted.max()) > 1
        is_mask = is_mask and (len(values) > 1 or isinstance(compact_mask(values != 0), BandMask))
        if is_mask and zeros.any():
            zeros, counted = np.zeros_like(zeros), counted - zeros
        counts[number] = tuple(map(ZeroCount, zeros.tolist(), counted.tolist()))
    return counts


def _scan(values: torch.Tensor) -> tuple[NDArray[np.int64], bool, bool]:
    """Return three facts about the zeros of a layer's weights `values`, (heads, queries, keys).

    They are:

    - the number of keys whose weight is not 0, (heads, queries);
    - whether a query has weight on a later key, so that attention is not causal. This is also True
      if causality is unknown, because the layer has a single query, or more queries than keys;
    - whether all heads have zeros at the same query-key pairs.
    """
    heads, num_queries, num_keys = values.shape
    weighted = np.zeros((heads, num_queries), np.int64)
    ahead = _offset(values) < 0 or num_queries == 1
    alike = True
    # Determine for some rows at a time which weights are not 0. The flags of all rows would take
    # one byte per weight, which is a quarter of the memory of float32 weights.
    for rows in row_tiles(slice(0, num_queries), heads * num_keys):
        # View the flags as uint8, because torch reduces and compares bool tensors slowly.
        flags = values[:, rows].bool().view(torch.uint8)
        weighted[:, rows] = flags.sum(dim=2, dtype=torch.int32).cpu().numpy()
        any_head = flags.amax(dim=0)
        ahead = ahead or bool(any_head.triu(_offset(values) + 1 + rows.start).any())
        alike = alike and bool(torch.equal(any_head, flags.amin(dim=0)))
    return weighted, ahead, alike


def _offset(values: torch.Tensor) -> int:
    return values.shape[2] - values.shape[1]
