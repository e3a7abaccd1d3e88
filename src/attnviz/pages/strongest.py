"""The strongest keys of each query, which a page embeds where it cannot embed all weights.

All weights of at least a threshold are embedded, and the strongest of each row whatever they are:
no other choice of as many keys covers more of the weight. What is left of a row is spread evenly
over its other keys, from the first with any weight to the last. ``js/src/client/page/sparse.ts``
reads the bytes; ``tests/fixtures/sparse.json`` is read by both.

The bytes are six runs, one after the other. Rows come head by head; a number that may be large is
written in base 128, the lowest seven bits first, with 128 added to all bytes but its last (LEB128,
DWARF 5, section 7.6).

=========  ========  ===============================================================================
run        each      says
=========  ========  ===============================================================================
counts     row       how many keys are embedded
firsts     row       the first key that has any weight
ends       row       how many keys before ``min(columns, row + 1 + reach)`` any weight ends
rests      row       one byte, ``round(255 sqrt(rest / most_rest))``: the weight of the other keys
gaps       key       keys passed over since the one before; before a row's first since `firsts`
codes      key       one byte, ``round(255 sqrt(weight / maximum))``
=========  ========  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from attnviz.pages.packing import packed
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import TOP_CODE

__all__ = [
    "LEAST_KEYS",
    "Cut",
    "SparseRows",
    "StrongestRows",
    "Sweep",
    "decode_sparse",
    "encode_sparse",
    "joined",
    "sparse_rows",
    "strongest_rows",
]

ENCODING = "strongest-keys"
#: So many keys of a row are embedded however weak they are: the first token takes most of many
#: rows, and what a reader looks for is the second.
LEAST_KEYS = 2

_SEVEN_BITS = 7
_MORE = 0x80
# Thresholds that are told apart: squares of so many parts of the largest weight's root.
_LEVELS = 4096
# What a key takes once deflated is never less than this: its place about 4 bits, its weight 6.
_LEAST_BYTES_PER_KEY = 0.8
# So many times the keys that may be embedded are collected before the weakest are dropped.
_COLLECTED = 1.5
_TRIES = 8
# The next try aims a little below the limit.
_SPARE = 0.985


@dataclass(frozen=True)
class SparseRows:
    """The strongest weights of some heads, row by row.

    Attributes
    ----------
    shape : tuple of int
        (heads, rows, columns).
    counts : ndarray of int64, (heads * rows,)
        How many keys each row embeds.
    keys : ndarray of int64
        The keys embedded, row after row, ascending within a row.
    codes : ndarray of uint8
        Their weights, ``round(255 sqrt(weight / maximum))``.
    firsts, ends : ndarray of int64, (heads * rows,)
        The keys from ``firsts`` to before ``ends`` share the rest of a row, but for those embedded;
        all keys that are embedded lie there.
    rests : ndarray of uint8, (heads * rows,)
        What these have together, ``round(255 sqrt(rest / most_rest))``.
    maximum, most_rest : float
        The weight and the rest of the highest code.
    """

    shape: tuple[int, int, int]
    counts: NDArray[np.int64]
    keys: NDArray[np.int64]
    codes: NDArray[np.uint8]
    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]
    rests: NDArray[np.uint8]
    maximum: float
    most_rest: float

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights of the keys that are embedded."""
        return self.maximum * (self.codes / TOP_CODE) ** 2

    @property
    def spread(self) -> NDArray[np.float64]:
        """What each key of a row has that is not embedded; 0 where all are, (heads * rows,)."""
        others = self.ends - self.firsts - self.counts
        rests = self.most_rest * (self.rests / TOP_CODE) ** 2
        spread: NDArray[np.float64] = np.where(others > 0, rests / np.maximum(1, others), 0.0)
        return spread

    def dense(self) -> NDArray[np.float64]:
        """All weights, as a reader puts them together: float64, (heads, rows, columns).

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
    """Write rows as bytes: a header fit for JSON, with the lengths of the runs, and the runs."""
    heads, num_rows, columns = rows.shape
    row = np.tile(np.arange(num_rows), heads)
    # How far ahead of its query any key with weight stands: 0 in causal attention.
    reach = int(np.max(rows.ends - row - 1, initial=0, where=rows.ends > rows.firsts))
    last = np.minimum(columns, row + 1 + reach)
    starts = np.cumsum(rows.counts) - rows.counts
    gaps = np.diff(rows.keys, prepend=0) - 1
    begins = starts[rows.counts > 0]
    gaps[begins] = rows.keys[begins] - rows.firsts[rows.counts > 0]
    runs = [
        _packed(rows.counts),
        _packed(rows.firsts),
        _packed(np.maximum(0, last - rows.ends)),
        rows.rests.tobytes(),
        _packed(gaps),
        rows.codes.tobytes(),
    ]
    header = {
        "shape": list(rows.shape),
        "encoding": ENCODING,
        "maximum": rows.maximum,
        "most_rest": rows.most_rest,
        "reach": reach,
        "runs": [len(run) for run in runs],
    }
    return header, b"".join(runs)


def decode_sparse(header: dict[str, Any], data: bytes) -> SparseRows:
    """Read rows from bytes; a ValueError where they are not those that the header speaks of."""
    if header["encoding"] != ENCODING:
        raise ValueError(f"encoding {header['encoding']!r} is unknown")
    if sum(header["runs"]) != len(data):
        raise ValueError(f"{len(data)} bytes do not hold runs of {header['runs']}")
    heads, num_rows, columns = header["shape"]
    cuts = np.cumsum(header["runs"])[:-1]
    runs = [part.tobytes() for part in np.split(np.frombuffer(data, np.uint8), cuts)]
    counts, firsts, before = (_unpacked(run) for run in runs[:3])
    row = np.tile(np.arange(num_rows), heads)
    gaps = _unpacked(runs[4])
    if len(counts) != heads * num_rows or len(gaps) != counts.sum():
        raise ValueError(f"the runs do not hold rows of {header['shape']}")
    # A row's keys are its first gap, and then one more than each gap on.
    steps = gaps + 1
    starts = np.cumsum(counts) - counts
    total = np.cumsum(steps)
    before_row = (total - steps)[np.minimum(starts, max(0, len(steps) - 1))] if len(steps) else 0
    keys = total - 1 - np.repeat(before_row - firsts, counts)
    last = np.minimum(columns, row + 1 + header["reach"])
    return SparseRows(
        shape=(heads, num_rows, columns),
        counts=counts,
        keys=keys,
        codes=np.frombuffer(runs[5], np.uint8),
        firsts=firsts,
        ends=np.maximum(firsts, last - before),
        rests=np.frombuffer(runs[3], np.uint8),
        maximum=header["maximum"],
        most_rest=header["most_rest"],
    )


def _packed(numbers: NDArray[np.int64]) -> bytes:
    """Numbers in base 128."""
    lengths = np.ones(len(numbers), np.int64)
    largest = int(numbers.max(initial=0))
    for digits in range(1, -(-largest.bit_length() // _SEVEN_BITS)):
        lengths += numbers >= 1 << _SEVEN_BITS * digits
    ends = np.cumsum(lengths)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    for digit in range(int(lengths.max(initial=0))):
        long = lengths > digit
        part = (numbers[long] >> _SEVEN_BITS * digit) & (_MORE - 1)
        more = np.where(lengths[long] > digit + 1, _MORE, 0)
        out[ends[long] - lengths[long] + digit] = part + more
    return out.tobytes()


def _unpacked(data: bytes) -> NDArray[np.int64]:
    """Numbers from base 128."""
    digits = np.frombuffer(data, np.uint8).astype(np.int64)
    last = np.flatnonzero(digits < _MORE)
    if len(digits) and (not len(last) or last[-1] != len(digits) - 1):
        raise ValueError("the last number is cut off")
    starts = np.concatenate([[0], last[:-1] + 1]) if len(last) else np.zeros(0, np.int64)
    place = np.arange(len(digits)) - np.repeat(starts, last - starts + 1)
    shifted = (digits & (_MORE - 1)) << (_SEVEN_BITS * place)
    return np.add.reduceat(shifted, starts) if len(starts) else np.zeros(0, np.int64)


@dataclass(frozen=True)
class StrongestRows:
    """The strongest weights of some rows, and figures of all the others.

    Attributes
    ----------
    counts : ndarray of int64, (rows,)
        How many weights of each row were collected.
    keys : ndarray of int32
        Their keys, row after row, ascending within a row.
    weights : ndarray of float32
        The weights, likewise.
    always : ndarray of bool
        Which of them are among the strongest of their row, and stay whatever the threshold.
    firsts, ends : ndarray of int64, (rows,)
        The first key with any weight and the one after the last; 0 and 0 where none has any.
    sums : ndarray of float64, (rows,)
        What all keys of a row have together.
    most, least : ndarray of float32, (rows,)
        The largest and the smallest weight from `firsts` to `ends` that was not collected; 0 and
        infinity where all are.
    """

    counts: NDArray[np.int64]
    keys: NDArray[np.int32]
    weights: NDArray[np.float32]
    always: NDArray[np.bool_]
    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]
    sums: NDArray[np.float64]
    most: NDArray[np.float32]
    least: NDArray[np.float32]

    def raised(self, threshold: float) -> StrongestRows:
        """The same rows without weights below a higher threshold, but for each row's strongest."""
        stays = self.always | (self.weights >= threshold)
        row = np.repeat(np.arange(len(self.counts)), self.counts)
        most, least = self.most.copy(), self.least.copy()
        np.maximum.at(most, row[~stays], self.weights[~stays])
        np.minimum.at(least, row[~stays], self.weights[~stays])
        return replace(
            self,
            counts=np.bincount(row[stays], minlength=len(self.counts)),
            keys=self.keys[stays],
            weights=self.weights[stays],
            always=self.always[stays],
            most=most,
            least=least,
        )


def strongest_rows(weights: NDArray[np.float32], threshold: float) -> StrongestRows:
    """Collect weights of at least a threshold, and each row's strongest, from (rows, columns).

    Examples
    --------
    >>> rows = strongest_rows(np.array([[0.1, 0.5, 0.0, 0.4]], np.float32), threshold=0.45)
    >>> rows.keys, rows.most, rows.least
    (array([1, 3], dtype=int32), array([0.1], dtype=float32), array([0.], dtype=float32))
    """
    sums = weights.sum(axis=1, dtype=np.float64)
    some = weights > 0
    firsts = some.argmax(axis=1)
    ends = np.where(sums > 0, weights.shape[1] - some[:, ::-1].argmax(axis=1), 0)
    # Nothing lies ahead of causal queries.
    width = max(1, int(ends.max(initial=0)))
    weights, some = weights[:, :width], some[:, :width]
    row = np.arange(len(weights))
    left = weights.copy()
    always = np.zeros(weights.shape, np.bool_)
    for _ in range(min(LEAST_KEYS, width)):
        strongest = left.argmax(axis=1)
        always[row, strongest] = some[row, strongest]
        left[row, strongest] = 0
    chosen = some & (weights >= threshold)
    left[chosen] = 0
    chosen |= always
    counts = chosen.sum(axis=1)
    # A key without weight between others takes a share of what is left.
    zeros = ends - firsts > some.sum(axis=1)
    least = np.where(left > 0, left, np.inf).min(axis=1)
    places = np.flatnonzero(chosen)
    return StrongestRows(
        counts=counts,
        keys=(places % width).astype(np.int32),
        weights=weights[chosen],
        always=always[chosen],
        firsts=firsts,
        ends=ends,
        sums=sums,
        most=left.max(axis=1),
        least=np.where(zeros, 0, least).astype(np.float32),
    )


def joined(parts: list[StrongestRows]) -> StrongestRows:
    """Rows after each other; at least one part."""
    names = [each.name for each in fields(StrongestRows)]
    return StrongestRows(**{n: np.concatenate([getattr(each, n) for each in parts]) for n in names})


def sparse_rows(
    strongest: StrongestRows, shape: tuple[int, int, int], maximum: float
) -> tuple[SparseRows, float]:
    """What a page embeds of all heads' rows, and how far any weight is off at most.

    Rows sum up to what they did, but for the rounding of the rest to one byte.
    """
    codes = _codes(strongest.weights, maximum)
    rounded = maximum * (codes / TOP_CODE) ** 2
    row = np.repeat(np.arange(len(strongest.counts)), strongest.counts)
    others = strongest.ends - strongest.firsts - strongest.counts
    embedded = np.bincount(row, rounded, minlength=len(strongest.counts))
    rests = np.where(others > 0, np.maximum(0.0, strongest.sums - embedded), 0.0)
    most_rest = float(rests.max(initial=0))
    rows = SparseRows(
        shape=shape,
        counts=strongest.counts,
        keys=strongest.keys.astype(np.int64),
        codes=codes,
        firsts=strongest.firsts,
        ends=strongest.ends,
        rests=_codes(rests, most_rest),
        maximum=maximum,
        most_rest=most_rest,
    )
    spread, spreads = rows.spread, others > 0
    errors = (
        np.abs(rounded - strongest.weights),
        np.abs(strongest.most - spread)[spreads],
        np.abs(strongest.least - spread)[spreads],
    )
    return rows, max(float(each.max(initial=0)) for each in errors)


def _codes(weights: NDArray[np.floating], most: float) -> NDArray[np.uint8]:
    shares = np.clip(weights / most, 0, 1) if most > 0 else np.zeros_like(weights)
    codes: NDArray[np.uint8] = np.rint(np.sqrt(shares) * TOP_CODE).astype(np.uint8)
    return codes


class _Histogram:
    """How many weights there are of each level, and what they have together."""

    def __init__(self, total: float) -> None:
        self.total = total
        self.counts, self.masses = np.zeros((2, _LEVELS + 1))
        # Those that are embedded whatever the threshold.
        self.count, self.mass = 0.0, 0.0

    def add(self, rows: StrongestRows, maximum: float) -> None:
        shares = rows.weights[~rows.always]
        levels = np.sqrt(np.minimum(shares / maximum, 1), dtype=np.float32) * _LEVELS
        places = levels.astype(np.int32)
        bins = _LEVELS + 1
        self.counts += np.bincount(places, minlength=bins)
        self.masses += np.bincount(places, shares, minlength=bins)
        self.count += np.count_nonzero(rows.always)
        self.mass += float(rows.weights[rows.always].sum(dtype=np.float64))

    def covering(self, share: float) -> int:
        """The highest level from which on weights have this share; 0 where none has."""
        above = (self.mass + np.cumsum(self.masses[::-1])[::-1]) / self.total
        return int(np.flatnonzero(above >= share).max(initial=0))

    def keys(self, level: int) -> float:
        """How many keys are embedded from a level on."""
        return self.count + float(self.counts[level:].sum())

    def holding(self, keys: float) -> int:
        """The lowest level from which on there are no more than so many keys."""
        above = self.count + np.cumsum(self.counts[::-1])[::-1]
        fitting = np.flatnonzero(above <= keys)
        return int(fitting[0]) if len(fitting) else _LEVELS + 1


def _threshold(level: int) -> float:
    return (level / _LEVELS) ** 2


@dataclass(frozen=True)
class Cut:
    """Layers of strongest keys that fit.

    Attributes
    ----------
    blocks : list of dict
        The layers, fit for JSON.
    covered, error : float
        The share of the weight that they have, and how far a weight of the page is off at most.
    """

    blocks: list[dict[str, Any]]
    covered: float
    error: float

    @property
    def size(self) -> int:
        """Bytes of a page that their data take."""
        return sum(len(each["data"]) for each in self.blocks)


class Sweep:
    """Collects the strongest keys of a record's rows in one pass over its weights.

    When more keys are held than could be embedded in `room` bytes, the weakest are dropped: they
    are weaker than as many as a page holds, and would be left out in the end.
    """

    def __init__(self, room: float) -> None:
        self._most = int(room / _LEAST_BYTES_PER_KEY)
        self._layers: list[tuple[AttentionStack, int, list[StrongestRows]]] = []
        self._level = 0
        self._held = 0

    def begin(self, stack: AttentionStack, layer: int) -> None:
        """Go on to a layer."""
        self._layers.append((stack, layer, []))

    def add(self, weights: NDArray[np.float32]) -> None:
        """Take in the next rows of the layer, (rows, columns)."""
        stack, _, parts = self._layers[-1]
        rows = strongest_rows(weights, _threshold(self._level) * stack.maximum)
        parts.append(rows)
        self._held += int(np.count_nonzero(~rows.always))
        if self._held > _COLLECTED * self._most:
            histogram = self._histogram()
            self._level = max(self._level + 1, histogram.holding(histogram.count + self._most))
            self._raise()

    def cut(self, share: float, room: float) -> Cut:
        """The fewest keys that cover a share of the weight, or as many as there is room for.

        Larger than `room` where even the two strongest keys of each row are.
        """
        for _, _, parts in self._layers:
            parts[:] = [joined(parts)]
        histogram = self._histogram()
        level = max(self._level, histogram.covering(share))
        # One layer says about how much room a key takes.
        block, keys = _embedded(*self._layers[len(self._layers) // 2], level)[:2]
        size = len(block["data"]) * histogram.keys(level) / max(1, keys)
        for last in range(1 - _TRIES, 1):
            if size > room:
                holding = histogram.holding(_SPARE * histogram.keys(level) * room / size)
                # In the end the fewest there are: what they take is what a page needs.
                level = max(level + 1, holding) if last else _LEVELS + 1
            layers = [_embedded(*each, level) for each in _packing(self._layers)]
            size = sum(len(block["data"]) for block, *_ in layers)
            if size <= room or level > _LEVELS:
                break
        covered = min(1.0, sum(mass for _, _, mass, _ in layers) / histogram.total)
        error = max(error for *_, error in layers)
        return Cut([block for block, *_ in layers], covered, error)

    def _histogram(self) -> _Histogram:
        parts = [(part, stack.maximum) for stack, _, parts in self._layers for part in parts]
        total = sum(float(part.sums.sum()) for part, _ in parts)
        histogram = _Histogram(max(total, np.finfo(float).tiny))
        for part, maximum in parts:
            histogram.add(part, maximum)
        return histogram

    def _raise(self) -> None:
        self._held = 0
        for stack, _, parts in self._layers:
            threshold = _threshold(self._level) * stack.maximum
            parts[:] = [part.raised(threshold) for part in parts]
            self._held += sum(int(np.count_nonzero(~part.always)) for part in parts)


def _embedded(
    stack: AttentionStack, layer: int, parts: list[StrongestRows], level: int
) -> tuple[dict[str, Any], int, float, float]:
    """A layer from a level on: its block, how many keys and weight it has, and its error."""
    [rows] = parts
    rows = rows.raised(_threshold(level) * stack.maximum)
    shape = (len(stack.kept_heads(layer)), len(stack.query_tokens), len(stack.key_tokens))
    sparse, error = sparse_rows(rows, shape, stack.maximum)
    header, data = encode_sparse(sparse)
    mass, total = float(rows.weights.sum(dtype=np.float64)), float(rows.sums.sum())
    covered = min(1.0, mass / total) if total > 0 else 1.0
    block = {"stack": stack.name, "layer": layer, **header, "error": error, "covered": covered}
    return block | {"data": packed(data)}, len(rows.keys), mass, error


def _packing(
    layers: Sequence[tuple[AttentionStack, int, list[StrongestRows]]],
) -> Iterable[tuple[AttentionStack, int, list[StrongestRows]]]:
    return tqdm(layers, desc="page: packing", unit="layer", delay=1.0, leave=False)
