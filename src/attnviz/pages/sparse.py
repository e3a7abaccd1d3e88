"""Each query's strongest keys, with what is left of its weight spread evenly over its other keys.

How a long text's weights travel in an exported page: nearly all of a row's weight is on few keys.
``js/src/client/page/sparse.ts`` is the other side; ``tests/fixtures/sparse.json`` is read by both.

The bytes are six runs, one after the other. Rows come head by head; a number that may be large is
written in base 128, the lowest seven bits first, with 128 added to all bytes but its last (LEB128,
DWARF 5, section 7.6).

=========  ========  ===============================================================================
run        each      says
=========  ========  ===============================================================================
counts     row       how many keys are carried
firsts     row       the first key that has any weight
ends       row       how many keys before ``min(columns, row + 1 + reach)`` any weight ends
rests      row       one byte, ``round(255 sqrt(rest / most_rest))``: the weight of the other keys
gaps       key       keys passed over since the one before; before a row's first since `firsts`
codes      key       one byte, ``round(255 sqrt(weight / maximum))``
=========  ========  ===============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.server.codec import TOP_CODE

__all__ = ["SparseRows", "decode_sparse", "encode_sparse"]

ENCODING = "strongest-keys"

_SEVEN_BITS = 7
_MORE = 0x80


@dataclass(frozen=True)
class SparseRows:
    """The strongest weights of some heads, row by row.

    Attributes
    ----------
    shape : tuple of int
        (heads, rows, columns).
    counts : ndarray of int64, (heads * rows,)
        How many keys each row carries.
    keys : ndarray of int64
        The keys carried, row after row, ascending within a row.
    codes : ndarray of uint8
        Their weights, ``round(255 sqrt(weight / maximum))``.
    firsts, ends : ndarray of int64, (heads * rows,)
        The keys from ``firsts`` to before ``ends`` share the rest of a row, but for those carried;
        all keys that are carried lie there.
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
        """Weights of the keys that are carried."""
        return self.maximum * (self.codes / TOP_CODE) ** 2

    @property
    def spread(self) -> NDArray[np.float64]:
        """What each key of a row has that is not carried; 0 where all are, (heads * rows,)."""
        others = self.ends - self.firsts - self.counts
        rests = self.most_rest * (self.rests / TOP_CODE) ** 2
        spread: NDArray[np.float64] = np.where(others > 0, rests / np.maximum(1, others), 0.0)
        return spread

    def dense(self) -> NDArray[np.float64]:
        """All weights, as a reader puts them together.

        Returns
        -------
        ndarray
            float64, (heads, rows, columns).

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
    """Write rows as bytes.

    Parameters
    ----------
    rows : SparseRows
        The rows.

    Returns
    -------
    header : dict
        Fit for JSON: shape, encoding, maximum, most_rest, reach and the lengths of the runs.
    data : bytes
        The runs.
    """
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
    """Read rows from bytes.

    Parameters
    ----------
    header : dict
        What `encode_sparse` gave.
    data : bytes
        Likewise.

    Returns
    -------
    SparseRows

    Raises
    ------
    ValueError
        If the bytes are not those that the header speaks of.
    """
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
