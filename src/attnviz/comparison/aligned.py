"""A record on the units that it has in common with another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.comparison.alignment import Alignment, Positions
from attnviz.record.attention import DerivedAttention, LayerAttention
from attnviz.record.stack import AttentionStack
from attnviz.record.words import MergedWeights

__all__ = ["AlignedWeights", "aligned_layers"]


@dataclass(frozen=True)
class AlignedWeights(DerivedAttention):
    """A layer's attention with rows and columns that it has not, all zero.

    Attributes
    ----------
    base : LayerAttention
        The attention between the units that are there.
    query_units, key_units : ndarray
        int64, ascending: for each row and column of `base` the unit that it is.
    num_query_units, num_key_units : int
        How many units there are.
    """

    query_units: Positions
    key_units: Positions
    num_query_units: int
    num_key_units: int

    @property
    def merged(self) -> bool:
        """Whether rows and columns are made of several tokens."""
        return self.base.merged

    @property
    def num_queries(self) -> int:
        """Number of units that are rows."""
        return self.num_query_units

    @property
    def num_keys(self) -> int:
        """Number of units that are columns."""
        return self.num_key_units

    @property
    def causal(self) -> bool:
        """Whether no unit may look ahead: so it is where rows and columns are the same units."""
        return self.base.causal and np.array_equal(self.query_units, self.key_units)

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns); 0 in rows and columns not there."""
        found = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.float32)
        (base_rows, here), (base_columns, there) = self._within(rows, columns)
        if len(here) and len(there):
            found[np.ix_(here, there)] = self.base.weights(head, base_rows, base_columns)
        return found

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether a unit may attend to another, (rows, columns); False where one is missing."""
        found = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.bool_)
        (base_rows, here), (base_columns, there) = self._within(rows, columns)
        if len(here) and len(there):
            found[np.ix_(here, there)] = self.base.allowed(head, base_rows, base_columns)
        return found

    def _within(
        self, rows: slice, columns: slice
    ) -> tuple[tuple[slice, Positions], tuple[slice, Positions]]:
        return _inside(self.query_units, rows), _inside(self.key_units, columns)


def _inside(units: Positions, wanted: slice) -> tuple[slice, Positions]:
    """The rows of a base that are among the wanted units, and where in these they stand."""
    start, stop = np.searchsorted(units, [wanted.start, wanted.stop]).tolist()
    return slice(start, stop), units[start:stop] - wanted.start


def aligned_layers(
    stack: AttentionStack, queries: Alignment, keys: Alignment, side: str
) -> dict[int, LayerAttention]:
    """The layers of a stack on common units; `side` is ``"a"`` or ``"b"``.

    Keys of a unit are summed and its queries averaged, as where words are merged. A layer whose
    tokens are units already is given back as it is.
    """
    return {
        number: _aligned(stack.attention(number), queries, keys, side) for number in stack.layers
    }


def _aligned(
    attention: LayerAttention, queries: Alignment, keys: Alignment, side: str
) -> LayerAttention:
    rows, columns = _starts(queries, side), _starts(keys, side)
    if len(rows) < attention.num_queries or len(columns) < attention.num_keys:
        attention = MergedWeights(attention, rows, columns)
    if len(rows) == len(queries) and len(columns) == len(keys):
        return attention
    return AlignedWeights(
        attention, _present(queries, side), _present(keys, side), len(queries), len(keys)
    )


def _present(alignment: Alignment, side: str) -> Positions:
    """Units that have tokens on a side."""
    return np.flatnonzero(_lengths(alignment, side))


def _starts(alignment: Alignment, side: str) -> Positions:
    """The first token of each unit that has tokens on a side."""
    lengths = _lengths(alignment, side)
    starts: Positions = (np.cumsum(lengths) - lengths)[lengths > 0]
    return starts


def _lengths(alignment: Alignment, side: str) -> Positions:
    return alignment.a_lengths if side == "a" else alignment.b_lengths
