"""Weights that a read selects: heads of a layer, a range of queries and a range of keys.

The weights of a head are a matrix, whose rows are queries and whose columns are keys. Several heads
can be combined to one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.masks import Rows
from attnviz.record.stack import AttentionStack
from attnviz.server.row_normalizers import RowNormalizers
from attnviz.server.zeros import kinds_of_pairs
from attnviz.utils.arguments import format_numbers
from attnviz.utils.progress import Pace

#: Use of several heads: a matrix for each head ("separate"), or one matrix, which has the mean or
#: the maximum of the weights of all heads.
Combine = Literal["separate", "mean", "max"]


@dataclass(frozen=True)
class Weights:
    """Selected weights of a layer, which are computed in parts.

    Attributes
    ----------
    layer, heads : int, list of int
        Numbers of the layer and of its heads.
    rows, columns : slice
        Ranges of queries and of keys.
    combine : {"separate", "mean", "max"}
        Use of several heads. For signed numbers, the maximum is the number with the largest
        absolute value.
    row_normalizers : RowNormalizers
        Cache of softmax normalizers.
    """

    stack: AttentionStack
    layer: int
    heads: list[int]
    rows: slice
    columns: slice
    combine: Combine = "separate"
    row_normalizers: RowNormalizers = field(default_factory=RowNormalizers)

    @property
    def attention(self) -> LayerAttention:
        return self.stack.attention(self.layer)

    @property
    def num_rows(self) -> int:
        return len(range(self.rows.start, self.rows.stop))

    @property
    def num_columns(self) -> int:
        return len(range(self.columns.start, self.columns.stop))

    @property
    def matrices(self) -> list[list[int]]:
        """Heads of each matrix: one head, or all heads if they are combined."""
        return [[head] for head in self.heads] if self.combine == "separate" else [self.heads]

    @property
    def label(self) -> str:
        """Name of the weights in error messages."""
        how = "" if self.combine == "separate" else f"{self.combine} of "
        heads = format_numbers(sorted(self.heads))
        return f"stack {self.stack.name!r}, layer {self.layer}, {how}heads {heads}"

    def block(
        self, heads: Sequence[int], rows: Rows, *, cached: bool = True, pace: Pace | None = None
    ) -> torch.Tensor:
        """Compute the weights of some heads and rows, (heads, rows, columns), in a new tensor.

        `cached` and `pace` are those of `RowNormalizers.block`.
        """
        return self.row_normalizers.block(
            self.stack, self.layer, heads, rows, self.columns, cached=cached, pace=pace
        )

    def matrix(
        self, heads: Sequence[int], rows: Rows, *, cached: bool = True, pace: Pace | None = None
    ) -> torch.Tensor:
        """Compute some rows of the combined weights of `heads`, one entry of `matrices`.

        The result has the shape (rows, columns). The rows of at most two heads are in memory at the
        same time.
        """
        block = partial(self.block, rows=rows, cached=cached, pace=pace)
        weights: torch.Tensor
        [weights] = block(heads[:1])
        for head in heads[1:]:
            [other] = block([head])
            if self.combine == "mean":
                weights.add_(other)
            elif self.stack.signed:
                weights = torch.where(other.abs() > weights.abs(), other, weights)
            else:
                weights = torch.maximum(weights, other)
        return weights.div_(len(heads)) if self.combine == "mean" else weights

    def combined(self) -> torch.Tensor:
        """Compute the weights of all matrices, (matrices, rows, columns)."""
        if self.combine == "separate":
            return self.block(self.heads, self.rows)
        return self.matrix(self.heads, self.rows)[None]

    def kinds(self, rows: Rows) -> NDArray[np.uint8]:
        """Return the kind of each pair in some rows, as `kinds_of_pairs` does."""
        kinds = kinds_of_pairs(self.attention, self.heads, rows, self.columns)
        return kinds if self.combine == "separate" else kinds.max(axis=0, keepdims=True)
