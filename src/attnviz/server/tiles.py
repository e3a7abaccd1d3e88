"""Square tiles of a matrix of weights at different zoom levels.

The rows of the matrix are queries and its columns are keys. A tile has `TILE` rows and columns of
cells. At level l, a cell has the mean or maximum of 2^l by 2^l weights. In exported pages,
``js/src/client/page/tiles.ts`` computes the same tiles.

A tile that covers many weights is computed from a sample of its queries, which is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired

import numpy as np
from numpy.typing import NDArray

from attnviz.record.pooling import join_signs, pool, split_signs
from attnviz.record.rows import sample_queries
from attnviz.record.softmax import as_rows, row_groups, tile_rows
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import EncodedHeader, encode
from attnviz.server.protocol import Reply, check_heads
from attnviz.server.row_normalizers import RowNormalizers
from attnviz.server.zeros import kinds_of_pairs, mark_zeros
from attnviz.utils.arguments import format_numbers
from attnviz.utils.progress import Pace

# Number of rows, and of columns, of cells in a tile. The cells of a tile need 256 kB as float32.
TILE = 256
# Maximum zoom level. A matrix that needs a higher level does not fit into memory.
_MAX_LEVEL = 24
# Number of weights up to which tiles are never sampled. All queries of a tile are used if the
# complete matrices of the requested heads have at most this many weights in total, or if the parts
# of these matrices in the tile have at most this many weights in total. Only matrices whose softmax
# must be computed are counted (see `_num_matrices`).
MAX_EXACT_PAIRS = 1 << 24
# Approximate maximum number of weights that are computed for a tile with sampled queries.
_MAX_SAMPLED_PAIRS = 1 << 26
# Maximum number of sampled queries per row of cells. More queries would hardly change the picture.
_MAX_QUERIES_PER_ROW = 16
# Minimum number of sampled queries per tile, unless the tile is at the end of the text.
_MIN_QUERIES_PER_TILE = 64
# Maximum number of weights from which a tile is computed if the tokens were merged into words. The
# computation then takes about 15 seconds.
_MAX_WORD_PAIRS = 1 << 32

Pooled = Literal["mean", "max"]


class TileHeader(EncodedHeader):
    """Header of a reply with the cells of a tile in its buffer, as one matrix.

    Attributes
    ----------
    sampling_interval : int
        Sampling interval n, if only one of every n successive queries is used because the tile has
        too many weights. Omitted if all queries are used.
    """

    sampling_interval: NotRequired[int]


def encode_tile(
    stack: AttentionStack,
    row_normalizers: RowNormalizers,
    *,
    layer: int,
    heads: Sequence[int],
    level: int,
    position: tuple[int, int],
    pooled: Pooled,
) -> Reply:
    """Compute one tile of a head's matrix, or of the mean of several heads.

    Parameters
    ----------
    stack : AttentionStack
        Stack of the heads.
    row_normalizers : RowNormalizers
        Cache of softmax normalizers.
    layer : int
        Number of the layer in the model.
    heads : sequence of int
        Numbers of the heads whose weights are averaged.
    level : int
        Zoom level. A cell covers ``2**level`` by ``2**level`` weights.
    position : tuple of int
        Index (row, column) of the tile among all tiles of the level. The tile begins at query
        ``row * TILE * 2**level`` and key ``column * TILE * 2**level``.
    pooled : {"mean", "max"}
        Whether a cell shows the mean or the maximum of its weights. For signed numbers, the result
        is computed twice: with the negative numbers set to 0, and with the positive numbers set to
        0. The cell shows the result with the larger absolute value.

    Returns
    -------
    Reply
        Reply with a `TileHeader` and the cells of the tile, (1, rows of cells, columns of cells).
        Zeros have the signs that `attnviz.server.zeros` describes. The sampling interval is the
        same for all tiles of a level. All keys of the tile are used.
    """
    layer, heads = check_heads(stack, layer, heads)
    if not 0 <= level <= _MAX_LEVEL:
        raise ValueError(f"level={level} must be from 0 to {_MAX_LEVEL}")
    rows = _tile_range("row", position[0], level, len(stack.query_tokens))
    columns = _tile_range("column", position[1], level, len(stack.key_tokens))
    _check_word_pairs(stack, layer, heads, rows)
    maximum = stack.maximum
    attention = stack.attention(layer)
    cell = 2**level
    interval = _sampling_interval(stack, layer, heads, cell)
    numbers = np.arange(rows.start, rows.stop)
    if interval is not None:
        numbers = _sample_queries(rows, interval)
    # `row_height` is the number of queries that a row of cells covers. If there are fewer sampled
    # queries than rows of cells, several rows of cells show the same query. `row_height` is then
    # the number of queries that these rows cover together.
    row_height = max(cell, interval or 1)
    row = (numbers - rows.start) // row_height
    pace = Pace("weights", len(heads) * len(row) * attention.num_keys)
    num_rows = -(-(rows.stop - rows.start) // cell)
    starts = (
        np.arange(int(row[-1]) + 1) * row_height,
        np.arange(0, columns.stop - columns.start, cell),
    )
    cells = np.zeros((1 + stack.signed, *map(len, starts)))
    kinds = np.zeros((1, *map(len, starts)), np.uint8)
    # Compute the weights of a limited number of queries at a time, because a tile of a long text
    # covers many queries.
    for part, part_queries in row_groups(as_rows(numbers), tile_rows(attention.num_keys)):
        positions = numbers[part] - rows.start, slice(0, columns.stop - columns.start)
        if stack.chooses_keys:
            of_pairs = kinds_of_pairs(attention, heads, part_queries, columns)
            pool(kinds, of_pairs.max(axis=0, keepdims=True), positions, starts, np.maximum)
        key_range = attention.key_range(part_queries)
        if columns.start >= key_range.stop or columns.stop <= key_range.start:
            continue
        weights = np.zeros((part.stop - part.start, columns.stop - columns.start))
        for head in heads:
            [block] = row_normalizers.block(stack, layer, [head], part_queries, columns, pace=pace)
            weights += block.cpu().numpy()
        weights /= len(heads)
        how = np.maximum if pooled == "max" else np.add
        pool(cells, split_signs(weights, signed=stack.signed), positions, starts, how)
    if pooled == "mean":
        cells /= np.outer(np.bincount(row), _cell_sizes(columns, cell))
    label = f"stack {stack.name!r}, layer {layer}, mean of heads {format_numbers(sorted(heads))}"
    shown = join_signs(cells).astype(np.float32)
    if stack.chooses_keys:
        shown = mark_zeros(shown, kinds[0])
    shown = shown.repeat(row_height // cell, axis=0)[:num_rows]
    if _is_large(stack, layer, heads):
        maximum = float(np.abs(shown).max())
    reply = encode(shown[None], "float32", maximum, signed=stack.signed, label=label)
    sampling = {} if interval is None else {"sampling_interval": interval}
    return Reply({**reply.header, **sampling}, reply.data)


def _is_large(stack: AttentionStack, layer: int, heads: Sequence[int]) -> bool:
    """Whether the complete matrices of `heads` have more than `MAX_EXACT_PAIRS` weights in total.

    Only matrices whose softmax must be computed count (see `_num_matrices`).
    """
    pairs = len(stack.query_tokens) * len(stack.key_tokens)
    return pairs * _num_matrices(stack, layer, heads) > MAX_EXACT_PAIRS


def _num_matrices(stack: AttentionStack, layer: int, heads: Sequence[int]) -> int:
    """Return the number of matrices whose softmax must be computed for `heads`.

    The number is 0 if the weights are stored or the queries are words. There are two matrices per
    head if the weights are differences.
    """
    return len(heads) * stack.attention(layer).num_softmaxes


def _sampling_interval(
    stack: AttentionStack, layer: int, heads: Sequence[int], cell: int
) -> int | None:
    """Return the sampling interval n: one of n successive queries of a tile is used.

    A cell of the tile covers `cell` by `cell` weights. The interval is a power of 2, or None if all
    queries are used.
    """
    matrices, side = _num_matrices(stack, layer, heads), TILE * cell
    if not _is_large(stack, layer, heads) or matrices * side**2 <= MAX_EXACT_PAIRS:
        return None
    excess = matrices * side * len(stack.key_tokens) // _MAX_SAMPLED_PAIRS
    interval = 1 << max(0, excess - 1).bit_length()
    interval = max(min(interval, side // _MIN_QUERIES_PER_TILE), cell // _MAX_QUERIES_PER_ROW)
    return None if interval <= 1 else interval


def _sample_queries(rows: slice, interval: int) -> NDArray[np.int64]:
    """Return one position from each group of `interval` successive queries of `rows`."""
    count = -(-(rows.stop - rows.start) // interval)
    numbers = rows.start + sample_queries(count * interval, count)
    queries: NDArray[np.int64] = np.minimum(numbers, rows.stop - 1)
    return queries


def _check_word_pairs(stack: AttentionStack, layer: int, heads: Sequence[int], rows: slice) -> None:
    """Raise ValueError if the tokens are merged into words and the tile would take minutes.

    `rows` are the queries of the tile. Without words, a tile can be computed from some of its
    queries. With words, it is always computed from all of them.
    """
    if not stack.attention(layer).merged:
        return
    queries = rows.stop - rows.start
    if queries * len(stack.key_tokens) * len(heads) > _MAX_WORD_PAIRS:
        raise ValueError(
            f"a tile of {queries:,} by {len(stack.key_tokens):,} words would take minutes to "
            "compute. Choose a smaller part with query_window=(start, stop), choose fewer heads, "
            "or show tokens instead of words (without words=True or merge_words())."
        )


def _cell_sizes(side: slice, cell: int) -> NDArray[np.int64]:
    """Return the number of queries or keys in the range `side` that each cell covers.

    Only the last cell can cover fewer than `cell`.
    """
    count = side.stop - side.start
    return np.diff(np.append(np.arange(0, count, cell), count))


def _tile_range(name: str, index: int, level: int, count: int) -> slice:
    size = TILE * 2**level
    if not 0 <= index * size < count:
        raise ValueError(f"{name}={index} must be from 0 to {(count - 1) // size} at level {level}")
    return slice(index * size, min((index + 1) * size, count))
