"""Pictures of one light shape on a dark, noisy background, with the mask of the shape."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SHAPES = ("circle", "square", "triangle", "cross")
IMAGE_SIZE = 32
PATCH_SIZE = 4

_SMALLEST, _LARGEST = 5.0, 8.0
# Ranges of red, green and blue of the background and of the shape, from 0 to 255.
_GROUND = (20.0, 100.0)
_INK = (120.0, 255.0)
_NOISE = 25.0


def _inside(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether points lie in each of the shapes: circle, square, triangle and cross.

    `x` and `y` are distances from the centre, divided by the radius of the shape. All shapes have
    similar areas, because a model must not recognize them by their size.
    """
    circle = x**2 + y**2 < 0.8
    square = np.maximum(np.abs(x), np.abs(y)) < 0.8
    triangle = (y < 0.95) & (y > 2 * np.abs(x) - 1.25)
    cross = (np.minimum(np.abs(x), np.abs(y)) < 0.33) & (np.maximum(np.abs(x), np.abs(y)) < 1.1)
    return np.stack([circle, square, triangle, cross])


def shape_masks(centres: NDArray[np.float64], radius: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return the masks of all kinds of shapes at the given centres, (shapes, number, 32, 32).

    `centres` contains x and y, (2, number). `radius` is (number,). Both are in pixels.
    """
    grid = np.arange(IMAGE_SIZE) + 0.5
    across = (grid[None, None, :] - centres[0][:, None, None]) / radius[:, None, None]
    down = (grid[None, :, None] - centres[1][:, None, None]) / radius[:, None, None]
    across, down = np.broadcast_arrays(across, down)
    return _inside(across, down)


def draw_shapes(
    generator: np.random.Generator, number: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
    """Draw pictures, each with one shape of random colour, size and position.

    Returns
    -------
    images : ndarray of uint8, (number, 32, 32, 3)
        Red, green and blue.
    kinds : ndarray of int64, (number,)
        Kind of the shape in each picture, as an index in `SHAPES`.
    masks : ndarray of bool, (number, 32, 32)
        True on the shape.

    Examples
    --------
    >>> images, kinds, masks = draw_shapes(np.random.default_rng(0), 2)
    >>> images.shape, kinds.shape, masks.shape
    ((2, 32, 32, 3), (2,), (2, 32, 32))
    """
    kinds = generator.integers(len(SHAPES), size=number)
    radius = generator.uniform(_SMALLEST, _LARGEST, size=number)
    # Choose centres for which the shape, including its corners, stays in the picture.
    reach = 1.25 * radius
    centres = reach + generator.random((2, number)) * (IMAGE_SIZE - 2 * reach)
    masks = shape_masks(centres, radius)[kinds, np.arange(number)]

    ground = generator.uniform(*_GROUND, size=(number, 3))
    ink = generator.uniform(*_INK, size=(number, 3))
    images = np.where(masks[..., None], ink[:, None, None], ground[:, None, None])
    images = images + generator.normal(0, _NOISE, size=images.shape)
    return images.clip(0, 255).astype(np.uint8), kinds, masks


def patches_of(masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether each patch of a picture contains at least one pixel of the shape.

    Parameters
    ----------
    masks : ndarray of bool, (number, 32, 32)
        Masks from `draw_shapes`.

    Returns
    -------
    ndarray of bool, (number, 64)
        Patches row by row, from the upper left.

    Examples
    --------
    >>> mask = np.zeros((1, 32, 32), dtype=bool)
    >>> mask[0, 0, 5] = True
    >>> np.flatnonzero(patches_of(mask)[0]).tolist()
    [1]
    """
    side = IMAGE_SIZE // PATCH_SIZE
    cut = masks.reshape(-1, side, PATCH_SIZE, side, PATCH_SIZE)
    return cut.any(axis=(2, 4)).reshape(-1, side * side)
