"""Images of a record, and the places of tokens in images, sounds and time series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import as_integer, check_encodable, set_fields, short_repr
from attnviz.utils.arrays import as_array

#: How the value of a pixel is computed from the values of patches, in the terms of matplotlib.
Interpolation = Literal["nearest", "bilinear"]
# Number of pixels along an axis of an image, and start and end of a grid in pixels.
_Axis = tuple[int, float, float]


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
    size : tuple of int, or None
        Height and width in pixels of the image as the user passed it. None means that these are the
        pixels of the record's image.
    box : tuple of float, or None
        Left, top, right and bottom of the grid in these pixels. A processor that crops the image
        leaves pixels outside of the box, and one that pads it makes a box outside of the image.
        None means the whole image.

    Raises
    ------
    TypeError, ValueError
        If a value has the wrong type or is negative, or the grid or its box is empty.

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
    # Grids with the same places of tokens are equal, whatever image they come from.
    size: tuple[int, int] | None = field(default=None, compare=False)
    box: tuple[float, float, float, float] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("start", "rows", "columns", "gap", *(["image"] * (self.image is not None))):
            set_fields(self, **{name: as_integer(name, getattr(self, name))})
        for name in ("name", "unit"):
            check_encodable(name, getattr(self, name))
        for name in ("origin", "step", "width"):
            value = getattr(self, name)
            if not isinstance(value, int | float | np.number) or not np.isfinite(value):
                raise ValueError(f"{name}={value!r} must be a finite number")
            set_fields(self, **{name: float(value)})
        if self.step <= 0 or self.width < 0:
            raise ValueError(f"{self} must have a step above 0, and a width of at least 0")
        if min(self.image or 0, self.start, self.gap) < 0 or min(self.rows, self.columns) < 1:
            raise ValueError(
                f"{self} must have image, start and gap of at least 0, rows and columns of at "
                "least 1"
            )
        for name, convert in (("size", int), ("box", float)):
            if (value := getattr(self, name)) is not None:
                set_fields(self, **{name: tuple(map(convert, value))})
        left, top, right, bottom = self.box or (0, 0, 1, 1)
        if not (left < right and top < bottom and min(self.size or (1,)) >= 1):
            raise ValueError(f"{self} must have a size and a box (left, top, right, bottom)")

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
            time = f"{first:.{2 if self.step >= 0.01 else 3}f}{self.unit}"
            return f"{row},{time}" if self.rows > 1 else time
        return f"{row},{column}" if self.image is not None or self.rows > 1 else str(column)

    def in_pixels(
        self,
        values: NDArray[np.floating[Any]],
        size: tuple[int, int],
        interpolation: Interpolation = "nearest",
    ) -> NDArray[np.float32]:
        """Return the values of the patches, (rows, columns), in the pixels of the image.

        Parameters
        ----------
        values : ndarray
            Value of each patch, (rows, columns).
        size : tuple of int
            Height and width of the record's image, which are used if `size` is None.
        interpolation : {"nearest", "bilinear"}
            ``"nearest"`` gives each pixel the value of the patch at its centre. ``"bilinear"``
            interpolates between the centres of patches; beyond the last centre, the value stays.

        Returns
        -------
        ndarray
            float32, (height, width). NaN outside of the grid's box.

        Examples
        --------
        >>> PatchGrid(0, 0, 1, 2).in_pixels(np.array([[1.0, 3.0]]), (1, 4)).tolist()
        [[1.0, 1.0, 3.0, 3.0]]
        >>> PatchGrid(0, 0, 1, 2).in_pixels(np.array([[1.0, 3.0]]), (1, 4), "bilinear").tolist()
        [[1.0, 1.5, 2.5, 3.0]]
        """
        if interpolation not in get_args(Interpolation):
            raise ValueError(
                f"interpolation={interpolation!r} must be 'nearest' or 'bilinear', or None for one "
                "value per patch"
            )
        down, across = (
            _samples(count, *axis, interpolation)
            for count, axis in zip((self.rows, self.columns), self._axes(size), strict=True)
        )
        pixels: NDArray[np.float32] = (down @ values @ across.T).astype(np.float32)
        return pixels

    def shares(self, region: Any, size: tuple[int, int]) -> NDArray[np.float64]:
        """Return which share of each patch's area lies in a region, (rows, columns), from 0 to 1.

        Parameters
        ----------
        region : sequence of four numbers, or ndarray of bool
            Box (left, top, right, bottom) in pixels, as in Pillow, or mask (height, width).
        size : tuple of int
            Height and width of the record's image, which are used if `size` is None.

        Returns
        -------
        ndarray
            float64, (rows, columns).

        Raises
        ------
        ValueError
            If the box does not lie inside the image, the mask has another shape than the image, or
            the model got no part of the region.

        Examples
        --------
        >>> PatchGrid(0, 0, 1, 2).shares((0, 0, 3, 2), (2, 4)).tolist()
        [[1.0, 0.5]]
        """
        height, width = size = self.size or size
        down, across = self._axes(size)
        array = as_array(region)
        if array.shape == (4,) and array.dtype != bool:
            left, top, right, bottom = array.tolist()
            if not (0 <= left < right <= width and 0 <= top < bottom <= height):
                raise ValueError(
                    f"region={short_repr(region)} must be a box (left, top, right, bottom) inside "
                    f"of the image, whose size is {width} x {height} pixels"
                )
            rows = _overlaps(self.rows, down, np.array([top, bottom]))
            columns = _overlaps(self.columns, across, np.array([left, right]))
            shares = rows * columns.T
        elif array.dtype == bool and array.shape == size:
            rows = _overlaps(self.rows, down, np.arange(height + 1))
            columns = _overlaps(self.columns, across, np.arange(width + 1))
            shares = rows @ array @ columns.T
        else:
            raise ValueError(
                "region must be a box (left, top, right, bottom) or a mask, bool, (height, width) "
                f"= {size}; got {array.dtype} of shape {array.shape}"
            )
        if not shares.any():
            got = ", ".join(f"{round(edge, 1):g}" for edge in self.box or (0, 0, width, height))
            raise ValueError(
                f"region: the model got no part of it. The model got the box ({got}) of the image. "
                "Pass a region with pixels of this box."
            )
        return np.asarray(shares, np.float64)

    def _axes(self, size: tuple[int, int]) -> tuple[_Axis, _Axis]:
        """Return for rows and columns the number of pixels, and where the grid starts and ends."""
        height, width = self.size or size
        left, top, right, bottom = self.box or (0.0, 0.0, width, height)
        return (height, top, bottom), (width, left, right)


def _samples(
    count: int, num_pixels: int, start: float, end: float, interpolation: Interpolation
) -> NDArray[np.float64]:
    """Return the factor of each of `count` patches in each pixel, (pixels, patches)."""
    # Centres of the pixels, in patches. The centre of patch k is at k.
    centres = (np.arange(num_pixels) + 0.5 - start) / (end - start) * count - 0.5
    inside = np.clip(centres, 0, count - 1)
    if interpolation == "nearest":
        inside = np.floor(inside + 0.5)
    factors = np.maximum(1 - np.abs(inside[:, None] - np.arange(count)), 0)
    factors[(centres < -0.5) | (centres >= count - 0.5)] = np.nan
    return np.asarray(factors, np.float64)


def _overlaps(count: int, axis: _Axis, edges: NDArray[Any]) -> NDArray[np.float64]:
    """Return which share of each patch lies between successive edges, (patches, edges - 1)."""
    _, start, end = axis
    covered = np.clip((edges - start) / (end - start) * count - np.arange(count)[:, None], 0, 1)
    return np.diff(covered)


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
