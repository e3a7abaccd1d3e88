"""Encoding of a record's images for the browser. Images too large for a reply are averaged down.

``js/src/client/requests/images.ts`` reads them.
"""

from __future__ import annotations

import math
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.progress import Pace, Steps

__all__ = ["ImageHeader", "averaged_image", "encoded_image"]


class ImageHeader(TypedDict):
    """Size of the image in a reply's buffer, which has three bytes per pixel."""

    height: int
    width: int


def averaged_image(image: NDArray[np.uint8], largest: int) -> Steps[NDArray[np.uint8]]:
    """Shrink an image to at most `largest` bytes, in steps. Each new pixel is the mean of a square.

    Parameters
    ----------
    image : ndarray
        uint8, (height, width, 3).
    largest : int
        Maximum size in bytes, at least 3.

    Returns
    -------
    ndarray
        uint8, (height, width, 3). Height and width are divided by the same integer and rounded up.
        An image that already fits is returned unchanged.

    Examples
    --------
    >>> from attnviz.utils.progress import run_steps
    >>> run_steps(averaged_image(np.array([[[0] * 3, [200] * 3]], np.uint8), largest=3))
    array([[[100, 100, 100]]], dtype=uint8)
    """
    if largest < 3:
        raise ValueError(f"largest={largest} must be at least 3, the bytes of a pixel")
    height, width = image.shape[:2]
    factor = max(1, math.isqrt(max(0, 3 * height * width - 1) // largest))
    while 3 * -(-height // factor) * -(-width // factor) > largest:
        factor += 1
    if factor == 1:
        return image
    # The last square of a row may be narrower.
    wide = np.diff(np.append(np.arange(0, width, factor), width))
    means = np.empty((-(-height // factor), len(wide), 3), np.uint8)
    pace = Pace("image", image.size)
    for row in range(len(means)):
        lines = image[row * factor : (row + 1) * factor]
        sums = lines.sum(axis=0, dtype=np.uint32)
        sums = np.add.reduceat(sums, np.arange(0, width, factor), axis=0)
        means[row] = np.rint(sums / (wide * len(lines))[:, None])
        yield from pace.advance(lines.size)
    return means


def encoded_image(image: NDArray[np.uint8], largest: int) -> Steps[tuple[ImageHeader, bytes]]:
    """Return the header and pixels of an image for a reply, in steps.

    Parameters
    ----------
    image : ndarray
        uint8, (height, width, 3).
    largest : int
        Maximum size in bytes.

    Returns
    -------
    header : ImageHeader
        ``height`` and ``width`` of the image that is sent.
    data : bytes
        Red, green and blue of each pixel, row by row from the top left.
    """
    sent = yield from averaged_image(image, largest)
    return {"height": sent.shape[0], "width": sent.shape[1]}, sent.tobytes()
