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

Of signed numbers, ``signed`` in the header, the strongest are those of the largest size, and codes
are bytes in two's complement, ``sign(number) * round(127 sqrt(abs(number) / maximum))``. What is
left of a row is not spread: rests are 0, and so are keys that are not embedded.
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
from attnviz.record.rows import sampled_queries
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import TOP_CODE, TOP_SIGNED_CODE
from attnviz.utils.progress import Pace, Progress, Steps, run_with_bar, scale_progress

__all__ = [
    "ENCODING",
    "LEAST_KEYS",
    "Cut",
    "SparseRows",
    "StrongestRows",
    "Sweep",
    "encode_sparse",
    "first_level",
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
# base64.
_TEXT = 4 / 3
# So many times the keys that may be embedded are collected before the weakest are dropped.
_COLLECTED = 1.5
_TRIES = 8
# Texts of no more queries are swept without an estimate before.
_SHORT = 256
# So many times the keys that have room are collected by an estimate.
_AIMED = 1.25
# A page that is less full is tried once more.
_FULL = 0.97
# Keys that are looked at together.
_BIN = 128
# Keys and rows that are packed in one step.
_PART_KEYS = 1 << 19
_PART_ROWS = 1 << 16
# What a key has, and not a row.
_BY_KEY = frozenset({"keys", "weights", "always"})
# What is not zero is at least this.
_SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
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
        Their weights, ``round(255 sqrt(weight / maximum))``; of signed numbers in two's complement.
    firsts, ends : ndarray of int64, (heads * rows,)
        The keys from ``firsts`` to before ``ends`` share the rest of a row, but for those embedded;
        all keys that are embedded lie there.
    rests : ndarray of uint8, (heads * rows,)
        What these have together, ``round(255 sqrt(rest / most_rest))``.
    maximum, most_rest : float
        The weight and the rest of the highest code.
    signed : bool
        Whether codes have a sign, and nothing is spread.
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
    signed: bool = False

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights of the keys that are embedded."""
        return _values(self.codes, self.maximum, signed=self.signed)

    @property
    def spread(self) -> NDArray[np.float64]:
        """What each key of a row has that is not embedded; 0 where all are, (heads * rows,)."""
        others = self.ends - self.firsts - self.counts
        rests = _values(self.rests, self.most_rest)
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
    row = np.arange(len(rows.counts)) % rows.shape[1]
    reach = _reach(rows, row)
    runs = _runs(rows, row, reach)
    return _header(rows, reach, [len(run) for run in runs]), b"".join(runs)


def _reach(rows: SparseRows | StrongestRows, row: NDArray[np.int64]) -> int:
    """How far ahead of its query any key with weight stands: 0 in causal attention."""
    return int(np.max(rows.ends - row - 1, initial=0, where=rows.ends > rows.firsts))


def _runs(rows: SparseRows, row: NDArray[np.int64], reach: int) -> list[bytes]:
    """The runs of some rows of heads, with their numbers within their heads."""
    last = np.minimum(rows.shape[2], row + 1 + reach)
    starts = np.cumsum(rows.counts) - rows.counts
    gaps = np.diff(rows.keys, prepend=0) - 1
    begins = starts[rows.counts > 0]
    gaps[begins] = rows.keys[begins] - rows.firsts[rows.counts > 0]
    return [
        _packed(rows.counts),
        _packed(rows.firsts),
        _packed(np.maximum(0, last - rows.ends)),
        rows.rests.tobytes(),
        _packed(gaps),
        rows.codes.tobytes(),
    ]


def _header(rows: SparseRows, reach: int, lengths: list[int]) -> dict[str, Any]:
    header = {
        "shape": list(rows.shape),
        "encoding": ENCODING,
        "maximum": rows.maximum,
        "most_rest": rows.most_rest,
        "reach": reach,
        "runs": lengths,
    }
    if rows.signed:
        header["signed"] = True
    return header


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
        The weights, likewise. Of signed numbers all others here are sizes.
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

    @property
    def sizes(self) -> NDArray[np.float32]:
        """The weights without their signs; no copy where there are none."""
        weights = self.weights
        return weights if weights.min(initial=0.0) >= 0 else np.abs(weights)

    @property
    def num_bytes(self) -> int:
        """Bytes that they take."""
        return sum(getattr(self, each.name).nbytes for each in fields(self))

    def raised(self, threshold: float) -> StrongestRows:
        """The same rows without weights below a higher threshold, but for each row's strongest."""
        sizes = self.sizes
        stays = self.always | (sizes >= threshold)
        counts, most, least = self.counts.copy(), self.most.copy(), self.least.copy()
        # Rows lie one after the other, each with its keys.
        rows = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[rows]
        if len(rows):
            counts[rows] = np.add.reduceat(stays, starts, dtype=np.int64)
            dropped = np.where(stays, 0, sizes)
            most[rows] = np.maximum(most[rows], np.maximum.reduceat(dropped, starts))
            dropped = np.where(stays, np.float32(np.inf), sizes)
            least[rows] = np.minimum(least[rows], np.minimum.reduceat(dropped, starts))
        return replace(
            self,
            counts=counts,
            keys=self.keys[stays],
            weights=self.weights[stays],
            always=self.always[stays],
            most=most,
            least=least,
        )


def strongest_rows(
    weights: NDArray[np.float32], threshold: float, first: int = 0, *, signed: bool = False
) -> StrongestRows:
    """Collect weights of at least a threshold, and each row's strongest, from (rows, columns).

    `first` is the key of the first column. Of equal weights the first are the strongest; of signed
    numbers those of the largest size are.

    Examples
    --------
    >>> rows = strongest_rows(np.array([[0.1, 0.5, 0.0, 0.4]], np.float32), threshold=0.45)
    >>> rows.keys, rows.most, rows.least
    (array([1, 3], dtype=int32), array([0.1], dtype=float32), array([0.], dtype=float32))
    """
    with torch.no_grad():
        if not signed:
            return _strongest_rows(weights, threshold, first)
        found = _strongest_rows(np.abs(weights), threshold, first)
        row = np.repeat(np.arange(len(weights)), found.counts)
        return replace(found, weights=weights[row, found.keys - first])


def _strongest_rows(weights: NDArray[np.float32], threshold: float, first: int) -> StrongestRows:
    count, columns = weights.shape
    # Bins of neighbouring keys: most are looked at for their largest weight and not again.
    bins = -(-columns // _BIN)
    # What has not been collected yet; zeros behind the last key.
    left = torch.zeros(count, bins * _BIN)
    # By numpy: torch warns of what is to be read only.
    left.numpy()[:, :columns] = weights
    binned = left.view(count, bins, _BIN)
    largest = binned.amax(dim=2)
    # What is left beside a strong key is a difference: in single precision it would be rounding.
    sums = binned.sum(dim=(1, 2), dtype=torch.float64)
    row = torch.arange(count)

    # The first and the last bin with any weight, and its keys there.
    some = (largest > 0).to(torch.uint8)
    begin, end = some.argmax(dim=1), bins - 1 - some.flip(1).argmax(dim=1)
    firsts = begin * _BIN + (binned[row, begin] > 0).to(torch.uint8).argmax(dim=1)
    ends = (end + 1) * _BIN - (binned[row, end] > 0).to(torch.uint8).flip(1).argmax(dim=1)
    nothing = largest.amax(dim=1) <= 0
    firsts[nothing], ends[nothing] = 0, 0
    least = _least_within(binned, firsts, ends)

    # Bins with a weight that is strong enough, or with one of each row's strongest.
    low = max(float(np.float32(threshold)), _SMALLEST)
    hit = largest >= low
    own = []
    for _ in range(min(LEAST_KEYS, columns)):
        best = largest.argmax(dim=1)
        inside = binned[row, best]
        place = inside.argmax(dim=1)
        # The weakest of them, in the end.
        strong = inside[row, place]
        weighs = strong > 0
        hit[row[weighs], best[weighs]] = True
        own.append((row[weighs], best[weighs], place[weighs], strong[weighs]))
        # Out of the way of the next.
        inside[row, place] = 0
        binned[row, best], largest[row, best] = inside, inside.amax(dim=1)
    which, bin_ = torch.nonzero(hit, as_tuple=True)
    number = torch.zeros(hit.shape, dtype=torch.int64)
    number[which, bin_] = torch.arange(len(which))
    inside = binned[which, bin_]
    chosen = inside >= low
    always = torch.zeros_like(chosen)
    for at, its_bin, place, weight in own:
        place_of = number[at, its_bin], place
        inside[place_of], always[place_of] = weight, True
    chosen |= always
    entry, place = torch.nonzero(chosen, as_tuple=True)
    values, always = inside[entry, place], always[entry, place]
    inside[entry, place] = 0
    binned[which, bin_], largest[which, bin_] = inside, inside.amax(dim=1)

    counts = torch.bincount(which[entry], minlength=count)
    # The smallest weight may have been collected; then the smallest of the others is looked for.
    unsure = torch.nonzero((least >= low) | (least >= strong)).flatten()
    rest = left[unsure]
    smallest = rest.masked_fill(rest == 0, torch.inf).amin(dim=1)
    # A key without weight between others takes a share of what is left.
    smallest[(rest > 0).sum(dim=1) < (ends - firsts - counts)[unsure]] = 0.0
    least[unsure] = smallest
    return StrongestRows(
        counts=counts.numpy(),
        keys=(bin_[entry] * _BIN + place + first).to(torch.int32).numpy(),
        weights=values.numpy(),
        always=always.numpy(),
        firsts=torch.where(nothing, 0, firsts + first).numpy(),
        ends=torch.where(nothing, 0, ends + first).numpy(),
        sums=sums.numpy(),
        most=largest.amax(dim=1).numpy(),
        least=least.numpy(),
    )


def _least_within(binned: torch.Tensor, firsts: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """The smallest weight of each row from its first key with any to its last, (rows,)."""
    row, number = torch.arange(len(binned)), torch.arange(binned.shape[1])
    smallest = binned.amin(dim=2)
    begin, end = firsts // _BIN, (ends - 1).clamp(min=0) // _BIN
    smallest[(number < begin[:, None]) | (number > end[:, None])] = torch.inf
    # Beside the first key and the last their bins have others.
    for edge in (begin, end):
        key = edge[:, None] * _BIN + torch.arange(_BIN)
        outside = (key < firsts[:, None]) | (key >= ends[:, None])
        smallest[row, edge] = binned[row, edge].masked_fill(outside, torch.inf).amin(dim=1)
    return smallest.amin(dim=1)


def joined(parts: list[StrongestRows]) -> StrongestRows:
    """Rows after each other; at least one part."""
    names = [each.name for each in fields(StrongestRows)]
    return StrongestRows(**{n: np.concatenate([getattr(each, n) for each in parts]) for n in names})


def sparse_rows(
    strongest: StrongestRows,
    shape: tuple[int, int, int],
    maximum: float,
    *,
    signed: bool = False,
    most_rest: float | None = None,
) -> tuple[SparseRows, float]:
    """What a page embeds of all heads' rows, and how far any weight is off at most.

    What the keys have together that are not embedded is rounded by itself: the rounding of a strong
    key would be many times as much as they have. Of a part of the rows `most_rest` is what any of
    all rows has.
    """
    codes = _codes(strongest.weights, maximum, signed=signed)
    rounded = _values(codes, maximum, signed=signed)
    others = strongest.ends - strongest.firsts - strongest.counts
    rests = _rests(strongest, signed=signed)
    most_rest = float(rests.max(initial=0)) if most_rest is None else most_rest
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
        signed=signed,
    )
    spread, spreads = rows.spread, others > 0
    errors = [
        np.abs(rounded - strongest.weights),
        np.abs(strongest.most - spread)[spreads],
        np.abs(strongest.least - spread)[spreads],
    ]
    if signed:
        # The smallest of the others is not farther from 0 than the largest.
        errors.pop()
    return rows, max(float(each.max(initial=0)) for each in errors)


def _rests(strongest: StrongestRows, *, signed: bool) -> NDArray[np.float64]:
    """What the keys of each row have together that are not embedded."""
    row = np.repeat(np.arange(len(strongest.counts)), strongest.counts)
    others = strongest.ends - strongest.firsts - strongest.counts
    embedded = np.bincount(row, strongest.sizes, minlength=len(strongest.counts))
    rests = np.where(others > 0, np.maximum(0.0, strongest.sums - embedded), 0.0)
    if signed:
        # No more is known of the others than how large they are.
        rests = np.zeros_like(rests)
    return rests


def _values(codes: NDArray[np.uint8], most: float, *, signed: bool = False) -> NDArray[np.float64]:
    if signed:
        roots = codes.view(np.int8) / TOP_SIGNED_CODE
        numbers: NDArray[np.float64] = most * roots * np.abs(roots)
        return numbers
    values: NDArray[np.float64] = most * (codes / TOP_CODE) ** 2
    return values


def _codes(
    weights: NDArray[np.floating], most: float, *, signed: bool = False
) -> NDArray[np.uint8]:
    sizes = np.abs(weights) if signed else weights
    shares = np.clip(sizes / most, 0, 1) if most > 0 else np.zeros_like(weights)
    if signed:
        roots = np.copysign(np.rint(np.sqrt(shares) * TOP_SIGNED_CODE), weights)
        signs: NDArray[np.uint8] = roots.astype(np.int8).view(np.uint8)
        return signs
    codes: NDArray[np.uint8] = np.rint(np.sqrt(shares) * TOP_CODE).astype(np.uint8)
    return codes


class _Histogram:
    """How many weights there are of each level, and what they have together."""

    def __init__(self, total: float) -> None:
        self.total = total
        self.counts, self.masses = np.zeros((2, _LEVELS + 1))
        # Those that are embedded whatever the threshold.
        self.count, self.mass = 0.0, 0.0

    def add_weights(self, sizes: NDArray[np.float32], maximum: float, times: float = 1) -> None:
        places = _levels(sizes, maximum)
        bins = _LEVELS + 1
        self.counts += times * np.bincount(places, minlength=bins)
        self.masses += times * np.bincount(places, sizes, minlength=bins)

    def add(self, rows: StrongestRows, maximum: float) -> None:
        self.add_weights(rows.sizes[~rows.always], maximum)
        self.count += np.count_nonzero(rows.always)
        self.mass += float(rows.sizes[rows.always].sum(dtype=np.float64))

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


def _levels(weights: NDArray[np.float32], maximum: float) -> NDArray[np.int32]:
    roots = np.sqrt(np.minimum(weights / maximum, 1), dtype=np.float32)
    levels: NDArray[np.int32] = (roots * _LEVELS).astype(np.int32)
    return levels


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

    Parameters
    ----------
    room : float
        Bytes that keys may take, as the text that they become in a page.
    level : int
        Keys below are not collected at all, as `first_level` says.
    """

    def __init__(self, room: float, level: int = 0) -> None:
        self._room = room
        self._layers: list[tuple[AttentionStack, int]] = []
        # Each with the place of its layer.
        self._parts: list[tuple[int, StrongestRows]] = []
        self._level = level
        self._held = 0

    @property
    def num_bytes(self) -> int:
        """Bytes that are held."""
        return sum(rows.num_bytes for _, rows in self._parts)

    def begin(self, stack: AttentionStack, layer: int) -> None:
        """Go on to a layer."""
        self._layers.append((stack, layer))

    def add(self, weights: NDArray[np.float32], first: int = 0) -> None:
        """Take in the next rows of the layer, (rows, columns); `first` is the first column's key.

        Head by head, and the rows of a head in their order.
        """
        self.take(self.strongest(self._layers[-1][0], weights, first))
        for _ in self.thinned():
            pass

    def strongest(
        self, stack: AttentionStack, weights: NDArray[np.float32], first: int = 0
    ) -> StrongestRows:
        """What `take` wants of some rows, as far as is known which keys are strong enough."""
        threshold = _threshold(self._level) * stack.maximum
        return strongest_rows(weights, threshold, first, signed=stack.signed)

    def take(self, rows: StrongestRows) -> None:
        """Take in the next rows of the layer; then they may have to be `thinned`."""
        self._parts.append((len(self._layers) - 1, rows))
        self._held += int(np.count_nonzero(~rows.always))

    def thinned(self) -> Iterator[None]:
        """Drop the weakest keys where too many are held, some at a time."""
        most = _most_keys(self._room)
        if self._held > _COLLECTED * most:
            yield from self._hold(most)

    def suffices(self, room: float) -> bool:
        """Whether a sweep for pages with some room for keys would collect no more."""
        return self._level == 0 or room <= self._room

    def dropped(self) -> Iterator[None]:
        """Hold no more than pages with as much room take, after the last row; some at a time."""
        if self._held > _most_keys(self._room):
            yield from self._hold(_most_keys(self._room))

    def cut(self, share: float, room: float) -> Cut:
        """The fewest keys that cover a share of the weight, or as many as there is room for.

        Larger than `room` where even the two strongest keys of each row are.
        """
        return run_with_bar(self.cutting(share, room), "page")

    def cutting(self, share: float, room: float) -> Steps[Cut]:
        """The same step by step."""
        whole = yield from self._joined()
        histogram = self._histogram()
        yield Progress("compressing", 0, len(whole), "layer")
        most = histogram.holding(histogram.count + _most_keys(room))
        level = lowest = max(self._level, histogram.covering(share), most)
        # However many keys are held, the same are looked at.
        layers = []
        for stack, n, rows in whole:
            layers.append((stack, n, _raised(stack, rows, lowest)))
            yield Progress("compressing", 0, len(whole), "layer")
        fuller = False
        for last in range(1 - _TRIES, 1):
            cut: list[tuple[dict[str, Any], float, float]] = []
            packer = Packer()
            for each in layers:
                steps = _embedding(*each, level, packer)
                cut.append((yield from scale_progress(steps, "compressing", len(cut), len(layers))))
            size = sum(len(block["data"]) for block, *_ in cut)
            holding = histogram.holding(_SPARE * histogram.keys(level) * room / size)
            if size > room and level <= _LEVELS:
                # In the end the fewest there are: what they take is what a page needs.
                level = max(level + 1, holding) if last + 1 < 0 else _LEVELS + 1
            elif size < _FULL * room and max(holding, lowest) < level <= _LEVELS and not fuller:
                fuller, level = True, max(holding, lowest)
            else:
                break
        covered = min(1.0, sum(mass for _, mass, _ in cut) / histogram.total)
        error = max(error for *_, error in cut)
        return Cut([block for block, *_ in cut], covered, error)

    def _joined(self) -> Steps[list[tuple[AttentionStack, int, StrongestRows]]]:
        """All rows of each layer."""
        parts: list[list[StrongestRows]] = [[] for _ in self._layers]
        for place, rows in self._parts:
            parts[place].append(rows)
        whole = []
        for each in parts:
            whole.append(each[0] if len(each) == 1 else joined(each))
            yield Progress("compressing", 0, len(parts), "layer")
        # No longer in pieces beside it.
        self._parts = list(enumerate(whole))
        return [(*layer, rows) for layer, rows in zip(self._layers, whole, strict=True)]

    def _histogram(self) -> _Histogram:
        total = sum(float(rows.sums.sum()) for _, rows in self._parts)
        histogram = _Histogram(max(total, np.finfo(float).tiny))
        for place, rows in self._parts:
            histogram.add(rows, self._layers[place][0].maximum)
        return histogram

    def _hold(self, most: int) -> Iterator[None]:
        """Drop the weakest keys, until no more than so many are held; some at a time."""
        histogram = self._histogram()
        yield
        # First: rows that come before the others are thinned out have no need of more.
        self._level = max(self._level + 1, histogram.holding(histogram.count + most))
        held = since = 0
        for number, (place, rows) in enumerate(self._parts):
            thinned = _raised(self._layers[place][0], rows, self._level)
            self._parts[number] = (place, thinned)
            held += int(np.count_nonzero(~thinned.always))
            since += len(rows.keys)
            if since >= _PART_KEYS:
                since = 0
                yield
        self._held = held


def first_level(record: AttentionRecord, share: float, room: float) -> Steps[int]:
    """A level from which on somewhat more keys lie than are embedded, estimated from some queries.

    Those that have a share of the weight, or as many as there is room for. 0, all keys, of a short
    text.
    """
    histogram = _Histogram(np.finfo(float).tiny)
    stacks = list(record.stacks.values())
    if any(len(stack.query_tokens) <= _SHORT for stack in stacks):
        return 0
    layers = [(stack, layer) for stack in stacks for layer in stack.layers]
    sampled = [sampled_queries(len(stack.query_tokens)) for stack, _ in layers]
    pace = Pace(
        "some queries",
        sum(
            len(rows) * len(stack.key_tokens) * stack.num_heads(layer)
            for rows, (stack, layer) in zip(sampled, layers, strict=True)
        ),
    )
    for rows, (stack, layer) in zip(sampled, layers, strict=True):
        times = len(stack.query_tokens) / len(rows)
        for _, of_heads, _ in weights_of_some(stack, layer, range(stack.num_heads(layer)), rows):
            weights = np.abs(of_heads)
            # What isn't finite is refused by the pass over all rows, in its words.
            found = weights[(weights > 0) & (weights <= stack.maximum)]
            histogram.add_weights(found, stack.maximum, times)
            histogram.total += times * float(found.sum(dtype=np.float64))
            yield from pace.advance(2 * weights.size)
    # With half of the weight that may be left out as a reserve.
    return max(
        min(_LEVELS, histogram.holding(_AIMED * _most_keys(room))),
        histogram.covering(1 - (1 - share) / 2),
    )


def _most_keys(room: float) -> int:
    return int(room / _TEXT / _LEAST_BYTES_PER_KEY)


def _raised(stack: AttentionStack, rows: StrongestRows, level: int) -> StrongestRows:
    return rows.raised(_threshold(level) * stack.maximum)


def _in_parts(rows: StrongestRows) -> Iterator[tuple[int, StrongestRows]]:
    """Neighbouring rows with so many keys that a moment is enough for them, and the first's number.

    A part of the rows is no copy of them.
    """
    ends = np.cumsum(rows.counts)
    first = 0
    while first < len(rows.counts):
        begin = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, begin + _PART_KEYS, side="right")))
        last = min(last, first + _PART_ROWS)
        of_rows, of_keys = slice(first, last), slice(begin, int(ends[last - 1]))
        each = {name: getattr(rows, name) for name in (field.name for field in fields(rows))}
        yield (
            first,
            StrongestRows(
                **{
                    name: array[of_keys if name in _BY_KEY else of_rows]
                    for name, array in each.items()
                }
            ),
        )
        first = last


def _embedding(
    stack: AttentionStack,
    layer: int,
    rows: StrongestRows,
    level: int,
    packer: Packer,
) -> Steps[tuple[dict[str, Any], float, float]]:
    """A layer from a level on: its block, how much weight it has, and its error."""
    shape = (stack.num_heads(layer), len(stack.query_tokens), len(stack.key_tokens))
    parts: list[tuple[NDArray[np.int64], StrongestRows]] = []
    reach, most_rest, mass = 0, 0.0, 0.0
    for first, some in _in_parts(rows):
        part = _raised(stack, some, level)
        row = np.arange(first, first + len(part.counts)) % shape[1]
        parts.append((row, part))
        reach = max(reach, _reach(part, row))
        most_rest = max(most_rest, float(_rests(part, signed=stack.signed).max(initial=0)))
        mass += float(part.sizes.sum(dtype=np.float64))
        yield Progress("compressing", 0, 1, "layer")
    runs: list[list[bytes]] = []
    error = 0.0
    for row, part in parts:
        sparse, off = sparse_rows(
            part, shape, stack.maximum, signed=stack.signed, most_rest=most_rest
        )
        runs.append(_runs(sparse, row, reach))
        error = max(error, off)
        yield Progress("compressing", 0, 1, "layer")
    together = [b"".join(each) for each in zip(*runs, strict=True)]
    total = float(rows.sums.sum())
    header = _header(sparse, reach, [len(run) for run in together])
    covered = min(1.0, mass / total) if total > 0 else 1.0
    block = {"stack": stack.name, "layer": layer, **header, "error": error, "covered": covered}
    data = yield from packer.packing(b"".join(together))
    return block | {"data": data}, mass, error
