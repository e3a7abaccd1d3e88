"""Exact zeros among weights that were given: what sparsemax and entmax leave out.

A softmax gives every allowed key a weight above 0; sparsemax (Martins and Astudillo 2016, arXiv
1602.02068) and entmax (Peters et al. 2019, arXiv 1905.05702) give most keys exactly 0, and how many
is what they are used for. Weights alone do not say which zeros a mask has made, so those that look
like a mask's are not counted (see `count_zeros`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from attnviz.record.attention import LayerAttention
from attnviz.record.masks import BandMask, compact_mask

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
    given = {
        number: values
        for number, layer in layers.items()
        if (values := layer.given_weights) is not None
    }
    causal = bool(given) and all(_is_causal(values) for values in given.values())
    return {number: _of_layer(values, causal=causal) for number, values in given.items()}


def _offset(values: torch.Tensor) -> int:
    return values.shape[2] - values.shape[1]


def _is_causal(values: torch.Tensor) -> bool:
    # Where the first query already sees every key, nothing lies ahead.
    if _offset(values) < 0 or values.shape[1] == 1:
        return False
    # Head by head: flags of all at once would take as much memory as the weights.
    return not any(bool(head.triu(_offset(values) + 1).any()) for head in values)


def _of_layer(values: torch.Tensor, *, causal: bool) -> tuple[ZeroCount, ...]:
    num_queries, num_keys = values.shape[1:]
    # How many keys each query may see.
    ends = torch.full((num_queries,), num_keys, device=values.device)
    if causal:
        ends = torch.arange(num_queries, device=values.device) + _offset(values) + 1
    counts = []
    for head in values:
        weighted = (head != 0).sum(dim=1)
        counted = int(ends[weighted > 0].sum())
        counts.append(ZeroCount(counted - int(weighted.sum()), counted))
    if any(count.zeros for count in counts) and _is_mask(values):
        return tuple(ZeroCount(0, count.counted - count.zeros) for count in counts)
    return tuple(counts)


def _is_mask(values: torch.Tensor) -> bool:
    """Whether the places of the zeros are those of a mask that all heads share."""
    first = values[0] != 0
    if int(first.sum(dim=1).max()) < 2:
        return False
    if len(values) == 1:
        return isinstance(compact_mask(first[None]), BandMask)
    return all(bool(((head != 0) == first).all()) for head in values[1:])
