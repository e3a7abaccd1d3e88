"""Cells: weights that are pooled to a matrix with fewer rows and columns.

A cell covers several successive queries and keys, and has the mean or the maximum of their weights.
In exported pages, ``js/src/client/page/reductions.ts`` computes the same cells.

If computing every weight would take too long, cells are computed from a sample of the queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NotRequired

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.pooling import cell_starts, join_signs, pool, split_signs
from attnviz.record.rows import can_compute_maps, sample_queries
from attnviz.record.softmax import as_rows, row_groups, row_tiles, tile_rows
from attnviz.server.codec import EncodedHeader, encode
from attnviz.server.protocol import Reply, check_reply_size
from attnviz.server.weights import Weights
from attnviz.server.zeros import mark_zeros
from attnviz.utils.progress import STEP, Pace

# Number of rows, and of columns, of cells that a view requests at once for a heat map, if a cell
# has a length of 2^l tokens.
TILE = 256
# Maximum length of a cell. A matrix that needs longer cells does not fit into memory.
_MAX_LENGTH = 1 << 24
# Number of weights up to which queries are never sampled for cells of a given length. All queries
# are used if the complete matrices of the requested heads have at most this many weights in total,
# or if the requested parts of these matrices have at most this many weights in total. Only matrices
# whose softmax must be computed are counted (see `_num_matrices`).
MAX_EXACT_PAIRS = 1 << 24
# Approximate maximum number of weights that are computed for cells of sampled queries.
_MAX_SAMPLED_PAIRS = 1 << 26
# Maximum number of sampled queries per row of cells. More queries would hardly change the picture.
_MAX_QUERIES_PER_ROW = 16
# Minimum number of sampled queries per `TILE` rows of cells, unless they are at the end of the
# text.
_MIN_QUERIES_PER_TILE = 64
# Maximum number of weights from which cells are computed if the tokens were merged into words. The
# computation then takes about 15 seconds.
_MAX_WORD_PAIRS = 1 << 32

Pooled = Literal["mean", "max"]


class CellsHeader(EncodedHeader):
    """Header of a reply with cells in its buffer. The cells of each matrix are one matrix.

    Attributes
    ----------
    largest : list
        Largest cell of each matrix without forced queries (see `AttentionStack.forced_queries`):
        its index in row-major order, and its exact weight, without the error of the encoding.
        Signed numbers are compared by absolute value. Only for `Cells.max_cells`, and omitted in an
        exported page.
    sampled : list of int
        Position of the query that each row of cells shows, if only some queries are used for
        `Cells.max_cells`.
    sampling_interval : int
        Sampling interval n, if only one of every n successive queries is used for `Cells.length`.
    """

    largest: NotRequired[list[tuple[int, float]]]
    sampled: NotRequired[list[int]]
    sampling_interval: NotRequired[int]


class Cells(msgspec.Struct, frozen=True, tag_field="kind", tag="cells"):
    """Reduction of each matrix to cells, which have the mean or the maximum of their weights.

    For signed numbers, positive and negative numbers are pooled separately, and a cell has the
    result with the larger absolute value. Pass either `length` or `max_cells`.

    Attributes
    ----------
    pooled : {"mean", "max"}
        Whether a cell has the mean or the maximum of its weights.
    length : int
        Number of queries and of keys of a cell. Only the last cells can be shorter. The cells of a
        long text are estimated from a sample of its queries (`CellsHeader.sampling_interval`).
    max_cells : int
        Maximum number of rows, and of columns, of cells, which have nearly equal lengths. Each cell
        is encoded as one byte. For a long text, each row of cells shows only one of its queries
        (`CellsHeader.sampled`).
    """

    pooled: Pooled
    length: int | None = None
    max_cells: int | None = None

    def reply(self, weights: Weights) -> Reply:
        """Compute the cells of each matrix. Return a reply with a `CellsHeader`."""
        if (self.length is None) == (self.max_cells is None):
            raise ValueError("pass length or max_cells, and not both")
        if self.max_cells is None:
            return _encode_equal_cells(weights, self.pooled, self.length or 0)
        return _encode_few_cells(weights, self.pooled, self.max_cells)


@dataclass(frozen=True)
class _Grid:
    """Division of weights into cells, and the queries from which the cells are computed.

    Attributes
    ----------
    queries, row : ndarray of int64
        Positions of the queries in ascending order, and the row of cells of each query.
    column_starts : ndarray of int64
        First column of each column of cells, counted from the first requested key.
    """

    queries: NDArray[np.int64]
    row: NDArray[np.int64]
    column_starts: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.row[-1]) + 1, len(self.column_starts)


def _encode_few_cells(weights: Weights, pooled: Pooled, max_cells: int) -> Reply:
    """Return a reply with at most `max_cells` rows and columns of cells for each matrix."""
    if max_cells < 1:
        raise ValueError(f"max_cells={max_cells} must be at least 1")
    stack, rows, attention = weights.stack, weights.rows, weights.attention
    num_rows, num_columns = min(weights.num_rows, max_cells), min(weights.num_columns, max_cells)
    # Check the size before the computation, which can take minutes.
    size = len(weights.matrices) * num_rows * num_columns
    check_reply_size("the cells", size, "Request fewer cells.")
    is_sampled = not can_compute_maps([attention], weights.num_rows * weights.num_columns)
    if is_sampled:
        queries = rows.start + sample_queries(weights.num_rows, max_cells)
        row = np.arange(num_rows)
    else:
        queries = np.arange(rows.start, rows.stop)
        starts = cell_starts(weights.num_rows, max_cells)
        row = np.searchsorted(starts, queries - rows.start, side="right") - 1
    grid = _Grid(queries, row, cell_starts(weights.num_columns, max_cells))
    pace = Pace("maps", len(weights.heads) * len(queries) * attention.num_keys)
    on_device = not is_sampled and pooled == "max" and weights.combine == "separate"
    cells = []
    for heads in weights.matrices:
        vectors = attention.vectors
        if on_device and vectors is not None and vectors.queries.is_cuda:
            cells.append(pool_on_device(vectors, heads[0], rows, weights.columns, max_cells))
            pace.advance(STEP)
        else:
            # Most of these matrices are read only once, so do not store their normalizers.
            cells.append(_pool(weights, heads, grid, pooled, pace, cached=False))
    reply = encode(
        np.stack(cells), "uint8", stack.maximum, signed=stack.signed, label=weights.label
    )
    free = np.ones(num_rows, np.bool_)
    free[row[np.isin(queries, stack.forced_queries)]] = False
    if not free.any():
        free[:] = True
    indices = [int((np.abs(matrix) * free[:, None]).argmax()) for matrix in cells]
    largest = [
        (index, float(matrix.flat[index])) for index, matrix in zip(indices, cells, strict=True)
    ]
    sampled = {"sampled": queries.tolist()} if is_sampled else {}
    return Reply({**reply.header, "largest": largest, **sampled}, reply.data)


def _encode_equal_cells(weights: Weights, pooled: Pooled, length: int) -> Reply:
    """Return a reply with cells of `length` by `length` weights.

    Zeros have the signs that `attnviz.server.zeros` describes. The sampling interval is the same
    for all parts of a matrix with at most `TILE` rows of cells.
    """
    if not 1 <= length <= _MAX_LENGTH:
        raise ValueError(f"length={length} must be from 1 to {_MAX_LENGTH}")
    stack, rows, attention = weights.stack, weights.rows, weights.attention
    _check_word_pairs(weights)
    column_starts = np.arange(0, weights.num_columns, length)
    num_rows = -(-weights.num_rows // length)
    size = 4 * len(weights.matrices) * num_rows * len(column_starts)
    check_reply_size("the cells", size, "Request fewer or longer cells.")
    interval = _sampling_interval(weights, length)
    queries = np.arange(rows.start, rows.stop)
    if interval is not None:
        queries = _sample_queries(rows, interval)
    # If there are fewer sampled queries than rows of cells, several rows of cells show the same
    # query. `height` is the number of queries that these rows cover together.
    height = max(length, interval or 1)
    grid = _Grid(queries, (queries - rows.start) // height, column_starts)
    pace = Pace("weights", len(weights.heads) * len(queries) * attention.num_keys)
    cells = np.stack([_pool(weights, heads, grid, pooled, pace) for heads in weights.matrices])
    if stack.chooses_keys:
        cells = mark_zeros(cells, _kinds(weights, grid))
    cells = cells.repeat(height // length, axis=1)[:, :num_rows]
    maximum = float(np.abs(cells).max()) if _is_large(weights) else stack.maximum
    reply = encode(cells, "float32", maximum, signed=stack.signed, label=weights.label)
    sampling = {} if interval is None else {"sampling_interval": interval}
    return Reply({**reply.header, **sampling}, reply.data)


def _pool(
    weights: Weights,
    heads: Sequence[int],
    grid: _Grid,
    pooled: Pooled,
    pace: Pace,
    *,
    cached: bool = True,
) -> NDArray[np.float32]:
    """Pool the combined weights of `heads` to cells, (rows of cells, columns of cells).

    To limit the memory, compute one block of weights at a time, and update the cells. For signed
    numbers, the cells have two arrays (`split_signs`). `cached` is that of `RowNormalizers.block`.
    """
    attention, columns, signed = weights.attention, weights.columns, weights.stack.signed
    how, dtype = (np.maximum, np.float32) if pooled == "max" else (np.add, np.float64)
    # Begin below 0, so that negative weights, which are an error, remain visible.
    cells = np.full((1 + signed, *grid.shape), -np.inf if pooled == "max" else 0, dtype)
    starts = np.arange(grid.shape[0]), grid.column_starts
    for part, group in row_groups(as_rows(grid.queries), tile_rows(attention.num_keys)):
        key_range = attention.key_range(group)
        if columns.start >= key_range.stop or columns.stop <= key_range.start:
            continue
        numbers = weights.matrix(heads, group, cached=cached, pace=pace).cpu().numpy()
        positions = grid.row[part], slice(0, weights.num_columns)
        pool(cells, split_signs(numbers, signed=signed), positions, starts, how)
    if pooled == "mean":
        widths = np.diff(grid.column_starts, append=weights.num_columns)
        cells /= np.outer(np.bincount(grid.row), widths)
    cells[np.isneginf(cells)] = 0
    return join_signs(cells).astype(np.float32)


def _kinds(weights: Weights, grid: _Grid) -> NDArray[np.uint8]:
    """Return the largest kind of the pairs in each cell, (matrices or 1, rows, columns)."""
    kinds = np.zeros((len(weights.matrices), *grid.shape), np.uint8)
    starts = np.arange(grid.shape[0]), grid.column_starts
    for part, group in row_groups(as_rows(grid.queries), tile_rows(weights.attention.num_keys)):
        positions = grid.row[part], slice(0, weights.num_columns)
        pool(kinds, weights.kinds(group), positions, starts, np.maximum)
    return kinds


def pool_on_device(
    vectors: QueryKeyAttention, head: int, rows: slice, columns: slice, max_cells: int
) -> NDArray[np.float32]:
    """Compute the maxima of the cells of a head on the device of its vectors, for example a GPU.

    Only the cells are copied from the device. The weights are not signed. `max_cells` is the
    maximum number of rows and columns of cells. The weights are computed in blocks, because all
    weights of 32,768 queries and keys need four gigabytes.

    Returns
    -------
    ndarray
        Cells, float32, (rows of cells, columns of cells), with the same cells as the result of
        `attnviz.record.pooling.pool_max`.
    """
    tops, lefts = (
        [*(side.start + cell_starts(side.stop - side.start, max_cells)).tolist(), side.stop]
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


def _is_large(weights: Weights) -> bool:
    """Whether the complete matrices of the heads have more than `MAX_EXACT_PAIRS` weights in total.

    Only matrices whose softmax must be computed count (see `_num_matrices`).
    """
    pairs = len(weights.stack.query_tokens) * len(weights.stack.key_tokens)
    return pairs * _num_matrices(weights) > MAX_EXACT_PAIRS


def _num_matrices(weights: Weights) -> int:
    """Return the number of matrices whose softmax must be computed.

    The number is 0 if the weights are stored or the queries are words. There are two matrices per
    head if the weights are differences.
    """
    return len(weights.heads) * weights.attention.num_softmaxes


def _sampling_interval(weights: Weights, length: int) -> int | None:
    """Return the sampling interval n: one of n successive queries is used.

    The interval is a power of 2, or None if all queries are used.
    """
    matrices, side = _num_matrices(weights), max(TILE * length, weights.num_rows)
    if not _is_large(weights) or matrices * side**2 <= MAX_EXACT_PAIRS:
        return None
    excess = matrices * side * len(weights.stack.key_tokens) // _MAX_SAMPLED_PAIRS
    interval = 1 << max(0, excess - 1).bit_length()
    interval = max(min(interval, side // _MIN_QUERIES_PER_TILE), length // _MAX_QUERIES_PER_ROW)
    return None if interval <= 1 else interval


def _sample_queries(rows: slice, interval: int) -> NDArray[np.int64]:
    """Return one position from each group of `interval` successive queries of `rows`."""
    count = -(-(rows.stop - rows.start) // interval)
    numbers = rows.start + sample_queries(count * interval, count)
    queries: NDArray[np.int64] = np.minimum(numbers, rows.stop - 1)
    return queries


def _check_word_pairs(weights: Weights) -> None:
    """Raise ValueError if the tokens are merged into words and the cells would take minutes.

    Without words, cells can be computed from some of the queries. With words, they are always
    computed from all of them.
    """
    if not weights.attention.merged:
        return
    queries, keys = weights.num_rows, len(weights.stack.key_tokens)
    if queries * keys * len(weights.heads) > _MAX_WORD_PAIRS:
        raise ValueError(
            f"a tile of {queries:,} by {keys:,} words would take minutes to "
            "compute. Choose a smaller part with query_window=(start, stop), choose fewer heads, "
            "or show tokens instead of words (without words=True or merge_words())."
        )
