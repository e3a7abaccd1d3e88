"""Tiles of matrices that are too large to be computed in one go.

Of a long text the whole matrix is never held. What is kept of a layer's head, or of the mean of
several, is small and bounded:

- for each query the logarithm of what its weights are divided by (`RowSums`),
- one level of cells, the finest that has at most ``MOST_CELLS`` a side: the mean and the maximum
  of the weights of each. Coarser levels are pooled from it; finer tiles are computed when they are
  asked for, and those lately asked for are kept.

A request computes for a moment (`Budget`) and is answered with the best there is: rows of cells
that are done are exact, and of all others one query is, which stands for its row. Whoever wants
more asks again. Nothing runs meanwhile, so that the kernel stays free for others, nothing has to
be cancelled, and whatever stops the work in the middle leaves all that was done before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.stack import AttentionStack
from attnviz.server.cache import ByteCache
from attnviz.server.cells import CellRows
from attnviz.server.head_mean import HeadMean
from attnviz.server.row_sums import RowSums

__all__ = ["Budget", "PyramidTile", "Pyramids", "is_large"]

# Cells a side of what is kept of a whole matrix: 32 MiB, mean and maximum, in float32.
MOST_CELLS = 2048
# Matrices of at most so many pairs of query and key, of all heads asked for, are computed at once.
LARGE = 1 << 24
# Bytes of cells that are kept: three whole matrices, and some hundred tiles beside them.
CELL_BYTES = 160_000_000
# Seconds that a reply computes. Other requests, and the reader's own cells, wait no longer.
REPLY_SECONDS = 0.2


class Budget:
    """How long a reply may compute.

    Parameters
    ----------
    seconds : float
        From now on. A step is made also when there is no time at all.
    clock : callable
        Tells the time in seconds.
    """

    def __init__(
        self, seconds: float = REPLY_SECONDS, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self._end = clock() + seconds

    def left(self) -> bool:
        """Whether there is time for another step."""
        return self._clock() < self._end


@dataclass(frozen=True)
class PyramidTile:
    """Cells as far as they are known.

    Attributes
    ----------
    cells : ndarray
        float32, (rows, columns).
    progress : float
        Share of the work that is done, 0 to 1; 1 only where every cell is exact.
    queries : tuple of int
        How many queries the cells are made from so far, and how many they stand for.
    pairs : int
        Pairs of query and key that all of the work takes.
    waiting : bool
        Whether asking again gives more.
    """

    cells: NDArray[np.float32]
    progress: float
    queries: tuple[int, int]
    pairs: int
    waiting: bool


def is_large(stack: AttentionStack, layer: int, heads: Sequence[int]) -> bool:
    """Whether a matrix is computed step by step.

    Parameters
    ----------
    stack : AttentionStack
        The stack.
    layer : int
        The model's number of the layer.
    heads : sequence of int
        Heads whose mean is wanted, at least one.

    Returns
    -------
    bool
        False where weights are given, or those of words: there is nothing to multiply.
    """
    attention = stack.attention(layer).vectors
    if attention is None:
        return False
    return attention.num_queries * attention.num_keys * len(heads) > LARGE


class Pyramids:
    """The cells of a record's large matrices, as far as they have been computed.

    Parameters
    ----------
    sums : RowSums
        Where sums over rows are kept.
    kept_bytes : int
        Cells that are kept at most; those not lately asked for are dropped first.
    """

    def __init__(self, sums: RowSums, kept_bytes: int = CELL_BYTES) -> None:
        self._kept: ByteCache[CellRows] = ByteCache(kept_bytes, lambda cells: cells.num_bytes)
        self._sums = sums

    @property
    def num_bytes(self) -> int:
        """Bytes of cells that are kept."""
        return self._kept.num_bytes

    def tile(
        self,
        stack: AttentionStack,
        *,
        layer: int,
        heads: Sequence[int],
        level: int,
        rows: slice,
        columns: slice,
        pooled: str,
        exact: bool = True,
        budget: Budget | None = None,
    ) -> PyramidTile:
        """One tile, after some more work on it.

        Parameters
        ----------
        stack : AttentionStack
            The stack, whose queries and keys are known.
        layer : int
            The model's number of the layer.
        heads : sequence of int
            Heads whose mean is wanted.
        level : int
            A cell stands for ``2**level`` by ``2**level`` weights.
        rows, columns : slice
            Queries and keys, which begin where a cell begins.
        pooled : {"mean", "max"}
            What a cell shows of its weights.
        exact : bool, default True
            Whether to go through all queries; otherwise some are sampled, and no more is done.
        budget : Budget, optional
            How long to compute; a moment when left out.

        Returns
        -------
        PyramidTile

        Raises
        ------
        IndexError
            If a head or layer does not exist.
        ValueError
            If a weight is NaN or infinite.
        MemoryError
            If there is not enough memory for the cells.
        """
        budget = budget or Budget()
        mean = HeadMean(stack, layer, heads, self._sums)
        stored = _stored_level(mean)
        with _worded(mean.words), _half_the_threads():
            if level < stored:
                held = self._cells(mean, rows, columns, level)
            else:
                size = slice(0, mean.attention.num_queries), slice(0, mean.attention.num_keys)
                held = self._cells(mean, *size, stored)
            span = slice(
                (rows.start - held.rows.start) >> held.level,
                -(-(rows.stop - held.rows.start) >> held.level),
            )
            across = slice(
                (columns.start - held.columns.start) >> held.level,
                -(-(columns.stop - held.columns.start) >> held.level),
            )
            waiting = held.work(span, across, exact=exact)
            while waiting and budget.left():
                waiting = held.work(span, across, exact=exact)
            cells = _coarser(held, span, across, max(0, level - stored), pooled)
        return PyramidTile(
            cells,
            held.progress(span, across),
            held.known(span, across),
            int(held.pairs[span].sum()),
            waiting and held.progress(span, across) < 1,
        )

    def _cells(self, mean: HeadMean, rows: slice, columns: slice, level: int) -> CellRows:
        name = (mean.name, level, rows.start, columns.start)
        cells = self._kept.get(name)
        if cells is None:
            self._kept[name] = cells = CellRows(mean, rows, columns, level)
        return cells


def _stored_level(mean: HeadMean) -> int:
    longest = max(mean.attention.num_queries, mean.attention.num_keys)
    return max(0, (-(-longest // MOST_CELLS) - 1).bit_length())


def _coarser(
    held: CellRows, span: slice, across: slice, levels: int, pooled: str
) -> NDArray[np.float32]:
    """Cells of a level above those that are held."""
    cells = held.taken(span, across, pooled)
    if levels == 0:
        return cells
    starts = [np.arange(0, count, 1 << levels) for count in cells.shape]
    if pooled == "max":
        most = np.maximum.reduceat(cells, starts[0], axis=0)
        return np.maximum.reduceat(most, starts[1], axis=1)
    # The last cells stand for fewer weights, and count for fewer.
    high = held.sizes(held.rows)[span].astype(np.float64)
    wide = held.sizes(held.columns)[across].astype(np.float64)
    total = np.add.reduceat(
        np.add.reduceat(cells * wide, starts[1], axis=1) * high[:, None], starts[0]
    )
    sizes = np.outer(np.add.reduceat(high, starts[0]), np.add.reduceat(wide, starts[1]))
    means: NDArray[np.float32] = (total / sizes).astype(np.float32)
    return means


@contextmanager
def _half_the_threads() -> Iterator[None]:
    """Leave processors for the browser that draws meanwhile.

    Where all are taken, threads that share a block wait for each other: on a busy machine of two
    processors two threads took four times as long as one.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // 2))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _worded(words: str) -> Iterator[None]:
    """Say what memory was wanted for, however it was found missing."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        missing = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not missing and "allocate" not in str(error):
            raise
        raise MemoryError(
            f"{words}: there is not enough memory left for its cells, some "
            f"{2 * 4 * MOST_CELLS**2 // 1_000_000} MB; close what else needs memory and try again"
        ) from error
