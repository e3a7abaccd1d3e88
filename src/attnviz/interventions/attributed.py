"""Attributions of query-key pairs, computed from vectors on request.

A are the weights, V the values, O = A V the outputs of a head, and G the gradient of the answer
with respect to O:

    gradient             A * (G V^T)
    knockout gradient    A * (G V^T - G . O) / (1 - A)
    value norm           A * |V W_O|

The first is the loss of the answer, to first order, if the weight is cut after the softmax. The
second is the loss if the pair is cut before the softmax: G V^T is the gradient with respect to the
weights, and A * (G V^T - G . O) with respect to the logits. A query without keys has the output 0,
so that both are G . O for the only key of a query. The third is the norm of what a key adds to the
residual stream. No matrix of queries times keys is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, ScaledAttention
from attnviz.record.masks import Rows
from attnviz.record.softmax import row_tiles

__all__ = ["GradientAttribution", "MixedLayers", "NormAttribution", "uniform_share_of_first"]

# Above this weight, 1 - weight has few correct digits. The quotient is then computed from the other
# weights of the row.
_CERTAIN = 1 - 1e-3
# Limits of the search for the largest number of a head: rows, and numbers in them.
_ROWS_LOOKED_AT = 64
_LOOKED_AT = 1 << 20


@dataclass(frozen=True)
class GradientAttribution(ScaledAttention):
    """Attributions by a gradient at the outputs of the heads.

    Attributes
    ----------
    values : Tensor
        (key_heads, keys, value_dim).
    outputs, gradients : Tensor
        (heads, queries, value_dim): outputs of all heads, and the gradient with respect to them.
    at : {"weights", "logits"}
        Whether the pair is cut after the softmax (weights) or before it (logits). The only key of a
        query has the same number in both cases. If one of several keys has the weight 1 and all
        others have 0 in float32, its number is 0, because it is unknown which keys would get its
        weight.
    """

    values: torch.Tensor
    outputs: torch.Tensor
    gradients: torch.Tensor
    at: Literal["weights", "logits"] = "weights"

    @property
    def bound(self) -> float | None:
        """Upper bound of the absolute numbers. It is usually the largest one."""
        bound = self.base.bound
        return None if bound is None else bound * max(map(self._most, range(self.num_heads)))

    def _most(self, head: int) -> float:
        """Return an upper bound of the absolute numbers of a head, for weights of at most 1.

        The number of a query is at most |G| |v| for weights, and |G| times the distance of two
        values for logits. The queries with the largest |G| are computed, until no other query can
        have a larger number.
        """
        values = self.values[head // (len(self.outputs) // len(self.values))].float()
        longest = float(values.norm(dim=1).max()) * (2 if self.at == "logits" else 1)
        reach = self.gradients[head].float().norm(dim=1) * longest
        order = reach.argsort(descending=True)
        looked_at = max(1, min(_ROWS_LOOKED_AT, _LOOKED_AT // self.num_keys))
        most = 0.0
        for row in order[:looked_at].tolist():
            if float(reach[row]) <= most:
                return most
            block = self.weights(head, slice(row, row + 1), slice(0, self.num_keys))
            most = max(most, float(np.abs(block).max()))
        left = [float(reach[row]) for row in order[looked_at : looked_at + 1].tolist()]
        return max([most, *left])

    def scaled(self, weights: torch.Tensor, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        group, device = len(self.outputs) // len(self.values), weights.device
        gradients = self.gradients[head, rows].float().to(device)
        by_weights = gradients @ self.values[head // group, columns].float().to(device).T
        if self.at == "logits":
            outputs = self.outputs[head, rows].float().to(device)
            along = (gradients * outputs).sum(dim=1, keepdim=True)
            certain = weights > _CERTAIN
            by_weights = (by_weights - along) / (1 - weights).masked_fill(certain, 1.0)
            # Each row has at most one certain key.
            certain_rows, keys = certain.cpu().nonzero(as_tuple=True)
            numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            for tile in row_tiles(slice(0, len(certain_rows)), self.num_keys):
                chunk = certain_rows[tile], keys[tile]
                exact = self._of_certain(head, numbers[chunk[0]], chunk[1] + columns.start)
                by_weights[chunk] = exact.float().to(device)
        return weights * by_weights

    def _of_certain(self, head: int, rows: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return (G . v_key - G . O) / (1 - A) for one key per row, whose weight A is nearly 1.

        G is the gradient at the output O of the query. For the only key of a query, the result is
        G . v_key. For other keys, it equals G . v_key minus the weighted mean of G . v over the
        other keys of the query. This mean is computed in float64, because numerator and denominator
        of the formula are differences of nearly equal numbers.
        """
        group = len(self.outputs) // len(self.values)
        weights, allowed = self.base.weights_of_rows(head, rows.numpy())
        alone = torch.from_numpy(allowed.sum(axis=1) == 1)
        others = torch.from_numpy(weights).double()
        others.scatter_(1, keys[:, None], 0.0)
        left = others.sum(dim=1)
        along = self.gradients[head, rows].double() @ self.values[head // group].double().T
        mean = (along * others).sum(dim=1) / left.clamp_min(torch.finfo(torch.float64).tiny)
        own = along.gather(1, keys[:, None])[:, 0]
        # The output of a query without keys is 0.
        return torch.where(alone, own, (own - mean).masked_fill(left == 0, 0.0))


@dataclass(frozen=True)
class NormAttribution(ScaledAttention):
    """Weights times the norm of what each key's value adds (Kobayashi et al. 2020).

    Attributes
    ----------
    norms : Tensor
        float32, (heads, keys).
    """

    norms: torch.Tensor

    @property
    def bound(self) -> float | None:
        """Upper bound of the numbers: the largest norm."""
        bound = self.base.bound
        return None if bound is None else bound * float(self.norms.max())

    def scaled(self, weights: torch.Tensor, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        del rows
        return weights * self.norms[head, columns].to(weights.device)


@dataclass(frozen=True)
class MixedLayers(LayerAttention):
    """Product of the matrices of layers: the share of each input token in each token of a layer.

    ``R = M_l ... M_1 M_0`` with the matrices M of the layers, averaged over heads. Rollout (Abnar
    and Zuidema 2020, arXiv 2005.00928) has M = A / 2 + I / 2. Relevance (Chefer et al. 2021, arXiv
    2103.15679, equations 5 and 6) has M = I + (gradient x A)+. The result has one head. A few rows
    at a time are multiplied with each layer, so that no matrix of all tokens is stored.

    Attributes
    ----------
    layers : tuple of LayerAttention
        Layers from the first to this one, all with the same tokens as queries and keys.
    own : float
        Factor of I in M: 0.5 or 1.
    positive : bool
        Whether negative numbers are set to 0 before heads are averaged.
    """

    layers: tuple[LayerAttention, ...]
    own: float
    positive: bool = False

    @property
    def num_heads(self) -> int:
        return 1

    @property
    def num_queries(self) -> int:
        return self.layers[0].num_queries

    @property
    def num_keys(self) -> int:
        return self.layers[0].num_keys

    @property
    def causal(self) -> bool:
        """Whether the masks of all layers are causal."""
        return all(layer.causal for layer in self.layers)

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        del head
        product = np.zeros((rows.stop - rows.start, self.num_keys))
        product[np.arange(len(product)), np.arange(rows.start, rows.stop)] = 1.0
        for layer in reversed(self.layers):
            mixed = self.own * product
            for part in row_tiles(slice(0, self.num_queries), self.num_keys):
                columns_of_layer = product[:, part]
                if columns_of_layer.any():
                    mixed += columns_of_layer @ self._mean(layer, part)
            product = mixed
        return product[:, columns].astype(np.float32)

    def _mean(self, layer: LayerAttention, rows: slice) -> NDArray[np.float64]:
        """Return rows of a layer's mean over heads, without the identity, float64, (rows, keys)."""
        total = np.zeros((rows.stop - rows.start, self.num_keys))
        for head in range(layer.num_heads):
            block = layer.weights(head, rows, slice(0, self.num_keys))
            total += np.maximum(block, 0) if self.positive else block
        share = 1.0 if self.positive else 1 - self.own
        return total * (share / layer.num_heads)


def uniform_share_of_first(num_tokens: int, num_layers: int) -> float:
    """Return the rollout of the last token on the first if all causal attention is uniform.

    >>> uniform_share_of_first(2, 1)
    0.25
    """
    shares = np.zeros(num_tokens)
    shares[-1] = 1.0
    for _ in range(num_layers):
        # Query i has the weight 1 / (i + 1) on each of the keys 0 to i.
        spread = (shares / np.arange(1, num_tokens + 1))[::-1].cumsum()[::-1]
        shares = (shares + spread) / 2
    return float(shares[0])
