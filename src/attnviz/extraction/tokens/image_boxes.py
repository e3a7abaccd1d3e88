"""Boxes of the user's images that a processor shows to the model, found with images of places.

A processor may resize, crop, pad or tile an image. An image of places has the size of the user's
image. Its red is the row of a pixel, its green the column, and its blue the number of the image.
The processor changes it like the image of the user, so the result has the place of each pixel in
this image. Padding has the same colour in both results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.extraction.inputs.media import is_image

Size = tuple[int, int]
#: Height and width of an image of the user, and left, top, right and bottom of a box in it.
ImageBox = tuple[Size, tuple[float, float, float, float]]
# Difference of the blue of successive images. Rounding changes it by less than a half.
_STEP = 8
_MAX_IMAGES = 255 // _STEP


def with_places(example: Any) -> tuple[list[Size], Any]:
    """Return the sizes of an example's images, and the example with images of places.

    The list is empty if the example has no images, or too many to be numbered.
    """
    sizes: list[Size] = []
    replaced = _replaced(example, sizes)
    return (sizes, replaced) if len(sizes) <= _MAX_IMAGES else ([], example)


def _replaced(value: Any, sizes: list[Size]) -> Any:
    """Return a part of an example with images of places, and append their sizes to `sizes`."""
    if isinstance(value, Mapping):
        return {name: _replaced(each, sizes) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_replaced(each, sizes) for each in value])
    if is_image(value):
        sizes.append((value.height, value.width))
    elif isinstance(value, np.ndarray) and value.ndim in (2, 3):
        colours_first = value.ndim == 3 and value.shape[2] not in (1, 3, 4)
        sizes.append(value.shape[1:] if colours_first else value.shape[:2])
    else:
        return value
    from PIL import Image

    height, width = sizes[-1]
    blue = np.full((height, width), max(0, 255 - _STEP * (len(sizes) - 1)), np.uint8)
    rows, columns = _ramp(height, width), _ramp(width, height).T
    return Image.fromarray(np.stack([rows, columns, blue], axis=-1))


def _ramp(length: int, width: int) -> NDArray[np.uint8]:
    """Return colours that grow along the first axis, (length, width).

    Eight successive pixels along the second axis round the same colour in different ways, so that
    their mean is exact.
    """
    colours = 255 * (np.arange(length)[:, None] + 0.5) / length + (np.arange(8) + 0.5) / 8
    return np.tile(colours.astype(np.uint8), (1, -(-width // 8)))[:, :width]


def image_box(
    sizes: Sequence[Size], picture: NDArray[np.uint8], placed: NDArray[np.uint8]
) -> ImageBox | None:
    """Return the box of an image that a picture shows, or None if it is not known.

    `placed` is the picture of an image of places, and `sizes` are the sizes of all images. The box
    is larger than the image if the picture has padding. It is not known if the picture is rotated
    or distorted, or its colours are mixed.
    """
    if picture.shape != placed.shape:
        return None
    inside = (picture != placed).any(axis=2)
    number = round((255 - float(np.median(placed[inside, 2]))) / _STEP) if inside.any() else -1
    if not 0 <= number < len(sizes):
        return None
    edges: list[list[float]] = []
    for axis, count in enumerate(sizes[number]):
        shares = placed[..., axis] / 255
        counts = inside.sum(axis=1 - axis)
        means = (shares * inside).sum(axis=1 - axis) / np.maximum(counts, 1)
        # Interpolation repeats the pixels at the edges of the image, and mixes them with padding.
        (used,) = np.nonzero((counts > 0) & (means > 2 / count) & (means < 1 - 2 / count))
        if len(used) < 2:
            return None
        slope, start = np.polyfit(used + 0.5, means[used], 1)
        of_pixels = start + slope * (np.arange(len(means)) + 0.5)
        errors = np.abs(shares - (of_pixels[:, None] if axis == 0 else of_pixels))
        # Colours are rounded, and the nearest pixel is at most half a pixel away.
        if slope <= 0 or errors[inside].mean() > 3 / 255 + 0.5 / count:
            return None
        ends = np.array([start, start + slope * len(means)]) * count
        # An edge that is nearer to that of the image than half a pixel of the picture is the same.
        is_same = np.abs(ends - [0, count]) < slope * count / 2
        edges.append(np.where(is_same, [0, count], ends).tolist())
    (top, bottom), (left, right) = edges
    return sizes[number], (left, top, right, bottom)
