"""Squares of a matrix of weights, at the detail that a view can show.

``js/src/client/page/tiles.ts`` cuts the same tiles from the weights that an exported page contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.masks import Rows
from attnviz.record.rows import sampled_queries
from attnviz.record.softmax import tiles
from attnviz.record.stack import AttentionStack, find_maximum
from attnviz.server.codec import Encoded, PieceHeader, encode
from attnviz.server.pooling import joined, parted
from attnviz.server.protocol import heads_of
from attnviz.server.row_sums import RowSums, softmax_sides, some_rows
from attnviz.utils.arguments import spans
from attnviz.utils.progress import Pace, Steps

__all__ = ["TILE", "Pooled", "TileHeader", "encoded_tile"]

# Cells of a tile's side: 64 kB in one byte each, 256 kB exact.
TILE = 256
# Above this no matrix that fits into a machine has anything to pool.
_MAX_LEVEL = 24
# Pairs of query and key that are computed for every cell: of a whole matrix, or of a tile.
LARGE = 1 << 24
# A larger tile is made from some of its queries, which have so many pairs: a moment's computing.
_SAMPLED_PAIRS = 1 << 26
# More queries of a row of cells show little else; of fewer queries of a tile little would be seen.
_MOST_OF_A_ROW = 16
_FEWEST_OF_A_TILE = 64
# Pairs of words that a tile is made from at most: a quarter of a minute.
_MOST_PAIRS_OF_WORDS = 1 << 32

Pooled = Literal["mean", "max"]


class TileHeader(PieceHeader):
    """How to read the cells of a tile.

    Attributes
    ----------
    every : int
        One query in so many stands for all; left out where all were gone through.
    """

    every: NotRequired[int]


def encoded_tile(
    stack: AttentionStack,
    row_sums: RowSums,
    *,
    layer: int,
    heads: Sequence[int],
    level: int,
    place: tuple[int, int],
    pooled: Pooled,
) -> Steps[tuple[Encoded, int | None]]:
    """One tile of a head's matrix, or of the mean of several heads, in steps.

    Parameters
    ----------
    stack : AttentionStack
        The stack.
    row_sums : RowSums
        Where sums over rows of a long text are kept.
    layer : int
        The model's number of the layer.
    heads : sequence of int
        Heads whose mean is wanted.
    level : int
        A cell stands for ``2**level`` by ``2**level`` weights.
    place : tuple of int
        Row and column of the tile, which begins at query ``row * TILE * 2**level`` and key
        ``column * TILE * 2**level``.
    pooled : {"mean", "max"}
        What a cell shows of its weights. Of signed numbers, the largest of those with the sign of
        the largest; and the mean of the positive ones or of the negative ones, whichever is larger,
        where those of the other sign count as 0.

    Returns
    -------
    cells : Encoded
        One matrix.
    every : int or None
        One query in so many stands for all, with all of its keys in the tile; None where all were
        gone through. It depends on the number of tokens and heads and on the level alone.
    """
    layer, heads = heads_of(stack, layer, heads)
    rows, columns = _checked(stack, level, place, pooled)
    _refuse_minutes(stack, layer, heads, rows)
    maximum = yield from find_maximum(stack)
    attention = stack.attention(layer)
    cell = 2**level
    every = _every(stack, layer, heads, cell)
    queries: Rows = rows
    numbers = np.arange(rows.start, rows.stop)
    if every is not None:
        numbers = _sampled(rows, every)
        queries = torch.from_numpy(numbers)
    # Where one query stands for several rows of cells, they are alike.
    high = max(cell, every or 1)
    row = (numbers - rows.start) // high
    pace = Pace("weights", len(heads) * len(row) * attention.num_keys)
    starts = np.arange(0, columns.stop - columns.start, cell)
    num_rows = -(-(rows.stop - rows.start) // cell)
    cells = np.zeros((1 + stack.signed, int(row[-1]) + 1, len(starts)))
    # A row of cells of a long text spans many queries, which are not all held at once.
    for part in tiles(slice(0, len(row)), attention.num_keys):
        some = some_rows(queries, part)
        reach = attention.reach(some)
        if columns.start >= reach.stop or columns.stop <= reach.start:
            continue
        weights = np.zeros((part.stop - part.start, columns.stop - columns.start))
        for head in heads:
            weights += yield from row_sums.block(
                stack, layer=layer, head=head, rows=some, columns=columns, pace=pace
            )
        weights /= len(heads)
        firsts = np.flatnonzero(np.diff(row[part], prepend=-1))
        touched = row[part][firsts]
        pool = np.maximum if pooled == "max" else np.add
        for of_part, numbers in zip(cells, parted(weights, signed=stack.signed), strict=True):
            pieces = pool.reduceat(pool.reduceat(numbers, firsts, axis=0), starts, axis=1)
            of_part[touched] = pool(of_part[touched], pieces)
    if pooled == "mean":
        cells /= np.outer(np.bincount(row), _sizes(columns, cell))
    of = f"stack {stack.name!r}, layer {layer}, mean of heads {spans(sorted(heads))}"
    shown = joined(cells.repeat(high // cell, axis=1)[:, :num_rows]).astype(np.float32)
    if _is_large(stack, layer, heads):
        maximum = float(np.abs(shown).max())
    return encode(shown[None], "float32", maximum, signed=stack.signed, of=of), every


def _is_large(stack: AttentionStack, layer: int, heads: Sequence[int]) -> bool:
    """Whether a matrix has so many pairs that it is not computed as a whole."""
    pairs = len(stack.query_tokens) * len(stack.key_tokens)
    return pairs * _matrices(stack, layer, heads) > LARGE


def _matrices(stack: AttentionStack, layer: int, heads: Sequence[int]) -> int:
    """How many matrices are computed for the one that is shown; none where weights are given."""
    return len(heads) * len(softmax_sides(stack.attention(layer)))


def _every(stack: AttentionStack, layer: int, heads: Sequence[int], cell: int) -> int | None:
    """One query in how many a tile is made from, a power of two; None for all."""
    matrices, side = _matrices(stack, layer, heads), TILE * cell
    if not _is_large(stack, layer, heads) or matrices * side**2 <= LARGE:
        return None
    too_many = matrices * side * len(stack.key_tokens) // _SAMPLED_PAIRS
    every = 1 << max(0, too_many - 1).bit_length()
    every = max(min(every, side // _FEWEST_OF_A_TILE), cell // _MOST_OF_A_ROW)
    return None if every <= 1 else every


def _sampled(rows: slice, every: int) -> NDArray[np.int64]:
    """One of each so many queries, ascending."""
    count = -(-(rows.stop - rows.start) // every)
    numbers = rows.start + sampled_queries(count * every, count)
    found: NDArray[np.int64] = np.minimum(numbers, rows.stop - 1)
    return found


def _checked(
    stack: AttentionStack, level: int, place: tuple[int, int], pooled: str
) -> tuple[slice, slice]:
    """Queries and keys of a tile that makes sense."""
    if pooled not in {"mean", "max"}:
        raise ValueError(f'pooled={pooled!r} must be "mean" or "max"')
    if not 0 <= level <= _MAX_LEVEL:
        raise ValueError(f"level={level} must lie between 0 and {_MAX_LEVEL}")
    return (
        _span("row", place[0], level, len(stack.query_tokens)),
        _span("column", place[1], level, len(stack.key_tokens)),
    )


def _refuse_minutes(stack: AttentionStack, layer: int, heads: Sequence[int], rows: slice) -> None:
    """Words have no queries and keys of their own, of which some would stand for all."""
    if not stack.attention(layer).merged:
        return
    queries = rows.stop - rows.start
    if queries * len(stack.key_tokens) * len(heads) > _MOST_PAIRS_OF_WORDS:
        raise ValueError(
            f"a tile of {queries:,} by {len(stack.key_tokens):,} words would take the kernel "
            "minutes: choose a smaller part with query_window=(start, stop), fewer heads, or "
            "show the tokens that words are made of (without words=True, merge_words())"
        )


def _sizes(span: slice, cell: int) -> NDArray[np.int64]:
    """How many queries or keys each cell of a span stands for."""
    count = span.stop - span.start
    return np.diff(np.append(np.arange(0, count, cell), count))


def _span(name: str, place: int, level: int, count: int) -> slice:
    span = TILE * 2**level
    if not 0 <= place * span < count:
        raise ValueError(f"{name}={place}: at level {level} there are {-(-count // span)} tiles")
    return slice(place * span, min((place + 1) * span, count))
