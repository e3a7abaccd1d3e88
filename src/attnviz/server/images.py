"""Encoding of a record's images for the browser.

If an image is too large for a reply, it is reduced by averaging pixels.
``js/src/client/requests/images.ts`` reads the images.
"""

from __future__ import annotations

import math
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray


class ImageHeader(TypedDict):
    """Height and width of an image in pixels.

    In a reply, the buffer has the red, green and blue byte of each pixel, row by row from the top
    left.
    """

    height: int
    width: int


def average_image(image: NDArray[np.uint8], max_bytes: int) -> NDArray[np.uint8]:
    """Reduce an image to at most `max_bytes`. Each new pixel is the mean of a square of pixels.

    Parameters
    ----------
    image : ndarray
        Image, uint8, (height, width, 3).
    max_bytes : int
        Maximum size of the result in bytes, at least 3.

    Returns
    -------
    ndarray
        Reduced image, uint8, (new height, new width, 3). Height and width are divided by the same
        integer and rounded up. If the image already fits, it is returned unchanged.

    Examples
    --------
    >>> average_image(np.array([[[0] * 3, [200] * 3]], np.uint8), max_bytes=3)
    array([[[100, 100, 100]]], dtype=uint8)
    """
    if max_bytes < 3:
        raise ValueError(f"max_bytes={max_bytes} must be at least 3, the bytes of a pixel")
    height, width = image.shape[:2]
    factor = max(1, math.isqrt(max(0, 3 * height * width - 1) // max_bytes))
    while 3 * -(-height // factor) * -(-width // factor) > max_bytes:
        factor += 1
    if factor == 1:
        return image
    # The squares in the last row and column may be smaller than the others.
    tops, lefts = np.arange(0, height, factor), np.arange(0, width, factor)
    sums = np.add.reduceat(image, tops, axis=0, dtype=np.uint32)
    sums = np.add.reduceat(sums, lefts, axis=1)
    sizes = np.outer(np.diff(tops, append=height), np.diff(lefts, append=width))
    means: NDArray[np.uint8] = np.rint(sums / sizes[..., None]).astype(np.uint8)
    return means


def encode_image(image: NDArray[np.uint8], max_bytes: int) -> tuple[ImageHeader, bytes]:
    """Encode an image for a reply, after reducing it to at most `max_bytes`.

    Parameters
    ----------
    image : ndarray
        Image, uint8, (height, width, 3).
    max_bytes : int
        Maximum size of `data` in bytes, at least 3.

    Returns
    -------
    header : ImageHeader
        Height and width of the image that is sent.
    data : bytes
        Red, green and blue of each pixel, row by row from the top left.
    """
    sent = average_image(image, max_bytes)
    return {"height": sent.shape[0], "width": sent.shape[1]}, sent.tobytes()
