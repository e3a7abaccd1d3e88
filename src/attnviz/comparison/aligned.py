"""Attention layers with one row and one column per unit of an alignment.

A unit is a group of neighbouring tokens of one text and the corresponding tokens of another text,
see `attnviz.comparison.alignment`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.inserted import Insertion
from attnviz.record.stack import AttentionStack
from attnviz.record.words import MergedWeights

Positions = NDArray[np.int64]
#: Number of tokens that one text has in each unit, int64, (units,).
Units = Positions


def aligned_layers(stack: AttentionStack, queries: Units, keys: Units) -> dict[int, LayerAttention]:
    """Return the layers of a stack with units in place of tokens.

    `queries` has the number of query tokens of the stack in each unit, and `keys` the number of key
    tokens. If a unit has several tokens, the columns of its keys are summed, and the rows of its
    queries are averaged. The layers then have weights, but no query and key vectors. If a unit has
    no token, its row or column is masked. If each unit has exactly one token, the layers are
    returned unchanged.
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
        # The layer has words in place of tokens. The rows of the original tokens are averaged,
        # because the mean of the words' means would give less weight to tokens of long words.
        rows, columns = attention.query_starts[rows], attention.key_starts[columns]
        attention = attention.base
    return MergedWeights(attention, rows, columns)


def _starts(lengths: Units) -> Positions:
    """Return the position of the first token of each unit that has tokens."""
    starts: Positions = (np.cumsum(lengths) - lengths)[lengths > 0]
    return starts
