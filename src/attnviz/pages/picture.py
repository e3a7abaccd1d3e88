"""Pictures of all heads as small heat maps, drawn without a browser.

`draw_heads_picture` returns an array, for experiment trackers that show only images.
`draw_all_heads` returns HTML with a small picture. An exported page contains it for users whose
browser cannot run the code of the page, and a notebook stores it with a view. The embedding view
draws its own cells with `draw_grid`.
"""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import weights_of_some
from attnviz.pages.colors import LIGHT, WEIGHT_STOPS, rgb_of
from attnviz.record.pooling import join_signs, pool_max, split_signs
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack, sibling_stacks
from attnviz.utils.arguments import format_named
from attnviz.utils.numbers import format_small
from attnviz.utils.progress import Pace

# Colors of heat maps in the light theme of the views.
_BACKGROUND, _FRAME = rgb_of(LIGHT["background"]), rgb_of(LIGHT["rule"])
_SIGNS = [rgb_of(LIGHT[sign]) for sign in ("positive", "negative")]
_WEIGHTS = np.array([rgb_of(color) for color in WEIGHT_STOPS])

# Numbers of colors for the values of a heat map: in a PNG with 4 bits per pixel (16 colors), and in
# an array of `draw_heads_picture` (256 colors). The other two colors are those of the background
# and of the lines around the heat maps.
_LEVELS = 14
_FINE_LEVELS = 254

#: Maximum lengths of a side of a heat map in the PNG of `draw_all_heads`, in pixels. The lengths
#: are tried in this order until the PNG has at most `_MAX_PNG_BYTES` bytes.
SIDES = (16, 12, 10, 8, 6, 4, 3, 2, 1)
# Maximum size of the PNG in bytes, unless it is larger even with the smallest heat maps.
_MAX_PNG_BYTES = 6_000
#: Maximum size in bytes of the HTML that `draw_all_heads` returns for fewer than 10,000 heads.
MAX_PICTURE_BYTES = 9_500
# Maximum displayed length of the picture's longer side in CSS pixels, unless this side of the PNG
# has more pixels. With this length, the description below the picture is visible without scrolling.
_SHOWN_SIZE = 480
# Maximum displayed width and height of one pixel of the PNG, in CSS pixels.
_LARGEST_PIXEL = 8

#: Heat maps, in which each number is the index of a color in a palette.
Cells = NDArray[np.uint8]


def draw_heads_picture(stack: AttentionStack, *, side: int = 64) -> NDArray[np.uint8]:
    """Draw every head of a stack as a small heat map, with one row of heat maps per layer.

    In each heat map, queries go from top to bottom and keys from left to right. The colors are the
    colors of the matrix view, from 0 to `AttentionStack.maximum`. Negative values have another
    color than positive values. If a layer has fewer heads than others, its row ends with blank
    space. If the text has more than `side` queries, the heat maps show `side` of them. If it has
    more than `side` keys, each pixel stands for several keys, and shows their value with the
    largest absolute value.

    Parameters
    ----------
    stack : AttentionStack
        Stack to draw.
    side : int
        Maximum length of a side of a heat map, in pixels.

    Returns
    -------
    ndarray of uint8, (height, width, 3)
    """
    maps = _maps_of_all_heads(stack, side)
    levels = to_color_levels(maps, stack.maximum, signed=stack.signed, num_levels=_FINE_LEVELS)
    pixels_per_cell = side // max(maps.shape[2:])
    enlarged = levels.repeat(pixels_per_cell, axis=2).repeat(pixels_per_cell, axis=3)
    palette = np.vstack([make_palette(signed=stack.signed, num_levels=_FINE_LEVELS), _FRAME])
    return np.rint(palette).astype(np.uint8)[_join_maps(enlarged)]


def displayed_stack(record: AttentionRecord, state: Mapping[str, Any]) -> AttentionStack:
    """Return the stack that a view with this state shows.

    In a view that compares records, the stack has the differences between record 0 and the record
    with the index ``state["member"]``. In a view that shows a run with changed attention, it has
    the weights of this run, or their differences.
    """
    name = state.get("stack")
    if "changed_run" in state:
        name = state["changed_run"]["stacks"][name][state["run"]]
    if "comparison" in state:
        name = state["comparison"]["stacks"][name]["differences"][state["member"]]
    return record.stack(name or None)


def displayed_kinds(record: AttentionRecord, state: Mapping[str, Any]) -> list[AttentionStack]:
    """Return the stacks whose heads a view with this state shows in one grid.

    They are the displayed stack and its siblings (see `sibling_stacks`), in the record's order.
    """
    stack = displayed_stack(record, state)
    groups = sibling_stacks(record.stacks.values())
    return next((group for group in groups if stack in group), [stack])


def add_title(model: str, view: str, figure: str, changed: str = "") -> str:
    """Return the HTML of a figure with a title above it.

    `changed` has the words for what was changed in the run of the model (`AttentionStack.changed`).
    """
    after = f" · after: {changed}" if changed else ""
    title = html.escape(f"{model or 'Attention'} · {view} view{after}")
    return f'<p class="attnviz-title">{title}</p>\n{figure}'


def draw_all_heads(stack: AttentionStack) -> str:
    """Draw all heads of a stack. Return HTML of about 8 kB, with a description but without a title.

    If the text has more than 16 queries, the heat maps show only 16 of them, so that long texts
    take little time.
    """
    maps = _maps_of_all_heads(stack, SIDES[0])
    largest = float(np.abs(maps).max(initial=0))
    num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
    sample = f" of {SIDES[0]} of its queries" if SIDES[0] < num_queries else ""

    def cells(side: int) -> Cells:
        pooled = pool_maps(maps, side, signed=stack.signed)
        return to_color_levels(pooled, largest, signed=stack.signed)

    def describe_omitted(side: int) -> str:
        in_view = "Tokens, numbers and lines are in the interactive view."
        if max(num_queries, num_keys) <= side:
            return in_view
        return (
            f"A map of {num_queries:,} queries and {num_keys:,} keys shows the largest "
            f"{stack.measure}s{sample}, in {min(side, num_queries)} by {min(side, num_keys)} "
            f"cells. {in_view}"
        )

    downwards = " from top to bottom" if len(maps) > 1 else ""
    across = " from left to right" if maps.shape[1] > 1 else ""
    description = (
        f"{stack.measure.capitalize()}s of {format_named('layer', stack.layers)}{downwards} and "
        f"{format_named('head', range(maps.shape[1]))}{across} (stack {stack.name}). In each map, "
        f"queries go down and keys across. {describe_scale(stack, largest)}"
    )
    return draw_grid(cells, make_palette(signed=stack.signed), description, describe_omitted)


def _maps_of_all_heads(stack: AttentionStack, side: int) -> NDArray[np.float32]:
    """Return maps of all heads, (layers, heads, rows, columns).

    Each row of a map has the weights of one query. A map has at most `side` rows and columns. If
    there are more queries, they are sampled. If there are more keys, a number is the maximum of
    several keys (`pool_maps`). If a layer has fewer heads than others, the maps of the missing
    heads are 0.
    """
    queries = sample_queries(len(stack.query_tokens), side)
    num_keys, num_heads = len(stack.key_tokens), max(stack.heads_per_layer)
    shape = len(stack.layers), num_heads, len(queries), min(side, num_keys)
    maps = np.zeros(shape, np.float32)
    pace = Pace("picture", len(stack.layers) * num_heads * len(queries) * num_keys)
    for row, layer in zip(maps, stack.layers, strict=True):
        heads = range(stack.num_heads(layer))
        for part, weights in weights_of_some(stack, layer, heads, queries):
            pooled = pool_maps(weights, side, signed=stack.signed)
            row[heads[part]] = np.nan_to_num(pooled)
            pace.advance(weights.size, len(weights))
    return maps


def draw_grid(
    cells: Callable[[int], Cells],
    palette: NDArray[np.float64],
    description: str,
    describe_omitted: Callable[[int], str],
    sides: Sequence[int] = SIDES,
) -> str:
    """Return HTML with a picture of small maps in rows and columns, and with its description.

    Parameters
    ----------
    cells : callable
        Function of one number: the maximum length of a side of a map in pixels. It returns the
        maps as color indices, (rows of maps, maps in a row, rows, columns). The index 0 is the
        background.
    palette : ndarray
        At most 15 colors, (colors, 3). The first color is the background.
    description : str
        Description of the picture.
    describe_omitted : callable
        Function of the maximum length with which the maps were made. It returns a sentence about
        what the picture does not show.
    sides : sequence of int
        Maximum lengths of a side, from the largest to the smallest. They are tried in this order
        until the PNG has at most `_MAX_PNG_BYTES` bytes. If the PNG always has more, the last
        length is used.
    """
    for side in sides:
        pixels = _join_maps(cells(side))
        picture = encode_png(pixels, np.vstack([palette, _FRAME]))
        if len(picture) <= _MAX_PNG_BYTES:
            break
    width = pixels.shape[1] * min(max(_SHOWN_SIZE // max(pixels.shape), 1), _LARGEST_PIXEL)
    return (
        f'<img alt="{html.escape(description)}" width="{width}" '
        f'src="data:image/png;base64,{base64.b64encode(picture).decode()}">\n'
        f"<p>{html.escape(description)} {html.escape(describe_omitted(side))}</p>"
    )


def describe_scale(stack: AttentionStack, largest: float) -> str:
    """Return a sentence about the color scale of a picture.

    `largest` is the absolute value at the end of the scale.
    """
    if stack.signed:
        return f"Blue is above zero and orange below, up to {format_small(largest)}."
    return f"Darker is more, up to {format_small(largest)}."


def pool_maps(weights: NDArray[np.float32], side: int, *, signed: bool) -> NDArray[np.float32]:
    """Reduce maps, (..., rows, columns), to at most `side` rows and columns.

    Each number of the result is the largest of the numbers that it replaces. For signed numbers, it
    is the number with the largest absolute value.
    """
    parts = split_signs(weights, signed=signed)
    flat = pool_max(parts.reshape(-1, *parts.shape[-2:]), side)
    pooled: NDArray[np.float32] = join_signs(flat.reshape(*parts.shape[:-2], *flat.shape[-2:]))
    return pooled


def make_palette(*, signed: bool, num_levels: int = _LEVELS) -> NDArray[np.float64]:
    """Return the colors for the indices that `to_color_levels` returns, (1 + num_levels, 3)."""
    if signed:
        shares = np.linspace(0, 1, num_levels // 2 + 1)[1:, None]
        colors = [shares * end + (1 - shares) * _BACKGROUND for end in _SIGNS]
        return np.vstack([_BACKGROUND, *colors])
    stops = np.linspace(0, 1, len(_WEIGHTS))
    shares = np.linspace(0, 1, num_levels + 1)[1:]
    channels = [np.interp(shares, stops, channel) for channel in _WEIGHTS.T]
    return np.vstack([_BACKGROUND, np.stack(channels, axis=-1)])


def to_color_levels(
    values: NDArray[np.float32], largest: float, *, signed: bool, num_levels: int = _LEVELS
) -> Cells:
    """Return a color index for each value, from 0 to `num_levels`.

    Values with an absolute value of at least `largest` have the strongest color. Only the value 0
    has index 0, the background, so that a small weight does not look like a masked pair. For signed
    numbers, the first half of the other indices is for positive numbers, and the second half for
    negative numbers.
    """
    num_shades = num_levels // 2 if signed else num_levels
    shares = np.clip(np.abs(values) / (largest or 1.0), 0, 1)
    levels = np.ceil(shares * num_shades)
    return np.where(values < 0, levels + num_shades, levels).astype(np.uint8)


def _join_maps(maps: Cells) -> Cells:
    """Join maps, (rows of maps, maps in a row, rows, columns), to one picture, (height, width).

    Lines with the color index 255 surround the maps.
    """
    rows, columns, height, width = maps.shape
    grid = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1), 255, np.uint8)
    inside = grid[1:, 1:].reshape(rows, height + 1, columns, width + 1)
    inside[:, :height, :, :width] = maps.transpose(0, 2, 1, 3)
    grid[1:, 1:] = inside.reshape(rows * (height + 1), columns * (width + 1))
    return grid


def encode_png(pixels: Cells, palette: NDArray[np.float64]) -> bytes:
    """Return a PNG with 4 bits per pixel.

    `pixels`, (height, width), has indices of colors. `palette` has at most 16 colors, (colors, 3).
    The index 255 stands for the last color.
    """
    height, width = pixels.shape
    numbers = np.minimum(pixels, len(palette) - 1).astype(np.uint8)
    # In PNG, each row begins with the type of its filter. 0 means unfiltered.
    rows = np.zeros((height, 1 + (width + 1) // 2), np.uint8)
    rows[:, 1:] = numbers[:, ::2] << 4
    rows[:, 1 : 1 + width // 2] |= numbers[:, 1::2]
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 4, 3, 0, 0, 0),
        b"PLTE": np.rint(palette).astype(np.uint8).tobytes(),
        b"IDAT": zlib.compress(rows.tobytes()),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )
