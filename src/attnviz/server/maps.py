"""Small maps of complete heads, made by max pooling so that large weights stay visible."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.rows import affords_maps, sampled_queries
from attnviz.record.softmax import normalized, tiles
from attnviz.record.stack import AttentionStack, find_maximum
from attnviz.server.codec import Encoded, encode
from attnviz.server.pooling import joined, parted
from attnviz.server.protocol import MAX_REPLY_BYTES, heads_of
from attnviz.utils.progress import STEP, Pace, Steps

__all__ = ["Maps", "encoded_maps", "pooled_where_it_lies"]


class Maps(NamedTuple):
    """Maps of heads, with the exact largest weight of each map.

    Attributes
    ----------
    encoded : Encoded
        Cells of the maps, one byte per cell.
    sampled : list of int or None
        Sampled queries, one per row of the map, or None if all queries were used.
    largest : list of tuple
        Flat index (row-major) and exact value of the largest cell of each map. Signed numbers are
        compared by absolute value.
    """

    encoded: Encoded
    sampled: list[int] | None
    largest: list[tuple[int, float]]


def encoded_maps(
    stack: AttentionStack,
    layer: int,
    size: int,
    *,
    heads: Sequence[int] | None = None,
    rows: slice | None = None,
    columns: slice | None = None,
) -> Steps[Maps]:
    """Return max-pooled maps of heads, in steps. Signed numbers are pooled by absolute value.

    If computing every weight would take too long (see `affords_maps`), each row of a map shows one
    query, sampled from the queries that the row covers.
    """
    if size < 1:
        raise ValueError(f"size={size} must be at least 1")
    layer, heads = heads_of(stack, layer, range(stack.num_heads(layer)) if heads is None else heads)
    rows = rows or slice(0, len(stack.query_tokens))
    columns = columns or slice(0, len(stack.key_tokens))
    cells = len(heads)
    for side in (rows, columns):
        cells *= min(side.stop - side.start, size)
    if cells > MAX_REPLY_BYTES:
        # Fail before the computation, which can take minutes.
        raise ValueError(
            f"size={size} needs {cells} bytes, more than the {MAX_REPLY_BYTES} of a reply. "
            "Request smaller maps."
        )
    maximum = yield from find_maximum(stack)
    pairs = (rows.stop - rows.start) * (columns.stop - columns.start)
    queries = None
    if not affords_maps([stack.attention(layer)], pairs):
        queries = rows.start + sampled_queries(rows.stop - rows.start, size)
    attention = stack.attention(layer)
    vectors = attention.vectors
    num_rows = rows.stop - rows.start if queries is None else len(queries)
    pace = Pace("maps", len(heads) * num_rows * attention.num_keys)
    maps = []
    for head in heads:
        if queries is None and vectors is not None and vectors.queries.is_cuda:
            maps.append(pooled_where_it_lies(vectors, head, rows, columns, size)[None])
            yield from pace.advance(STEP)
            continue
        # Update the maxima tile by tile, so that only one tile of weights is in memory.
        tops, lefts = (np.array(_edges(side, size)[:-1]) for side in (slice(0, num_rows), columns))
        most = np.full((1 + stack.signed, len(tops), len(lefts)), -np.inf, np.float32)
        for part in tiles(slice(0, num_rows), attention.num_keys):
            if queries is None:
                here = slice(rows.start + part.start, rows.start + part.stop)
                weights = attention.weights(head, here, columns)
            else:
                weights = attention.weights_of_rows(head, queries[part])[0][:, columns]
            cell = np.searchsorted(tops, np.arange(part.start, part.stop), side="right") - 1
            firsts = np.flatnonzero(np.diff(cell, prepend=-1))
            touched = cell[firsts]
            for of_part, numbers in zip(most, parted(weights, signed=stack.signed), strict=True):
                # Pool along the contiguous axis first.
                found = np.maximum.reduceat(numbers, lefts - columns.start, axis=1)
                found = np.maximum.reduceat(found, firsts, axis=0)
                of_part[touched] = np.maximum(of_part[touched], found)
            yield from pace.advance(len(weights) * attention.num_keys)
        maps.append(joined(most)[None])
    of = f"stack {stack.name!r}, layer {layer}"
    encoded = encode(np.concatenate(maps), "uint8", maximum, signed=stack.signed, of=of)
    places = [int(np.abs(each).argmax()) for each in maps]
    largest = [(at, float(each.flat[at])) for at, each in zip(places, maps, strict=True)]
    return Maps(encoded, None if queries is None else queries.tolist(), largest)


def pooled_where_it_lies(
    vectors: QueryKeyAttention, place: int, rows: slice, columns: slice, size: int
) -> NDArray[np.float32]:
    """Return the max-pooled map of a head, computed on the device of its queries and keys.

    Only the map is copied from the device. The weights are computed tile by tile: those of 32,768
    queries and keys take four gigabytes.

    Returns
    -------
    ndarray
        float32, with the cells of `attnviz.server.codec.pool_max`.
    """
    tops, lefts = _edges(rows, size), _edges(columns, size)
    found = torch.zeros(len(tops) - 1, len(lefts) - 1, device=vectors.queries.device)
    with torch.no_grad():
        for cell, (top, bottom) in enumerate(pairwise(tops)):
            for part in tiles(slice(top, bottom), vectors.num_keys):
                sums = vectors.log_normalizer(place, part)
                weights = normalized(vectors.logits(place, part, columns), sums).amax(dim=0)
                pieces = [
                    weights[left - columns.start : right - columns.start].amax()
                    for left, right in pairwise(lefts)
                ]
                found[cell] = torch.maximum(found[cell], torch.stack(pieces))
    pooled: NDArray[np.float32] = found.cpu().numpy()
    return pooled


def _edges(side: slice, size: int) -> list[int]:
    """Return the first index of each cell of a map, and the end of the last cell."""
    count = side.stop - side.start
    cells = min(count, size)
    return [side.start + cell * count // cells for cell in range(cells + 1)]
