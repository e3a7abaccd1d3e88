"""How a record's images travel to the browser: colours, averaged down where they are too many.

``js/src/client/requests/images.ts`` is the other side.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

__all__ = ["ImageHeader", "averaged_image", "encoded_image"]


class ImageHeader(TypedDict):
    """What a reply says about the bytes in its buffer, three to a pixel."""

    height: int
    width: int


def averaged_image(image: NDArray[np.uint8], largest: int) -> NDArray[np.uint8]:
    """Shrink an image until it fits, by whole factors: each pixel is the mean of a square.

    Parameters
    ----------
    image : ndarray
        uint8, (height, width, 3).
    largest : int
        Bytes that it may take, at least 3.

    Returns
    -------
    ndarray
        uint8, (height, width, 3), both divided by the same factor and rounded up; the same object
        where it fits as it is.

    Examples
    --------
    >>> averaged_image(np.array([[[0] * 3, [200] * 3]], np.uint8), largest=3)
    array([[[100, 100, 100]]], dtype=uint8)
    """
    if largest < 3:
        raise ValueError(f"largest={largest} bytes hold no pixel; give 3 or more")
    height, width = image.shape[:2]
    factor = max(1, math.isqrt(max(0, 3 * height * width - 1) // largest))
    while 3 * -(-height // factor) * -(-width // factor) > largest:
        factor += 1
    if factor == 1:
        return image
    sums: NDArray[Any] = image
    pixels: NDArray[Any] = np.ones(())
    for axis, size in ((0, height), (1, width)):
        starts = np.arange(0, size, factor)
        sums = np.add.reduceat(sums, starts, axis=axis, dtype=np.uint32)
        # The squares at the end may be cut.
        pixels = np.multiply.outer(pixels, np.diff(np.append(starts, size)))
    means: NDArray[np.uint8] = np.rint(sums / pixels[:, :, None]).astype(np.uint8)
    return means


def encoded_image(image: NDArray[np.uint8], largest: int) -> tuple[ImageHeader, bytes]:
    """An image as an answer.

    Parameters
    ----------
    image : ndarray
        uint8, (height, width, 3).
    largest : int
        Bytes that it may take.

    Returns
    -------
    header : dict
        Fit for JSON: ``height`` and ``width`` as they are sent.
    data : bytes
        Red, green and blue of each pixel, row by row from the top left.
    """
    sent = averaged_image(image, largest)
    return {"height": sent.shape[0], "width": sent.shape[1]}, sent.tobytes()
