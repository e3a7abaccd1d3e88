"""Points before they are laid out: what is checked, how far apart they are, where they start.

For the cosine all points are brought to length 1 first; then the nearest by Euclidean distance are
the nearest by angle, and half the squared distance is 1 - cos.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Metric", "Space", "as_points", "space_of"]

Metric = Literal["cosine", "euclidean"]

# Of the largest distance from the middle: nearer than that is the rounding of float32.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Space:
    """Points as their metric sees them.

    Attributes
    ----------
    rows : ndarray of float32
        (points, dimensions): scaled to at most 1 for the Euclidean metric, of length 1 for the
        cosine.
    metric : {"cosine", "euclidean"}
        How far apart they are.
    remark : str
        What a reader should know of it; empty where there is nothing.
    """

    rows: NDArray[np.float32]
    metric: Metric
    remark: str

    def principal(self, dimensions: int) -> NDArray[np.float64]:
        """Coordinates along the directions of the largest variance (Pearson 1901).

        Parameters
        ----------
        dimensions : int
            How many; zeros where the points have fewer.

        Returns
        -------
        ndarray of float64
            (points, dimensions), the mean in the middle. Of the two ways round that a direction
            has, the one in which its largest entry is positive.
        """
        rows = self.rows.astype(np.float64)
        rows -= rows.mean(axis=0)
        kept = min(dimensions, rows.shape[1])
        # In ascending order of the variance.
        directions = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :kept]
        largest = np.abs(directions).argmax(axis=0)
        directions = directions * np.where(directions[largest, np.arange(kept)] < 0, -1.0, 1.0)
        coordinates = np.zeros((len(rows), dimensions))
        coordinates[:, :kept] = rows @ directions
        return coordinates

    def start(self, dimensions: int, seed: int) -> NDArray[np.float64]:
        """Where the points are before the first step.

        Parameters
        ----------
        dimensions : int
            Of the plot.
        seed : int
            Of a shift by a hundredth of the spread, which parts points that are the same.

        Returns
        -------
        ndarray of float64
            (points, dimensions), with a standard deviation of 1 along the first dimension.
        """
        start = self.principal(dimensions)
        start /= start[:, 0].std()
        return start + np.random.default_rng(seed).normal(scale=0.01, size=start.shape)

    def neighbours(self, count: int, threads: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The nearest other points of every point, found exactly.

        Parameters
        ----------
        count : int
            How many.
        threads : int
            To search with.

        Returns
        -------
        indices : ndarray of int64
            (points, count), the nearest first.
        distances : ndarray of float64
            (points, count), in the metric.
        """
        from sklearn.neighbors import NearestNeighbors

        # Products of matrices, block by block: with 10,000 points quicker than any index.
        search = NearestNeighbors(n_neighbors=count, algorithm="brute", n_jobs=threads)
        distances, indices = search.fit(self.rows).kneighbors()
        distances = distances.astype(np.float64)
        return indices, distances**2 / 2 if self.metric == "cosine" else distances


def as_points(points: Any) -> NDArray[np.float32]:
    """Read points as they were given.

    Parameters
    ----------
    points : array-like
        (points, dimensions).

    Returns
    -------
    ndarray of float32
        The same, one after another in memory.

    Raises
    ------
    TypeError
        If they are no numbers.
    ValueError
        If there are none, or not in rows of the same length.
    """
    try:
        given = np.asarray(points)
    except ValueError:
        raise ValueError("points must have rows of the same length, one a point") from None
    if given.dtype.kind not in "fiu":
        raise TypeError(
            f"points must be an array of numbers, (points, dimensions); got "
            f"{type(points).__name__} of {given.dtype}"
        )
    if given.ndim != 2 or 0 in given.shape:
        raise ValueError(
            f"points must have the shape (points, dimensions) with at least one of each; got "
            f"{given.shape}"
        )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(given, dtype=np.float32)


def space_of(points: NDArray[np.float32], metric: Metric) -> Space:
    """Bring points into the form in which their metric is Euclidean.

    Parameters
    ----------
    points : ndarray of float32
        (points, dimensions).
    metric : {"cosine", "euclidean"}
        A point of length 0 has no direction: for the cosine it is laid out as at right angles to
        all others, and the remark says how many there are.

    Returns
    -------
    Space

    Raises
    ------
    ValueError
        If some are no finite numbers, or all are the same: then there is nothing to lay out.

    Examples
    --------
    >>> space_of(np.array([[3.0, 4.0], [1.0, 0.0]], dtype=np.float32), "cosine").rows.round(1)
    array([[0.6, 0.8],
           [1. , 0. ]], dtype=float32)
    """
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"points: {np.count_nonzero(~finite)} of {len(points)} are not finite numbers, so no "
            "distance from them is known; leave them out"
        )
    rows = points.astype(np.float64)
    remark = ""
    if metric == "cosine":
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        empty = lengths[:, 0] == 0
        rows /= np.where(lengths > 0, lengths, 1.0)
        if empty.any():
            rows = np.hstack([rows, empty[:, None].astype(np.float64)])
            remark = (
                f"{np.count_nonzero(empty)} of {len(rows)} vectors have no length and so no "
                "direction: they are laid out as at right angles to all others"
            )
    else:
        rows /= float(np.abs(rows).max()) or 1.0
    if len(rows) > 1 and float(np.abs(rows - rows[0]).max()) <= _ROUNDING:
        alike = "have the same direction" if metric == "cosine" else "are the same"
        raise ValueError(f"points: all {len(rows)} {alike}, so there is nothing to lay out")
    return Space(rows.astype(np.float32), metric, remark)
