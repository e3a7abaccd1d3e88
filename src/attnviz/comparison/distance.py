"""Distance between the weights of two heads, and the distance that rounding errors alone cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import ComputedAttention, LayerAttention, QueryKeyAttention
from attnviz.record.rows import sample_queries
from attnviz.record.softmax import as_rows

Measure = Literal["total variation", "Jensen-Shannon"]
Numbers = NDArray[np.float64]
Weights = NDArray[np.float32] | Numbers

# Rows of weights are compared in groups. A group has as many rows as fit in `_MAX_CACHED` weights
# (1 MiB of float32), but never fewer than `_MIN_ROWS`. Smaller groups would take more time, because
# all keys are read again for each group.
_MAX_CACHED = 1 << 18
_MIN_ROWS = 16
# Relative error that one matrix product causes in a query or key vector, as a multiple of half the
# epsilon of the dtype. Products of float16 and bfloat16 are summed in float32, so only the result
# is rounded. Products of float32 and float64 are summed in the same dtype. There, each addition is
# rounded, too, and the estimated error of the sum is 8 times the error of one rounding.
_ROUNDINGS = {torch.float16: 1.0, torch.bfloat16: 1.0, torch.float32: 8.0, torch.float64: 8.0}
# Factor by which the estimated distance is multiplied. Measured distances between models and their
# rounded copies were up to 2.3 times the estimate without this factor (docs/compare.md).
_SAFETY = 2.5


def total_variation(a: Weights, b: Weights) -> Numbers:
    """Return the total variation distance of each row: half the sum of the absolute differences.

    The result has the shape (rows,). A distance is the share of the weight that moved to other
    keys. If a row sums to less than 1, for example because of an attention sink, the rest counts as
    the weight of one more key.

    >>> total_variation(np.array([[0.5, 0.5, 0.0]]), np.array([[0.5, 0.0, 0.25]]))
    array([0.5])
    """
    # Sum float32 weights without converting them to float64, which would take twice the time. The
    # sums are precise enough, because NumPy uses pairwise summation.
    sink_difference = a.sum(axis=1)
    sink_difference -= b.sum(axis=1)
    difference = b - a
    moved = np.abs(difference, out=difference).sum(axis=1)
    distance: Numbers = (moved.astype(np.float64) + np.abs(sink_difference)) / 2
    return distance


def jensen_shannon(a: Weights, b: Weights) -> Numbers:
    """Return the Jensen-Shannon divergence of each row in bits, (rows,), from 0 to 1 (Lin 1991).

    If a row sums to less than 1, the rest counts as the weight of one more key.

    >>> jensen_shannon(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    array([1.])
    """
    a, b = (
        np.column_stack([weights, np.clip(1 - weights.sum(axis=1, dtype=np.float64), 0, None)])
        for weights in (a, b)
    )
    middle = (a + b) / 2
    divergence = np.zeros(len(a))
    for weights in (a, b):
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(weights > 0, weights * np.log2(weights / middle), 0.0)
        divergence += terms.sum(axis=1) / 2
    return np.clip(divergence, 0.0, 1.0)


def relative_difference(a: Weights, b: Weights) -> Numbers:
    """Return the sum of the absolute differences of each row, relative to the sums of both rows.

    The sums are those of the absolute weights. The result is (rows,), from 0 to 1. If all weights
    are positive and both rows sum to 1, it is the total variation distance.

    >>> relative_difference(np.array([[0.5, -0.5]]), np.array([[0.5, 0.5]]))
    array([0.5])
    """
    sizes = np.abs(a).sum(axis=1) + np.abs(b).sum(axis=1)
    distance: Numbers = np.abs(b - a).sum(axis=1).astype(np.float64) / sizes
    return distance


MEASURES: dict[Measure, Callable[[Weights, Weights], Numbers]] = {
    "total variation": total_variation,
    "Jensen-Shannon": jensen_shannon,
}


def head_distance(
    a: LayerAttention,
    b: LayerAttention,
    head: int,
    queries: NDArray[np.int64],
    measure: Measure = "total variation",
) -> float:
    """Return the mean distance between a head of `a` and the same head of `b` over `queries`.

    `queries` must ascend. Queries whose weights are all 0 in `a` or in `b` are left out. The result
    is NaN if no query remains. Rows are computed in groups to limit the memory. For linear
    layers and indexers, `relative_difference` compares the rows, whatever the measure.
    """
    is_softmax = not isinstance(a.original, ComputedAttention)
    distance_of = MEASURES[measure] if is_softmax else relative_difference
    total, count = 0.0, 0
    for rows in rows_at_once(queries, a.num_keys):
        one, two = (side.block([head], as_rows(rows))[0].cpu().numpy() for side in (a, b))
        comparable = np.logical_and(one.any(axis=1), two.any(axis=1))
        if not comparable.all():
            one, two = one[comparable], two[comparable]
        total += float(distance_of(one, two).sum())
        count += len(one)
    return total / count if count else float("nan")


def rows_at_once(queries: NDArray[np.int64], num_keys: int) -> Iterator[NDArray[np.int64]]:
    """Split `queries` into consecutive groups whose weights fit in the CPU cache.

    A group has at least 16 queries, except the last. With more than 16,384 keys, the weights of a
    group may therefore exceed the cache.

    >>> [len(some) for some in rows_at_once(np.arange(20), 1 << 16)]
    [16, 4]
    """
    step = max(_MIN_ROWS, _MAX_CACHED // max(1, num_keys))
    for start in range(0, len(queries), step):
        yield queries[start : start + step]


def rounding_distances(
    attention: QueryKeyAttention, heads: Sequence[int], layer: int, dtype: torch.dtype
) -> list[float]:
    """Estimate the total variation distance that rounding errors of `dtype` cause in each head.

    Return one number per head in `heads`. A head is compared with a copy whose queries and keys
    have random errors, relative to the size of each vector. The errors are as large as the sum of
    3 + `layer` independent rounding errors (`_ROUNDINGS`). Three errors occur in layer 0: in the
    parameters, in the inputs, and in the products of both. Each further layer adds one. The
    estimate is the mean distance over a sample of queries, times `_SAFETY`.
    """
    relative = torch.finfo(dtype).eps / 2 * _ROUNDINGS[dtype] * (3 + layer) ** 0.5
    queries = sample_queries(attention.num_queries)
    exact = replace(attention, queries=attention.queries.float(), keys=attention.keys.float())
    distances = []
    for head in heads:
        generator = torch.Generator().manual_seed(layer * 1009 + head)
        own = exact.queries[head : head + 1], exact.keys[attention.key_head(head)][None]
        disturbed = [_disturbed(vectors, relative, generator) for vectors in own]
        # Use the vectors of this head for all heads of the copy, because the other heads are not
        # read.
        rounded = replace(
            exact,
            queries=disturbed[0].expand(attention.num_heads, -1, -1),
            keys=disturbed[1],
        )
        distances.append(_SAFETY * head_distance(exact, rounded, head, queries))
    return distances


def _disturbed(vectors: torch.Tensor, relative: float, generator: torch.Generator) -> torch.Tensor:
    exact = vectors.float()
    noise = torch.randn(exact.shape, generator=generator).to(exact.device)
    size: torch.Tensor = exact.norm(dim=-1, keepdim=True) / exact.shape[-1] ** 0.5
    return exact + noise * size * relative
