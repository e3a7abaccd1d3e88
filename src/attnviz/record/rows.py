"""Sampled rows of a long text's attention, from which scores are estimated.

Maps of all heads of a model with a hundred thousand tokens take days to compute. A few exact rows
per head take seconds and are enough to characterize a head.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import whole_number

__all__ = ["SAMPLED_QUERIES", "can_compute_maps", "num_scored_queries", "sample_queries"]

#: Default number of sampled queries. The standard error of a share is then at most 0.063.
SAMPLED_QUERIES = 64

# Entries of a head with 4,096 queries and keys. A CPU computes its map in about 0.3 s, the time
# budget for all visible heads. A GPU computes a hundred times as many.
_MAX_ENTRIES = 1 << 24
_MAX_DEVICE_ENTRIES = 1 << 30

# Multiples of this number spread evenly over the unit interval and follow no periodic pattern.
_GOLDEN_RATIO = (5**0.5 - 1) / 2


def can_compute_maps(layers: Iterable[LayerAttention], num_cells: int) -> bool:
    """Whether complete maps of all heads of `layers` are fast enough for an interactive view.

    `num_cells` is queries times keys. The limit is 4,096 of each, or 32,768 of each if all queries
    and keys are on a GPU.

    >>> can_compute_maps([], 4096 * 4096), can_compute_maps([], 4096 * 4097)
    (True, False)
    """
    vectors = [layer.vectors for layer in layers]
    on_device = vectors and all(
        attention is not None and attention.queries.is_cuda for attention in vectors
    )
    return num_cells <= (_MAX_DEVICE_ENTRIES if on_device else _MAX_ENTRIES)


def num_scored_queries(stack: AttentionStack) -> int | None:
    """Return the number of queries from which views compute head scores, or None for all.

    Above the limit of `can_compute_maps`, scores of all queries would take too long.
    """
    layers = [stack.attention(layer) for layer in stack.layers]
    num_queries = len(stack.query_tokens)
    if can_compute_maps(layers, num_queries * len(stack.key_tokens)):
        return None
    return min(SAMPLED_QUERIES, num_queries)


def sample_queries(num_queries: int, max_queries: int = SAMPLED_QUERIES) -> NDArray[np.int64]:
    """Return ascending query positions, spread evenly over the text.

    All queries are returned if there are at most `max_queries`. Otherwise the text is divided into
    `max_queries` equal parts. Each part contributes one query, at multiples of the golden ratio of
    the part's length. The selection is deterministic. It avoids periodic structure such as the
    rows of an image, where evenly spaced queries could all be in one column.

    >>> sample_queries(3).tolist()
    [0, 1, 2]
    >>> sample_queries(32_768)[:4].tolist()
    [256, 572, 1400, 1717]
    """
    max_queries = whole_number("max_queries", max_queries, 1, hint="the number of queries to take")
    num_sampled = min(num_queries, max_queries)
    parts = np.arange(num_sampled)
    offsets = (0.5 + parts * _GOLDEN_RATIO) % 1.0
    # Rounding must not move a query into the next part.
    positions = np.floor((parts + offsets) * (num_queries / num_sampled)).astype(np.int64)
    return np.minimum(positions, (parts + 1) * num_queries // num_sampled - 1)
