"""Picture that a notebook stores with a live view: a few heads as heat maps, with their tokens.

The picture is drawn without a browser, because notebooks may run without a browser. The number of
weights is limited, so that drawing takes little time. The description is HTML below the picture.
Users can select this text, and it has the colors of the notebook. The picture has a white
background, which is readable in light and dark themes.
"""

from __future__ import annotations

import base64
import html
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import weights_of_some
from attnviz.pages.picture import (
    add_title,
    describe_scale,
    encode_png,
    make_palette,
    pool_maps,
    to_color_levels,
)
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens, quote
from attnviz.utils.arguments import format_named
from attnviz.utils.numbers import format_small

#: Maximum number of weights that are computed for a picture, in about 0.1 s on one core.
MAX_WEIGHTS = 1 << 23
# Maximum number of queries and of keys for which a map has token labels and one cell per weight.
_MAX_LABELLED = 40
# Maximum number of rows and columns of a map with more than `_MAX_LABELLED` queries or keys. The
# rows are sampled queries. A cell can show the maximum of several keys.
_MAX_CELLS = 48
_MAX_HEADS = 4
# Maximum width of the picture in pixels. The column of a notebook is usually wider.
_MAX_WIDTH = 860

# Size of a cell in a labelled map, in pixels: with up to `_FEW_TOKENS` tokens, and with more
# tokens.
_CELL, _SMALL_CELL, _FEW_TOKENS = 16, 12, 24
# Length of the longer side of a map without labels, in pixels.
_POOLED_SIDE = 320
_MARGIN, _GAP, _LINE = 12, 20, 16
_FONT_SIZE = 11
# Width of a character in a monospaced font, as a fraction of the font size.
_CHARACTER = 0.61
_MAX_CHARACTERS = 14
# Rotation of column labels in degrees.
_ANGLE = 55
_INK, _MUTED, _FRAME = "#1c1f26", "#5b6270", "#c9ced8"

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _Layout(NamedTuple):
    """Sizes of the parts of a picture, in pixels, and the labels of its maps.

    Attributes
    ----------
    height, width : int
        Size of a map.
    cell : int
        Size of a cell in a labelled map, or 0 if maps have no labels.
    left : int
        Distance of the first map from the left edge.
    rows, columns : list of str
        Labels of the queries and of the keys. Empty if maps have no labels.
    """

    height: int
    width: int
    cell: int
    left: int
    rows: list[str]
    columns: list[str]


def make_saved_still(model: str, view: str, figure: str) -> str:
    """Return the HTML of a figure with a title above it and a note below it.

    The note says that the picture was saved with a live view.
    """
    note = (
        "This picture was saved with a live view. Run its cell to use the view, with all layers, "
        "heads, tokens and numbers."
    )
    return f"{add_title(model, view, figure)}\n<p><small>{note}</small></p>"


def draw_heads_still(
    stack: AttentionStack, layer: int, heads: Sequence[int], token: int | None = None
) -> str:
    """Draw heads of a layer as heat maps. Return HTML with a picture and its description.

    Parameters
    ----------
    stack : AttentionStack
        Stack to draw.
    layer : int
        Number of the layer, as the model counts it.
    heads : sequence of int
        Heads to draw, or all heads of the layer if empty. Only the first heads that fit into the
        width are drawn, at most four.
    token : int, optional
        Index of the pinned query, whose label is bold if the map has labels.
    """
    queries, keys = stack.query_tokens, stack.key_tokens
    longest = max(len(queries), len(keys))
    labelled = longest <= _MAX_LABELLED
    layout = _layout(queries, keys)
    room = (_MAX_WIDTH - layout.left - _MARGIN + _GAP) // (layout.width + _GAP)
    # `heads` is empty in a view in which the user has not selected heads yet.
    available = list(heads) or list(range(stack.num_heads(layer)))
    drawn = available[: max(1, min(_MAX_HEADS, room))]
    cells, num_rows = _cells(stack, layer, drawn)
    largest = float(np.abs(cells).max(initial=0))
    svg = _svg(stack, drawn, cells, layout, token)
    heads_in_words = format_named("head", drawn)
    num_omitted = len(available) - len(drawn)
    chosen = " chosen" if heads else ""
    of_total = f" (of {len(available)}{chosen})" if num_omitted else ""
    description = (
        f"{stack.measure.capitalize()}s of layer {layer}, {heads_in_words}{of_total}, stack "
        f"{stack.name}. Queries go down and keys across. {describe_scale(stack, largest)}"
    )
    if labelled and token is not None:
        description += f" The pinned query is {quote(queries.text[token])}, token {token}."
    if not labelled:
        row_count = f"{num_rows} of the" if num_rows < len(queries) else "each of the"
        cell_content = "the largest of its part of" if len(keys) > _MAX_CELLS else "one of"
        description += (
            f" A map has a row for {row_count} {len(queries):,} queries, and a cell shows "
            f"{cell_content} the {len(keys):,} keys."
        )
    picture = base64.b64encode(svg.encode()).decode()
    return (
        f'<img alt="{html.escape(description)}" style="max-width: 100%" '
        f'src="data:image/svg+xml;base64,{picture}">\n<p>{html.escape(description)}</p>'
    )


def _layout(queries: Tokens, keys: Tokens) -> _Layout:
    longest = max(len(queries), len(keys))
    if longest > _MAX_LABELLED:
        height, width = (
            max(round(_POOLED_SIDE * len(side) / longest), _CELL) for side in (queries, keys)
        )
        return _Layout(height, width, 0, _MARGIN, [], [])
    cell = _CELL if longest <= _FEW_TOKENS else _SMALL_CELL
    rows = _labels(queries)
    left = _MARGIN + _label_width(rows)
    return _Layout(len(queries) * cell, len(keys) * cell, cell, left, rows, _labels(keys))


def _cells(
    stack: AttentionStack, layer: int, heads: Sequence[int]
) -> tuple[NDArray[np.float32], int]:
    """Return the cells of the maps, (heads, rows, columns), and the number of queries used."""
    num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
    pooled = max(num_queries, num_keys) > _MAX_LABELLED
    affordable = max(1, MAX_WEIGHTS // (len(heads) * max(num_keys, 1)))
    rows = sample_queries(num_queries, min(_MAX_CELLS, affordable))
    maps = []
    for _, weights in weights_of_some(stack, layer, heads, rows):
        numbers = np.nan_to_num(weights)
        maps.append(
            pool_maps(numbers, (len(rows), _MAX_CELLS), signed=stack.signed) if pooled else numbers
        )
    return np.concatenate(maps), len(rows)


def _svg(
    stack: AttentionStack,
    heads: Sequence[int],
    cells: NDArray[np.float32],
    layout: _Layout,
    token: int | None,
) -> str:
    height, width, cell, left, rows, columns = layout
    largest = float(np.abs(cells).max(initial=0))
    palette = make_palette(signed=stack.signed)
    levels = to_color_levels(cells, largest, signed=stack.signed)
    label_width = _label_width(columns)
    head_line = _LINE if len(heads) > 1 else 0
    top = _MARGIN + head_line + round(label_width * np.sin(np.radians(_ANGLE)))
    # Leave space at the right for the rotated label of the last column, which extends beyond the
    # map.
    right = _MARGIN + round(label_width * np.cos(np.radians(_ANGLE)))
    parts = []
    for index, head in enumerate(heads):
        x = left + index * (width + _GAP)
        if len(heads) > 1:
            parts.append(_text(x, _MARGIN + _FONT_SIZE, f"head {head}", bold=True))
        for column, label in enumerate(columns):
            position = f"{x + (column + 0.6) * cell:g} {top - 4}"
            rotation = f' transform="translate({position}) rotate(-{_ANGLE})"'
            parts.append(_text(0, 0, label, extra=rotation))
        parts.append(_image(levels[index], palette, (x, top, width, height)))
    parts += [
        _text(
            left - 5,
            top + row * cell + cell / 2 + _FONT_SIZE * 0.35,
            label,
            bold=row == token,
            extra=' text-anchor="end"',
        )
        for row, label in enumerate(rows)
    ]
    legend = top + height + 14
    count = len(palette)
    half = (count - 1) // 2
    # Color indices of the legend. For signed numbers, it goes from the most negative to the most
    # positive number.
    order = [*range(count - 1, half, -1), 0, *range(1, half + 1)] if stack.signed else range(count)
    low = f"−{format_small(largest)}" if stack.signed else "0"
    x = left + _text_width(low) + 6
    parts += [
        _text(left, legend + 9, low, color=_MUTED),
        _image(np.array([list(order)], np.uint8), palette, (x, legend, 120, 10)),
        _text(x + 126, legend + 9, f"{format_small(largest)} {stack.measure}", color=_MUTED),
    ]
    total_width = max(
        left + len(heads) * (width + _GAP) - _GAP + right,
        x + 126 + _text_width(f"{format_small(largest)} {stack.measure}") + _MARGIN,
    )
    total_height = legend + 10 + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width}" height="{total_height}" '
        f'viewBox="0 0 {total_width} {total_height}" font-size="{_FONT_SIZE}" '
        'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace">'
        f'<rect width="{total_width}" height="{total_height}" rx="6" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>"
    )


def _image(
    levels: NDArray[np.uint8], palette: NDArray[np.float64], box: tuple[float, float, float, float]
) -> str:
    """Return an SVG image of color indices, with a frame. `box` is x, y, width and height."""
    x, y, width, height = box
    png = base64.b64encode(encode_png(levels, palette)).decode()
    return (
        f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        'preserveAspectRatio="none" style="image-rendering: pixelated" '
        f'href="data:image/png;base64,{png}"/>'
        f'<rect x="{x - 0.5:g}" y="{y - 0.5:g}" width="{width + 1:g}" height="{height + 1:g}" '
        f'fill="none" stroke="{_FRAME}"/>'
    )


def _text(
    x: float, y: float, text: str, *, bold: bool = False, color: str = _INK, extra: str = ""
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{color}" xml:space="preserve"{weight}{extra}>'
        f"{html.escape(text)}</text>"
    )


def _labels(tokens: Tokens) -> list[str]:
    """Return the labels of tokens.

    Characters that XML forbids are replaced, and long tokens are cut.
    """
    texts = (_NOT_IN_XML.sub("�", text) for text in tokens.text)
    return [
        text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
        for text in texts
    ]


def _label_width(labels: Sequence[str]) -> int:
    return max(map(_text_width, labels), default=-5) + 5


def _text_width(text: str) -> int:
    num_cells = sum(
        2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text
    )
    return round(num_cells * _FONT_SIZE * _CHARACTER)
