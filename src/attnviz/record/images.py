"""Images in a record: the pictures themselves, and which tokens are patches of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PatchGrid", "checked_image"]


@dataclass(frozen=True)
class PatchGrid:
    """A run of tokens that are the patches of one image, row by row from the top left.

    Attributes
    ----------
    image : int
        Which of the record's `images`.
    start : int
        Place of the first patch among the tokens.
    rows, columns : int
        The grid that covers the whole image; the run has ``rows * columns`` tokens.

    Raises
    ------
    ValueError
        If a number is negative, or the grid is empty.

    Examples
    --------
    >>> grid = PatchGrid(image=0, start=1, rows=2, columns=3)
    >>> grid.stop, grid.place(4)
    (7, (1, 0))
    """

    image: int
    start: int
    rows: int
    columns: int

    def __post_init__(self) -> None:
        """Refuse numbers that are not a grid."""
        if min(self.image, self.start) < 0 or min(self.rows, self.columns) < 1:
            raise ValueError(f"no grid of patches: {self}")

    @property
    def stop(self) -> int:
        """Place after the last patch."""
        return self.start + self.rows * self.columns

    def place(self, token: int) -> tuple[int, int]:
        """Row and column of a patch, from 0.

        Parameters
        ----------
        token : int
            Its place among the tokens.

        Returns
        -------
        tuple of int
        """
        row, column = divmod(token - self.start, self.columns)
        return row, column


def checked_image(image: Any, name: str = "image") -> NDArray[np.uint8]:
    """A picture as contiguous uint8, (height, width, 3).

    TypeError or ValueError, calling it `name`, if it is not a picture.
    """
    array = np.asarray(image)
    if array.dtype != np.uint8:
        raise TypeError(f"{name} must hold colours from 0 to 255 (uint8); got {array.dtype}")
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise ValueError(f"{name} must be (height, width, 3); got {array.shape}")
    return np.ascontiguousarray(array)
