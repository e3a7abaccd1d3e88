"""Some rows of a long text's attention, from which the rest is estimated.

All maps of a model of a hundred thousand tokens are days of computing; a few exact rows of each
head are seconds, and say already what kind of head it is.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.head_subset import vectors_of_head, vectors_of_layer
from attnviz.record.softmax import normalized

__all__ = ["SAMPLED_QUERIES", "affords_maps", "sampled_queries", "weights_of_rows"]

#: Queries that estimates are made from: the standard error of a share is then at most 0.063.
SAMPLED_QUERIES = 64

# Weights of a head of 4,096 queries and keys: a map of it takes a processor about 0.3 s, which all
# heads in sight may cost. A device makes a hundred times as many in that time.
_CELLS = 1 << 24
_DEVICE_CELLS = 1 << 30

# Its multiples fall evenly into any part of a circle, and into step with nothing.
_GOLDEN = (5**0.5 - 1) / 2


def affords_maps(layers: Iterable[LayerAttention], num_cells: int) -> bool:
    """Whether whole maps of all heads can be made while somebody waits.

    Parameters
    ----------
    layers : iterable of LayerAttention
        Those of a stack.
    num_cells : int
        Queries times keys of a head.

    Returns
    -------
    bool
        Up to 4,096 queries and keys; up to 32,768 where all queries and keys lie on a device.

    Examples
    --------
    >>> affords_maps([], 4096 * 4096), affords_maps([], 4096 * 4097)
    (True, False)
    """
    vectors = [vectors_of_layer(layer) for layer in layers]
    device = vectors and all(each is not None and each.queries.is_cuda for each in vectors)
    return num_cells <= (_DEVICE_CELLS if device else _CELLS)


def sampled_queries(num_queries: int, most: int = SAMPLED_QUERIES) -> NDArray[np.int64]:
    """Queries from all over a text, as many from each part of it.

    Parameters
    ----------
    num_queries : int
        How many there are, at least 1.
    most : int, default 64
        How many are wanted, at least 1.

    Returns
    -------
    ndarray of int64
        Ascending; all where there are no more than `most`. Otherwise one from each of `most` equal
        parts, at multiples of the golden ratio of the part's length: always the same ones, and out
        of step with whatever repeats, such as the rows of an image, where evenly spaced ones might
        all lie in one column.

    Raises
    ------
    ValueError
        If `most` is not positive.

    Examples
    --------
    >>> sampled_queries(3).tolist()
    [0, 1, 2]
    >>> sampled_queries(32_768)[:4].tolist()
    [256, 572, 1400, 1717]
    """
    if most < 1:
        raise ValueError(f"queries={most} must be at least 1, the number of queries to take")
    taken = min(num_queries, most)
    part = np.arange(taken)
    within = (0.5 + part * _GOLDEN) % 1.0
    # Rounding must not lead into the next part, where all are wanted least of all.
    found = np.floor((part + within) * (num_queries / taken)).astype(np.int64)
    return np.minimum(found, (part + 1) * num_queries // taken - 1)


def weights_of_rows(
    attention: LayerAttention, head: int, rows: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Weights of any queries of a head with all keys.

    Parameters
    ----------
    attention : LayerAttention
        What is kept of the layer.
    head : int
        The model's number of the head.
    rows : ndarray of int64
        The queries, not many: all of their weights are held at once.

    Returns
    -------
    weights : ndarray of float32
        (rows, keys).
    allowed : ndarray of bool
        Which of them the mask lets through, (rows, keys).

    Examples
    --------
    >>> from attnviz.record.attention import GivenWeights
    >>> given = GivenWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
    >>> weights_of_rows(given, 0, np.array([1]))[0]
    array([[0.25, 0.75]], dtype=float32)
    """
    known = vectors_of_head(attention, head)
    if known is None:
        columns = slice(0, attention.num_keys)
        # Neighbours at once: of a short text, all.
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        each = [slice(int(run[0]), int(run[-1]) + 1) for run in runs]
        return (
            np.concatenate([attention.weights(head, row, columns) for row in each]),
            np.concatenate([attention.allowed(head, row, columns) for row in each]),
        )
    vectors, place = known
    numbers = torch.from_numpy(rows)
    with torch.no_grad():
        logits = vectors.logits(place, numbers)
        allowed = ~torch.isneginf(logits)
        weights = normalized(logits, vectors.log_sum_exp(place, numbers))
    return weights.cpu().numpy(), allowed.cpu().numpy()
