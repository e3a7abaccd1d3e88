"""Attributions of pairs of query and key, computed from vectors when they are asked for.

With A the weights, V the values, O = A V the outputs of a head and G the target's gradient at O,

    gradient             A * (G V^T)
    knockout gradient    A * (G V^T - G . O) / (1 - A)
    value norm           A * |V W_O|

The first is what the target loses, to first order, where the weight is cut after the softmax, the
second where the pair is cut before it: G V^T is the target's gradient by the weights, and
A * (G V^T - G . O) that by the logits. A query without keys has an output of 0, so that the second
of a query's only key is the first: G . O. The third is the length of what a key adds to the stream.
Nothing of queries times keys is held.
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

# From this weight on 1 - weight has so few digits that a quotient by it is computed from the other
# weights of the row.
_CERTAIN = 1 - 1e-3
# Rows of a head, and numbers in them, that are computed to find its largest one.
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
        (heads, queries, value_dim): the outputs of all heads, and the target's gradient there.
    at : {"weights", "logits"}
        Whether it is that of the weights or, divided by what is left of the row, of the logits. The
        only key of a query has the same number in both. If one of several keys has a weight
        of 1 and all others have 0 in float32, its number is 0: it is unknown which keys get its
        weight.
    """

    values: torch.Tensor
    outputs: torch.Tensor
    gradients: torch.Tensor
    at: Literal["weights", "logits"] = "weights"

    @property
    def bound(self) -> float | None:
        """What no number exceeds in size: the largest itself, where few rows can have it."""
        bound = self.base.bound
        return None if bound is None else bound * max(map(self._most, range(self.num_heads)))

    def _most(self, head: int) -> float:
        """What no number of a head exceeds, for weights of 1 at most.

        A number of a query is at most |G| |v| in size, for logits |G| times the distance of two
        values. The queries with the largest |G| are computed, until no other can have more.
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
        """Attributions of a head's block."""
        group, device = len(self.outputs) // len(self.values), weights.device
        gradients = self.gradients[head, rows].float().to(device)
        by_weights = gradients @ self.values[head // group, columns].float().to(device).T
        if self.at == "logits":
            outputs = self.outputs[head, rows].float().to(device)
            along = (gradients * outputs).sum(dim=1, keepdim=True)
            certain = weights > _CERTAIN
            by_weights = (by_weights - along) / (1 - weights).masked_fill(certain, 1.0)
            # One a row at most.
            places, keys = certain.cpu().nonzero(as_tuple=True)
            numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            for tile in row_tiles(slice(0, len(places)), self.num_keys):
                some = places[tile], keys[tile]
                found = self._of_certain(head, numbers[some[0]], some[1] + columns.start)
                by_weights[some] = found.float().to(device)
        return weights * by_weights

    def _of_certain(self, head: int, rows: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """(G . v_key - G . O) / (1 - A) of keys with nearly all of their row, one a row.

        For a query's only key it is G . v_key. For others it is that less the mean of G . v over
        the other keys, by their weights: float64, and no difference of two numbers that are nearly
        the same.
        """
        group = len(self.outputs) // len(self.values)
        found, allowed = self.base.weights_of_rows(head, rows.numpy())
        alone = torch.from_numpy(allowed.sum(axis=1) == 1)
        others = torch.from_numpy(found).double()
        others.scatter_(1, keys[:, None], 0.0)
        left = others.sum(dim=1)
        along = self.gradients[head, rows].double() @ self.values[head // group].double().T
        mean = (along * others).sum(dim=1) / left.clamp_min(torch.finfo(torch.float64).tiny)
        own = along.gather(1, keys[:, None])[:, 0]
        # Without its only key a query's output is 0.
        return torch.where(alone, own, (own - mean).masked_fill(left == 0, 0.0))


@dataclass(frozen=True)
class NormAttribution(ScaledAttention):
    """Weights times the length of what each key's value adds (Kobayashi et al. 2020).

    Attributes
    ----------
    norms : Tensor
        float32, (heads, keys).
    """

    norms: torch.Tensor

    @property
    def bound(self) -> float | None:
        """What no number exceeds: the longest."""
        bound = self.base.bound
        return None if bound is None else bound * float(self.norms.max())

    def scaled(self, weights: torch.Tensor, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        """Weights times norms of a head's block."""
        del rows
        return weights * self.norms[head, columns].to(weights.device)


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
            for part in row_tiles(slice(0, self.num_queries), self.num_keys):
                some = held[:, part]
                if some.any():
                    mixed += some @ self._mean(layer, part)
            held = mixed
        return held[:, columns].astype(np.float32)

    def _mean(self, layer: LayerAttention, rows: slice) -> NDArray[np.float64]:
        """Rows of a layer's matrix without I, float64, (rows, keys)."""
        total = np.zeros((rows.stop - rows.start, self.num_keys))
        for head in range(layer.num_heads):
            block = layer.weights(head, rows, slice(0, self.num_keys))
            total += np.maximum(block, 0) if self.positive else block
        share = 1.0 if self.positive else 1 - self.own
        return total * (share / layer.num_heads)


def uniform_share_of_first(num_tokens: int, num_layers: int) -> float:
    """What rollout gives the first token from the last one where all causal attention is uniform.

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
