"""Which weights a page carries where it cannot carry all, and how exact that leaves it.

All weights of at least a threshold are carried, and the strongest of each row whatever they are:
no other choice of as many keys covers more of the weight. What is left of a row is spread evenly
over its other keys, from the first with any weight to the last.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.pages.sparse import SparseRows
from attnviz.server.codec import TOP_CODE

__all__ = ["LEAST_KEYS", "KeptRows", "joined", "kept_rows", "sparse_rows"]

#: So many keys of a row are carried however weak they are: the first token takes most of many
#: rows, and what a reader looks for is the second.
LEAST_KEYS = 2


@dataclass(frozen=True)
class KeptRows:
    """The strongest weights of some rows, and figures of all the others.

    Attributes
    ----------
    counts : ndarray of int64, (rows,)
        How many weights each row keeps.
    keys : ndarray of int32
        Their keys, row after row, ascending within a row.
    weights : ndarray of float32
        The weights, likewise.
    always : ndarray of bool
        Which of them are among the strongest of their row, and are kept whatever they are.
    firsts, ends : ndarray of int64, (rows,)
        The first key with any weight and the one after the last; 0 and 0 where none has any.
    sums : ndarray of float64, (rows,)
        What all keys of a row have together.
    most, least : ndarray of float32, (rows,)
        The largest and the smallest weight from `firsts` to `ends` that is not kept; 0 and
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

    def raised(self, threshold: float) -> KeptRows:
        """The same rows, with a higher threshold.

        Parameters
        ----------
        threshold : float
            Weights below it go, but for each row's strongest.

        Returns
        -------
        KeptRows
        """
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


def kept_rows(weights: NDArray[np.float32], threshold: float) -> KeptRows:
    """Keep the strongest weights of some rows.

    Parameters
    ----------
    weights : ndarray
        float32, (rows, columns), finite and not negative.
    threshold : float
        Weights below it are not kept, but for each row's strongest.

    Returns
    -------
    KeptRows

    Examples
    --------
    >>> rows = kept_rows(np.array([[0.1, 0.5, 0.0, 0.4]], np.float32), threshold=0.45)
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
    kept = some & (weights >= threshold)
    left[kept] = 0
    kept |= always
    counts = kept.sum(axis=1)
    # A key without weight between others takes a share of what is left.
    zeros = ends - firsts > some.sum(axis=1)
    least = np.where(left > 0, left, np.inf).min(axis=1)
    places = np.flatnonzero(kept)
    return KeptRows(
        counts=counts,
        keys=(places % width).astype(np.int32),
        weights=weights[kept],
        always=always[kept],
        firsts=firsts,
        ends=ends,
        sums=sums,
        most=left.max(axis=1),
        least=np.where(zeros, 0, least).astype(np.float32),
    )


def joined(parts: list[KeptRows]) -> KeptRows:
    """Rows after each other.

    Parameters
    ----------
    parts : list of KeptRows
        At least one.

    Returns
    -------
    KeptRows
    """
    names = [each.name for each in fields(KeptRows)]
    return KeptRows(**{n: np.concatenate([getattr(each, n) for each in parts]) for n in names})


def sparse_rows(
    kept: KeptRows, shape: tuple[int, int, int], maximum: float
) -> tuple[SparseRows, float]:
    """What a page carries of a layer, and how far its weights are off.

    Parameters
    ----------
    kept : KeptRows
        All rows of all heads.
    shape : tuple of int
        (heads, rows, columns).
    maximum : float
        The largest weight that can occur.

    Returns
    -------
    rows : SparseRows
        Rows sum up to what they did, but for the rounding of the rest to one byte.
    error : float
        Largest absolute difference from a weight that was there, carried or not.
    """
    codes = _codes(kept.weights, maximum)
    rounded = maximum * (codes / TOP_CODE) ** 2
    row = np.repeat(np.arange(len(kept.counts)), kept.counts)
    others = kept.ends - kept.firsts - kept.counts
    carried = np.bincount(row, rounded, minlength=len(kept.counts))
    rests = np.where(others > 0, np.maximum(0.0, kept.sums - carried), 0.0)
    most_rest = float(rests.max(initial=0))
    rows = SparseRows(
        shape=shape,
        counts=kept.counts,
        keys=kept.keys.astype(np.int64),
        codes=codes,
        firsts=kept.firsts,
        ends=kept.ends,
        rests=_codes(rests, most_rest),
        maximum=maximum,
        most_rest=most_rest,
    )
    spread, spreads = rows.spread, others > 0
    errors = (
        np.abs(rounded - kept.weights),
        np.abs(kept.most - spread)[spreads],
        np.abs(kept.least - spread)[spreads],
    )
    return rows, max(float(each.max(initial=0)) for each in errors)


def _codes(weights: NDArray[np.floating], most: float) -> NDArray[np.uint8]:
    shares = np.clip(weights / most, 0, 1) if most > 0 else np.zeros_like(weights)
    codes: NDArray[np.uint8] = np.rint(np.sqrt(shares) * TOP_CODE).astype(np.uint8)
    return codes
