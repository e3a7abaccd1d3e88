"""Layers of a record on the units that it shares with another record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.inserted import Insertion
from attnviz.record.stack import AttentionStack
from attnviz.record.words import MergedWeights

__all__ = ["aligned_layers"]

Positions = NDArray[np.int64]
#: Number of tokens of each unit, int64, (units,).
Units = Positions


def aligned_layers(stack: AttentionStack, queries: Units, keys: Units) -> dict[int, LayerAttention]:
    """Return the layers of a stack on common units.

    `queries` and `keys` are the numbers of tokens of each unit. If a unit has several tokens, the
    weights on its keys are summed, and those of its queries are averaged, as for merged words. Only
    the weights of a merged layer are left. A unit without tokens becomes a masked row or column. If
    tokens and units are the same, a layer is returned unchanged.
    """
    insert = Insertion(np.flatnonzero(queries), np.flatnonzero(keys), len(queries), len(keys))
    return {
        number: _aligned(stack.attention(number), queries, keys, insert) for number in stack.layers
    }


def _aligned(
    attention: LayerAttention, queries: Units, keys: Units, insert: Insertion
) -> LayerAttention:
    rows, columns = _starts(queries), _starts(keys)
    if len(rows) < attention.num_queries or len(columns) < attention.num_keys:
        attention = _merged(attention, rows, columns)
    if len(rows) == len(queries) and len(columns) == len(keys):
        return attention
    return insert.into(attention)


def _merged(attention: LayerAttention, rows: Positions, columns: Positions) -> MergedWeights:
    if isinstance(attention, MergedWeights):
        # Merge the tokens, and not the words: a mean of means would weight the tokens unequally.
        rows, columns = attention.query_starts[rows], attention.key_starts[columns]
        attention = attention.base
    return MergedWeights(attention, rows, columns)


def _starts(lengths: Units) -> Positions:
    """Return the first token of each unit that has tokens."""
    starts: Positions = (np.cumsum(lengths) - lengths)[lengths > 0]
    return starts
