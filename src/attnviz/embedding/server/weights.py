"""Attention weights in a corpus: lines of a point, and strongest keys.

A point is a query or a key of one token. The attention lines of a query end at its strongest keys,
and those of a key end at the queries with the largest weights on this key.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.record.rows import sample_queries
from attnviz.record.softmax import as_rows, strongest_keys

#: Maximum number of attention lines of a point.
MAX_LINES = 64
# Approximate maximum number of weights to compute for one reply, which takes about 0.1 s on one
# core. `top_keys` computes this many at once.
_MAX_WEIGHTS = 1 << 22
# Minimum number of queries to sample from a long text. Fewer queries are too few to compare
# positions.
_MIN_QUERIES = 16

Floats = NDArray[np.float32]


class LinesHeader(TypedDict):
    """Header of a reply with the attention lines of a point.

    Attributes
    ----------
    points, weights : list
        Number of the point at the other end of each line (`points`), and weight of the line
        (`weights`), in descending order of weights.
    covered : float
        Sum of `weights` as a share of a total weight. For a query, the total is its weight on all
        keys of its text. For a key, the total is the weight on it from those queries of its text
        that were searched: all, or for a long text a sample. 0 if the total is 0.
    """

    points: list[int]
    weights: list[float]
    covered: float


def lines(corpus: Corpus, stack: str, layer: int, head: int, point: int) -> LinesHeader:
    """Find the lines of a point: the strongest keys of a query, or the strongest queries of a key.

    Only keys or queries that are points of the same text have lines, at most `MAX_LINES`.
    """
    points = corpus.points(stack)
    if not 0 <= point < len(points):
        raise IndexError(f"point={point}: stack {stack!r} has points 0 to {len(points) - 1}")
    text, position = points.location(point)
    own = corpus.records[text].stack(stack)
    one = slice(position, position + 1)
    if point < points.num_queries:
        own_points = points.keys_of(text)
        weights = own.weights(layer=layer, head=head, rows=one)[0]
        numbers = points.num_queries + np.arange(own_points.start, own_points.stop)
        point_weights = weights[points.key_position[own_points]]
    else:
        own_points = points.queries_of(text)
        max_queries = max(_MIN_QUERIES, _MAX_WEIGHTS // len(own.key_tokens))
        count = own_points.stop - own_points.start
        numbers = own_points.start + sample_queries(count, max_queries) if count else np.arange(0)
        rows = points.query_position[numbers].astype(np.int64)
        heads = [own.head_number(layer, head)]
        block = own.attention(layer).block(heads, torch.from_numpy(rows), one)
        weights = point_weights = block[0, :, 0].cpu().numpy()
    if not np.isfinite(weights).all():
        raise ValueError(
            f"layer {layer}, head {head}: some weights are NaN or infinite, because the model's "
            "queries or keys are"
        )
    total = float(weights.sum(dtype=np.float64))
    strongest = np.argsort(-point_weights, kind="stable")[:MAX_LINES]
    strongest = strongest[point_weights[strongest] > 0]
    shown = point_weights[strongest]
    return {
        "points": numbers[strongest].tolist(),
        "weights": [float(weight) for weight in shown],
        "covered": float(shown.sum(dtype=np.float64)) / total if total > 0 else 0.0,
    }


def top_keys(
    corpus: Corpus, stack: str, layer: int, head: int, count: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Return the weights and the indices of the `count` strongest keys of each query.

    Both arrays have the shape (count, queries), with descending weights. An index is relative to
    the first key point of the query's text. If fewer than `count` key points of the text have
    weight, the remaining weights and indices are 0. So are those of all queries if a weight is not
    finite.
    """
    points = corpus.points(stack)
    weights = np.zeros((count, points.num_queries), np.float32)
    keys = np.zeros((count, points.num_queries), np.int64)
    for text in points.texts:
        own = points.queries_of(text)
        columns = points.key_position[points.keys_of(text)]
        if own.stop == own.start or not len(columns):
            continue
        attention = corpus.records[text].stack(stack).attention(layer)
        step = max(1, _MAX_WEIGHTS // attention.num_keys)
        for start in range(own.start, own.stop, step):
            chunk = slice(start, min(own.stop, start + step))
            rows = points.query_position[chunk].astype(np.int64)
            text_weights = attention.block([head], as_rows(rows))[0][:, columns].cpu()
            if not text_weights.isfinite().all():
                return np.zeros_like(weights), np.zeros_like(keys)
            strongest, order = strongest_keys(text_weights, count)
            weights[: strongest.shape[1], chunk] = strongest.numpy().T
            keys[: strongest.shape[1], chunk] = order.numpy().T
    keys[weights == 0] = 0
    return weights, keys
