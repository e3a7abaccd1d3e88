"""Functions that compute masks, weights and pooled weights by formulas from fields of a layer.

Tests compare the packages `record` and `server` with these functions, which compute in float64
and call no method of attnviz that computes weights.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.difference import DifferenceAttention
from attnviz.record.masks import (
    BandMask,
    Bias,
    ChosenMask,
    DenseBias,
    DistanceBias,
    Mask,
    PackedMask,
    WindowBias,
    WindowMask,
)
from attnviz.record.units import UnitAttention

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def mask_of(mask: Mask | None, heads: int, queries: int, keys: int) -> Flags:
    """Return booleans (heads, queries, keys), True for allowed pairs. None allows all pairs."""
    flags: Flags = np.ones((heads, queries, keys), np.bool_)
    query, key = np.ogrid[:queries, :keys]
    match mask:
        case BandMask(before, after, offset):
            flags &= (before is None or query + offset - key <= before) & (
                after is None or key - query - offset <= after
            )
        case PackedMask(bits):
            flags &= np.unpackbits(bits.numpy(), axis=2, count=keys, bitorder="little") == 1
        case WindowMask(query_windows, key_windows):
            flags &= query_windows.numpy()[:, None] == key_windows.numpy()
        case ChosenMask(chosen, base):
            flags &= mask_of(chosen, heads, queries, keys) & mask_of(base, heads, queries, keys)
        case _:
            assert mask is None
    return flags


def bias_of(bias: Bias | None, heads: int, queries: int, keys: int) -> Floats:
    """Return the numbers (heads, queries, keys) that `bias` adds to logits. None adds 0."""
    added = np.zeros((heads, queries, keys))
    query, key = np.ogrid[:queries, :keys]
    match bias:
        case DistanceBias(values):
            added += values.numpy()[:, key - query + queries - 1]
        case DenseBias(values):
            added += values.numpy()
        case WindowBias():
            query_window, key_window = bias.query_windows.numpy(), bias.key_windows.numpy()
            values = np.broadcast_to(bias.values.numpy(), (1, heads, *bias.values.shape[2:]))[0]
            added += values[:, bias.query_positions.numpy()[:, None], bias.key_positions.numpy()]
            added[:, query_window[:, None] != key_window] = 0
        case _:
            assert bias is None
    return added


def allowed_pairs(attention: LayerAttention) -> Flags:
    """Return booleans (heads, queries, keys): True if the query may attend to the key.

    A query unit may attend to a key unit if any of its tokens may attend to any token of the key
    unit. A difference allows a pair if `a` or `b` allows it, except in rows in which `a` or `b`
    allows no key. Stored weights allow all pairs.
    """
    match attention:
        case QueryKeyAttention():
            shape = attention.num_heads, attention.num_queries, attention.num_keys
            return mask_of(attention.mask, *shape)
        case UnitAttention(base, query_starts, key_starts):
            flags: Flags = in_units(allowed_pairs(base), query_starts, key_starts) > 0
            return flags
        case DifferenceAttention(a, b):
            sides = allowed_pairs(a), allowed_pairs(b)
            rows = sides[0].any(axis=2) & sides[1].any(axis=2)
            return (sides[0] | sides[1]) & np.asarray(rows)[:, :, None]
    return np.ones((attention.num_heads, attention.num_queries, attention.num_keys), np.bool_)


def logits_of(attention: QueryKeyAttention) -> Floats:
    """Return the logits, (heads, queries, keys). Forbidden pairs have minus infinity."""
    queries, keys = attention.queries.double().numpy(), attention.keys.double().numpy()
    keys = keys.repeat(len(queries) // len(keys), axis=0)
    logits: Floats = np.einsum("hqd,hkd->hqk", queries, keys) * attention.scale
    if attention.softcap is not None:
        logits = attention.softcap * np.tanh(logits / attention.softcap)
    return np.where(
        allowed_pairs(attention), logits + bias_of(attention.bias, *logits.shape), -np.inf
    )


def normalizers_of(attention: QueryKeyAttention) -> Floats:
    """Return the logarithm of the softmax denominator of each row, (heads, queries)."""
    sums = np.exp(logits_of(attention)).sum(axis=2)
    if attention.sinks is not None:
        sums += np.exp(attention.sinks.double().numpy())[:, None]
    with np.errstate(divide="ignore"):
        normalizers: Floats = np.log(sums)
    return normalizers


def weights_of(attention: LayerAttention) -> Floats:
    """Return the weights or differences of all heads, (heads, queries, keys)."""
    match attention:
        case StoredWeights(values):
            return values.double().numpy()
        case UnitAttention(base, query_starts, key_starts):
            return in_units(weights_of(base), query_starts, key_starts)
        case DifferenceAttention(a, b):
            rows = allowed_pairs(attention).any(axis=2, keepdims=True)
            return (weights_of(b) - weights_of(a)) * rows
    assert isinstance(attention, QueryKeyAttention)
    normalizers = normalizers_of(attention)[:, :, None]
    # A row with neither an allowed key nor a sink has the normalizer -inf. Its weights are 0.
    return np.exp(logits_of(attention) - np.where(np.isneginf(normalizers), 0, normalizers))


def in_units(
    numbers: NDArray[np.generic],
    query_starts: Sequence[int] | NDArray[np.int64],
    key_starts: Sequence[int] | NDArray[np.int64],
) -> Floats:
    """Sum `numbers` over the keys of each unit, then average over the queries of each unit.

    The result is 0 for a unit without tokens.
    """

    def tokens_of_units(starts: Sequence[int] | NDArray[np.int64], count: int) -> Floats:
        unit = np.searchsorted(starts, np.arange(count), side="right") - 1
        return np.equal(np.arange(len(starts))[:, None], unit).astype(np.float64)

    rows = tokens_of_units(query_starts, numbers.shape[-2])
    columns = tokens_of_units(key_starts, numbers.shape[-1])
    product: Floats = (rows / np.maximum(1, rows.sum(axis=1, keepdims=True))) @ numbers @ columns.T
    return product


def cell(numbers: NDArray[np.floating], pooled: str) -> float:
    """Pool positive and negative numbers separately. Return the result of larger magnitude."""
    positive, negative = np.maximum(numbers, 0), np.maximum(-numbers, 0)
    pool = np.max if pooled == "max" else np.mean
    high, low = float(pool(positive)), float(pool(negative))
    # If the magnitudes are equal apart from rounding, the positive result is returned.
    return -low if low > 1.001 * high else high


def pool(
    matrix: NDArray[np.floating], row_edges: Sequence[int], key_edges: Sequence[int], pooled: str
) -> Floats:
    """Divide the matrix at the edges into blocks, and return the `cell` of each block."""
    return np.array(
        [
            [cell(matrix[top:bottom, left:right], pooled) for left, right in pairwise(key_edges)]
            for top, bottom in pairwise(row_edges)
        ]
    )


def square_cells(matrix: NDArray[np.floating], size: int, pooled: str) -> Floats:
    """Pool each block of `size` rows and `size` keys. The last blocks may be smaller."""
    edges = [[*range(0, count, size), count] for count in matrix.shape]
    return pool(matrix, edges[0], edges[1], pooled)


def equal_cells(matrix: NDArray[np.floating], max_cells: int) -> Floats:
    """Divide the matrix into blocks of nearly equal size. Pool each block by the maximum.

    There are at most `max_cells` blocks along each axis.
    """
    edges = [
        [index * count // min(count, max_cells) for index in range(min(count, max_cells) + 1)]
        for count in matrix.shape
    ]
    return pool(matrix, edges[0], edges[1], "max")


def combined(numbers: Floats, combine: str) -> Floats:
    """Combine the heads of an array (heads, queries, keys). "separate" returns the array itself.

    The maximum is the number with the largest magnitude, of equal ones that of the first head.
    """
    if combine == "separate":
        return numbers
    if combine == "mean":
        return np.asarray(numbers.mean(axis=0, keepdims=True))
    largest = np.abs(numbers).argmax(axis=0)[None]
    return np.take_along_axis(numbers, largest, axis=0)


def strongest_numbers(matrix: Floats, k: int, excluded: Collection[int], first: int = 0) -> Floats:
    """Return for each row its k strongest keys, their numbers, and two sums of magnitudes.

    The first column is key `first`. The sums are over the included and over the excluded keys.
    """
    rows = []
    for row in matrix:
        sums = [0.0, 0.0]
        included = []
        for key, number in enumerate(row, first):
            sums[key in excluded] += abs(number)
            if key not in excluded and number:
                included.append((-abs(number), key, number))
        top = sorted(included)[:k]
        padding = min(k, len(row)) - len(top)
        keys = [key for _, key, _ in top] + [-1] * padding
        rows.append([*keys, *(number for _, _, number in top), *[0.0] * padding, *sums])
    return np.array(rows, np.float64)
