"""Pooling: a matrix is reduced to a map with fewer rows and columns.

Each cell of the map covers a rectangle of the matrix. Pooling adds, averages or takes the maximum
of the numbers in this rectangle. In a mean, positive and negative numbers would cancel, which would
hide large changes. Therefore, positive and negative numbers are pooled separately (`split_signs`),
and the cell has the result with the larger absolute value, with its sign (`join_signs`). In
exported pages, ``js/src/client/page/reductions.ts`` does the same. The tests compare the Python and
the TypeScript code with the formulas in ``tests/unit/formulas.py``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", np.float32, np.float64)

# A cell is negative only if the absolute result of its negative numbers exceeds the result of its
# positive numbers by more than this fraction. In a difference of two records, each row sums to 0.
# In a cell with complete rows, both results are therefore equal up to rounding errors. Without the
# fraction, these errors would determine the sign.
_TIE = 1e-3


def cell_starts(count: int, max_cells: int) -> NDArray[np.int64]:
    """Divide `count` positions into at most `max_cells` cells of about equal length.

    Return the first position of each cell.

    >>> cell_starts(5, 2).tolist()
    [0, 2]
    """
    cells = min(count, max_cells)
    return np.arange(cells, dtype=np.int64) * count // max(1, cells)


def pool(
    cells: NDArray[Any],
    numbers: NDArray[Any],
    positions: tuple[NDArray[np.int64], slice],
    starts: tuple[NDArray[np.int64], NDArray[np.int64]],
    how: np.ufunc,
) -> None:
    """Add a block of the matrix to the cells of the map, or combine it with `how`, in place.

    A matrix can be pooled block by block. Each number of the block is combined with the number in
    the cell that covers it.

    Parameters
    ----------
    cells : ndarray
        Cells of the whole map, (..., rows of cells, columns of cells). This function changes them.
    numbers : ndarray
        Block of numbers, (..., rows, columns).
    positions : tuple
        Positions in the matrix of the rows of the block, int64 and ascending, and of its columns, a
        slice.
    starts : tuple of ndarray
        The first row that each row of cells covers, and the first column that each column of cells
        covers. Both are int64 and ascend from 0.
    how : ufunc
        Function that combines two numbers: `numpy.add`, `numpy.maximum` or `numpy.logical_or`.

    Examples
    --------
    >>> cells = np.zeros((1, 2))
    >>> starts = np.array([0]), np.array([0, 1])
    >>> pool(cells, np.eye(3), (np.arange(3), slice(0, 3)), starts, np.add)
    >>> cells
    array([[1., 2.]])
    """
    rows, columns = positions
    row_starts, column_starts = starts
    first = int(np.searchsorted(column_starts, columns.start, side="right")) - 1
    last = int(np.searchsorted(column_starts, columns.stop, side="left"))
    column_indices = np.maximum(column_starts[first:last] - columns.start, 0)
    cell_of_row = np.searchsorted(row_starts, rows, side="right") - 1
    row_indices = [*np.flatnonzero(np.diff(cell_of_row, prepend=-1)).tolist(), len(rows)]
    # `reduceat` along the columns is slow. Pool the rows first, so that fewer numbers remain.
    for begin, end in pairwise(row_indices):
        pooled = how.reduce(numbers[..., begin:end, :], axis=-2, dtype=cells.dtype)
        into = cells[..., cell_of_row[begin], first:last]
        how(into, how.reduceat(pooled, column_indices, axis=-1), out=into)


def pool_max(weights: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Reduce the weights of each head to a smaller map of maxima.

    Each cell of a map has the maximum of the weights that it covers, so that a single large weight
    remains visible.

    Parameters
    ----------
    weights : ndarray
        Weights of the heads, float32, (heads, rows, columns).
    size : int
        Maximum number of rows of a map, and of columns, at least 1.

    Returns
    -------
    ndarray
        Maps, float32, (heads, min(rows, size), min(columns, size)). `cell_starts` divides the rows
        and the columns.
    """
    rows, columns = weights.shape[1:]
    starts = cell_starts(rows, size), cell_starts(columns, size)
    cells = np.full((len(weights), *map(len, starts)), -np.inf, np.float32)
    pool(cells, weights, (np.arange(rows), slice(0, columns)), starts, np.maximum)
    return cells


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
    """Combine pooled positive and negative numbers into one array of cells with signs.

    `parts` contains the arrays of `split_signs` after pooling, stacked along the first axis. Each
    cell of the result has the number of the first array. If the number of the second array exceeds
    this number by more than the fraction `_TIE`, the cell has the negative of the second number
    instead. If `parts` has only one array, return this array.

    >>> join_signs(np.array([[0.5, 0.1, 0.2], [0.25, 0.4, 0.2]])).tolist()
    [0.5, -0.4, 0.2]
    """
    shown: NDArray[_Number] = parts[0]
    if len(parts) > 1:
        shown = np.where(parts[1] > shown * (1 + _TIE), -parts[1], shown)
    return shown
