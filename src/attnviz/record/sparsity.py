"""Exact zeros among weights that were given: what sparsemax and entmax leave out.

A softmax gives every allowed key a weight above 0; sparsemax (Martins and Astudillo 2016, arXiv
1602.02068) and entmax (Peters et al. 2019, arXiv 1905.05702) give most keys exactly 0, and how many
is what they are used for. Weights alone do not say which zeros a mask has made, so those that look
like a mask's are not counted (see `count_zeros`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from attnviz.record.attention import LayerAttention
from attnviz.record.masks import BandMask, compact_mask
from attnviz.record.softmax import tiles
from attnviz.utils.progress import Pace, Steps

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


def count_zeros(
    layers: Mapping[int, LayerAttention],
) -> Steps[dict[int, tuple[ZeroCount, ...]]]:
    """Count the exact zeros of each known head of the layers whose weights were given, in steps.

    Taken for a mask, and not counted, are

    - all keys of a query without any weight: rows of sparsemax and entmax sum to 1;
    - all keys ahead, where no query of any head and layer has weight there: causal attention (the
      queries are taken for the last of the keys);
    - all zeros of a layer whose heads, two at least, have theirs in the same places: padding,
      windows, blocks. Of a single head, those outside a band that has none inside.

    One key a query is not a mask in the last two cases, as it would leave nothing to attend to.

    >>> from attnviz.record.attention import GivenWeights
    >>> from attnviz.utils.progress import completed
    >>> weights = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.3, 0.0, 0.7]]])
    >>> completed(count_zeros({0: GivenWeights(weights)}))[0]
    (ZeroCount(zeros=1, counted=6),)
    """
    given = {
        number: values
        for number, layer in layers.items()
        if (values := layer.given_weights) is not None
    }
    # Once for what lies ahead, once for the zeros, and once for whether heads share them.
    pace = Pace("exact zeros", 3 * sum(values.numel() for values in given.values()))
    causal = bool(given)
    for values in given.values():
        causal = causal and (yield from _is_causal(values, pace))
    counts = {}
    for number, values in given.items():
        counts[number] = yield from _of_layer(values, pace, causal=causal)
    return counts


def _offset(values: torch.Tensor) -> int:
    return values.shape[2] - values.shape[1]


def _tiles(values: torch.Tensor) -> Iterator[slice]:
    """Rows whose flags are held at once: those of all would take a quarter of the weights."""
    return tiles(slice(0, values.shape[1]), values.shape[2])


def _is_causal(values: torch.Tensor, pace: Pace) -> Steps[bool]:
    # Where the first query already sees every key, nothing lies ahead.
    if _offset(values) < 0 or values.shape[1] == 1:
        return False
    for head in values:
        for rows in _tiles(values):
            if bool(head[rows].triu(_offset(values) + 1 + rows.start).any()):
                return False
            yield from pace.did((rows.stop - rows.start) * values.shape[2])
    return True


def _of_layer(values: torch.Tensor, pace: Pace, *, causal: bool) -> Steps[tuple[ZeroCount, ...]]:
    num_queries, num_keys = values.shape[1:]
    # How many keys each query may see.
    ends = torch.full((num_queries,), num_keys, device=values.device)
    if causal:
        ends = torch.arange(num_queries, device=values.device) + _offset(values) + 1
    counts = []
    for head in values:
        weighted = torch.zeros(num_queries, dtype=torch.int64, device=values.device)
        for rows in _tiles(values):
            weighted[rows] = (head[rows] != 0).sum(dim=1)
            yield from pace.did((rows.stop - rows.start) * num_keys)
        counted = int(ends[weighted > 0].sum())
        counts.append(ZeroCount(counted - int(weighted.sum()), counted))
    if any(count.zeros for count in counts) and (yield from _is_mask(values, pace)):
        return tuple(ZeroCount(0, count.counted - count.zeros) for count in counts)
    return tuple(counts)


def _is_mask(values: torch.Tensor, pace: Pace) -> Steps[bool]:
    """Whether the places of the zeros are those of a mask that all heads share."""
    if len(values) == 1:
        first = values[0] != 0
        if int(first.sum(dim=1).max()) < 2:
            return False
        return isinstance(compact_mask(first[None]), BandMask)
    most = 0
    for rows in _tiles(values):
        first = values[0, rows] != 0
        most = max(most, int(first.sum(dim=1).max()))
        for head in values[1:]:
            if not bool(((head[rows] != 0) == first).all()):
                return False
            yield from pace.did(first.numel())
    return most > 1
