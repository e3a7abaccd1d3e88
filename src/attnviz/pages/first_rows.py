"""The rows that a page opens with, once more by themselves.

A view of a longer text opens with some of its queries. A page has their rows before its code, and
the layer that they are of after it: a browser reads and inflates less before the first picture.
What is shown is the same: the codes of the rows are those of the layer.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from attnviz.pages.packing import packed
from attnviz.pages.strongest import ENCODING, some_rows
from attnviz.utils.progress import Progress, Steps

__all__ = ["FirstRows", "first_rows_block"]

#: Rows of a layer with a shorter text are not worth being there twice.
LEAST = 50_000
# Nor are those that are most of it.
_MOST_SHARE = 0.5


class FirstRows(NamedTuple):
    """Which rows a page opens with.

    Attributes
    ----------
    stack, layer : str, int
        Where they are.
    start, stop : int
        The first query, and the one after the last.
    """

    stack: str
    layer: int
    start: int
    stop: int


def first_rows_block(
    blocks: Iterable[Mapping[str, Any]], wanted: FirstRows
) -> Steps[dict[str, Any] | None]:
    """Rows of one of some blocks, as a block of its own.

    Parameters
    ----------
    blocks : iterable of dict
        Layers in either form (`attnviz.pages.encoding`).
    wanted : FirstRows
        Which rows.

    Returns
    -------
    dict or None
        As the layer's block, and ``rows``, the first query and the one after the last. None where
        no block is of the layer, or the rows would not be much less than it.
    """
    place = wanted.stack, wanted.layer
    block = next((each for each in blocks if (each["stack"], each["layer"]) == place), None)
    if block is None or len(block["data"]) < LEAST:
        return None
    data = zlib.decompress(base64.b64decode(block["data"]))
    yield Progress("packing", 0, 2, "step")
    rows = wanted.start, wanted.stop
    cut = some_rows if block["encoding"] == ENCODING else _rows_of_all
    header, part = cut(block, data, *rows)
    yield Progress("packing", 1, 2, "step")
    text = packed(part)
    yield Progress("packing", 2, 2, "step")
    if len(text) > _MOST_SHARE * len(block["data"]):
        return None
    return {**block, **header, "rows": list(rows), "data": text}


def _rows_of_all(
    header: Mapping[str, Any], data: bytes, start: int, stop: int
) -> tuple[dict[str, Any], bytes]:
    """Rows of a block of all weights, one byte each or two: what its header says, and its bytes."""
    heads, num_rows, columns = header["shape"]
    widths = np.clip(np.arange(num_rows) + 1 + header["reach"], 0, columns)
    ends = np.concatenate([[0], np.cumsum(widths)])
    # All first bytes of codes, and then all second.
    codes = np.frombuffer(data, np.uint8).reshape(-1, heads, ends[-1])
    # The first of the rows reaches further than the first of the layer.
    reach = min(columns, header["reach"] + start)
    said = {"shape": [heads, stop - start, columns], "reach": reach}
    return said, codes[..., ends[start] : ends[stop]].tobytes()
