"""Search for the query-key pairs whose weights differ most between two stacks.

A stack is the attention of one kind in all layers, such as "self" or "cross".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attnviz.comparison.common import compared_heads
from attnviz.comparison.distance import rows_at_once
from attnviz.record.softmax import as_rows
from attnviz.record.stack import AttentionStack

#: One query-key pair: layer, head, query, key, weight in the first stack, weight in the second
#: stack, and the second weight minus the first.
PairDifference = tuple[int, int, int, int, float, float, float]


def largest_differences(
    a: AttentionStack, b: AttentionStack, rows: NDArray[np.int64], top_k: int
) -> list[PairDifference]:
    """Find the `top_k` pairs with the largest absolute differences of weights, largest first.

    All heads that both stacks have are compared. Only the queries at the positions `rows` are
    compared. Pairs whose two weights are equal are left out, so the result can have fewer than
    `top_k` pairs. Pairs with equal differences are in the order of layer, head, query and key.
    """
    best: list[PairDifference] = []
    for layer, head in compared_heads(a, b):
        for queries in rows_at_once(rows, len(a.key_tokens)):
            one, two = (
                stack.attention(layer).block([head], as_rows(queries))[0].cpu().numpy()
                for stack in (a, b)
            )
            # Select pairs by differences in float32, which takes less time. Rounding errors can
            # only confuse pairs whose differences are nearly equal. The returned differences
            # are computed in float64.
            is_full = len(best) == top_k
            least = np.float32(abs(best[-1][-1])) if is_full else np.finfo(np.float32).tiny
            for row, key in _largest(np.abs(two - one), top_k, least):
                weights = float(one[row, key]), float(two[row, key])
                position = layer, head, int(queries[row]), key
                best.append((*position, *weights, weights[1] - weights[0]))
            # The sort is stable, so pairs with equal differences keep their order.
            best.sort(key=lambda pair: -abs(pair[-1]))
            del best[top_k:]
    return best


def _largest(
    sizes: NDArray[np.float32], count: int, least: np.float32
) -> Iterator[tuple[int, int]]:
    """Yield row and column of the `count` largest values that are at least `least`.

    Among equal values, those in the first rows and columns are selected and yielded first.
    """
    flat = sizes.ravel()
    indices = np.flatnonzero(flat >= least)
    order = np.argsort(-flat[indices], kind="stable")[:count]
    for index in indices[order].tolist():
        yield divmod(index, sizes.shape[1])
