"""Squares of a matrix of weights, at the detail that a view can show.

``js/src/client/page/tiles.ts`` cuts the same tiles from the weights that an exported page contains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from attnviz.record.softmax import tiles
from attnviz.record.stack import AttentionStack, find_maximum
from attnviz.server.codec import Encoded, Precision, encode
from attnviz.server.pooling import joined, parted
from attnviz.server.protocol import heads_of
from attnviz.server.pyramid import Budget, Pyramids, is_large
from attnviz.utils.arguments import spans
from attnviz.utils.progress import Pace, Steps

__all__ = ["TILE", "Pooled", "TileWork", "answered_tile", "encoded_tile"]

# Cells of a tile's side: 64 kB in one byte each, 256 kB exact.
TILE = 256
# Above this no matrix that fits into a machine has anything to pool.
_MAX_LEVEL = 24
# Pairs of words that a tile is made from at most: a quarter of a minute.
_MOST_PAIRS_OF_WORDS = 1 << 32

Pooled = Literal["mean", "max"]


class TileWork(TypedDict):
    """How far a tile of a large matrix is.

    Attributes
    ----------
    progress : float
        Share of the work that is done; 1 where every cell is exact.
    queries : list of int
        How many queries its cells are made from so far, and how many they stand for.
    pairs : int
        Pairs of query and key that all of the work takes.
    waiting : bool
        Whether asking again gives more.
    """

    progress: float
    queries: tuple[int, int]
    pairs: int
    waiting: bool


def encoded_tile(
    stack: AttentionStack,
    *,
    layer: int,
    heads: Sequence[int],
    level: int,
    place: tuple[int, int],
    pooled: Pooled,
    precision: Precision,
) -> Steps[Encoded]:
    """One tile of a head's matrix, or of the mean of several heads, in steps.

    Parameters
    ----------
    stack : AttentionStack
        The stack.
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
    precision : {"uint8", "float32"}
        How the cells are written; those of an estimate in one byte each, whatever was asked for.
    """
    layer, heads = heads_of(stack, layer, heads)
    rows, columns = _checked(stack, level, place, pooled)
    maximum = yield from find_maximum(stack)
    attention = stack.attention(layer)
    pace = Pace("weights", len(heads) * (rows.stop - rows.start) * attention.num_keys)
    cell = 2**level
    starts = np.arange(0, columns.stop - columns.start, cell)
    cells = np.zeros((1 + stack.signed, -(-(rows.stop - rows.start) // cell), len(starts)))
    # A row of cells of a long text spans many queries, which are not all held at once.
    for part in tiles(rows, len(stack.key_tokens)):
        weights = np.zeros((part.stop - part.start, columns.stop - columns.start))
        for head in heads:
            weights += attention.weights(head, part, columns)
            yield from pace.did((part.stop - part.start) * attention.num_keys)
        weights /= len(heads)
        row = (np.arange(part.start, part.stop) - rows.start) // cell
        firsts = np.flatnonzero(np.diff(row, prepend=-1))
        touched = row[firsts]
        pool = np.maximum if pooled == "max" else np.add
        for of_part, numbers in zip(cells, parted(weights, signed=stack.signed), strict=True):
            pieces = pool.reduceat(pool.reduceat(numbers, firsts, axis=0), starts, axis=1)
            of_part[touched] = pool(of_part[touched], pieces)
    if pooled == "mean":
        cells /= np.outer(_sizes(rows, cell), _sizes(columns, cell))
    of = f"stack {stack.name!r}, layer {layer}, mean of heads {spans(sorted(heads))}"
    shown = joined(cells).astype(np.float32)
    return encode(shown[None], precision, maximum, signed=stack.signed, of=of)


def answered_tile(
    stack: AttentionStack,
    pyramids: Pyramids,
    *,
    layer: int,
    heads: Sequence[int],
    level: int,
    place: tuple[int, int],
    pooled: Pooled,
    precision: Precision,
    exact: bool = True,
    budget: Budget | None = None,
) -> Steps[tuple[Mapping[str, Any], bytes]]:
    """One tile as a reply, which of a large matrix may be an estimate; of another, in steps.

    Returns
    -------
    header : dict
        How to read the cells. Of a large matrix also ``progress``, the share of the work that is
        done (1 where all cells are exact), ``queries``, how many queries the cells are made from
        and how many they stand for, ``pairs``, how many pairs of query and key all of the work
        takes, and ``waiting``, whether asking again gives more.
    data : bytes
        The cells. Those of large matrices are written relative to the largest among them: means
        over a long text are far below the largest weight that there can be.
    """
    layer, heads = heads_of(stack, layer, heads)
    if not is_large(stack, layer, heads):
        _refuse_minutes(stack, layer, heads, level, place[0])
        tile = yield from encoded_tile(
            stack,
            layer=layer,
            heads=heads,
            level=level,
            place=place,
            pooled=pooled,
            precision=precision,
        )
        return tile.header(), tile.data
    rows, columns = _checked(stack, level, place, pooled)
    found = pyramids.tile(
        stack,
        layer=layer,
        heads=heads,
        level=level,
        rows=rows,
        columns=columns,
        pooled=pooled,
        exact=exact,
        budget=budget,
    )
    # An estimate is asked for again and again, and has no digits to lose.
    rough = found.progress < 1 and precision == "float32"
    tile = encode(
        found.cells[None],
        "uint8" if rough else precision,
        float(np.abs(found.cells).max()),
        signed=stack.signed,
    )
    work: TileWork = {
        "progress": found.progress,
        "queries": found.queries,
        "pairs": found.pairs,
        "waiting": found.waiting,
    }
    return {**tile.header(), **work}, tile.data


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


def _refuse_minutes(
    stack: AttentionStack, layer: int, heads: Sequence[int], level: int, row: int
) -> None:
    """Words have no queries and keys of their own, to be gone through step by step."""
    if not stack.attention(layer).merged:
        return
    span = TILE << max(0, min(level, _MAX_LEVEL))
    queries = max(0, min(len(stack.query_tokens) - row * span, span))
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
