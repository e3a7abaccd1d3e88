"""Statistics of heads as an atlas sends them: the table, the edges and the tokens around them."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.atlas.description import (
    AtlasDescription,
    AtlasEdges,
    AtlasStack,
    AtlasTable,
    AtlasTexts,
)

__all__ = [
    "deflated",
    "describe_atlas",
    "edges_of",
    "packed_edges",
    "packed_table",
    "packed_texts",
    "table_of",
    "texts_of",
]

# Significant digits of what is measured over texts; of a weight, whose edges are many.
_DIGITS, _WEIGHT_DIGITS = 5, 4


def describe_atlas(statistics: Any, *, opens_texts: bool) -> AtlasDescription:
    """What an atlas is of, and the names of all that it tells of heads."""
    return {
        "model": statistics.model,
        "texts": int(statistics.texts),
        "tokens": int(statistics.tokens),
        "left_out": int(statistics.left_out),
        "notes": list(statistics.notes),
        "stacks": [_described(statistics.stack(name)) for name in statistics.stack_names],
        "opens_texts": opens_texts,
    }


def packed_table(stack: Any) -> bytes:
    """`table_of`, deflated."""
    return deflated(table_of(stack))


def packed_edges(stack: Any, layer: int) -> bytes:
    """`edges_of`, deflated."""
    return deflated(edges_of(stack, layer))


def packed_texts(statistics: Any, stack: Any) -> bytes:
    """`texts_of`, deflated."""
    return deflated(texts_of(statistics, stack))


def deflated(content: Any) -> bytes:
    """JSON as the requests of an atlas send it."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode("ascii"))


def _described(stack: Any) -> AtlasStack:
    raise NotImplementedError


def table_of(stack: Any) -> AtlasTable:
    """Numbers and roles of every head of a stack."""
    raise NotImplementedError


def edges_of(stack: Any, layer: int) -> AtlasEdges:
    """Edges of a layer's heads."""
    raise NotImplementedError


def texts_of(statistics: Any, stack: Any) -> AtlasTexts:
    """The tokens around all edges."""
    raise NotImplementedError


def _rows(layers: Iterable[NDArray[np.float64]]) -> list[list[float | None]]:
    """Numbers fit for JSON by layer and head; None where one is not defined."""
    return [[_number(value) for value in layer] for layer in layers]


def _number(value: float, digits: int = _DIGITS) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
