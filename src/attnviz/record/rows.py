"""Selection of a few queries of a long text, from which views estimate numbers of each head.

An example of such a number is the mean weight of a head on the previous token. For a text of a
hundred thousand tokens, computing all weights of all heads takes days. The weights of a few queries
per head take seconds, and such means can be estimated from them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import whole_number

#: Default number of sampled queries. The standard error of an estimated mean of numbers between 0
#: and 1 is at most 0.063.
SAMPLED_QUERIES = 64

# Maximum numbers of query-key pairs in `can_compute_maps`, for a CPU and for a GPU. A CPU computes
# the weights of a head with 4,096 queries and 4,096 keys in about 0.3 s.
_MAX_ENTRIES = 1 << 24
_MAX_DEVICE_ENTRIES = 1 << 30

# The fractional parts of multiples of this number are spread evenly between 0 and 1, without a
# periodic pattern.
_GOLDEN_RATIO = (5**0.5 - 1) / 2


def can_compute_maps(layers: Iterable[LayerAttention], num_cells: int) -> bool:
    """Whether a view can compute all weights of a head of `layers` fast enough.

    `num_cells` is the number of queries times the number of keys. It must be at most 4,096 times
    4,096, or 32,768 times 32,768 if all layers store queries and keys on a GPU.

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

    Views use all queries unless the stack exceeds the limit of `can_compute_maps`.
    """
    layers = [stack.attention(layer) for layer in stack.layers]
    num_queries = len(stack.query_tokens)
    if can_compute_maps(layers, num_queries * len(stack.key_tokens)):
        return None
    return min(SAMPLED_QUERIES, num_queries)


def sample_queries(num_queries: int, max_queries: int = SAMPLED_QUERIES) -> NDArray[np.int64]:
    """Return ascending query positions, spread evenly over the text.

    If the text has at most `max_queries` queries, all of them are returned. Otherwise, the text is
    divided into `max_queries` equal parts, and one query of each part is selected. Its position
    within part k, as a share of the part, is the fractional part of 0.5 + k times the golden ratio.
    The distances of the positions therefore differ. With equal distances, all selected patches of
    an image could be in one column.

    >>> sample_queries(3).tolist()
    [0, 1, 2]
    >>> sample_queries(32_768)[:4].tolist()
    [256, 572, 1400, 1717]
    """
    max_queries = whole_number("max_queries", max_queries, 1, hint="the number of queries to take")
    num_sampled = min(num_queries, max_queries)
    parts = np.arange(num_sampled)
    offsets = (0.5 + parts * _GOLDEN_RATIO) % 1.0
    # Limit each position to its part, because rounding could move it into the next part.
    positions = np.floor((parts + offsets) * (num_queries / num_sampled)).astype(np.int64)
    return np.minimum(positions, (parts + 1) * num_queries // num_sampled - 1)
