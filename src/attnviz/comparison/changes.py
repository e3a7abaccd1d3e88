"""The pairs of query and key whose weight changed most."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attnviz.comparison.common import common_heads
from attnviz.comparison.distance import rows_at_once
from attnviz.record.stack import AttentionStack
from attnviz.utils.progress import Progress, Steps

__all__ = ["Change", "largest_changes"]

#: Layer, head, query, key, the weight before and after, and their difference.
Change = tuple[int, int, int, int, float, float, float]


def largest_changes(
    a: AttentionStack, b: AttentionStack, rows: NDArray[np.int64], top_k: int
) -> Steps[list[Change]]:
    """The largest differences of all heads, largest first; of equal ones the first."""
    # By size, then from the first: the smallest of the heap goes first.
    best: list[tuple[float, tuple[int, ...], Change]] = []
    heads = {layer: common_heads(a, b, layer) for layer in a.layers}
    done, total = 0, sum(map(len, heads.values()))
    for layer in a.layers:
        for head in heads[layer]:
            for some in rows_at_once(rows, len(a.key_tokens)):
                one = a.attention(layer).weights_of_rows(head, some)[0]
                two = b.attention(layer).weights_of_rows(head, some)[0]
                change = two.astype(np.float64) - one
                for row, key in _largest(np.abs(change), top_k):
                    where = (layer, head, int(some[row]), key)
                    entry = (
                        abs(change[row, key]),
                        tuple(-each for each in where),
                        (*where, float(one[row, key]), float(two[row, key]), change[row, key]),
                    )
                    if len(best) < top_k:
                        heapq.heappush(best, entry)
                    else:
                        heapq.heappushpop(best, entry)
            done += 1
            yield Progress("heads", done, total, "head")
    return [change for _, _, change in sorted(best, reverse=True)]


def _largest(change: NDArray[np.float64], count: int) -> Iterator[tuple[int, int]]:
    """Where the largest values above 0 are; all of those that are as large as the last."""
    flat = change.ravel()
    least = 0.0 if flat.size <= count else float(np.partition(flat, -count)[-count])
    for place in np.flatnonzero(flat >= max(least, np.finfo(np.float64).tiny)):
        yield divmod(int(place), change.shape[1])
