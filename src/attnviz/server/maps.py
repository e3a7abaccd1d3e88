"""Maps of the weights of heads with a limited number of cells, for example for thumbnails.

A cell of a map covers several successive queries and keys, and shows the largest of their weights
(max pooling). Therefore single large weights remain visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NotRequired

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import Rows
from attnviz.record.pooling import cell_starts, join_signs, pool, split_signs
from attnviz.record.rows import can_compute_maps, sample_queries
from attnviz.record.softmax import count_rows, row_groups, row_tiles, tile_rows
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import EncodedHeader, encode
from attnviz.server.protocol import Reply, check_heads, check_reply_size
from attnviz.utils.progress import STEP, Pace


class MapsHeader(EncodedHeader):
    """Header of a reply with maps of heads in its buffer. The map of each head is one matrix.

    Attributes
    ----------
    largest : list
        Largest cell of each map without forced queries (see `AttentionStack.forced_queries`): its
        index in the map in row-major order, and its exact weight, without the error of the
        encoding. Signed numbers are compared by absolute value. Omitted in
        an exported page.
    sampled : list of int
        Position of the query that each row of cells shows, if only some queries are used. Omitted
        if all queries are used.
    """

    largest: NotRequired[list[tuple[int, float]]]
    sampled: NotRequired[list[int]]


def encode_maps(
    stack: AttentionStack,
    layer: int,
    size: int,
    *,
    heads: Sequence[int] | None = None,
    rows: slice | None = None,
    columns: slice | None = None,
) -> Reply:
    """Compute maps of heads with at most `size` rows and `size` columns of cells.

    Return a reply with a `MapsHeader`. Each cell has the largest weight of its queries and keys.
    For signed numbers, it has the number with the largest absolute value. If computing every weight
    would take too long (see `can_compute_maps`), each row of cells shows only one of its queries.

    By default, the maps show all heads of the layer, all queries (`rows`) and all keys (`columns`).
    Raise ValueError before the computation if the maps do not fit into a reply.
    """
    if size < 1:
        raise ValueError(f"size={size} must be at least 1")
    layer, heads = check_heads(
        stack, layer, range(stack.num_heads(layer)) if heads is None else heads
    )
    rows = rows or slice(0, len(stack.query_tokens))
    columns = columns or slice(0, len(stack.key_tokens))
    num_cells = len(heads)
    for side in (rows, columns):
        num_cells *= min(side.stop - side.start, size)
    # Check the size before the computation, which can take minutes.
    check_reply_size(f"maps of size={size}", num_cells, "Request smaller maps.")
    maximum = stack.maximum
    pairs = (rows.stop - rows.start) * (columns.stop - columns.start)
    attention, vectors = stack.attention(layer), stack.attention(layer).vectors
    queries: Rows = rows
    if not can_compute_maps([attention], pairs):
        queries = torch.from_numpy(rows.start + sample_queries(rows.stop - rows.start, size))
    num_rows = count_rows(queries)
    width = columns.stop - columns.start
    starts = cell_starts(num_rows, size), cell_starts(width, size)
    pace = Pace("maps", len(heads) * num_rows * attention.num_keys)
    maps = []
    for head in heads:
        if queries is rows and vectors is not None and vectors.queries.is_cuda:
            maps.append(pool_on_device(vectors, head, rows, columns, size)[None])
            pace.advance(STEP)
            continue
        # To limit the memory, compute one block of weights at a time, and update `maxima`. For
        # signed numbers, `maxima` has two arrays: the largest positive numbers, and the largest
        # absolute values of negative numbers.
        maxima = np.full((1 + stack.signed, *map(len, starts)), -np.inf, np.float32)
        for part, group in row_groups(queries, tile_rows(attention.num_keys)):
            weights = attention.block([head], group, columns)[0].cpu().numpy()
            positions = np.arange(part.start, part.stop), slice(0, width)
            pool(maxima, split_signs(weights, signed=stack.signed), positions, starts, np.maximum)
            pace.advance(len(weights) * attention.num_keys)
        maps.append(join_signs(maxima)[None])
    label = f"stack {stack.name!r}, layer {layer}"
    reply = encode(np.concatenate(maps), "uint8", maximum, signed=stack.signed, label=label)
    numbers = np.arange(rows.start, rows.stop) if queries is rows else np.asarray(queries)
    forced = np.logical_or.reduceat(np.isin(numbers, stack.forced_queries), starts[0])
    free = ~forced if not forced.all() else np.ones_like(forced)
    indices = [int((np.abs(head_map) * free[:, None]).argmax()) for head_map in maps]
    largest = [
        (index, float(head_map.flat[index])) for index, head_map in zip(indices, maps, strict=True)
    ]
    header = {**reply.header, "largest": largest}
    if isinstance(queries, torch.Tensor):
        header["sampled"] = queries.tolist()
    return Reply(header, reply.data)


def pool_on_device(
    vectors: QueryKeyAttention, head: int, rows: slice, columns: slice, size: int
) -> NDArray[np.float32]:
    """Compute the map of a head on the device of its queries and keys, for example a GPU.

    Only the map is copied from the device. The weights are not signed, and the map has the largest
    weight of each cell. `size` is the maximum number of rows and columns of
    cells. The weights are computed in blocks, because all weights of 32,768 queries and keys need
    four gigabytes.

    Returns
    -------
    ndarray
        Map, float32, (rows of cells, columns of cells), with the same cells as the result of
        `attnviz.record.pooling.pool_max`.
    """
    tops, lefts = (
        [*(side.start + cell_starts(side.stop - side.start, size)).tolist(), side.stop]
        for side in (rows, columns)
    )
    maxima = torch.zeros(len(tops) - 1, len(lefts) - 1, device=vectors.queries.device)
    with torch.no_grad():
        for row, (top, bottom) in enumerate(pairwise(tops)):
            for part in row_tiles(slice(top, bottom), vectors.num_keys):
                weights = vectors.block([head], part, columns)[0].amax(dim=0)
                row_cells = [
                    weights[left - columns.start : right - columns.start].amax()
                    for left, right in pairwise(lefts)
                ]
                maxima[row] = torch.maximum(maxima[row], torch.stack(row_cells))
    pooled: NDArray[np.float32] = maxima.cpu().numpy()
    return pooled
