"""Picture that a notebook stores with a live view: a few heads as heat maps, with their tokens.

A map is the heat map of one head, in which queries go down and keys across.

A live view is a widget, which needs a kernel. Readers who open the notebook without a kernel see
the picture. It is drawn without a browser, because notebooks may run without a browser. The number
of computed weights is limited, so that drawing takes little time. Below the picture is a
description in HTML. Users can select this text, and it has the colors of the notebook. The picture
has a white background, so that it is readable in light and dark themes.
"""

from __future__ import annotations

import base64
import html
import re
import unicodedata
from collections.abc import Sequence
from itertools import starmap

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import weights_of_some
from attnviz.pages.colors import LIGHT
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
from attnviz.record.tokens import quote
from attnviz.server.weights import Combine
from attnviz.utils.arguments import format_named
from attnviz.utils.numbers import format_small

#: Maximum number of weights that are computed for a picture, unless a single query of its heads has
#: more. Computing them takes about 0.1 s on one core.
MAX_WEIGHTS = 1 << 23
# If a map has at most this many queries and at most this many keys, it has the tokens as labels,
# and one cell for each weight.
_MAX_LABELLED = 40
# Maximum number of rows and columns of a map with more queries or keys than `_MAX_LABELLED`. If
# there are more queries, the rows are sampled queries. If there are more keys, a cell shows the
# maximum of several keys. The default window of a long text has this many tokens.
_MAX_CELLS = 64
# Maximum number of heads in a picture.
_MAX_HEADS = 4
# Maximum width in pixels of all maps of a picture together, with the labels of their rows. A single
# map can be wider. The column of a notebook is usually wider than this width.
_MAX_WIDTH = 860

# Size in pixels of a cell in a map with labels. It is `_CELL`, or `_SMALL_CELL` if the map has more
# than `_FEW_TOKENS` queries or keys.
_CELL, _SMALL_CELL, _FEW_TOKENS = 16, 12, 24
# Maximum length in pixels of the longer side of a map without labels. Several maps are smaller, so
# that `_MAX_HEADS` of them fit into `_MAX_WIDTH`.
_POOLED_SIDE = 320
# Sizes in pixels: the space at the edges of the picture and between two maps, the height of the
# line with the numbers of the heads, the space between a label and its map, and the font size.
_MARGIN, _GAP, _LINE, _LABEL_GAP = 12, 20, 16, 5
_FONT_SIZE = 11
# Width of a character in a monospaced font, as a fraction of the font size.
_CHARACTER = 0.61
# Maximum number of characters of a label.
_MAX_CHARACTERS = 14
# Angle in degrees between the horizontal and the labels of columns.
_ANGLE = 55
# Colors of labels, of the texts at the color scale, and of the frames around maps.
_INK, _MUTED, _FRAME = LIGHT["ink"], LIGHT["muted"], "#c9ced8"

# Characters that XML does not allow.
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def make_saved_still(model: str, view: str, figure: str, changed: str = "") -> str:
    """Return the HTML of a figure with a title above it and a note below it.

    `figure` is HTML with a picture. The note says that the picture was saved with a live view.
    `changed` is that of `add_title`.
    """
    note = (
        "This picture was saved with a live view. Run its cell to use the view, with all layers, "
        "heads, tokens and numbers."
    )
    return f"{add_title(model, view, figure, changed)}\n<p><small>{note}</small></p>"


def draw_heads_still(
    stack: AttentionStack,
    layer: int,
    heads: Sequence[int],
    token: int | None = None,
    combine: Combine = "separate",
    *,
    windows: tuple[Sequence[int], Sequence[int]] | None = None,
) -> str:
    """Draw heads of a layer as heat maps. Return HTML with a picture and its description.

    Parameters
    ----------
    stack : AttentionStack
        Stack to draw.
    layer : int
        Number of the layer, as the model counts it.
    heads : sequence of int
        Heads to draw, or all heads of the layer if empty. At least one and at most four of them are
        drawn: the first ones that fit into the width of the picture.
    token : int, optional
        Index of the pinned query, which the user selected with a click. Its row has a bold label,
        and the description names it.
    combine : {"separate", "mean", "max"}
        Whether to draw a map of each head, or one map of their mean or of their largest weights.
    windows : tuple of two sequences of int, optional
        Ranges of queries and of keys to draw, each (start, stop). By default, all are drawn.
    """
    stack_size = len(stack.query_tokens), len(stack.key_tokens)
    queries, keys = starmap(range, windows or [(0, size) for size in stack_size])
    pinned = [token] if token is not None and token in queries else []
    # `heads` is empty if no heads are selected in the view.
    available = list(heads) or list(range(stack.num_heads(layer)))
    separate = combine == "separate" or len(available) == 1
    longest = max(len(queries), len(keys))
    labelled = longest <= _MAX_LABELLED
    columns = _labels([stack.key_tokens.text[key] for key in keys]) if labelled else []
    labelled_queries = queries if labelled else pinned
    row_labels = _labels([stack.query_tokens.text[query] for query in labelled_queries])
    left = _MARGIN + max(map(_text_width, row_labels), default=-_LABEL_GAP) + _LABEL_GAP
    room = _MAX_WIDTH - left - _MARGIN + _GAP
    num_maps = min(_MAX_HEADS, len(available)) if separate else 1
    labelled_cell = _SMALL_CELL if longest > _FEW_TOKENS else _CELL
    cell = labelled_cell if labelled else min(_POOLED_SIDE, room // num_maps - _GAP) / longest
    height, width = (max(round(len(side) * cell), _CELL) for side in (queries, keys))
    num_fitting = max(1, min(num_maps, room // (width + _GAP)))
    drawn = available[:num_fitting] if separate else available
    rows = _rows(queries, len(stack.key_tokens) * len(drawn), pinned)
    maps = _maps(stack, layer, drawn, combine, rows=rows, keys=keys)
    largest = float(np.abs(maps).max(initial=0))
    levels = to_color_levels(maps, largest, signed=stack.signed)

    column_width = max(map(_text_width, columns), default=-_LABEL_GAP) + _LABEL_GAP
    top = (
        _MARGIN + (_LINE if len(maps) > 1 else 0) + round(column_width * np.sin(np.radians(_ANGLE)))
    )
    # Leave space at the right for the rotated label of the last column, which extends beyond the
    # map.
    right = _MARGIN + round(column_width * np.cos(np.radians(_ANGLE)))
    parts = []
    for index, (head, _) in enumerate(zip(drawn, maps, strict=False)):
        x = left + index * (width + _GAP)
        if len(maps) > 1:
            parts.append(_text(x, _MARGIN + _FONT_SIZE, f"head {head}", bold=True))
        for column, label in enumerate(columns):
            position = f"{x + (column + 0.6) * cell:g} {top - 4}"
            rotation = f' transform="translate({position}) rotate(-{_ANGLE})"'
            parts.append(_text(0, 0, label, extra=rotation))
        parts.append(
            _image(levels[index], make_palette(signed=stack.signed), (x, top, width, height))
        )
    labels = dict(zip(labelled_queries, row_labels, strict=True))
    first_baseline = top + 0.5 * height / len(rows) + _FONT_SIZE * 0.35
    parts += [
        _text(
            left - _LABEL_GAP,
            first_baseline + row * height / len(rows),
            labels[query],
            bold=query == token,
            extra=' text-anchor="end"',
        )
        for row, query in enumerate(rows.tolist())
        if query in labels
    ]

    legend_top = top + height + 14
    legend, legend_right = _legend(stack, largest, left, legend_top)
    total_width = max(left + len(maps) * (width + _GAP) - _GAP + right, legend_right + _MARGIN)
    total_height = legend_top + 10 + _MARGIN
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width}" height="{total_height}" '
        f'viewBox="0 0 {total_width} {total_height}" font-size="{_FONT_SIZE}" '
        'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace">'
        f'<rect width="{total_width}" height="{total_height}" rx="6" fill="{LIGHT["background"]}"/>'
        f"{''.join(parts)}{legend}</svg>"
    )

    combined = "" if separate else f"{'mean' if combine == 'mean' else 'largest'} of "
    total = f"{len(available)}{' chosen' if heads else ''}"
    of_total = f" (the first {len(drawn)} of {total})" if len(available) > len(drawn) else ""
    description = (
        f"{stack.measure.capitalize()}s of layer {layer}, {combined}{format_named('head', drawn)}"
        f"{of_total}, stack {stack.name}. Queries go down and keys across. "
        f"{describe_scale(stack, largest)}"
    )
    if not labelled or (len(queries), len(keys)) != stack_size:
        description += _describe_cells(stack, len(rows), queries, keys)
    if token is not None:
        description += (
            f" The pinned query is {quote(stack.query_tokens.text[token])}, token {token}"
            f"{'' if pinned else ', outside these'}."
        )
    return (
        f'<img alt="{html.escape(description)}" style="max-width: 100%" '
        f'src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}">\n'
        f"<p>{html.escape(description)}</p>"
    )


def _legend(stack: AttentionStack, largest: float, left: float, top: float) -> tuple[str, float]:
    """Return the color scale as SVG, and the x coordinate of its right end in pixels."""
    palette = make_palette(signed=stack.signed)
    order = np.arange(len(palette), dtype=np.uint8)
    if stack.signed:
        # Sort the colors from the most negative to the most positive number.
        half = len(palette) // 2
        order = np.concatenate([order[:half:-1], order[: half + 1]])
    low = f"−{format_small(largest)}" if stack.signed else "0"
    high = f"{format_small(largest)} {stack.measure}"
    scale = left + _text_width(low) + 6
    parts = (
        _text(left, top + 9, low, color=_MUTED),
        _image(order[None], palette, (scale, top, 120, 10)),
        _text(scale + 126, top + 9, high, color=_MUTED),
    )
    return "".join(parts), scale + 126 + _text_width(high)


def _describe_cells(stack: AttentionStack, num_rows: int, queries: range, keys: range) -> str:
    """Return a sentence about the rows and cells of maps of a part of a text, or of a long text."""
    row_count = f"{num_rows} of the" if num_rows < len(queries) else "each of the"
    cell_content = "the largest of its part of" if len(keys) > _MAX_CELLS else "one of"
    shown_queries = _name_range("queries", queries, len(stack.query_tokens))
    shown_keys = _name_range("keys", keys, len(stack.key_tokens))
    return (
        f" A map has a row for {row_count} {shown_queries}, and a cell shows {cell_content} the "
        f"{shown_keys}."
    )


def _name_range(name: str, shown: range, count: int) -> str:
    """Return "1,000 queries", or "queries 36 to 99 (of 1,000)" for a window of the text."""
    if len(shown) == count:
        return f"{count:,} {name}"
    return f"{name} {shown[0]} to {shown[-1]} (of {count:,})"


def _rows(queries: range, num_weights: int, pinned: Sequence[int]) -> NDArray[np.int64]:
    """Return the queries that have a row, in ascending order, and among them those in `pinned`.

    They are sampled if there are more than `_MAX_CELLS`, or if all of them would need more than
    `MAX_WEIGHTS` weights. `num_weights` is the number of weights of one query.
    """
    affordable = max(1, MAX_WEIGHTS // max(num_weights, 1))
    rows = queries.start + sample_queries(len(queries), min(_MAX_CELLS, affordable))
    for query in pinned:
        rows[np.abs(rows - query).argmin()] = query
    return rows


def _maps(
    stack: AttentionStack,
    layer: int,
    heads: Sequence[int],
    combine: Combine,
    *,
    rows: NDArray[np.int64],
    keys: range,
) -> NDArray[np.float32]:
    """Return the maps of heads, (maps, rows, columns), with at most `_MAX_CELLS` columns.

    A row has the weights of one query. If there are more than `_MAX_CELLS` keys, a cell has the
    maximum of several keys (`pool_maps`).
    """
    shown = slice(keys.start, keys.stop)
    parts = [weights[..., shown] for _, weights in weights_of_some(stack, layer, heads, rows)]
    if combine == "mean":
        parts = [sum(weights.sum(0, keepdims=True) for weights in parts) / len(heads)]
    elif combine == "max":
        together = np.concatenate(parts)
        largest = np.abs(together).argmax(0)
        parts = [np.take_along_axis(together, largest[None], 0)]
    maps = [pool_maps(weights, _MAX_CELLS, signed=stack.signed) for weights in parts]
    return np.nan_to_num(np.concatenate(maps))


def _image(
    levels: NDArray[np.uint8], palette: NDArray[np.float64], box: tuple[float, float, float, float]
) -> str:
    """Return an SVG image of a map with a frame around it.

    `levels` has the index of a color of `palette` for each cell. `box` is x, y, width and height.
    """
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


def _labels(tokens: Sequence[str]) -> list[str]:
    """Return the labels of tokens.

    Characters that XML does not allow are replaced, and tokens with more than `_MAX_CHARACTERS`
    characters are cut.
    """
    texts = (_NOT_IN_XML.sub("�", text) for text in tokens)
    return [
        text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
        for text in texts
    ]


def _text_width(text: str) -> int:
    num_cells = sum(
        2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text
    )
    return round(num_cells * _FONT_SIZE * _CHARACTER)
