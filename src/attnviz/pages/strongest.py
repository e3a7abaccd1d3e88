"""Encoding of the strongest keys of each query, for pages that are too small for all weights.

A row contains the weights of one query in one head. A page contains all weights of at least a
threshold, and in each row at least the `MIN_KEYS` largest weights (unless they are 0). The keys
with these weights are called embedded. The rest of a row's weight is spread evenly over the other
keys between the first and the last key of the row with a weight above 0.
``js/src/client/page/sparse.ts`` decodes the bytes. The tests of both languages read
``tests/fixtures/sparse.json``.

The bytes of a layer consist of six sequences, called runs. Each run has one number per row or per
embedded key, head by head. The integers in the first three runs and in gaps have variable length:
the digits in base 128, the lowest first, with 128 added to all digits except the last (LEB128,
DWARF 5, section 7.6).

=========  ========  ===============================================================================
Run        Per       Content
=========  ========  ===============================================================================
counts     row       number of embedded keys
firsts     row       first key with weight
ends       row       number of keys without weight at the end of ``min(columns, row + 1 + reach)``
rests      row       one byte, ``round(255 sqrt(rest / max_rest))``: weight of the other keys
gaps       key       number of keys between this and the previous embedded key, or since `firsts`
codes      key       one byte, ``round(255 sqrt(weight / maximum))``
=========  ========  ===============================================================================

`reach` in the header is the largest distance from a query to a later key with weight. For signed
numbers (``signed`` in the header), the strongest keys have the largest absolute values.
Their codes are signed bytes, ``sign(number) * round(127 sqrt(abs(number) / maximum))``. All rests
are 0, so keys that are not embedded have the value 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.analysis.heads import weights_of_some
from attnviz.pages.packing import Packer
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import TOP_CODE, TOP_SIGNED_CODE
from attnviz.utils.progress import Pace, part_of, report

__all__ = [
    "ENCODING",
    "MIN_KEYS",
    "Cut",
    "SparseRows",
    "StrongestRows",
    "Sweep",
    "concatenate_rows",
    "encode_sparse",
    "first_level",
    "sparse_rows",
    "strongest_rows",
]

ENCODING = "strongest-keys"
#: Minimum number of embedded keys per row. In many rows the first token has most of the weight, so
#: the second strongest key is more interesting than the strongest key.
MIN_KEYS = 2

_SEVEN_BITS = 7
_MORE = 0x80
# Number of levels. A level is an integer that stands for a threshold: ``(level / _LEVELS) ** 2``
# times the `maximum` of the stack.
_LEVELS = 4096
# Lower bound of the compressed size of an embedded key in bytes. A key usually takes about 10 bits:
# 4 for its position and 6 for its weight.
_MIN_BYTES_PER_KEY = 0.8
# Ratio of the sizes after and before base64 encoding.
_TEXT = 4 / 3
# If the number of collected keys exceeds the number that fits into the page by this factor, the
# weakest are dropped.
_COLLECTED = 1.5
# Maximum number of times that a page is encoded, each time with another threshold.
_TRIES = 8
# Maximum number of queries for which all keys are collected. With more queries, a threshold is
# estimated first.
_SHORT = 256
# With the estimated threshold, this many times as many keys as fit should be collected, because the
# estimate is inexact.
_AIMED = 1.25
# If a page uses less than this share of the available bytes, and a lower threshold is possible, the
# page is encoded a second time.
_FULL = 0.97
# Number of consecutive keys in a bin. The maximum of each bin is computed first, and most bins need
# no further search.
_BIN = 128
# Maximum numbers of keys and rows that are encoded between two progress reports.
_PART_KEYS = 1 << 19
_PART_ROWS = 1 << 16
# Fields of `StrongestRows` with one entry per collected key. The other fields have one entry per
# row.
_BY_KEY = frozenset({"keys", "weights", "always"})
# Smallest positive float32.
_SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
# Share of the available bytes that the page should use with the next threshold.
_SPARE = 0.985


@dataclass(frozen=True)
class SparseRows:
    """Encoded rows of several heads: codes of the embedded weights and of the rests of the rows.

    Attributes
    ----------
    shape : tuple of int
        (heads, rows, columns).
    counts : ndarray of int64, (heads * rows,)
        Number of embedded keys of each row.
    keys : ndarray of int64
        Embedded keys of all rows, in ascending order within a row.
    codes : ndarray of uint8
        Codes of the embedded weights, ``round(255 sqrt(weight / maximum))``. Codes of signed
        numbers are signed bytes (see the module).
    firsts, ends : ndarray of int64, (heads * rows,)
        First key of each row with weight, and the key after the last key with weight. All embedded
        keys are in this range. The other keys in the range share the rest of the row's weight.
    rests : ndarray of uint8, (heads * rows,)
        Code of the rest of each row's weight, ``round(255 sqrt(rest / max_rest))``.
    maximum, max_rest : float
        Weight and rest that have the largest code.
    signed : bool
        Whether numbers are signed. If True, all rests are 0.
    """

    shape: tuple[int, int, int]
    counts: NDArray[np.int64]
    keys: NDArray[np.int64]
    codes: NDArray[np.uint8]
    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]
    rests: NDArray[np.uint8]
    maximum: float
    max_rest: float
    signed: bool = False

    @property
    def weights(self) -> NDArray[np.float64]:
        """Decoded weights of the embedded keys."""
        return _decode(self.codes, self.maximum, signed=self.signed)

    @property
    def spread(self) -> NDArray[np.float64]:
        """Weight that each key of a row's range has if it is not embedded, (heads * rows,).

        0 if all keys in the range are embedded.
        """
        others = self.ends - self.firsts - self.counts
        rests = _decode(self.rests, self.max_rest)
        spread: NDArray[np.float64] = np.where(others > 0, rests / np.maximum(1, others), 0.0)
        return spread

    def dense(self) -> NDArray[np.float64]:
        """Return all decoded weights: float64, (heads, rows, columns).

        Examples
        --------
        >>> rows = SparseRows(
        ...     (1, 1, 4), *map(np.array, ([1], [2])), np.array([255], np.uint8),
        ...     *map(np.array, ([0], [3])), np.array([255], np.uint8), 0.5, 0.5,
        ... )
        >>> rows.dense()
        array([[[0.25, 0.25, 0.5 , 0.  ]]])
        """
        heads, rows, columns = self.shape
        key = np.arange(columns)
        within = (key >= self.firsts[:, None]) & (key < self.ends[:, None])
        dense = np.where(within, self.spread[:, None], 0.0)
        dense[np.repeat(np.arange(heads * rows), self.counts), self.keys] = self.weights
        return dense.reshape(self.shape)


def encode_sparse(rows: SparseRows) -> tuple[dict[str, Any], bytes]:
    """Join the runs of encoded rows. Return a header of JSON values, and the bytes of all runs.

    The header contains the lengths of the runs.
    """
    row = np.arange(len(rows.counts)) % rows.shape[1]
    reach = _max_reach(rows, row)
    runs = _runs(rows, row, reach)
    return _header(rows, reach, [len(run) for run in runs]), b"".join(runs)


def _max_reach(rows: SparseRows | StrongestRows, row: NDArray[np.int64]) -> int:
    """Return the largest distance from a query to a later key with weight.

    The distance is 0 if all keys with weight are at or before their query. `row` has the index of
    each query.
    """
    return int(np.max(rows.ends - row - 1, initial=0, where=rows.ends > rows.firsts))


def _runs(rows: SparseRows, row: NDArray[np.int64], reach: int) -> list[bytes]:
    """Return the six runs of encoded rows. `row` has the index of each row within its head."""
    last = np.minimum(rows.shape[2], row + 1 + reach)
    starts = np.cumsum(rows.counts) - rows.counts
    gaps = np.diff(rows.keys, prepend=0) - 1
    begins = starts[rows.counts > 0]
    gaps[begins] = rows.keys[begins] - rows.firsts[rows.counts > 0]
    return [
        _encode_integers(rows.counts),
        _encode_integers(rows.firsts),
        _encode_integers(np.maximum(0, last - rows.ends)),
        rows.rests.tobytes(),
        _encode_integers(gaps),
        rows.codes.tobytes(),
    ]


def _header(rows: SparseRows, reach: int, lengths: list[int]) -> dict[str, Any]:
    header = {
        "shape": list(rows.shape),
        "encoding": ENCODING,
        "maximum": rows.maximum,
        "max_rest": rows.max_rest,
        "reach": reach,
        "runs": lengths,
    }
    if rows.signed:
        header["signed"] = True
    return header


def _encode_integers(numbers: NDArray[np.int64]) -> bytes:
    """Encode non-negative integers with variable length (LEB128)."""
    lengths = np.ones(len(numbers), np.int64)
    largest = int(numbers.max(initial=0))
    for digits in range(1, -(-largest.bit_length() // _SEVEN_BITS)):
        lengths += numbers >= 1 << _SEVEN_BITS * digits
    ends = np.cumsum(lengths)
    encoded = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for digit in range(int(lengths.max(initial=0))):
        has_digit = lengths > digit
        bits = (numbers[has_digit] >> _SEVEN_BITS * digit) & (_MORE - 1)
        continuation = np.where(lengths[has_digit] > digit + 1, _MORE, 0)
        encoded[ends[has_digit] - lengths[has_digit] + digit] = bits + continuation
    return encoded.tobytes()


@dataclass(frozen=True)
class StrongestRows:
    """Largest weights of some rows, called the collected weights, and statistics of the rows.

    For signed numbers, `sums`, `largest` and `smallest` are about absolute values.

    Attributes
    ----------
    counts : ndarray of int64, (rows,)
        Number of collected weights of each row.
    keys : ndarray of int32
        Keys of the collected weights, row after row, in ascending order within a row.
    weights : ndarray of float32
        Collected weights, in the order of `keys`.
    always : ndarray of bool
        Whether each collected weight is one of the `MIN_KEYS` largest of its row, which are always
        embedded.
    firsts, ends : ndarray of int64, (rows,)
        First key with weight, and the key after the last key with weight. Both are 0 for rows
        without weight.
    sums : ndarray of float64, (rows,)
        Sum of all weights of a row.
    largest, smallest : ndarray of float32, (rows,)
        Largest and smallest weight between `firsts` and `ends` that was not collected. 0 and
        infinity if all weights in this range were collected.
    """

    counts: NDArray[np.int64]
    keys: NDArray[np.int32]
    weights: NDArray[np.float32]
    always: NDArray[np.bool_]
    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]
    sums: NDArray[np.float64]
    largest: NDArray[np.float32]
    smallest: NDArray[np.float32]

    @property
    def sizes(self) -> NDArray[np.float32]:
        """Absolute values of the collected weights: `weights` itself if none is negative."""
        weights = self.weights
        return weights if weights.min(initial=0.0) >= 0 else np.abs(weights)

    @property
    def num_bytes(self) -> int:
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def raise_threshold(self, threshold: float) -> StrongestRows:
        """Return a copy without the weights below `threshold`. Weights in `always` remain."""
        sizes = self.sizes
        kept = self.always | (sizes >= threshold)
        counts, largest, smallest = self.counts.copy(), self.largest.copy(), self.smallest.copy()
        # Skip rows without keys, because `reduceat` does not support empty groups.
        rows = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[rows]
        if len(rows):
            counts[rows] = np.add.reduceat(kept, starts, dtype=np.int64)
            dropped = np.where(kept, 0, sizes)
            largest[rows] = np.maximum(largest[rows], np.maximum.reduceat(dropped, starts))
            dropped = np.where(kept, np.float32(np.inf), sizes)
            smallest[rows] = np.minimum(smallest[rows], np.minimum.reduceat(dropped, starts))
        return replace(
            self,
            counts=counts,
            keys=self.keys[kept],
            weights=self.weights[kept],
            always=self.always[kept],
            largest=largest,
            smallest=smallest,
        )


def strongest_rows(
    weights: NDArray[np.float32], threshold: float, first: int = 0, *, signed: bool = False
) -> StrongestRows:
    """Collect the weights of at least `threshold`, and at least the `MIN_KEYS` largest of each row.

    `weights` has the shape (rows, columns). Its first column belongs to the key `first`. Weights of
    0 are not collected. If weights are equal, the weight of the first key counts as larger. Signed
    numbers are compared by absolute value.

    Examples
    --------
    >>> rows = strongest_rows(np.array([[0.1, 0.5, 0.0, 0.4]], np.float32), threshold=0.45)
    >>> rows.keys, rows.largest, rows.smallest
    (array([1, 3], dtype=int32), array([0.1], dtype=float32), array([0.], dtype=float32))
    """
    with torch.no_grad():
        if not signed:
            return _strongest_rows(weights, threshold, first)
        rows = _strongest_rows(np.abs(weights), threshold, first)
        row = np.repeat(np.arange(len(weights)), rows.counts)
        return replace(rows, weights=weights[row, rows.keys - first])


def _strongest_rows(weights: NDArray[np.float32], threshold: float, first: int) -> StrongestRows:
    count, columns = weights.shape
    # Divide the keys into bins. Most bins have no weight to collect, which their maximum shows.
    bins = -(-columns // _BIN)
    # Weights that are not collected yet. Zeros fill the last bin.
    remaining = torch.zeros(count, bins * _BIN)
    # Copy with numpy, because torch warns about read-only arrays.
    remaining.numpy()[:, :columns] = weights
    binned = remaining.view(count, bins, _BIN)
    largest = binned.amax(dim=2)
    # Sum in double precision, because the rest of a row can be a small difference of large sums.
    sums = binned.sum(dim=(1, 2), dtype=torch.float64)
    row = torch.arange(count)

    # Find the first key with weight in the first bin with weight, and the last key in the last bin.
    has_weight = (largest > 0).to(torch.uint8)
    begin, end = has_weight.argmax(dim=1), bins - 1 - has_weight.flip(1).argmax(dim=1)
    firsts = begin * _BIN + (binned[row, begin] > 0).to(torch.uint8).argmax(dim=1)
    ends = (end + 1) * _BIN - (binned[row, end] > 0).to(torch.uint8).flip(1).argmax(dim=1)
    is_empty = largest.amax(dim=1) <= 0
    firsts[is_empty], ends[is_empty] = 0, 0
    smallest_weights = _min_within(binned, firsts, ends)

    # Select the bins with a weight of at least the threshold, or with one of the `MIN_KEYS` largest
    # weights of a row.
    minimum = max(float(np.float32(threshold)), _SMALLEST)
    selected = largest >= minimum
    strongest_of_rows = []
    for _ in range(min(MIN_KEYS, columns)):
        best_bin = largest.argmax(dim=1)
        bin_weights = binned[row, best_bin]
        key_in_bin = bin_weights.argmax(dim=1)
        # After the loop, `strong` contains the smallest of these largest weights of each row.
        strong = bin_weights[row, key_in_bin]
        positive = strong > 0
        selected[row[positive], best_bin[positive]] = True
        strongest_of_rows.append(
            (row[positive], best_bin[positive], key_in_bin[positive], strong[positive])
        )
        # Set this weight to 0, so that the next iteration finds the next largest weight.
        bin_weights[row, key_in_bin] = 0
        binned[row, best_bin], largest[row, best_bin] = bin_weights, bin_weights.amax(dim=1)
    bin_row, bin_index = torch.nonzero(selected, as_tuple=True)
    entry_of_bin = torch.zeros(selected.shape, dtype=torch.int64)
    entry_of_bin[bin_row, bin_index] = torch.arange(len(bin_row))
    bin_weights = binned[bin_row, bin_index]
    collected = bin_weights >= minimum
    always = torch.zeros_like(collected)
    for at_row, at_bin, key_in_bin, weight in strongest_of_rows:
        position = entry_of_bin[at_row, at_bin], key_in_bin
        bin_weights[position], always[position] = weight, True
    collected |= always
    entry, key_in_bin = torch.nonzero(collected, as_tuple=True)
    collected_weights, always = bin_weights[entry, key_in_bin], always[entry, key_in_bin]
    bin_weights[entry, key_in_bin] = 0
    binned[bin_row, bin_index], largest[bin_row, bin_index] = bin_weights, bin_weights.amax(dim=1)

    counts = torch.bincount(bin_row[entry], minlength=count)
    # If the smallest weight of a row may have been collected, search the weights that remain.
    unsure = torch.nonzero((smallest_weights >= minimum) | (smallest_weights >= strong)).flatten()
    unsure_rows = remaining[unsure]
    smallest = unsure_rows.masked_fill(unsure_rows == 0, torch.inf).amin(dim=1)
    # The smallest weight is 0 if a key between `firsts` and `ends` has no weight.
    smallest[(unsure_rows > 0).sum(dim=1) < (ends - firsts - counts)[unsure]] = 0.0
    smallest_weights[unsure] = smallest
    return StrongestRows(
        counts=counts.numpy(),
        keys=(bin_index[entry] * _BIN + key_in_bin + first).to(torch.int32).numpy(),
        weights=collected_weights.numpy(),
        always=always.numpy(),
        firsts=torch.where(is_empty, 0, firsts + first).numpy(),
        ends=torch.where(is_empty, 0, ends + first).numpy(),
        sums=sums.numpy(),
        largest=largest.amax(dim=1).numpy(),
        smallest=smallest_weights.numpy(),
    )


def _min_within(binned: torch.Tensor, firsts: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return the smallest weight of each row between `firsts` and `ends` (exclusive), (rows,)."""
    row, number = torch.arange(len(binned)), torch.arange(binned.shape[1])
    smallest = binned.amin(dim=2)
    begin, end = firsts // _BIN, (ends - 1).clamp(min=0) // _BIN
    smallest[(number < begin[:, None]) | (number > end[:, None])] = torch.inf
    # The first and last bins also have keys outside the range.
    for edge in (begin, end):
        key = edge[:, None] * _BIN + torch.arange(_BIN)
        outside = (key < firsts[:, None]) | (key >= ends[:, None])
        smallest[row, edge] = binned[row, edge].masked_fill(outside, torch.inf).amin(dim=1)
    return smallest.amin(dim=1)


def concatenate_rows(parts: list[StrongestRows]) -> StrongestRows:
    """Concatenate sets of rows. Pass at least one set."""
    names = [field.name for field in fields(StrongestRows)]
    return StrongestRows(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def sparse_rows(
    strongest: StrongestRows,
    shape: tuple[int, int, int],
    maximum: float,
    *,
    signed: bool = False,
    max_rest: float | None = None,
) -> tuple[SparseRows, float]:
    """Encode rows. Return the encoded rows and the largest absolute error of a weight.

    Weights are encoded relative to `maximum`. The rests of the rows are encoded relative to
    `max_rest`, because a rest can be far smaller than the rounding error of a large weight.
    By default, `max_rest` is the largest rest in `strongest`. If `strongest` contains only some
    rows of a layer, pass the largest rest of all rows of the layer.
    """
    codes = _encode(strongest.weights, maximum, signed=signed)
    rounded = _decode(codes, maximum, signed=signed)
    others = strongest.ends - strongest.firsts - strongest.counts
    rests = _other_weights(strongest, signed=signed)
    max_rest = float(rests.max(initial=0)) if max_rest is None else max_rest
    rows = SparseRows(
        shape=shape,
        counts=strongest.counts,
        keys=strongest.keys.astype(np.int64),
        codes=codes,
        firsts=strongest.firsts,
        ends=strongest.ends,
        rests=_encode(rests, max_rest),
        maximum=maximum,
        max_rest=max_rest,
        signed=signed,
    )
    spread, is_spread = rows.spread, others > 0
    errors = [
        np.abs(rounded - strongest.weights),
        np.abs(strongest.largest - spread)[is_spread],
        np.abs(strongest.smallest - spread)[is_spread],
    ]
    if signed:
        # Other keys are decoded as 0, so the largest of their numbers has the largest error.
        errors.pop()
    return rows, max(float(error.max(initial=0)) for error in errors)


def _other_weights(strongest: StrongestRows, *, signed: bool) -> NDArray[np.float64]:
    """Return, for each row, the total weight of its keys that are not collected. 0 if signed."""
    row = np.repeat(np.arange(len(strongest.counts)), strongest.counts)
    others = strongest.ends - strongest.firsts - strongest.counts
    embedded = np.bincount(row, strongest.sizes, minlength=len(strongest.counts))
    rests = np.where(others > 0, np.maximum(0.0, strongest.sums - embedded), 0.0)
    if signed:
        # Do not spread a rest, because the signs of the other numbers are unknown.
        rests = np.zeros_like(rests)
    return rests


def _decode(
    codes: NDArray[np.uint8], maximum: float, *, signed: bool = False
) -> NDArray[np.float64]:
    if signed:
        roots = codes.view(np.int8) / TOP_SIGNED_CODE
        numbers: NDArray[np.float64] = maximum * roots * np.abs(roots)
        return numbers
    values: NDArray[np.float64] = maximum * (codes / TOP_CODE) ** 2
    return values


def _encode(
    weights: NDArray[np.floating], maximum: float, *, signed: bool = False
) -> NDArray[np.uint8]:
    sizes = np.abs(weights) if signed else weights
    shares = np.clip(sizes / maximum, 0, 1) if maximum > 0 else np.zeros_like(weights)
    if signed:
        roots = np.copysign(np.rint(np.sqrt(shares) * TOP_SIGNED_CODE), weights)
        signs: NDArray[np.uint8] = roots.astype(np.int8).view(np.uint8)
        return signs
    codes: NDArray[np.uint8] = np.rint(np.sqrt(shares) * TOP_CODE).astype(np.uint8)
    return codes


class _Histogram:
    """Histogram of weights by level, with the number and the sum of the weights at each level.

    Weights that are always embedded are counted separately. The histogram finds the level for a
    given number of embedded keys, or for a given share of the weight.
    """

    def __init__(self, total: float) -> None:
        self.total = total
        self.counts, self.masses = np.zeros((2, _LEVELS + 1))
        # Number and sum of the weights that are always embedded.
        self.count, self.mass = 0.0, 0.0

    def add_weights(self, sizes: NDArray[np.float32], maximum: float, factor: float = 1) -> None:
        levels = _levels(sizes, maximum)
        bins = _LEVELS + 1
        self.counts += factor * np.bincount(levels, minlength=bins)
        self.masses += factor * np.bincount(levels, sizes, minlength=bins)

    def add(self, rows: StrongestRows, maximum: float) -> None:
        self.add_weights(rows.sizes[~rows.always], maximum)
        self.count += np.count_nonzero(rows.always)
        self.mass += float(rows.sizes[rows.always].sum(dtype=np.float64))

    def level_covering(self, share: float) -> int:
        """Return the highest level at which the embedded keys cover `share` of the total weight.

        Return 0 if no level covers this share.
        """
        above = (self.mass + np.cumsum(self.masses[::-1])[::-1]) / self.total
        return int(np.flatnonzero(above >= share).max(initial=0))

    def num_keys(self, level: int) -> float:
        """Return the number of keys that are embedded with the threshold of `level`."""
        return self.count + float(self.counts[level:].sum())

    def level_with_at_most(self, keys: float) -> int:
        """Return the lowest level at which at most `keys` keys are embedded.

        Return ``_LEVELS + 1`` if too many keys are embedded at every level.
        """
        above = self.count + np.cumsum(self.counts[::-1])[::-1]
        fitting = np.flatnonzero(above <= keys)
        return int(fitting[0]) if len(fitting) else _LEVELS + 1


def _levels(weights: NDArray[np.float32], maximum: float) -> NDArray[np.int32]:
    roots = np.sqrt(np.minimum(weights / maximum, 1), dtype=np.float32)
    levels: NDArray[np.int32] = (roots * _LEVELS).astype(np.int32)
    return levels


def _threshold(level: int) -> float:
    return (level / _LEVELS) ** 2


@dataclass(frozen=True)
class Cut:
    """Encoded strongest keys of all layers for one page.

    Attributes
    ----------
    blocks : list of dict
        Entry of each layer, as JSON values.
    covered, error : float
        Share of the total weight that the embedded keys cover, and largest absolute error of a
        weight.
    """

    blocks: list[dict[str, Any]]
    covered: float
    error: float

    @property
    def size(self) -> int:
        """Number of bytes of the layers' data in a page, without headers."""
        return sum(len(block["data"]) for block in self.blocks)


class Sweep:
    """Collector of the strongest keys of a record, in one pass over all weights.

    If far more keys are collected than fit into `room` bytes, the weakest keys are dropped. A page
    would not contain these keys, because there are enough stronger keys.

    Parameters
    ----------
    room : float
        Maximum size of the encoded keys in a page, in bytes.
    level : int
        Weights below the threshold of this level are not collected, except the `MIN_KEYS` largest
        of each row. Use `first_level` to choose the level.
    """

    def __init__(self, room: float, level: int = 0) -> None:
        self._room = room
        self._layers: list[tuple[AttentionStack, int]] = []
        # Sets of collected rows, each with the index of its layer in `_layers`.
        self._parts: list[tuple[int, StrongestRows]] = []
        self._level = level
        self._num_keys = 0

    @property
    def num_bytes(self) -> int:
        return sum(rows.num_bytes for _, rows in self._parts)

    def begin(self, stack: AttentionStack, layer: int) -> None:
        """Begin a layer, to which the next rows belong."""
        self._layers.append((stack, layer))

    def add(self, weights: NDArray[np.float32], first: int = 0) -> None:
        """Collect the strongest keys of the next rows of the layer, (rows, columns).

        The first column belongs to the key `first`. Rows must be added head by head, and within a
        head from the first to the last query.
        """
        self.add_rows(self.strongest(self._layers[-1][0], weights, first))
        self.drop_excess()

    def strongest(
        self, stack: AttentionStack, weights: NDArray[np.float32], first: int = 0
    ) -> StrongestRows:
        """Return the strongest keys of some rows at the current level. Pass them to `add_rows`."""
        threshold = _threshold(self._level) * stack.maximum
        return strongest_rows(weights, threshold, first, signed=stack.signed)

    def add_rows(self, rows: StrongestRows) -> None:
        """Add the result of `strongest` for the next rows of the layer.

        Call `drop_excess` afterwards.
        """
        self._parts.append((len(self._layers) - 1, rows))
        self._num_keys += int(np.count_nonzero(~rows.always))

    def drop_excess(self) -> None:
        """Drop the weakest keys if far more keys are collected than fit."""
        max_keys = _max_keys(self._room)
        if self._num_keys > _COLLECTED * max_keys:
            self._drop_weakest(max_keys)

    def suffices(self, room: float) -> bool:
        """Whether enough keys are collected to fill `room` bytes of a page."""
        return self._level == 0 or room <= self._room

    def finish(self) -> None:
        """Drop the weakest keys that do not fit. Call this method after the last row."""
        if self._num_keys > _max_keys(self._room):
            self._drop_weakest(_max_keys(self._room))

    def cut(self, share: float, room: float) -> Cut:
        """Encode the fewest keys that cover `share` of the total weight within `room` bytes.

        If `room` is too small for this share, encode as many keys as fit. If even the `MIN_KEYS`
        strongest keys of each row do not fit, encode only these. The result then exceeds `room`.
        """
        whole = self._joined()
        histogram = self._histogram()
        report("compressing", 0, len(whole), "layer")
        fitting_level = histogram.level_with_at_most(histogram.count + _max_keys(room))
        level = lowest = max(self._level, histogram.level_covering(share), fitting_level)
        # Drop keys below the lowest possible level first. The result then does not depend on how
        # many keys were collected.
        layers = []
        for stack, layer, rows in whole:
            layers.append((stack, layer, _raise_threshold(stack, rows, lowest)))
            report("compressing", 0, len(whole), "layer")
        fuller = False
        for last in range(1 - _TRIES, 1):
            cut: list[tuple[dict[str, Any], float, float]] = []
            packer = Packer()
            for layer_rows in layers:
                with part_of("compressing", len(cut), len(layers)):
                    cut.append(_encode_layer(*layer_rows, level, packer))
            size = sum(len(block["data"]) for block, *_ in cut)
            fitting_level = histogram.level_with_at_most(
                _SPARE * histogram.num_keys(level) * room / size
            )
            if size > room and level <= _LEVELS:
                # The last try embeds only the `MIN_KEYS` strongest keys of each row.
                level = max(level + 1, fitting_level) if last + 1 < 0 else _LEVELS + 1
            elif (
                size < _FULL * room and max(fitting_level, lowest) < level <= _LEVELS and not fuller
            ):
                fuller, level = True, max(fitting_level, lowest)
            else:
                break
        covered = min(1.0, sum(mass for _, mass, _ in cut) / histogram.total)
        error = max(error for *_, error in cut)
        return Cut([block for block, *_ in cut], covered, error)

    def _joined(self) -> list[tuple[AttentionStack, int, StrongestRows]]:
        """Concatenate the collected rows of each layer."""
        parts: list[list[StrongestRows]] = [[] for _ in self._layers]
        for layer_index, rows in self._parts:
            parts[layer_index].append(rows)
        whole = []
        for layer_parts in parts:
            whole.append(layer_parts[0] if len(layer_parts) == 1 else concatenate_rows(layer_parts))
            report("compressing", 0, len(parts), "layer")
        # Replace the separate sets of rows to free their memory.
        self._parts = list(enumerate(whole))
        return [(*layer, rows) for layer, rows in zip(self._layers, whole, strict=True)]

    def _histogram(self) -> _Histogram:
        total = sum(float(rows.sums.sum()) for _, rows in self._parts)
        histogram = _Histogram(max(total, np.finfo(float).tiny))
        for layer_index, rows in self._parts:
            histogram.add(rows, self._layers[layer_index][0].maximum)
        return histogram

    def _drop_weakest(self, max_keys: int) -> None:
        """Drop the weakest keys until at most about `max_keys` remain.

        Keys that are always embedded are not counted.
        """
        histogram = self._histogram()
        # Raise the level first. Rows that are added between the steps then have no weaker keys.
        self._level = max(self._level + 1, histogram.level_with_at_most(histogram.count + max_keys))
        num_keys = 0
        for number, (layer_index, rows) in enumerate(self._parts):
            thinned = _raise_threshold(self._layers[layer_index][0], rows, self._level)
            self._parts[number] = (layer_index, thinned)
            num_keys += int(np.count_nonzero(~thinned.always))
        self._num_keys = num_keys


def first_level(record: AttentionRecord, share: float, room: float) -> int:
    """Estimate the level with which `Sweep` collects a few more keys than a page needs.

    A page needs the keys that cover `share` of the total weight, or as many keys as fit into `room`
    bytes. The estimate uses sampled queries. If a stack has at most `_SHORT` queries, return 0, so
    that all keys are collected.
    """
    histogram = _Histogram(np.finfo(float).tiny)
    stacks = list(record.stacks.values())
    if any(len(stack.query_tokens) <= _SHORT for stack in stacks):
        return 0
    layers = [(stack, layer) for stack in stacks for layer in stack.layers]
    sampled = [sample_queries(len(stack.query_tokens)) for stack, _ in layers]
    pace = Pace(
        "sampled queries",
        sum(
            len(rows) * len(stack.key_tokens) * stack.num_heads(layer)
            for rows, (stack, layer) in zip(sampled, layers, strict=True)
        ),
    )
    for rows, (stack, layer) in zip(sampled, layers, strict=True):
        factor = len(stack.query_tokens) / len(rows)
        for _, head_weights, _ in weights_of_some(
            stack, layer, range(stack.num_heads(layer)), rows
        ):
            weights = np.abs(head_weights)
            # Skip invalid weights. The pass over all rows raises an error if there are any.
            valid = weights[(weights > 0) & (weights <= stack.maximum)]
            histogram.add_weights(valid, stack.maximum, factor)
            histogram.total += factor * float(valid.sum(dtype=np.float64))
            pace.advance(2 * weights.size)
    # Cover half of the remaining share, too, because the estimate is inexact.
    return max(
        min(_LEVELS, histogram.level_with_at_most(_AIMED * _max_keys(room))),
        histogram.level_covering(1 - (1 - share) / 2),
    )


def _max_keys(room: float) -> int:
    return int(room / _TEXT / _MIN_BYTES_PER_KEY)


def _raise_threshold(stack: AttentionStack, rows: StrongestRows, level: int) -> StrongestRows:
    return rows.raise_threshold(_threshold(level) * stack.maximum)


def _split_rows(rows: StrongestRows) -> Iterator[tuple[int, StrongestRows]]:
    """Split rows into parts of limited size. Yield the index of the first row and the part.

    The arrays of the parts are views, not copies.
    """
    ends = np.cumsum(rows.counts)
    first = 0
    while first < len(rows.counts):
        first_key = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, first_key + _PART_KEYS, side="right")))
        last = min(last, first + _PART_ROWS)
        row_slice, key_slice = slice(first, last), slice(first_key, int(ends[last - 1]))
        arrays = {name: getattr(rows, name) for name in (field.name for field in fields(rows))}
        yield (
            first,
            StrongestRows(
                **{
                    name: array[key_slice if name in _BY_KEY else row_slice]
                    for name, array in arrays.items()
                }
            ),
        )
        first = last


def _encode_layer(
    stack: AttentionStack,
    layer: int,
    rows: StrongestRows,
    level: int,
    packer: Packer,
) -> tuple[dict[str, Any], float, float]:
    """Encode the keys of a layer that are embedded with the threshold of `level`.

    Return the entry of the layer as JSON values, the sum of its embedded weights, and the largest
    absolute error of a weight.
    """
    shape = (stack.num_heads(layer), len(stack.query_tokens), len(stack.key_tokens))
    parts: list[tuple[NDArray[np.int64], StrongestRows]] = []
    reach, max_rest, mass = 0, 0.0, 0.0
    for first, row_part in _split_rows(rows):
        part = _raise_threshold(stack, row_part, level)
        row = np.arange(first, first + len(part.counts)) % shape[1]
        parts.append((row, part))
        reach = max(reach, _max_reach(part, row))
        max_rest = max(max_rest, float(_other_weights(part, signed=stack.signed).max(initial=0)))
        mass += float(part.sizes.sum(dtype=np.float64))
        report("compressing", 0, 1, "layer")
    runs: list[list[bytes]] = []
    error = 0.0
    for row, part in parts:
        sparse, part_error = sparse_rows(
            part, shape, stack.maximum, signed=stack.signed, max_rest=max_rest
        )
        runs.append(_runs(sparse, row, reach))
        error = max(error, part_error)
        report("compressing", 0, 1, "layer")
    joined_runs = [b"".join(run_parts) for run_parts in zip(*runs, strict=True)]
    total = float(rows.sums.sum())
    header = _header(sparse, reach, [len(run) for run in joined_runs])
    covered = min(1.0, mass / total) if total > 0 else 1.0
    block = {"stack": stack.name, "layer": layer, **header, "error": error, "covered": covered}
    data = packer.pack(b"".join(joined_runs))
    return block | {"data": data}, mass, error
