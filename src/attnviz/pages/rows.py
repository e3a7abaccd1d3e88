"""Encoding of rows of weights in an exported page.

A row contains the weights of one query in one head. The keys whose weights a page contains are
called embedded. These are the keys with a weight of at least a threshold, and in each row the
`MIN_KEYS` keys with the largest weights (unless they are 0). The page spreads the rest of a row's
weight evenly over the other keys between the first and the last key of the row with a weight above
0. If the threshold is 0, the first key with weight, the last key with weight, and all keys between
them are embedded. Small maps (`attnviz.pages.encoding`) are encoded in the same way.

A layer is stored in parts, each with consecutive rows of all heads. The bytes of a part consist of
six sequences, called runs. Each run has one number for each row or for each embedded key, head by
head. The integers in the runs counts, firsts, ends and gaps have
variable length: the digits in base 128, the lowest first, with 128 added to all digits except the
last (LEB128, DWARF 5, section 7.6).

=========  ========  ===============================================================================
Run        Per       Content
=========  ========  ===============================================================================
counts     row       number of embedded keys, or 0 if all keys from the first to the last key with
                     weight are embedded
firsts     row       first key with weight
ends       row       number of keys without weight after the last key with weight, among the first
                     ``min(columns, row + 1 + reach)`` keys
rests      row       one byte, ``round(255 sqrt(rest / max_rest))``: sum of the weights of the keys
                     that are not embedded
gaps       key       number of keys between this and the previous embedded key of the row. For the
                     first embedded key, number of keys from ``firsts`` to this key. Only for rows
                     with a count above 0.
codes      key       one byte, ``round(255 sqrt(weight / maximum))``
=========  ========  ===============================================================================

The header of a part contains `maximum`, the largest possible weight, and `max_rest`, the largest
of the rests. It also contains `reach`, the largest distance from a query to a later key with
weight.

For signed numbers (``signed`` in the header), the largest absolute values count as the largest
weights. The codes of signed numbers are signed bytes, ``sign(number) * round(127 sqrt(abs(number) /
maximum))``. All rests are 0, so keys that are not embedded have the value 0.

``js/src/client/page/rows.ts`` decodes the bytes. The tests of both languages read
``tests/fixtures/rows.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.server.codec import decode_bytes, encode_bytes

#: Number of keys with weight that are embedded in each row even if their weights are below the
#: threshold. In many rows the first token has most of the weight, so the second strongest key is
#: more interesting than the strongest key.
MIN_KEYS = 2

# Smallest positive float32. A positive threshold is at least this number, so that weights of 0 are
# not embedded.
_SMALLEST = np.finfo(np.float32).smallest_subnormal
# Number of bits of a digit in base 128, and the number that is added to all digits except the last.
_SEVEN_BITS = 7
_MORE = 0x80


@dataclass(frozen=True)
class Rows:
    """Embedded keys of some rows of a layer, and sums over the other keys.

    Attributes
    ----------
    counts : ndarray of int64, (rows,)
        Number of embedded keys of each row.
    firsts, ends : ndarray of int64, (rows,)
        For each row, the indices of the first key with weight, and of the key after the last key
        with weight. Both are 0 for rows without weight.
    gaps : ndarray of uint8
        Bytes of the run gaps that the module docstring describes.
    codes : ndarray of uint8
        Codes of the weights of the embedded keys.
    rests, largest : ndarray of float64, (rows,)
        For each row, the sum and the maximum of the weights of the keys that are not embedded. For
        signed numbers, those of the absolute values.
    mass : float
        Sum of the weights of the embedded keys of all rows. For signed numbers, of the absolute
        values.
    error : float
        Largest absolute error of the weights of embedded keys, which are rounded to codes. If the
        threshold is 0, it is an upper bound instead.
    """

    counts: NDArray[np.int64]
    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]
    gaps: NDArray[np.uint8]
    codes: NDArray[np.uint8]
    rests: NDArray[np.float64]
    largest: NDArray[np.float64]
    mass: float
    error: float


def select_rows(
    weights: NDArray[np.float32],
    threshold: float,
    maximum: float,
    first: int = 0,
    *,
    signed: bool = False,
) -> Rows:
    """Select and encode the embedded keys of some rows.

    Parameters
    ----------
    weights : ndarray of float32
        (rows, columns). The columns are consecutive keys. All other keys have the weight 0.
    threshold : float
        Minimum weight of an embedded key, apart from the `MIN_KEYS` keys with the largest weights.
        Among equal weights, those of earlier keys count as larger. With the threshold 0, all keys
        from the first to the last key with weight are embedded.
    maximum : float
        Weight whose code is the largest code.
    first : int, default 0
        Index of the key in the first column.
    signed : bool, default False
        Whether numbers are signed. If so, keys are selected by absolute value.

    Examples
    --------
    >>> weights = np.array([[0.0, 0.125, 0.5, 0.0, 0.375]], np.float32)
    >>> rows = select_rows(weights, 0.4, 1.0)
    >>> rows.codes, rows.gaps, rows.rests
    (array([180, 156], dtype=uint8), array([1, 1], dtype=uint8), array([0.125]))
    """
    weights = np.ascontiguousarray(weights)
    sizes = np.abs(weights) if signed else weights
    width = sizes.shape[1]
    has_weight = sizes > 0
    firsts = has_weight.argmax(axis=1)
    row = np.arange(len(sizes))
    # Searching a reversed view is slow, so search bits instead of bytes. `packbits` adds zeros.
    bits = np.packbits(has_weight, axis=1)[:, ::-1]
    byte = (bits > 0).argmax(axis=1)
    bit = np.unpackbits(bits[row, byte, None], axis=1, bitorder="little").argmax(axis=1)
    ends = np.where(has_weight[row, firsts], 8 * (bits.shape[1] - byte) - bit, 0)
    if threshold > 0:
        embedded = _largest_keys(sizes, threshold)
        counts = _count_keys(embedded, sizes.shape)
        kept = weights.ravel()[embedded]
        codes, error = encode_bytes(kept, maximum, signed=signed)
        error = float(np.abs(decode_bytes(codes, maximum, signed=signed) - kept).max(initial=0))
        gaps = _gaps(embedded, counts, firsts + width * np.arange(len(sizes)), ends - firsts)
        others = sizes.copy()
        others.ravel()[embedded] = 0
        # torch reduces an array faster than numpy, but sets some of its numbers more slowly.
        tensor = torch.from_numpy(others)
        rests = tensor.sum(dim=1).double().numpy()
        largest = tensor.amax(dim=1).double().numpy()
    else:
        key = np.arange(width)
        kept = weights[(key >= firsts[:, None]) & (key < ends[:, None])]
        codes, error = encode_bytes(kept, maximum, signed=signed)
        counts, gaps = np.maximum(ends - firsts, 0), np.empty(0, np.int64)
        rests = largest = np.zeros(len(sizes))
    return Rows(
        counts=counts,
        firsts=np.where(ends > 0, firsts + first, 0),
        ends=np.where(ends > 0, ends + first, 0),
        gaps=_encode_integers(gaps),
        codes=codes,
        rests=rests,
        largest=largest,
        mass=float(np.abs(kept).sum(dtype=np.float64)),
        error=error,
    )


def _largest_keys(sizes: NDArray[np.float32], threshold: float) -> NDArray[np.int64]:
    """Select the embedded keys of rows with the absolute weights `sizes`, (rows, keys).

    The embedded keys are those with at least `threshold`, and the `MIN_KEYS` largest of each row.
    Return their indices in the flattened array.
    """
    smallest = max(np.float32(threshold), _SMALLEST)
    embedded = np.flatnonzero(sizes >= smallest)
    # Other rows have their largest keys already.
    row = np.flatnonzero(_count_keys(embedded, sizes.shape) < MIN_KEYS)
    if not len(row):
        return embedded
    others, added = sizes[row], []
    for _ in range(min(MIN_KEYS, sizes.shape[1])):
        key = others.argmax(axis=1)
        largest = others[np.arange(len(row)), key]
        added.append((row * sizes.shape[1] + key)[(largest > 0) & (largest < smallest)])
        others[np.arange(len(row)), key] = 0
    keys = np.sort(np.concatenate(added))
    # Inserting few keys is faster than searching all weights again.
    return np.insert(embedded, np.searchsorted(embedded, keys), keys)


def _count_keys(embedded: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the number of embedded keys of each row. `embedded` is as in `_largest_keys`."""
    starts = np.arange(shape[0] + 1) * shape[1]
    counts: NDArray[np.int64] = np.diff(np.searchsorted(embedded, starts))
    return counts


def _gaps(
    embedded: NDArray[np.int64],
    counts: NDArray[np.int64],
    firsts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the numbers of the run gaps that the module docstring describes.

    `embedded` and `firsts`, the first key with weight of each row, are indices in the flattened
    array. `lengths` has the number of keys from the first to the last key with weight.
    """
    gaps = np.diff(embedded, prepend=0) - 1
    has_keys = counts > 0
    begins = (np.cumsum(counts) - counts)[has_keys]
    gaps[begins] = embedded[begins] - firsts[has_keys]
    has_gaps = lengths > counts
    return gaps if has_gaps.all() else gaps[np.repeat(has_gaps, counts)]


def concatenate_rows(parts: list[Rows]) -> Rows:
    """Join the rows of `parts` in the given order. Pass at least one part."""
    arrays = ("counts", "firsts", "ends", "gaps", "codes", "rests", "largest")
    return Rows(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays},
        mass=sum(part.mass for part in parts),
        error=max(part.error for part in parts),
    )


def encode_rows(
    rows: Rows,
    shape: tuple[int, ...],
    maximum: float,
    *,
    signed: bool = False,
    queries: NDArray[np.int64] | None = None,
) -> tuple[dict[str, Any], list[bytes]]:
    """Encode the rows of a part. Return a header of JSON values, and the bytes of each run.

    In the header, ``runs`` has the length of each run in bytes, and ``error`` is an upper bound of
    the absolute error of a weight.

    Parameters
    ----------
    rows : Rows
        All rows of the part, head by head.
    shape : tuple of int
        (heads, rows, columns).
    maximum, signed
        The same arguments as for `select_rows`.
    queries : ndarray of int64, optional
        Position of the query of each row of a head. All heads have the same queries. By default,
        row i of a head belongs to query i.
    """
    row = np.tile(np.arange(shape[1]) if queries is None else queries, shape[0])
    others = rows.ends - rows.firsts - rows.counts
    # A page cannot spread the rest of a signed row, because it does not contain the signs of the
    # numbers that are not embedded. These numbers become 0.
    rests = np.where((others > 0) & (not signed), rows.rests, 0.0)
    # Rests have their own maximum, because they can be far smaller than the rounding error of a
    # large weight.
    max_rest = float(rests.max(initial=0))
    codes = encode_bytes(rests, max_rest)[0]
    spread = decode_bytes(codes, max_rest) / np.maximum(others, 1)
    # The true weight of a key that is not embedded is between 0 and `largest`, and the page shows
    # `spread`. The error is at most the larger of the differences from 0 and from `largest`.
    errors = np.maximum(rows.largest - spread, spread)[others > 0]
    reach = int(np.max(rows.ends - row - 1, initial=0, where=rows.ends > rows.firsts))
    last = np.minimum(shape[2], row + 1 + reach)
    runs = [
        _encode_integers(np.where(others > 0, rows.counts, 0)),
        _encode_integers(rows.firsts),
        _encode_integers(np.maximum(0, last - rows.ends)),
        codes,
        rows.gaps,
        rows.codes,
    ]
    header: dict[str, Any] = {
        "shape": list(shape),
        "maximum": maximum,
        "max_rest": max_rest,
        "reach": reach,
        "runs": [len(run) for run in runs],
        "error": max(rows.error, float(errors.max(initial=0))),
    }
    return header | ({"signed": True} if signed else {}), [run.tobytes() for run in runs]


def _encode_integers(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Encode non-negative integers with variable length (LEB128)."""
    digits = (numbers & (_MORE - 1)).astype(np.uint8)
    long = np.flatnonzero(numbers >= _MORE)
    if not len(long):
        return digits
    digits[long] |= _MORE
    others = _encode_integers(numbers[long] >> _SEVEN_BITS)
    num_others = np.diff(np.flatnonzero(others < _MORE), prepend=-1)
    return np.insert(digits, np.repeat(long + 1, num_others), others)
