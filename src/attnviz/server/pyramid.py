"""Tiles of matrices that are too large to be computed in one go.

Of a long text the whole matrix is never held. What is kept of a layer's head, or of the mean of
several, is small and bounded:

- for each query the logarithm of what its weights are divided by (`RowSums`),
- one level of cells, the finest that has at most ``MOST_CELLS`` a side: the mean and the maximum
  of the weights of each, of differences those of either sign. Coarser levels are pooled from it;
  finer tiles are computed when they are asked for, and those lately asked for are kept.

A request computes for a moment (`Budget`). Until all rows of cells that it asks for are exact it is
answered with one query of each row, evenly spaced, which stands for it: rows of exact means between
rows of single queries would look like a pattern of the weights. A view that wants more asks again.
Nothing runs meanwhile, so that the kernel stays free for others, nothing has to be cancelled, and
whatever stops the work in the middle leaves all that was done before.

A cell stands for some neighbouring queries and keys, as many of each; it has the mean and the
maximum of their weights. Rows of cells are exact once all of their queries have been gone through;
until then one of them stands for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.masks import Rows
from attnviz.record.softmax import blocks, normalized, powers
from attnviz.record.stack import AttentionStack
from attnviz.server.cache import ByteCache
from attnviz.server.pooling import joined, parted_tensor
from attnviz.server.row_sums import (
    HeadDifference,
    HeadMean,
    HeadScaled,
    RowSums,
    head_weights,
    softmax_sides,
)
from attnviz.server.unfinished import REPLY_SECONDS
from attnviz.utils.arguments import spans
from attnviz.utils.threads import torch_threads

__all__ = ["Budget", "PyramidTile", "Pyramids", "is_large"]

# Cells a side of what is kept of a whole matrix: 32 MiB, mean and maximum, in float32.
MOST_CELLS = 2048
# Matrices of at most so many pairs of query and key, of all heads asked for, are computed at once.
LARGE = 1 << 24
# Bytes of cells that are kept: three whole matrices, and some hundred tiles beside them.
CELL_BYTES = 160_000_000

# Queries that are gone through together: a matrix product of fewer is slow.
_ROWS_AT_ONCE = 256
# Queries that are sampled together, shared by the heads.
_SAMPLES_AT_ONCE = 64
_FEWEST_SAMPLES = 16
_ROWS_SAMPLED = 32
# Sampling costs at most this share of computing everything,
_SAMPLED_SHARE = 8
# and is left out where everything is a matter of a moment, in pairs of query and key.
_SAMPLED_FROM = 1 << 26

_UNKNOWN, _SAMPLED, _EXACT = 0, 1, 2

Steps = Generator[None, None, None]


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
    """Whether a matrix is computed step by step."""
    sides = softmax_sides(stack.attention(layer))
    pairs = len(stack.query_tokens) * len(stack.key_tokens)
    return pairs * len(heads) * len(sides) > LARGE


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
        """One tile, after some more work on it."""
        budget = budget or Budget()
        whole = slice(0, len(stack.query_tokens)), slice(0, len(stack.key_tokens))
        stored = _stored_level(*whole)
        finer = level < stored
        place = (rows, columns, level) if finer else (*whole, stored)
        of = f"stack {stack.name!r}, layer {layer}, mean of heads {spans(sorted(heads))}"
        with _worded(of), _half_the_threads():
            held = self._cells(stack, layer, heads, place)
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

    def _cells(
        self,
        stack: AttentionStack,
        layer: int,
        heads: Sequence[int],
        place: tuple[slice, slice, int],
    ) -> CellRows:
        rows, columns, level = place
        name = (stack.name, layer, tuple(heads), level, rows.start, columns.start)
        cells = self._kept.get(name)
        if cells is None:
            shown = head_weights(stack, layer, heads, self._sums)
            self._kept[name] = cells = CellRows(shown, rows, columns, level)
        return cells


def _stored_level(queries: slice, keys: slice) -> int:
    longest: int = max(queries.stop, keys.stop)
    return max(0, (-(-longest // MOST_CELLS) - 1).bit_length())


def _coarser(
    held: CellRows, span: slice, across: slice, levels: int, pooled: str
) -> NDArray[np.float32]:
    """Cells of a level above those that are held, or of the same."""
    cells = held.taken(span, across, pooled)
    if levels == 0:
        return joined(cells)
    starts = [np.arange(0, count, 1 << levels) for count in cells.shape[1:]]
    if pooled == "max":
        most = np.maximum.reduceat(cells, starts[0], axis=1)
        return joined(np.maximum.reduceat(most, starts[1], axis=2))
    # The last cells stand for fewer weights, and count for fewer.
    high = held.sizes(held.rows)[span].astype(np.float64)
    wide = held.sizes(held.columns)[across].astype(np.float64)
    total = np.add.reduceat(
        np.add.reduceat(cells * wide, starts[1], axis=2) * high[:, None], starts[0], axis=1
    )
    sizes = np.outer(np.add.reduceat(high, starts[0]), np.add.reduceat(wide, starts[1]))
    means: NDArray[np.float32] = (total / sizes).astype(np.float32)
    return joined(means)


@contextmanager
def _half_the_threads() -> Iterator[None]:
    """Leave processors for the browser that draws meanwhile.

    Where all are taken, threads that share a block wait for each other: on a busy machine of two
    processors two threads took four times as long as one.
    """
    with torch_threads(max(1, torch.get_num_threads() // 2)):
        yield


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


class CellRows:
    """The cells of some queries and keys at one level, row of cells by row of cells.

    Attributes
    ----------
    means, maxima : ndarray
        float32, (parts, rows of cells, cells): of what is exact, and elsewhere of one query of each
        row. There is one part, of differences two: see `attnviz.server.pooling`.
    state : ndarray
        uint8, (rows of cells,): 0 where nothing is known, 1 where one query is, 2 where all are.
    """

    def __init__(
        self,
        heads: HeadMean | HeadDifference | HeadScaled,
        rows: slice,
        columns: slice,
        level: int,
    ) -> None:
        self.heads = heads
        self.rows, self.columns, self.level = rows, columns, level
        self._each = 1 << level
        shape = tuple(-(-(side.stop - side.start) >> level) for side in (rows, columns))
        whole = (1 + heads.signed, *shape)
        self.means = np.zeros(whole, np.float32)
        self.maxima = np.zeros(whole, np.float32)
        self.state = np.zeros(shape[0], np.uint8)
        # One query of each row of cells, for as long as not all rows are exact.
        self._sampled = np.zeros(shape[0], np.bool_)
        self._sample_means = np.zeros(whole, np.float32)
        self._sample_maxima = np.zeros(whole, np.float32)
        self._samples: Steps | None = None
        self._exactly: Steps | None = None
        # The cells that each row of cells can have weight in, and how many pairs that takes.
        self._firsts = np.zeros(shape[0], np.int64)
        self._stops = np.zeros(shape[0], np.int64)
        self.pairs = np.zeros(shape[0])
        for row in range(shape[0]):
            queries = self._queries(row, row + 1)
            reach = heads.reach(queries)
            inside = _overlap(reach, columns)
            self._firsts[row] = (inside.start - columns.start) >> level
            self._stops[row] = -(-(inside.stop - columns.start) >> level)
            if inside.start == inside.stop:
                self.state[row] = _EXACT
                continue
            keys = reach.stop - reach.start + inside.stop - inside.start
            count = queries.stop - queries.start
            self.pairs[row] = count * keys * heads.num_matrices

    @property
    def num_bytes(self) -> int:
        """Bytes that the cells take."""
        return 2 * (self.means.nbytes + self.maxima.nbytes)

    def sizes(self, side: slice) -> NDArray[np.int64]:
        """How many queries or keys each cell stands for, of `rows` or `columns`."""
        count = side.stop - side.start
        sizes: NDArray[np.int64] = np.minimum(self._each, count - np.arange(0, count, self._each))
        return sizes

    def progress(self, span: slice, across: slice) -> float:
        """Share of the work that is done for some rows and columns of cells, 0 to 1."""
        pairs, exact = self.pairs[span], self._exact(span, across)
        return 1.0 if exact.all() else float(pairs[exact].sum() / pairs.sum())

    def known(self, span: slice, across: slice) -> tuple[int, int]:
        """Queries that some cells are made from so far, and how many they stand for."""
        sizes, exact = self.sizes(self.rows)[span], self._exact(span, across)
        of = int(sizes.sum())
        if exact.all():
            return of, of
        shown, sampled = self._shown(span, across)
        return int(sizes[shown & ~sampled].sum() + (shown & sampled).sum()), of

    def _shown(self, span: slice, across: slice) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Rows of cells that an estimate shows, and of which of them one query alone."""
        sampled = self._sampled[span].copy()
        known = sampled | (self.state[span] == _EXACT)
        if not sampled.any():
            return known, sampled
        outside = (self._firsts[span] >= across.stop) | (self._stops[span] <= across.start)
        # The finest even spacing of which no row is missing.
        spacing = 1
        while spacing < len(known) and not (known | outside)[::spacing].all():
            spacing *= 2
        shown = known.copy()
        if (known | outside)[::spacing].all():
            shown[:] = False
            shown[::spacing] = known[::spacing]
        return (shown if shown.any() else known), sampled

    def _exact(self, span: slice, across: slice) -> NDArray[np.bool_]:
        """Which rows of cells have nothing to wait for: no weight is outside of their reach."""
        outside = (self._firsts[span] >= across.stop) | (self._stops[span] <= across.start)
        exact: NDArray[np.bool_] = (self.state[span] == _EXACT) | outside
        return exact

    def work(self, span: slice, across: slice, *, exact: bool) -> bool:
        """Do one step towards some cells."""
        # What has been begun is finished first: two who ask by turns for
        # different rows would otherwise begin anew for ever.
        try:
            if self._samples is None:
                missing = self._unsampled(span, across, exact=exact)
                self._samples = self._sample(missing) if len(missing) else None
            if self._samples is not None:
                self._samples = _advanced(self._samples)
                return True
            if not exact:
                return False
            if self._exactly is None:
                left = np.flatnonzero(~self._exact(span, across))
                if not len(left):
                    return False
                self._exactly = self._compute(span.start + int(left[0]))
            self._exactly = _advanced(self._exactly)
        except BaseException:
            # An interrupted step is lost, with the rows that it was about; nothing else is.
            self._samples = self._exactly = None
            raise
        return True

    def taken(self, rows: slice, columns: slice, pooled: str) -> NDArray[np.float32]:
        """Cells as far as they are known, each unknown row as the nearest known one.

        Returns
        -------
        ndarray
            float32, (parts, rows, columns); zeros where no row is known.
        """
        cells = self.maxima if pooled == "max" else self.means
        if self._exact(rows, columns).all():
            return cells[:, rows, columns]
        shown, sampled = self._shown(rows, columns)
        known, unknown = np.flatnonzero(shown), np.flatnonzero(~shown)
        if not len(known):
            return np.zeros_like(cells[:, rows, columns])
        samples = self._sample_maxima if pooled == "max" else self._sample_means
        cells = np.where(sampled[:, None], samples[:, rows], cells[:, rows])
        at = np.arange(len(shown))
        after = np.minimum(np.searchsorted(known, at), len(known) - 1)
        before = np.maximum(after - 1, 0)
        nearer = np.abs(known[before] - at) <= np.abs(known[after] - at)
        found: NDArray[np.float32] = cells[:, known[np.where(nearer, before, after)], columns]
        for row in unknown:
            first, stop = self._firsts[rows.start + row], self._stops[rows.start + row]
            found[:, row, : max(0, first - columns.start)] = 0
            found[:, row, max(0, stop - columns.start) :] = 0
        return found

    def _queries(self, first: int, stop: int) -> slice:
        start = self.rows.start + (first << self.level)
        return slice(start, min(self.rows.stop, self.rows.start + (stop << self.level)))

    def _unsampled(self, span: slice, across: slice, *, exact: bool) -> NDArray[np.int64]:
        """Rows of cells to sample next: evenly spaced, and nearer to each other each time."""
        nothing = np.zeros(0, np.int64)
        done = self._exact(span, across)
        if exact and self.pairs[span][~done].sum() <= _SAMPLED_FROM:
            return nothing
        state = np.where(done, _EXACT, self.state[span])
        most = max(_FEWEST_SAMPLES, _SAMPLES_AT_ONCE // self.heads.num_matrices)
        stride = 1 << max(0, (-(-len(state) // most) - 1).bit_length())
        nearest = min(stride, max(1, _SAMPLED_SHARE >> self.level))
        while stride >= nearest:
            rows = np.arange(0, len(state), stride)
            missing = rows[state[rows] == _UNKNOWN]
            if len(missing):
                found: NDArray[np.int64] = span.start + missing[:most]
                return found
            stride //= 2
        return nothing

    def _sample(self, cells: NDArray[np.int64]) -> Steps:
        starts = self.rows.start + (cells << self.level)
        stops = np.minimum(self.rows.stop, starts + self._each)
        queries = torch.from_numpy((starts + stops) // 2)
        means, maxima = self._empty(len(cells))
        # Neighbours together: of those at the beginning a causal mask hides most keys.
        for start in range(0, len(cells), _ROWS_SAMPLED):
            some = slice(start, start + _ROWS_SAMPLED)
            yield from self._pool(queries[some], 1, means[:, some], maxima[:, some])
        means /= self.sizes(self.columns)
        for place, row in enumerate(cells):
            self._sample_means[:, row] = means[:, place]
            self._sample_maxima[:, row] = maxima[:, place]
            self._sampled[row] = True
            if self.state[row] == _UNKNOWN:
                self.means[:, row], self.maxima[:, row] = means[:, place], maxima[:, place]
                self.state[row] = _EXACT if self._each == 1 else _SAMPLED

    def _compute(self, first: int) -> Steps:
        """Go through all queries of a row of cells, and of those after it that fit in."""
        stop = first + 1
        together = max(1, _ROWS_AT_ONCE >> self.level)
        while stop < len(self.state) and stop - first < together and self.state[stop] != _EXACT:
            stop += 1
        means, maxima = self._empty(stop - first)
        queries = self._queries(first, stop)
        for start in range(queries.start, queries.stop, _ROWS_AT_ONCE):
            part = slice(start, min(start + _ROWS_AT_ONCE, queries.stop))
            row = (start - queries.start) >> self.level
            yield from self._pool(part, self._each, means[:, row:], maxima[:, row:])
        means /= np.outer(self.sizes(self.rows)[first:stop], self.sizes(self.columns))
        self.means[:, first:stop], self.maxima[:, first:stop] = means, maxima
        # Last: an interrupt before leaves an estimate, and no half of it is taken for exact.
        self.state[first:stop] = _EXACT

    def _empty(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        shape = (len(self.means), count, self.means.shape[2])
        return np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def _pool(
        self, rows: Rows, each: int, sums: NDArray[np.float32], maxima: NDArray[np.float32]
    ) -> Steps:
        """Add queries' weights to rows of cells, `each` neighbours to the same."""
        heads = self.heads
        whole_rows = self.columns == slice(0, heads.num_keys)
        if whole_rows and isinstance(heads, HeadMean) and len(heads.heads) == 1:
            yield from self._pool_at_once(heads, rows, each, sums[0], maxima[0])
            return
        divided = yield from heads.divided(rows)
        reach = _overlap(heads.reach(rows), self.columns)
        first = (reach.start - self.columns.start) >> self.level
        # Blocks begin where cells do, so that each holds whole ones.
        keys = slice(self.columns.start + (first << self.level), reach.stop)
        for columns in blocks(keys, len(divided[0]), divided[0].device, least=self._each):
            weights = yield from heads.weights(rows, columns, divided)
            at = (columns.start - self.columns.start) >> self.level
            for number, part in enumerate(parted_tensor(weights, signed=heads.signed)):
                with torch.no_grad():
                    total, most = _pooled(part, each, self._each)
                cells = np.s_[number, : total.shape[0], at : at + total.shape[1]]
                sums[cells] += total.cpu().numpy()
                np.maximum(maxima[cells], most.cpu().numpy(), out=maxima[cells])
            yield

    def _pool_at_once(
        self,
        heads: HeadMean,
        rows: Rows,
        each: int,
        sums: NDArray[np.float32],
        maxima: NDArray[np.float32],
    ) -> Steps:
        """The same for all keys of one head, without going through them twice.

        Until all keys are known each query's cells are held against their own largest logit; what
        the rows are divided by is then known from the cells.
        """
        wide = self._each
        numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        reach = heads.attention.reach(rows)
        first = reach.start >> self.level
        shape = (len(numbers), -(-reach.stop >> self.level) - first)
        device = heads.attention.queries.device
        most = torch.full(shape, -torch.inf, device=device)
        total = torch.zeros(shape, device=device)
        for columns in blocks(
            slice(first << self.level, reach.stop), len(numbers), device, least=wide
        ):
            with torch.no_grad():
                logits = heads.logits(rows, columns)
                if logits.shape[1] % wide:
                    missing = (0, -logits.shape[1] % wide)
                    logits = torch.nn.functional.pad(logits, missing, value=-torch.inf)
                each_cell = logits.view(len(numbers), -1, wide)
                largest = each_cell.amax(dim=2)
                each_cell -= _finite(largest)[..., None]
                at = (columns.start >> self.level) - first
                cells = np.s_[:, at : at + largest.shape[1]]
                total[cells] = powers(each_cell).sum(dim=2)
                most[cells] = largest
            yield
        with torch.no_grad():
            divided = heads.log_normalizer_from(most + torch.log(total))
            heads.keep(heads.heads[0], numbers, divided.cpu())
            # The largest weight of a query's cell, and by it the sum of them all.
            weights = normalized(most, divided)
            total *= weights
            total, _ = _pooled(total, each, 1)
            _, weights = _pooled(weights, each, 1)
        whole = np.s_[: total.shape[0], first : first + shape[1]]
        sums[whole] += total.cpu().numpy()
        np.maximum(maxima[whole], weights.cpu().numpy(), out=maxima[whole])


def _finite(largest: torch.Tensor) -> torch.Tensor:
    """The same, and 0 where nothing is allowed: infinities have no difference."""
    return largest.masked_fill(torch.isneginf(largest), 0.0)


def _pooled(weights: torch.Tensor, high: int, wide: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums and maxima of cells; the last may be smaller."""
    rows, columns = weights.shape
    # No weight is less than nothing, which therefore changes neither sum nor maximum.
    missing = (0, -columns % wide, 0, -rows % min(high, rows))
    if any(missing):
        weights = torch.nn.functional.pad(weights, missing)
    total = most = weights
    if wide > 1:
        each = weights.view(len(weights), -1, wide)
        total, most = each.sum(dim=2), each.amax(dim=2)
    if high > 1:
        high = min(high, rows)
        total = total.view(-1, high, total.shape[1]).sum(dim=1)
        most = most.view(-1, high, most.shape[1]).amax(dim=1)
    return total, most


def _overlap(one: slice, other: slice) -> slice:
    start = max(one.start, other.start)
    return slice(start, max(start, min(one.stop, other.stop)))


def _advanced(steps: Steps) -> Steps | None:
    """The same a step later; None when it was the last."""
    try:
        next(steps)
    except StopIteration:
        return None
    return steps
