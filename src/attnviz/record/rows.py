"""Selection of a few queries of a long text, which represent all queries.

From the weights of these queries, views estimate means over all queries, such as the mean weight of
a head on the previous token. For a text of a hundred thousand tokens, computing all weights of all
heads takes days. Computing the weights of a few queries per head takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import whole_number

#: Default number of sampled queries. For numbers between 0 and 1, one per query, the mean over a
#: random sample of this size has a standard error of at most 0.5 / sqrt(64) = 0.063.
SAMPLED_QUERIES = 64

# Limits of `can_compute_maps`, in query-key pairs: `_MAX_ENTRIES` on a CPU, `_MAX_DEVICE_ENTRIES`
# on a GPU. A CPU computes the weights of a head with 4,096 queries and 4,096 keys in about 0.3 s.
_MAX_ENTRIES = 1 << 24
_MAX_DEVICE_ENTRIES = 1 << 30

# The fractional parts of multiples of this number are spread evenly between 0 and 1, without a
# periodic pattern.
_GOLDEN_RATIO = (5**0.5 - 1) / 2


def can_compute_maps(layers: Iterable[LayerAttention], num_cells: int) -> bool:
    """Whether one head of `layers` is small enough for a view to compute all of its weights.

    `num_cells` is the number of these weights: queries times keys. The limit is 4,096 times 4,096,
    or 32,768 times 32,768 if all layers store queries and keys on a CUDA GPU.

    >>> can_compute_maps([], 4096 * 4096), can_compute_maps([], 4096 * 4097)
    (True, False)
    """
    vectors = [layer.vectors for layer in layers]
    on_device = vectors and all(
        attention is not None and attention.queries.is_cuda for attention in vectors
    )
    return num_cells <= (_MAX_DEVICE_ENTRIES if on_device else _MAX_ENTRIES)


def num_scored_queries(stack: AttentionStack) -> int | None:
    """Return the number of queries that views sample, or None if they use all queries.

    Views use all queries if `can_compute_maps` is True for the stack.
    """
    layers = [stack.attention(layer) for layer in stack.layers]
    num_queries = len(stack.query_tokens)
    if can_compute_maps(layers, num_queries * len(stack.key_tokens)):
        return None
    return min(SAMPLED_QUERIES, num_queries)


def sample_queries(num_queries: int, max_queries: int = SAMPLED_QUERIES) -> NDArray[np.int64]:
    """Return ascending query positions, spread evenly over the text.

    If the text has at most `max_queries` queries, all of them are returned. Otherwise, the text is
    divided into `max_queries` sections of equal length, and one query of each section is selected.
    In section k (from 0), the query is at the fraction (0.5 + k * golden ratio) mod 1 of the
    section. The distances between selected queries therefore differ. With equal distances, all
    selected patches of an image could be in one column.

    Raise ValueError if `max_queries` is less than 1.

    >>> sample_queries(3).tolist()
    [0, 1, 2]
    >>> sample_queries(32_768)[:4].tolist()
    [256, 572, 1400, 1717]
    """
    max_queries = whole_number("max_queries", max_queries, 1, hint="the number of queries to take")
    num_sampled = min(num_queries, max_queries)
    parts = np.arange(num_sampled)
    offsets = (0.5 + parts * _GOLDEN_RATIO) % 1.0
    positions = np.floor((parts + offsets) * (num_queries / num_sampled)).astype(np.int64)
    # The end of a section may lie inside of a query. This query belongs to the next section. Limit
    # each position to the last query that ends in its own section.
    return np.minimum(positions, (parts + 1) * num_queries // num_sampled - 1)
