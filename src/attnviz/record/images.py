"""Images of a record, and the tokens that are patches of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import as_integer, set_fields
from attnviz.utils.arrays import as_array


@dataclass(frozen=True)
class PatchGrid:
    """Consecutive tokens that are the patches of one image, row by row from the top left.

    Attributes
    ----------
    image : int
        Index into the record's `images`.
    start : int
        Token position of the first patch.
    rows, columns : int
        Numbers of rows and columns. The grid covers the whole image with ``rows * columns`` tokens.

    Raises
    ------
    TypeError, ValueError
        If a value is not a whole number or is negative, or the grid is empty.

    Examples
    --------
    >>> grid = PatchGrid(image=0, start=1, rows=2, columns=3)
    >>> grid.stop, grid.cell(4)
    (7, (1, 0))
    """

    image: int
    start: int
    rows: int
    columns: int

    def __post_init__(self) -> None:
        for name in ("image", "start", "rows", "columns"):
            set_fields(self, **{name: as_integer(name, getattr(self, name))})
        if min(self.image, self.start) < 0 or min(self.rows, self.columns) < 1:
            raise ValueError(
                f"{self} must have image and start of at least 0, rows and columns of at least 1"
            )

    @property
    def stop(self) -> int:
        """Position of the first token after the patches."""
        return self.start + self.rows * self.columns

    def cell(self, token: int) -> tuple[int, int]:
        """Return the row and the column of a token in the grid, from 0.

        Parameters
        ----------
        token : int
            Position of the token, from `start` to below `stop`.

        Returns
        -------
        tuple of int
        """
        row, column = divmod(token - self.start, self.columns)
        return row, column


def check_image(image: Any, name: str = "image") -> NDArray[np.uint8]:
    """Return an image as a contiguous array, uint8, (height, width, 3).

    Raise TypeError if the dtype is not uint8, or ValueError if the shape is wrong. `name` is the
    name of the argument in messages.
    """
    array = as_array(image)
    if array.dtype != np.uint8:
        raise TypeError(f"{name} must contain colours from 0 to 255 (uint8); got {array.dtype}")
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise ValueError(f"{name} must be (height, width, 3); got {array.shape}")
    return np.ascontiguousarray(array)
