"""What a cell shows of the numbers that it stands for, also where they have both signs.

Positive and negative numbers would cancel out in a cell, and a large change would look like none.
So both are pooled by themselves, and the larger of the two is shown, with its sign.
``js/src/client/page/tiles.ts`` does the same for pages; ``tests/fixtures/tiles.json`` is read by
both.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", np.float32, np.float64)

__all__ = ["joined", "parted"]

# Negative numbers are shown where they are larger by more than this share. Each row of a difference
# sums to 0: a cell that has whole rows, as the first of every causal text, has as much of either
# sign, and which is larger would be a matter of rounding.
_TIE = 1e-3


def parted(numbers: NDArray[_Number], *, signed: bool) -> NDArray[_Number]:
    """The parts of numbers that are pooled by themselves, (parts, ...), none of them negative.

    One part, the numbers themselves, unless they are signed: then the positive numbers, and the
    sizes of the negative ones, with zeros in the places of the others.

    >>> parted(np.array([0.5, -0.25]), signed=True).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    if not signed:
        return numbers[None]
    return np.stack([np.maximum(numbers, 0), np.maximum(-numbers, 0)])


def joined(parts: NDArray[_Number]) -> NDArray[_Number]:
    """What cells show of their pooled parts, (parts, ...): of two the larger, with its sign.

    >>> joined(np.array([[0.5, 0.1, 0.2], [0.25, 0.4, 0.2]])).tolist()
    [0.5, -0.4, 0.2]
    """
    shown: NDArray[_Number] = parts[0]
    if len(parts) > 1:
        shown = np.where(parts[1] > shown * (1 + _TIE), -parts[1], shown)
    return shown
