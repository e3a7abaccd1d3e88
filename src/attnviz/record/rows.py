"""Some rows of a long text's attention, from which the rest is estimated.

All maps of a model of a hundred thousand tokens are days of computing; a few exact rows of each
head are seconds, and say already what kind of head it is.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import whole_number

__all__ = ["SAMPLED_QUERIES", "affords_maps", "sampled_queries", "scored_queries"]

#: Queries that estimates are made from: the standard error of a share is then at most 0.063.
SAMPLED_QUERIES = 64

# Weights of a head of 4,096 queries and keys: a map of it takes a processor about 0.3 s, which all
# heads in sight may cost. A device makes a hundred times as many in that time.
_CELLS = 1 << 24
_DEVICE_CELLS = 1 << 30

# Its multiples fall evenly into any part of a circle, and into step with nothing.
_GOLDEN = (5**0.5 - 1) / 2


def affords_maps(layers: Iterable[LayerAttention], num_cells: int) -> bool:
    """Whether whole maps of all heads of some layers can be made while a reader waits.

    `num_cells` is queries times keys: up to 4,096 of each; up to 32,768 where all queries and keys
    lie on a device.

    >>> affords_maps([], 4096 * 4096), affords_maps([], 4096 * 4097)
    (True, False)
    """
    vectors = [layer.vectors for layer in layers]
    device = vectors and all(each is not None and each.queries.is_cuda for each in vectors)
    return num_cells <= (_DEVICE_CELLS if device else _CELLS)


def scored_queries(stack: AttentionStack) -> int | None:
    """How many queries views score a stack's heads from, None for all.

    Above what `affords_maps` says, scores of all heads would take too long.
    """
    layers = [stack.attention(layer) for layer in stack.layers]
    num_queries = len(stack.query_tokens)
    if affords_maps(layers, num_queries * len(stack.key_tokens)):
        return None
    return min(SAMPLED_QUERIES, num_queries)


def sampled_queries(num_queries: int, most: int = SAMPLED_QUERIES) -> NDArray[np.int64]:
    """Queries from all over a text, as many from each part of it, ascending.

    All where there are no more than `most`. Otherwise one from each of `most` equal parts, at
    multiples of the golden ratio of the part's length: always the same ones, and out of step with
    whatever repeats, such as the rows of an image, where evenly spaced ones might all lie in one
    column.

    >>> sampled_queries(3).tolist()
    [0, 1, 2]
    >>> sampled_queries(32_768)[:4].tolist()
    [256, 572, 1400, 1717]
    """
    most = whole_number("queries", most, 1, hint="the number of queries to take")
    taken = min(num_queries, most)
    part = np.arange(taken)
    within = (0.5 + part * _GOLDEN) % 1.0
    # Rounding must not lead into the next part, where all are wanted least of all.
    found = np.floor((part + within) * (num_queries / taken)).astype(np.int64)
    return np.minimum(found, (part + 1) * num_queries // taken - 1)
