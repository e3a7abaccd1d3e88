"""Search for the query-key pairs whose weights differ most between two stacks.

A stack is the attention of one kind in all layers, such as "self" or "cross".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attnviz.comparison.common import common_heads
from attnviz.comparison.distance import rows_at_once
from attnviz.record.softmax import as_rows
from attnviz.record.stack import AttentionStack
from attnviz.utils.progress import report

#: One query-key pair: layer, head, query, key, weight in the first stack, weight in the second
#: stack, and the second weight minus the first.
Change = tuple[int, int, int, int, float, float, float]


def largest_changes(
    a: AttentionStack, b: AttentionStack, rows: NDArray[np.int64], top_k: int
) -> list[Change]:
    """Find the `top_k` pairs with the largest absolute differences of weights, largest first.

    All heads that both stacks have are compared, but only the queries `rows`. Pairs with equal
    weights are omitted. Among pairs with equal differences, the order is by layer, head, query and
    key.
    """
    # `best` is a heap whose first entry has the smallest difference and is dropped first. The
    # position (layer, head, query, key) is negated, so that among equal differences the pair with
    # the largest position is first.
    best: list[tuple[float, tuple[int, ...], Change]] = []
    heads = {layer: common_heads(a, b, layer) for layer in a.layers}
    done, total = 0, sum(map(len, heads.values()))
    for layer in a.layers:
        for head in heads[layer]:
            for queries in rows_at_once(rows, len(a.key_tokens)):
                one, two = (
                    stack.attention(layer).block([head], as_rows(queries))[0].cpu().numpy()
                    for stack in (a, b)
                )
                # Select pairs by differences in float32, whose rounding hardly matters. The
                # returned differences are computed in float64.
                change = two - one
                least = best[0][0] if len(best) == top_k else 0.0
                for row, key in _largest(np.abs(change), top_k, least):
                    position = (layer, head, int(queries[row]), key)
                    entry = (
                        abs(float(change[row, key])),
                        tuple(-number for number in position),
                        (
                            *position,
                            float(one[row, key]),
                            float(two[row, key]),
                            float(two[row, key]) - float(one[row, key]),
                        ),
                    )
                    if len(best) < top_k:
                        heapq.heappush(best, entry)
                    else:
                        heapq.heappushpop(best, entry)
            done += 1
            report("differences", done, total, "head")
    return [change for _, _, change in sorted(best, reverse=True)]


def _largest(change: NDArray[np.float32], count: int, least: float) -> Iterator[tuple[int, int]]:
    """Yield row and column of the `count` largest positive values that are at least `least`.

    If further values are equal to the smallest of these, they are yielded, too.
    """
    flat = change.ravel()
    indices = np.flatnonzero(flat >= max(least, float(np.finfo(np.float32).tiny)))
    if len(indices) > count:
        large = flat[indices]
        last = float(np.partition(large, -count)[-count])
        indices = indices[large >= last]
    for index in indices.tolist():
        yield divmod(index, change.shape[1])
