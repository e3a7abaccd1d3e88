"""How far the attention of two heads lies apart, and how far rounding alone would move it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, QueryKeyAttention
from attnviz.record.rows import sampled_queries
from attnviz.record.softmax import tiles

__all__ = ["MEASURES", "Measure", "head_distance", "rounding_distance", "rows_at_once"]

Measure = Literal["total variation", "Jensen-Shannon"]
Numbers = NDArray[np.float64]

# Relative error of a query or key vector at the first layer, in units of the dtype's rounding (half
# its epsilon). Products are summed in float32, so that float32 itself loses more of its digits.
_ROUNDINGS = {torch.float16: 1.0, torch.bfloat16: 1.0, torch.float32: 8.0, torch.float64: 8.0}
# Distances of rounded copies were up to 1.8 times those of one such error (docs/compare.md).
_SAFETY = 2.0


def total_variation(a: Numbers, b: Numbers) -> Numbers:
    """Half the sum of all differences, (rows,): the share of the weight that moved.

    What a row has less than 1, an attention sink's share, counts as one more key.

    >>> total_variation(np.array([[0.5, 0.5, 0.0]]), np.array([[0.5, 0.0, 0.25]]))
    array([0.5])
    """
    difference = b - a
    moved: Numbers = (np.abs(difference).sum(axis=1) + np.abs(difference.sum(axis=1))) / 2
    return moved


def jensen_shannon(a: Numbers, b: Numbers) -> Numbers:
    """Jensen-Shannon divergence in bits, (rows,), from 0 to 1 (Lin 1991).

    >>> jensen_shannon(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    array([1.])
    """
    a, b = (np.column_stack([each, np.clip(1 - each.sum(axis=1), 0, None)]) for each in (a, b))
    middle = (a + b) / 2
    divergence = np.zeros(len(a))
    for each in (a, b):
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(each > 0, each * np.log2(each / middle), 0.0)
        divergence += terms.sum(axis=1) / 2
    return np.clip(divergence, 0.0, 1.0)


MEASURES: dict[Measure, Callable[[Numbers, Numbers], Numbers]] = {
    "total variation": total_variation,
    "Jensen-Shannon": jensen_shannon,
}


def head_distance(
    a: LayerAttention,
    b: LayerAttention,
    heads: tuple[int, int],
    queries: NDArray[np.int64],
    measure: Measure = "total variation",
) -> float:
    """Mean distance of two heads over some queries, ascending; NaN where none can be compared.

    A query counts that may attend to something in both. Some rows at a time: nothing as large as
    queries times keys is held.
    """
    total, count = 0.0, 0
    for some in rows_at_once(queries, a.num_keys):
        one = a.weights_of_rows(heads[0], some)[0].astype(np.float64)
        two = b.weights_of_rows(heads[1], some)[0].astype(np.float64)
        there = one.any(axis=1) & two.any(axis=1)
        total += float(MEASURES[measure](one[there], two[there]).sum())
        count += int(there.sum())
    return total / count if count else float("nan")


def rows_at_once(queries: NDArray[np.int64], num_keys: int) -> Iterator[NDArray[np.int64]]:
    """Queries in groups whose rows are small enough to be held.

    >>> [some.tolist() for some in rows_at_once(np.arange(3), 1 << 21)]
    [[0, 1], [2]]
    """
    for tile in tiles(slice(0, len(queries)), num_keys):
        yield queries[tile]


def rounding_distance(
    attention: QueryKeyAttention, head: int, layer: int, dtype: torch.dtype
) -> float:
    """How far rounding in a dtype moves a head's attention, total variation, a mean over queries.

    An estimate. Queries and keys get random errors as large, relative to each vector, as those that
    a model's rounding leaves in them: one rounding of the dtype at the first layer, growing with
    the square root of the number of layers before. Twice the distance that this gives is returned.
    """
    relative = torch.finfo(dtype).eps / 2 * _ROUNDINGS[dtype] * (1 + layer) ** 0.5
    generator = torch.Generator().manual_seed(layer * 1009 + head)
    alone = attention.select_heads([head])
    rounded = replace(
        alone,
        queries=_disturbed(alone.queries, relative, generator),
        keys=_disturbed(alone.keys, relative, generator),
    )
    alone = replace(alone, queries=alone.queries.float(), keys=alone.keys.float())
    return _SAFETY * head_distance(alone, rounded, (0, 0), sampled_queries(attention.num_queries))


def _disturbed(vectors: torch.Tensor, relative: float, generator: torch.Generator) -> torch.Tensor:
    there = vectors.float()
    noise = torch.randn(there.shape, generator=generator).to(there.device)
    size: torch.Tensor = there.norm(dim=-1, keepdim=True) / there.shape[-1] ** 0.5
    return there + noise * size * relative
