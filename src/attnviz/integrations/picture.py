"""A picture of all heads as an array, without a browser: for trackers that show pictures only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.record.stack import AttentionStack
from attnviz.server.codec import decode
from attnviz.server.maps import encoded_maps
from attnviz.utils.progress import completed

__all__ = ["heads_picture"]

_CELL = 64
_GAP = 4
# The colours of the views' heat-maps in the light theme: palette.ts and color-scales.ts in
# js/src/ui/colors.
_BACKGROUND = np.array([255, 255, 255], np.float64)
_FRAME = np.array([223, 226, 232], np.float64)
_POSITIVE = np.array([27, 106, 179], np.float64)
_NEGATIVE = np.array([217, 111, 14], np.float64)
_WEIGHTS = np.array(
    [
        *((237, 244, 241), (194, 230, 214), (134, 208, 186), (73, 176, 172), (55, 137, 165)),
        *((60, 99, 148), (64, 64, 111), (42, 31, 63), (18, 10, 26)),
    ],
    np.float64,
)


def heads_picture(stack: AttentionStack, *, cell: int = _CELL) -> NDArray[np.uint8]:
    """Draw every head of a stack as a small heat-map, a row a layer.

    Queries are down, keys across. Colours are those of the matrix view, from 0 to the largest
    number of the stack; negative numbers have a colour of their own.

    Parameters
    ----------
    stack : AttentionStack
        Heads that were not kept stay blank.
    cell : int
        Pixels of a heat-map's longer side; a longer text is pooled by the largest size.

    Returns
    -------
    ndarray of uint8, (height, width, 3)
    """
    columns = max(max(stack.kept_heads(layer), default=0) for layer in stack.layers) + 1
    longest = max(len(stack.query_tokens), len(stack.key_tokens))
    tall, wide = (
        max(round(cell * len(tokens) / longest), 1)
        for tokens in (stack.query_tokens, stack.key_tokens)
    )
    step = np.array([tall + 2 + _GAP, wide + 2 + _GAP])
    shape = step * [len(stack.layers), columns] + _GAP
    picture = np.tile(_BACKGROUND, (*shape, 1))
    for row, layer in enumerate(stack.layers):
        heads = stack.kept_heads(layer)
        if not heads:
            continue
        encoded = completed(encoded_maps(stack, layer, cell)).encoded
        for head, values in zip(heads, decode(encoded), strict=True):
            top, left = step * [row, head] + _GAP
            picture[top : top + tall + 2, left : left + wide + 2] = _FRAME
            drawn = _colored(values, encoded.maximum, signed=stack.signed)
            rows = np.arange(tall) * drawn.shape[0] // tall
            across = np.arange(wide) * drawn.shape[1] // wide
            inside = drawn[rows][:, across]
            picture[top + 1 : top + 1 + tall, left + 1 : left + 1 + wide] = inside
    return np.rint(picture).astype(np.uint8)


def _colored(values: NDArray[np.float32], maximum: float, *, signed: bool) -> NDArray[np.float64]:
    """Numbers as colours, (rows, columns, 3)."""
    sizes = np.abs(values).astype(np.float64)
    share = np.clip(sizes / maximum, 0, 1) if maximum else sizes
    if signed:
        end = np.where(values[..., None] < 0, _NEGATIVE, _POSITIVE)
        mixed: NDArray[np.float64] = share[..., None] * end + (1 - share[..., None]) * _BACKGROUND
        return mixed
    stops = np.linspace(0, 1, len(_WEIGHTS))
    channels = [np.interp(share, stops, _WEIGHTS[:, channel]) for channel in range(3)]
    # Only zero has the background, so that a masked pair does not look like a small weight.
    return np.where(values[..., None] > 0, np.stack(channels, axis=-1), _BACKGROUND)
