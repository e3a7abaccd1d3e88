"""Attributions of pairs of query and key, computed from vectors when they are asked for.

With A the weights, V the values, O = A V the outputs of a head and G the target's gradient at O,

    gradient             A * (G V^T)
    knockout gradient    A * (G V^T - G . O) / (1 - A)
    value norm           A * |V W_O|

The first is what the target loses, to first order, where the weight is cut after the softmax, the
second where the pair is cut before it: G V^T is the target's gradient by the weights, and
A * (G V^T - G . O) that by the logits. The third is the length of what a key adds to the stream.
Nothing of queries times keys is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import DerivedAttention

__all__ = ["GradientAttribution", "NormAttribution"]


@dataclass(frozen=True)
class _PairAttribution(DerivedAttention):
    """What the attributions share: the rows, columns and mask of the weights."""

    @property
    def num_queries(self) -> int:
        """Number of rows."""
        return self.base.num_queries

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.base.num_keys

    @property
    def causal(self) -> bool:
        """Whether no query may look ahead, as far as the mask says."""
        return self.base.causal

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether the mask lets queries attend to keys, bool, (rows, columns)."""
        return self.base.allowed(head, rows, columns)


@dataclass(frozen=True)
class GradientAttribution(_PairAttribution):
    """Attributions by a gradient at the outputs of the heads.

    Attributes
    ----------
    values : Tensor
        (key_heads, keys, value_dim).
    outputs, gradients : Tensor
        (heads, queries, value_dim): the outputs of all heads, and the target's gradient there.
    at : {"weights", "logits"}
        Whether it is that of the weights or, divided by what is left of the row, of the logits.
    """

    values: torch.Tensor
    outputs: torch.Tensor
    gradients: torch.Tensor
    at: Literal["weights", "logits"] = "weights"

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Attributions of a head's block, float32, (rows, columns)."""
        weights = torch.from_numpy(self.base.weights(head, rows, columns))
        group = len(self.outputs) // len(self.values)
        gradients = self.gradients[head, rows].float()
        by_weights = gradients @ self.values[head // group, columns].float().T
        if self.at == "logits":
            along = (gradients * self.outputs[head, rows].float()).sum(dim=1, keepdim=True)
            # A key that has all of a row is what its output is: both differences vanish.
            rest = (1 - weights).clamp_min(torch.finfo(torch.float32).eps)
            by_weights = (by_weights - along) / rest
        found: NDArray[np.float32] = (weights * by_weights).numpy()
        return found


@dataclass(frozen=True)
class NormAttribution(_PairAttribution):
    """Weights times the length of what each key's value adds (Kobayashi et al. 2020).

    Attributes
    ----------
    norms : Tensor
        float32, (heads, keys).
    """

    norms: torch.Tensor

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights times norms of a head's block, float32, (rows, columns)."""
        norms: NDArray[np.float32] = self.norms[head, columns].numpy()
        return self.base.weights(head, rows, columns) * norms
