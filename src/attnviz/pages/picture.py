"""Pictures of all heads as small heat maps, drawn without a browser.

`draw_heads_picture` returns an array, for experiment trackers that show only images. `draw_heads`
returns HTML with a small picture for a page. Users see it if their browser cannot run the code of
the page.
"""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import weights_of_some
from attnviz.record.pooling import join_signs, pool_max, split_signs
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import decode
from attnviz.server.maps import encode_maps
from attnviz.utils.arguments import format_named
from attnviz.utils.numbers import format_small
from attnviz.utils.progress import Pace

_CELL = 64
_GAP = 4
# Colors of heat maps in the light theme of the views. They must be the same as in palette.ts and
# color-scales.ts in js/src/ui/colors.
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


def draw_heads_picture(stack: AttentionStack, *, cell: int = _CELL) -> NDArray[np.uint8]:
    """Draw every head of a stack as a small heat map, with one row of heat maps per layer.

    In each heat map, queries go from top to bottom and keys from left to right. The colors are the
    colors of the matrix view, from 0 to `AttentionStack.maximum`. Negative values have another
    color than positive values.

    Parameters
    ----------
    stack : AttentionStack
        Stack to draw. If a layer has fewer heads than others, its row ends with blank space.
    cell : int
        Length of the longer side of a heat map, in pixels. If a text has more tokens than pixels, a
        pixel shows the value with the largest absolute value among several queries and keys.

    Returns
    -------
    ndarray of uint8, (height, width, 3)
    """
    columns = max(stack.heads_per_layer)
    longest = max(len(stack.query_tokens), len(stack.key_tokens))
    tall, wide = (
        max(round(cell * len(tokens) / longest), 1)
        for tokens in (stack.query_tokens, stack.key_tokens)
    )
    step = np.array([tall + 2 + _GAP, wide + 2 + _GAP])
    shape = step * [len(stack.layers), columns] + _GAP
    picture = np.tile(_BACKGROUND, (*shape, 1))
    for row, layer in enumerate(stack.layers):
        encoded = encode_maps(stack, layer, cell).encoded
        for head, values in enumerate(decode(encoded)):
            top, left = step * [row, head] + _GAP
            picture[top : top + tall + 2, left : left + wide + 2] = _FRAME
            pooled = pool_maps(values, (tall, wide), signed=stack.signed)
            drawn = _to_colors(pooled, encoded.maximum, signed=stack.signed)
            rows = np.arange(tall) * drawn.shape[0] // tall
            across = np.arange(wide) * drawn.shape[1] // wide
            inside = drawn[rows][:, across]
            picture[top + 1 : top + 1 + tall, left + 1 : left + 1 + wide] = inside
    return np.rint(picture).astype(np.uint8)


def _to_colors(values: NDArray[np.float32], maximum: float, *, signed: bool) -> NDArray[np.float64]:
    """Return the RGB colors, 0 to 255, of `values`: (rows, columns, 3)."""
    sizes = np.abs(values).astype(np.float64)
    share = np.clip(sizes / maximum, 0, 1) if maximum else sizes
    if signed:
        end = np.where(values[..., None] < 0, _NEGATIVE, _POSITIVE)
        mixed: NDArray[np.float64] = share[..., None] * end + (1 - share[..., None]) * _BACKGROUND
        return mixed
    stops = np.linspace(0, 1, len(_WEIGHTS))
    channels = [np.interp(share, stops, _WEIGHTS[:, channel]) for channel in range(3)]
    # Only 0 has the background color, so that a small weight does not look like a masked pair.
    return np.where(values[..., None] > 0, np.stack(channels, axis=-1), _BACKGROUND)


# Color index of a cell with the value 0 or without a value. It is the background color.
_GROUND = 0

#: Possible sizes of a heat map in the picture of a page, in pixels. The first size whose PNG file
#: has at most `_MAX_PNG_BYTES` bytes is used.
SIDES = (16, 12, 10, 8, 6, 4, 3, 2, 1)
# Maximum size of the PNG file in bytes.
_MAX_PNG_BYTES = 6_000
# If a file exceeds the maximum by this factor at the fastest compression level, it also exceeds the
# maximum at the best compression level.
_FAR = 1.25
#: Maximum size in bytes of the HTML with the picture and its description, for fewer than 10,000
#: heads.
MAX_PICTURE_BYTES = 9_500
# Maximum displayed size of the picture in CSS pixels. With this size, the description below the
# picture is visible without scrolling.
_SHOWN_SIZE = 480
_LARGEST_PIXEL = 8
# Number of colors for values. A PNG with 4 bits per pixel has 16 colors. The other two are the
# background and the frame.
_LEVELS = 14

#: Heat map as indices of colors in a palette.
Cells = NDArray[np.uint8]


def draw_heads(record: AttentionRecord, view: str, state: Mapping[str, Any]) -> str:
    """Draw all heads of the stack that a view shows. Return HTML of about 8 kB.

    For a text with more than 16 tokens, the heat maps show 16 of its queries, so that long texts
    take little time.
    """
    figure = draw_all_heads(record, displayed_stack(record, state))
    return add_title(record.model, view, figure)


def draw_all_heads(record: AttentionRecord, stack: AttentionStack) -> str:
    """Draw all heads of a stack. Return HTML without a title.

    The HTML is cached in the record.
    """
    key = f"attnviz.pages.picture {stack.name}"
    if key not in record.computed:
        record.computed[key] = _draw_heads(stack)
    return str(record.computed[key])


def displayed_stack(record: AttentionRecord, state: Mapping[str, Any]) -> AttentionStack:
    """Return the stack that a view with this state shows.

    In a comparison, the stack has the differences of the record with the index ``state["member"]``.
    """
    name = state.get("stack")
    if "comparison" in state:
        name = state["comparison"]["stacks"][name]["differences"][state["member"]]
    return record.stack(name or None)


def add_title(model: str, view: str, figure: str) -> str:
    """Return the HTML of a figure with a title above it."""
    title = html.escape(f"{model or 'Attention'} · {view} view")
    return f'<p class="attnviz-title">{title}</p>\n{figure}'


def _draw_heads(stack: AttentionStack) -> str:
    side = SIDES[0]
    queries = sample_queries(len(stack.query_tokens), side)
    columns = max(stack.heads_per_layer)
    pace = Pace("picture", len(stack.layers) * columns * len(queries) * len(stack.key_tokens))
    head_maps: list[NDArray[np.float32]] = []
    positions: list[tuple[int, int]] = []
    for row, layer in enumerate(stack.layers):
        heads = range(stack.num_heads(layer))
        positions += [(row, head) for head in heads]
        for _, weights in weights_of_some(stack, layer, heads, queries):
            # Check first, because `nan_to_num` takes ten times as long and is rarely needed.
            numbers = weights if np.isfinite(weights).all() else np.nan_to_num(weights)
            head_maps.append(pool_maps(numbers, side, signed=stack.signed))
            pace.advance(weights.size, len(weights))
    maps = np.concatenate(head_maps)
    largest = float(np.abs(maps).max(initial=0))

    def cells(side: int) -> list[list[Cells | None]]:
        grid: list[list[Cells | None]] = [[None] * columns for _ in stack.layers]
        pooled = pool_maps(maps, side, signed=stack.signed)
        levels = to_color_levels(pooled, largest, signed=stack.signed)
        for (row, column), head_map in zip(positions, levels, strict=True):
            grid[row][column] = head_map
        return grid

    description = (
        f"{stack.measure.capitalize()}s of {format_named('layer', stack.layers)} from top to "
        f"bottom and {format_named('head', range(columns))} from left to right (stack "
        f"{stack.name}). In each map, queries go down and keys across. "
        f"{describe_scale(stack, largest)}"
    )
    num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)

    def left_out(side: int) -> str:
        in_view = "Tokens, numbers and lines are in the interactive view."
        if max(num_queries, num_keys) <= side:
            return in_view
        sample = f" of {len(queries)} of its queries" if len(queries) < num_queries else ""
        return (
            f"A map of {num_queries:,} queries and {num_keys:,} keys shows the largest "
            f"{stack.measure}s{sample}, in {min(side, num_queries)} by {min(side, num_keys)} "
            f"cells. {in_view}"
        )

    return draw_grid(cells, make_palette(signed=stack.signed), description, left_out)


def draw_grid(
    cells: Callable[[int], Sequence[Sequence[Cells | None]]],
    palette: NDArray[np.float64],
    description: str,
    describe_omitted: Callable[[int], str],
    sides: Sequence[int] = SIDES,
) -> str:
    """Return HTML with a picture of small maps in rows and columns, and with its description.

    Parameters
    ----------
    cells : callable
        Function of the size of a map in pixels. It returns the maps, row by row. A map is an array
        of color indices, (rows, columns), in which 0 is the background, or None for an empty map.
        All maps have the same shape.
    palette : ndarray
        At most 15 colors, (colors, 3). The first color is the background.
    description : str
        Description of the picture.
    describe_omitted : callable
        Function of the size of a map in pixels. It returns a sentence about what the picture does
        not show.
    sides : sequence of int
        Sizes of a map to try, in pixels, from the largest to the smallest.
    """
    for side in sides:
        pixels = _join_maps(cells(side))
        picture = encode_png(pixels, np.vstack([palette, _FRAME]), max_bytes=_MAX_PNG_BYTES)
        if len(picture) <= _MAX_PNG_BYTES:
            break
    width = pixels.shape[1] * min(max(_SHOWN_SIZE // max(pixels.shape), 1), _LARGEST_PIXEL)
    return (
        f'<img alt="{html.escape(description)}" width="{width}" '
        f'src="data:image/png;base64,{base64.b64encode(picture).decode()}">\n'
        f"<p>{html.escape(description)} {html.escape(describe_omitted(side))}</p>"
    )


def describe_scale(stack: AttentionStack, largest: float) -> str:
    """Describe the color scale of a picture, up to the largest absolute value `largest`."""
    if stack.signed:
        return f"Blue is above zero and orange below, up to {format_small(largest)}."
    return f"Darker is more, up to {format_small(largest)}."


def pool_maps(
    weights: NDArray[np.float32], side: int | tuple[int, int], *, signed: bool
) -> NDArray[np.float32]:
    """Reduce maps, (..., rows, columns), to at most `side` rows and columns.

    A cell of the result is the largest of its values, or for signed numbers the value with the
    largest absolute value.
    """
    parts = split_signs(weights, signed=signed)
    flat = pool_max(parts.reshape(-1, *parts.shape[-2:]), side)
    pooled: NDArray[np.float32] = join_signs(flat.reshape(*parts.shape[:-2], *flat.shape[-2:]))
    return pooled


@cache
def make_palette(*, signed: bool) -> NDArray[np.float64]:
    """Return the colors of the indices that `to_color_levels` returns, (colors, 3)."""
    if not signed:
        levels = np.arange(1, _LEVELS + 1) / _LEVELS
        return np.vstack([_BACKGROUND, _to_colors(levels.astype(np.float32), 1.0, signed=False)])
    levels = np.arange(1, _LEVELS // 2 + 1) / (_LEVELS // 2)
    both = np.concatenate([levels, -levels]).astype(np.float32)
    return np.vstack([_BACKGROUND, _to_colors(both, 1.0, signed=True)])


def to_color_levels(values: NDArray[np.float32], largest: float, *, signed: bool) -> Cells:
    """Return a color index for each value. Only the value 0 has index 0, the background."""
    sizes = np.abs(values) / (largest or 1.0)
    if not signed:
        return np.ceil(np.clip(sizes, 0, 1) * _LEVELS).astype(np.uint8)
    half = _LEVELS // 2
    levels = np.ceil(np.clip(sizes, 0, 1) * half)
    return np.where(values < 0, levels + half, levels).astype(np.uint8)


def _join_maps(cells: Sequence[Sequence[Cells | None]]) -> Cells:
    """Join maps to one grid. The lines around the maps have index 255, the last color."""
    present_maps = [head_map for row in cells for head_map in row if head_map is not None]
    height, width = present_maps[0].shape if present_maps else (1, 1)
    blank = np.full((height, width), _GROUND, np.uint8)
    maps = np.array(
        [[blank if head_map is None else head_map for head_map in row] for row in cells]
    )
    rows, columns = maps.shape[:2]
    grid = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 255, np.uint8)
    inside = grid[1:, 1:].reshape(rows, height + 1, columns, width + 1)
    inside[:, :height, :, :width] = maps.transpose(0, 2, 1, 3)
    grid[1:, 1:] = inside.reshape(rows * (height + 1), columns * (width + 1))
    return grid


def encode_png(
    pixels: Cells, palette: NDArray[np.float64], *, max_bytes: int = _MAX_PNG_BYTES
) -> bytes:
    """Return a PNG with 4 bits per pixel. `pixels` are color indices, and 255 is the last color.

    If fast compression slightly exceeds `max_bytes`, the best compression is used. The PNG may
    still be larger than `max_bytes`.
    """
    height, width = pixels.shape
    numbers = np.minimum(pixels, len(palette) - 1).astype(np.uint8)
    # In PNG, each row begins with the type of its filter. 0 means unfiltered.
    rows = np.zeros((height, 1 + (width + 1) // 2), np.uint8)
    rows[:, 1:] = numbers[:, ::2] << 4
    rows[:, 1 : 1 + width // 2] |= numbers[:, 1::2]
    data = rows.tobytes()
    # The best compression level takes ten times as long as the fastest, and saves a tenth of the
    # size.
    deflated = zlib.compress(data, 1)
    if max_bytes < len(deflated) <= _FAR * max_bytes:
        deflated = zlib.compress(data, 9)
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 4, 3, 0, 0, 0),
        b"PLTE": np.rint(palette).astype(np.uint8).tobytes(),
        b"IDAT": deflated,
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    )
