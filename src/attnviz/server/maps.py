"""Small maps of whole heads, in which a bright cell does not vanish."""

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
    """Heads' maps, and what of them is exact.

    Attributes
    ----------
    encoded : Encoded
        One byte a cell.
    sampled : list of int or None
        The queries that stand for all, one a row; None where all were gone through.
    largest : list of tuple
        Of each map the cell with the largest weight, counted row by row, and that weight. Of signed
        numbers the largest size, and that number with its sign.
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
    """Heads' maps, pooled by the maximum (of signed numbers the largest size), in steps.

    Of a part whose every weight would take too long (see `affords_maps`) each row of a map
    is one query, taken from its share of the text.
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
        # Before minutes of computing.
        raise ValueError(f"maps of size {size} are {cells} bytes; ask for smaller ones")
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
            yield from pace.did(STEP)
            continue
        # Row by row of cells: of all rows together no more than a tile is held.
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
                # Along the rows first, as they lie in memory.
                found = np.maximum.reduceat(numbers, lefts - columns.start, axis=1)
                found = np.maximum.reduceat(found, firsts, axis=0)
                of_part[touched] = np.maximum(of_part[touched], found)
            yield from pace.did(len(weights) * attention.num_keys)
        maps.append(joined(most)[None])
    of = f"stack {stack.name!r}, layer {layer}"
    encoded = encode(np.concatenate(maps), "uint8", maximum, signed=stack.signed, of=of)
    places = [int(np.abs(each).argmax()) for each in maps]
    largest = [(at, float(each.flat[at])) for at, each in zip(places, maps, strict=True)]
    return Maps(encoded, None if queries is None else queries.tolist(), largest)


def pooled_where_it_lies(
    vectors: QueryKeyAttention, place: int, rows: slice, columns: slice, size: int
) -> NDArray[np.float32]:
    """A head's map, pooled by the maximum on the device where its queries and keys lie.

    Nothing but the map leaves the device, and no more than one of its rows is there at once: the
    weights of 32,768 queries and keys are four gigabytes.

    Returns
    -------
    ndarray
        float32, the cells of `attnviz.server.codec.pool_max`.
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
    """Where the cells of a map begin, and where the last of them ends."""
    count = side.stop - side.start
    cells = min(count, size)
    return [side.start + cell * count // cells for cell in range(cells + 1)]
