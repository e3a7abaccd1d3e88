"""A record on the units that it has in common with another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.inserted import Insertion
from attnviz.record.stack import AttentionStack
from attnviz.record.words import MergedWeights

__all__ = ["aligned_layers"]

Positions = NDArray[np.int64]
#: How many tokens each unit has, int64, (units,).
Units = Positions


def aligned_layers(stack: AttentionStack, queries: Units, keys: Units) -> dict[int, LayerAttention]:
    """The layers of a stack on common units; of each unit, how many tokens it has.

    Keys of a unit are summed and its queries averaged, as where words are merged. Where no unit has
    several tokens, queries and keys stay known: the missing ones are inserted, and masked. A layer
    whose tokens are units already is given back as it is.
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
        # Of words the tokens are summed and averaged, and not the words once more.
        rows, columns = attention.query_starts[rows], attention.key_starts[columns]
        attention = attention.base
    return MergedWeights(attention, rows, columns)


def _starts(lengths: Units) -> Positions:
    """The first token of each unit that has tokens."""
    starts: Positions = (np.cumsum(lengths) - lengths)[lengths > 0]
    return starts
