"""Images of a record, and the places of tokens in images, sounds and time series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import as_integer, check_encodable, set_fields
from attnviz.utils.arrays import as_array


@dataclass(frozen=True, repr=False)
class PatchGrid:
    """Places of consecutive tokens: patches of an image, frames of a sound, or steps of a series.

    The tokens of an image are its patches, row by row from the top left. Other tokens, such as the
    frames of a sound, the steps of a channel or the residues of a chain, are a grid of one row.

    Attributes
    ----------
    image : int or None
        Index into the record's `images`, or None if the record has no picture of the tokens.
    start : int
        Token position of the first patch.
    rows, columns : int
        Numbers of rows and columns. The grid covers the whole image with ``rows * columns`` tokens.
    gap : int
        Number of tokens between two rows that are not patches, such as tokens that end a row.
    name : str
        Name of the image, sound, channel or other group of tokens. It may be empty.
    unit : str
        ``"s"`` for seconds, ``"step"`` for steps of a time series, or empty.
    origin, step : float
        Place of the first column, and distance to the next one, in units.
    width : float
        Length of a column in units. The default, 0, means `step`.

    Raises
    ------
    TypeError, ValueError
        If a value has the wrong type or is negative, or the grid is empty.

    Examples
    --------
    >>> grid = PatchGrid(image=0, start=1, rows=2, columns=3)
    >>> grid.stop, grid.cell(4), grid.names()[3]
    (7, (1, 0), '1,0')
    >>> PatchGrid(None, 0, 1, 3, unit="s", step=0.02).names()
    ('0.00s', '0.02s', '0.04s')
    >>> PatchGrid(None, 0, 1, 2, name="x1", unit="step", step=16).names()
    ('x1 0-15', 'x1 16-31')
    """

    image: int | None
    start: int
    rows: int
    columns: int
    gap: int = 0
    name: str = ""
    unit: str = ""
    origin: float = 0.0
    step: float = 1.0
    width: float = 0.0

    def __post_init__(self) -> None:
        for name in ("start", "rows", "columns", "gap", *(["image"] * (self.image is not None))):
            set_fields(self, **{name: as_integer(name, getattr(self, name))})
        for name in ("name", "unit"):
            check_encodable(name, getattr(self, name))
        for name in ("origin", "step", "width"):
            set_fields(self, **{name: float(getattr(self, name))})
        if min(self.image or 0, self.start, self.gap) < 0 or min(self.rows, self.columns) < 1:
            raise ValueError(
                f"{self} must have image, start and gap of at least 0, rows and columns of at "
                "least 1"
            )

    def __repr__(self) -> str:
        own = ((field, getattr(self, field.name)) for field in fields(self))
        shown = (f"{field.name}={value!r}" for field, value in own if value != field.default)
        return f"PatchGrid({', '.join(shown)})"

    @property
    def stop(self) -> int:
        """Position of the first token after the patches."""
        return self.start + self.rows * (self.columns + self.gap) - self.gap

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of the patches among the tokens, row by row."""
        stride = self.columns + self.gap
        starts = range(self.start, self.start + self.rows * stride, stride)
        return tuple(start + column for start in starts for column in range(self.columns))

    def cell(self, token: int) -> tuple[int, int]:
        """Return the row and the column of a token in the grid, from 0.

        Parameters
        ----------
        token : int
            Position of the token, one of `positions`.

        Returns
        -------
        tuple of int
        """
        row, column = divmod(token - self.start, self.columns + self.gap)
        return row, column

    def span(self, column: int) -> tuple[float, float]:
        """Return where a column starts and ends, in units.

        Parameters
        ----------
        column : int
            Number of the column, from 0.

        Returns
        -------
        tuple of float
        """
        first = self.origin + column * self.step
        return first, first + (self.width or self.step)

    def names(self) -> tuple[str, ...]:
        """Return the names of the tokens, row by row.

        A patch of an image is named ``row,column``, a frame by its start in seconds, such as
        ``0.04s``, and steps by the first and the last of them, such as ``0-15``. The name of the
        grid comes first.

        Returns
        -------
        tuple of str
        """
        cells = [
            self._cell_name(row, column)
            for row in range(self.rows)
            for column in range(self.columns)
        ]
        return tuple(f"{self.name} {cell}" if self.name else cell for cell in cells)

    def _cell_name(self, row: int, column: int) -> str:
        first, end = self.span(column)
        if self.unit == "step":
            return step_name(range(round(first), round(end)))
        if self.unit:
            return f"{first:.{2 if self.step >= 0.01 else 3}f}{self.unit}"
        return f"{row},{column}" if self.image is not None or self.rows > 1 else str(column)


def step_name(steps: Sequence[Any]) -> str:
    """Return the name of successive steps: the first and the last of them.

    >>> step_name(range(16)), step_name(["2024-01-01"])
    ('0-15', '2024-01-01')
    """
    first, last = str(steps[0]), str(steps[-1])
    if len(steps) == 1:
        return first
    return f"{first}-{last}" if isinstance(steps, range) else f"{first} – {last}"


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
