"""Pooling of signed numbers.

Positive and negative numbers would cancel in a cell, which would hide large changes. They are
pooled separately, and a cell shows the larger of the two results, with its sign.
``js/src/client/page/tiles.ts`` does this for pages. The tests of both read
``tests/fixtures/tiles.json``.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", np.float32, np.float64)

__all__ = ["join_signs", "split_signs"]

# A cell shows its negative part only if this part exceeds the positive one by this fraction. Each
# row of a difference sums to 0, so both parts of a cell with complete rows have equal sums. Without
# this margin, rounding errors would determine the sign.
_TIE = 1e-3


def split_signs(numbers: NDArray[_Number], *, signed: bool) -> NDArray[_Number]:
    """Return the nonnegative arrays that are pooled separately, stacked to (parts, ...).

    Unsigned numbers are a single part. Signed numbers become two parts: the positive numbers, and
    the absolute values of the negative numbers, each with zeros elsewhere.

    >>> split_signs(np.array([0.5, -0.25]), signed=True).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    if not signed:
        return numbers[None]
    return np.stack([np.maximum(numbers, 0), np.maximum(-numbers, 0)])


def join_signs(parts: NDArray[_Number]) -> NDArray[_Number]:
    """Combine the pooled parts, (parts, ...): return the larger of two parts, with its sign.

    >>> join_signs(np.array([[0.5, 0.1, 0.2], [0.25, 0.4, 0.2]])).tolist()
    [0.5, -0.4, 0.2]
    """
    shown: NDArray[_Number] = parts[0]
    if len(parts) > 1:
        shown = np.where(parts[1] > shown * (1 + _TIE), -parts[1], shown)
    return shown
