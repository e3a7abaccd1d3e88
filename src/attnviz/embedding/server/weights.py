"""Attention weights in a corpus: lines of a point, strongest keys, and means by position.

A point is a query or a key of one token. The attention lines of a query end at its strongest keys,
and those of a key end at the queries with the largest weights on this key.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.record.attention import LayerAttention
from attnviz.record.pooling import cell_starts, pool
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


class AggregateHeader(TypedDict):
    """Header of a reply with mean weights by query position and key position.

    Attributes
    ----------
    rows, columns : int
        Number of bins of query positions (`rows`), and of key positions (`columns`).
    query_edges, key_edges : list of int
        First position of each bin of queries (`query_edges`) and of keys (`key_edges`). One more
        entry has the end of the last bin (exclusive).
    texts, of_texts : int
        Number of texts in the means (`texts`), and of all texts that have points (`of_texts`).
    queries, of_queries : int
        Number of queries in the means (`queries`), and of all queries in the texts of the means
        (`of_queries`). `queries` is smaller if only some queries of long texts are used.
    """

    rows: int
    columns: int
    query_edges: list[int]
    key_edges: list[int]
    texts: int
    of_texts: int
    queries: int
    of_queries: int


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
    num_total : int
        Number of points in the same text that could be at the other end of a line, because the mask
        allows the pair.
    """

    points: list[int]
    weights: list[float]
    covered: float
    num_total: int


def aggregate(
    corpus: Corpus, stack: str, layer: int, head: int, size: int
) -> tuple[AggregateHeader, Floats]:
    """Compute mean weights by query and key position, over the texts that have points.

    Positions are grouped into at most `size` bins per axis. The weights are float32, (bins of query
    positions, bins of key positions), with NaN if the mask allows no pair of two bins. To limit the
    time, the mean may use only some texts, evenly spaced in the corpus, and only some queries of
    each long text, evenly spaced in the text. All means are NaN if a weight is not finite.
    """
    of_texts = corpus.points(stack).texts
    stacks = [corpus.records[text].stack(stack) for text in of_texts]
    pairs = np.array(
        [len(text_stack.query_tokens) * len(text_stack.key_tokens) for text_stack in stacks]
    )
    max_texts = max(1, int(len(stacks) * min(1.0, _MAX_WEIGHTS / max(1, pairs.sum()))))
    chosen = [stacks[index] for index in sample_queries(len(stacks), max_texts)]
    num_queries = max(len(text_stack.query_tokens) for text_stack in chosen)
    num_keys = max(len(text_stack.key_tokens) for text_stack in chosen)
    starts = cell_starts(num_queries, size), cell_starts(num_keys, size)
    query_edges, key_edges = np.append(starts[0], num_queries), np.append(starts[1], num_keys)
    sums = np.zeros(tuple(map(len, starts)))
    counts = np.zeros_like(sums)
    num_sampled = 0
    max_weights = _MAX_WEIGHTS // len(chosen)
    for text_stack in chosen:
        num_keys = len(text_stack.key_tokens)
        rows = sample_queries(
            len(text_stack.query_tokens), max(_MIN_QUERIES, max_weights // num_keys)
        )
        num_sampled += len(rows)
        weights, allowed = _weights_of(text_stack.attention(layer), head, rows)
        for cells, numbers in ((sums, weights), (counts, allowed)):
            pool(cells, numbers, (rows, slice(0, num_keys)), starts, np.add)
    known = (counts > 0) & np.isfinite(sums).all()
    means = np.where(known, sums / np.maximum(counts, 1), np.nan).astype(np.float32)
    num_queries = sum(len(text_stack.query_tokens) for text_stack in chosen)
    header: AggregateHeader = {
        "rows": means.shape[0],
        "columns": means.shape[1],
        "query_edges": query_edges.tolist(),
        "key_edges": key_edges.tolist(),
        "texts": len(chosen),
        "of_texts": len(stacks),
        "queries": num_sampled,
        "of_queries": num_queries,
    }
    return header, means


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
        _check(weights, layer, head)
        total = float(weights.sum(dtype=np.float64))
        numbers = points.num_queries + np.arange(own_points.start, own_points.stop)
        point_weights = weights[points.key_position[own_points]]
        allowed = own.allowed(layer=layer, head=head, rows=one)[0]
        allowed = allowed[points.key_position[own_points]]
    else:
        own_points = points.queries_of(text)
        max_queries = max(_MIN_QUERIES, _MAX_WEIGHTS // len(own.key_tokens))
        count = own_points.stop - own_points.start
        numbers = own_points.start + sample_queries(count, max_queries) if count else np.arange(0)
        rows = points.query_position[numbers].astype(np.int64)
        heads = [own.head_number(layer, head)]
        block = own.attention(layer).block(heads, torch.from_numpy(rows), one)
        point_weights = block[0, :, 0].cpu().numpy()
        _check(point_weights, layer, head)
        total = float(point_weights.sum(dtype=np.float64))
        allowed = own.allowed(layer=layer, head=head, columns=one)[:, 0]
        allowed = allowed[points.query_position[own_points]]
    strongest = np.argsort(-point_weights, kind="stable")[:MAX_LINES]
    strongest = strongest[point_weights[strongest] > 0]
    shown = point_weights[strongest]
    return {
        "points": numbers[strongest].tolist(),
        "weights": [float(weight) for weight in shown],
        "covered": float(shown.sum(dtype=np.float64)) / total if total > 0 else 0.0,
        "num_total": int(allowed.sum()),
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
            text_weights = _weights_of(attention, head, rows)[0][:, columns]
            if not np.isfinite(text_weights).all():
                return np.zeros_like(weights), np.zeros_like(keys)
            strongest, order = strongest_keys(torch.from_numpy(text_weights), count)
            weights[: strongest.shape[1], chunk] = strongest.numpy().T
            keys[: strongest.shape[1], chunk] = order.numpy().T
    keys[weights == 0] = 0
    return weights, keys


def _weights_of(
    attention: LayerAttention, head: int, rows: NDArray[np.int64]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the weights of some queries on all keys, and flags of the allowed pairs."""
    selected = as_rows(rows)
    weights: Floats = attention.block([head], selected)[0].cpu().numpy()
    return weights, attention.allowed([head], selected)[0].numpy()


def _check(weights: Floats, layer: int, head: int) -> None:
    if not np.isfinite(weights).all():
        raise ValueError(
            f"layer {layer}, head {head}: some weights are NaN or infinite, because the "
            "model's queries or keys are"
        )
