"""Pooling: the numbers that one cell covers become one number.

In the mean of a cell of a map, positive and negative numbers would cancel, which would hide large
changes. Therefore positive and negative numbers are pooled separately. The cell shows the result
with the larger absolute value, with its sign. In exported pages, ``js/src/client/page/tiles.ts``
does the same. The tests compare both with the formulas in ``tests/unit/formulas.py``.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", np.float32, np.float64)

__all__ = ["join_signs", "pool", "split_signs"]

# A cell shows the result of its negative numbers only if its absolute value exceeds the result of
# the positive numbers by this fraction. Each row of a difference sums to 0. Therefore both means
# have the same absolute value in a cell with complete rows. Without this margin, rounding errors
# would determine the sign.
_TIE = 1e-3


def pool(
    cells: NDArray[Any],
    numbers: NDArray[Any],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    how: np.ufunc,
) -> None:
    """Add a block of numbers to the cells that cover them.

    Parameters
    ----------
    cells : ndarray
        (..., rows of cells, columns of cells). This function changes it.
    numbers : ndarray
        Block of numbers, (..., rows, columns).
    rows : ndarray of int64
        The row of cells that covers each row of the block, ascending.
    starts : ndarray of int64
        The first column of the block that each column of cells covers, ascending from 0.
    how : ufunc
        `numpy.add`, `numpy.maximum` or `numpy.logical_or`.

    Examples
    --------
    >>> cells = np.zeros((1, 2))
    >>> pool(cells, np.eye(3), np.array([0, 0, 0]), np.array([0, 1]), np.add)
    >>> cells
    array([[1., 2.]])
    """
    firsts = np.flatnonzero(np.diff(rows, prepend=-1))
    touched = rows[firsts]
    # Start with the last axis, because its entries are contiguous in memory.
    pooled = how.reduceat(numbers, starts, axis=-1, dtype=cells.dtype)
    pooled = how.reduceat(pooled, firsts, axis=-2)
    cells[..., touched, :] = how(cells[..., touched, :], pooled)


def split_signs(numbers: NDArray[_Number], *, signed: bool) -> NDArray[_Number]:
    """Separate positive and negative numbers into two arrays, stacked along a new first axis.

    The first array has the positive numbers and 0 for negative numbers. The second array has the
    absolute values of the negative numbers and 0 for positive numbers. If `signed` is False, the
    result has only one array, the numbers themselves.

    >>> split_signs(np.array([0.5, -0.25]), signed=True).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    if not signed:
        return numbers[None]
    return np.stack([np.maximum(numbers, 0), np.maximum(-numbers, 0)])


def join_signs(parts: NDArray[_Number]) -> NDArray[_Number]:
    """Combine the pooled arrays of `split_signs`, stacked along the first axis.

    For each cell, return the larger of the two numbers. It is negative if it comes from the second
    array. If only one array was pooled, return this array.

    >>> join_signs(np.array([[0.5, 0.1, 0.2], [0.25, 0.4, 0.2]])).tolist()
    [0.5, -0.4, 0.2]
    """
    shown: NDArray[_Number] = parts[0]
    if len(parts) > 1:
        shown = np.where(parts[1] > shown * (1 + _TIE), -parts[1], shown)
    return shown
