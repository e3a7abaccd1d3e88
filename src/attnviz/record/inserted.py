"""Insertion of rows and columns into the attention of a layer, to compare two texts.

The inserted rows and columns belong to units that only the other text has. A unit is a token, or a
word if tokens were merged into words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import DerivedAttention, LayerAttention, QueryKeyAttention
from attnviz.record.masks import Bias, InsertedBias, InsertedMask, Mask, Rows, inserted_block

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class AlignedWeights(DerivedAttention):
    """Attention with inserted rows and columns of zeros, for layers without queries and keys.

    Attributes
    ----------
    base : LayerAttention
        Attention between the original units.
    query_units, key_units : ndarray
        int64, ascending: position of each row and column of `base` after the insertion.
    num_query_units, num_key_units : int
        Number of rows and number of columns after the insertion.
    """

    query_units: Positions
    key_units: Positions
    num_query_units: int
    num_key_units: int

    @property
    def merged(self) -> bool:
        return self.base.merged

    @property
    def num_queries(self) -> int:
        return self.num_query_units

    @property
    def num_keys(self) -> int:
        return self.num_key_units

    @property
    def causal(self) -> bool:
        """Whether the mask is known to forbid all later keys.

        False if units are not inserted at the same positions among the queries and the keys.
        """
        return self.base.causal and np.array_equal(self.query_units, self.key_units)

    def block(
        self,
        heads: Sequence[int],
        rows: Rows,
        columns: slice | None = None,
        normalizers: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return a block of weights. Inserted rows and columns are 0."""
        del normalizers
        return self._insert(self.base.block, heads, rows, columns)

    def allowed(
        self, heads: Sequence[int], rows: Rows, columns: slice | None = None
    ) -> torch.Tensor:
        """Return whether each pair is allowed, which is False if one of its units is inserted."""
        return self._insert(self.base.allowed, heads, rows, columns)

    def _insert(
        self,
        block_of: Callable[[Sequence[int], Rows, slice], torch.Tensor],
        heads: Sequence[int],
        rows: Rows,
        columns: slice | None,
    ) -> torch.Tensor:
        """Return a block of the weights or flags of `base`, with zeros for inserted units.

        `block_of` returns a block of `base` from the heads, rows and columns.
        """
        units = torch.from_numpy(self.query_units), torch.from_numpy(self.key_units)
        columns = columns or slice(0, self.num_keys)
        return inserted_block(units, rows, columns, partial(block_of, heads))


class Insertion:
    """Insertion of the same rows and columns into several layers.

    Layers that share a mask or bias also share it after the insertion.

    Parameters
    ----------
    queries, keys : ndarray
        int64, ascending: position of each existing row and column after the insertion.
    num_queries, num_keys : int
        Number of rows and number of columns after the insertion.
    """

    def __init__(
        self, queries: Positions, keys: Positions, num_queries: int, num_keys: int
    ) -> None:
        self._numpy = queries, keys
        self._units = torch.from_numpy(queries), torch.from_numpy(keys)
        self._sizes = num_queries, num_keys
        self._masks: dict[int, InsertedMask] = {}
        self._biases: dict[int, InsertedBias] = {}

    def into(self, attention: LayerAttention) -> LayerAttention:
        """Return `attention` with the inserted rows and columns."""
        if isinstance(attention, QueryKeyAttention):
            return self._vectors(attention)
        return AlignedWeights(attention, *self._numpy, *self._sizes)

    def _vectors(self, attention: QueryKeyAttention) -> QueryKeyAttention:
        mask, bias = attention.mask, attention.bias
        if id(mask) not in self._masks:
            self._masks[id(mask)] = self._mask(mask)
        if bias is not None and id(bias) not in self._biases:
            self._biases[id(bias)] = self._bias(bias)
        return replace(
            attention,
            queries=_spread(attention.queries, self._units[0], self._sizes[0]),
            keys=_spread(attention.keys, self._units[1], self._sizes[1]),
            mask=self._masks[id(mask)],
            bias=None if bias is None else self._biases[id(bias)],
        )

    def _mask(self, mask: Mask | None) -> InsertedMask:
        if isinstance(mask, InsertedMask):
            return InsertedMask(mask.base, *self._composed_units(mask), *self._sizes)
        return InsertedMask(mask, *self._units, *self._sizes)

    def _bias(self, bias: Bias) -> InsertedBias:
        if isinstance(bias, InsertedBias):
            return InsertedBias(bias.base, *self._composed_units(bias), *self._sizes)
        return InsertedBias(bias, *self._units, *self._sizes)

    def _composed_units(
        self, part: InsertedMask | InsertedBias
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the positions of the original units of `part` after a second insertion.

        `part` already contains units from a first insertion.
        """
        return self._units[0][part.query_units], self._units[1][part.key_units]


def _spread(vectors: torch.Tensor, units: torch.Tensor, count: int) -> torch.Tensor:
    """Insert zero vectors for inserted tokens. Return `vectors` itself if none is inserted."""
    if len(units) == count:
        return vectors
    spread = vectors.new_zeros(vectors.shape[0], count, vectors.shape[2])
    spread[:, units.to(vectors.device)] = vectors
    return spread
