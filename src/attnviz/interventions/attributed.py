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

from attnviz.record.attention import LayerAttention, ReweightedAttention
from attnviz.record.softmax import tiles

__all__ = ["GradientAttribution", "MixedLayers", "NormAttribution", "uniform_share_of_first"]


@dataclass(frozen=True)
class GradientAttribution(ReweightedAttention):
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
class NormAttribution(ReweightedAttention):
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


@dataclass(frozen=True)
class MixedLayers(LayerAttention):
    """What each token of a layer holds of the tokens of the input: layers multiplied.

    ``R = M_l ... M_1 M_0`` with the layers' matrices M, heads averaged. Rollout (Abnar and Zuidema
    2020, arXiv 2005.00928) has M = A / 2 + I / 2, relevance (Chefer et al. 2021, arXiv 2103.15679,
    equations 5 and 6) M = I + (gradient x A)+. One head; rows are computed by products of a few
    rows with each layer, so that no matrix of all tokens is held.

    Attributes
    ----------
    layers : tuple of LayerAttention
        From the first to this one, all with the same tokens as queries and keys.
    own : float
        What M has of I: a half or 1.
    positive : bool
        Whether negative numbers are left out before heads are averaged.
    """

    layers: tuple[LayerAttention, ...]
    own: float
    positive: bool = False

    @property
    def num_heads(self) -> int:
        """1."""
        return 1

    @property
    def num_queries(self) -> int:
        """Number of rows."""
        return self.layers[0].num_queries

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.layers[0].num_keys

    @property
    def causal(self) -> bool:
        """Whether no query of any layer may look ahead, as far as the masks say."""
        return all(layer.causal for layer in self.layers)

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """A block of the product, float32, (rows, columns)."""
        del head
        held = np.zeros((rows.stop - rows.start, self.num_keys))
        held[np.arange(len(held)), np.arange(rows.start, rows.stop)] = 1.0
        for layer in reversed(self.layers):
            mixed = self.own * held
            for part in tiles(slice(0, self.num_queries), self.num_keys):
                some = held[:, part]
                if some.any():
                    mixed += some @ self._mean(layer, part)
            held = mixed
        return held[:, columns].astype(np.float32)

    def _mean(self, layer: LayerAttention, rows: slice) -> NDArray[np.float64]:
        """Rows of a layer's matrix without I, float64, (rows, keys)."""
        total = np.zeros((rows.stop - rows.start, self.num_keys))
        for head in layer.kept_heads:
            block = layer.weights(head, rows, slice(0, self.num_keys))
            total += np.maximum(block, 0) if self.positive else block
        share = 1.0 if self.positive else 1 - self.own
        return total * (share / len(layer.kept_heads))


def uniform_share_of_first(num_tokens: int, num_layers: int) -> float:
    """What rollout gives the first token from the last one where all causal attention is even.

    >>> uniform_share_of_first(2, 1)
    0.25
    """
    held = np.zeros(num_tokens)
    held[-1] = 1.0
    for _ in range(num_layers):
        # Query i has 1 / (i + 1) on each of the keys 0 to i.
        spread = (held / np.arange(1, num_tokens + 1))[::-1].cumsum()[::-1]
        held = (held + spread) / 2
    return float(held[0])
