"""Attributions of query-key pairs, computed from stored vectors when they are read.

The answer is a number in the model's output, such as the logit of one token minus that of another.
A are the weights of a head, V its values, O = A V its outputs, and G the gradient of the answer
with respect to O. W_O is the output projection. * and / apply to the entries of matrices. G . O is
the dot product of gradient and output, one number per query. |V W_O| is one norm per key. The
attributions are:

    gradient             A * (G V^T)
    knockout gradient    A * (G V^T - G . O) / (1 - A)
    value norm           A * |V W_O|, or A * |(g * V) W_O| if queries have gates g

"gradient" is the decrease of the answer, to first order, if the weight is set to 0 after the
softmax. G V^T is the gradient of the answer with respect to the weights.

"knockout gradient" is the decrease of the answer, to first order, if the pair is removed before the
softmax. If a query has only one key, removing this key makes the output 0. Gradient and knockout
gradient of this pair are then both G . O.

"value norm" is the norm of the vector that the key adds to the residual stream of the query.

The classes store vectors or norms of tokens. They store no array with an attribution for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.masks import without_padding
from attnviz.record.attention import LayerAttention, ScaledAttention
from attnviz.record.masks import Rows
from attnviz.record.softmax import row_tiles

# If a weight A is larger than this, the rounding error of 1 - A is large. The quotient in the
# formula of "knockout gradient" is then computed from the other weights of the query.
_CERTAIN = 1 - 1e-3
# The search for the largest attribution of a head computes the attributions of at most `_MAX_ROWS`
# queries. It computes at most `_MAX_NUMBERS` attributions, but always those of one query.
_MAX_ROWS = 64
_MAX_NUMBERS = 1 << 20


@dataclass(frozen=True, eq=False)
class HeadVectors:
    """Values and outputs of the heads of one attention module, and gradients of the answer.

    Attributes
    ----------
    values : Tensor
        Values, (key_heads, keys, value_dim).
    outputs, gradients : Tensor
        Outputs of the heads, and the gradient of the answer with respect to these outputs, (heads,
        queries, value_dim). The gradient depends on the method: for "integrated gradients" it is a
        mean over scaled outputs, and for "direct" it does not pass through later layers.
    """

    values: torch.Tensor
    outputs: torch.Tensor
    gradients: torch.Tensor

    def select(self, queries: torch.Tensor | None, keys: torch.Tensor | None) -> HeadVectors:
        """Return the vectors of some queries and keys. None selects all."""
        return HeadVectors(
            without_padding(self.values[None], 0, keys),
            without_padding(self.outputs[None], 0, queries),
            without_padding(self.gradients[None], 0, queries),
        )

    def values_of(self, head: int) -> torch.Tensor:
        """Return the values of a query head, (keys, value_dim)."""
        return self.values[head // (len(self.outputs) // len(self.values))]

    def block(self, head: int, rows: Rows, columns: slice) -> tuple[torch.Tensor, ...]:
        """Return the values of some keys, and the outputs and gradients of some queries."""
        values = self.values_of(head)[columns]
        return values.float(), self.outputs[head, rows].float(), self.gradients[head, rows].float()


@dataclass(frozen=True)
class FormulaAttribution(ScaledAttention):
    """Attributions by a formula that a user registered (`attribution_method`).

    Attributes
    ----------
    needed : HeadVectors, ValueNorms or None
        The needs of the formula besides the weights.
    formula : callable
        Function of the weights of some queries and keys of a head, and of ``needed.block``.
    """

    needed: HeadVectors | ValueNorms | None
    formula: Callable[..., torch.Tensor]

    @property
    def bound(self) -> float | None:
        return None

    def scaled(self, weights: torch.Tensor, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        needed = () if self.needed is None else self.needed.block(head, rows, columns)
        tensors = (needed,) if isinstance(needed, torch.Tensor) else needed
        numbers = self.formula(weights, *(tensor.to(weights.device) for tensor in tensors))
        if numbers.shape != weights.shape:
            raise ValueError(
                f"the formula of an attribution method must return (rows, keys), "
                f"{tuple(weights.shape)}; got {tuple(numbers.shape)}"
            )
        return numbers


@dataclass(frozen=True)
class GradientAttribution(ScaledAttention):
    """Attributions of all methods of attnviz that use a gradient.

    Attributes
    ----------
    head_vectors : HeadVectors
        Values, outputs and gradients.
    at : {"weights", "logits"}
        ``"logits"`` applies the formula of "knockout gradient". ``"weights"`` applies that of
        "gradient", which all other methods use. With ``"logits"``, the attribution of a pair is 0
        if its weight is 1 and the query may also attend to other keys, but all of these have the
        weight 0 in float32. It is then unknown which of these keys would get the weight.
    """

    head_vectors: HeadVectors
    at: Literal["weights", "logits"] = "weights"

    @property
    def bound(self) -> float | None:
        """Upper bound of the absolute attributions, or None if the weights have no bound."""
        bound = self.base.bound
        return None if bound is None else bound * max(map(self._most, range(self.num_heads)))

    def _most(self, head: int) -> float:
        """Return an upper bound of the absolute attributions of a head, for weights of at most 1.

        The attributions of a query are at most |G| times the largest norm of a value, or twice this
        for ``"logits"``. Starting with the query that has the largest of these limits, attributions
        are computed until no limit exceeds the largest attribution so far. If `_MAX_ROWS` or
        `_MAX_NUMBERS` ends the search earlier, the result is the limit of the next query, or the
        largest attribution so far if that is larger.
        """
        longest = float(self.head_vectors.values_of(head).float().norm(dim=1).max())
        longest *= 2 if self.at == "logits" else 1
        reach = self.head_vectors.gradients[head].float().norm(dim=1) * longest
        order = reach.argsort(descending=True)
        looked_at = max(1, min(_MAX_ROWS, _MAX_NUMBERS // self.num_keys))
        most = 0.0
        for row in order[:looked_at].tolist():
            if float(reach[row]) <= most:
                return most
            most = max(most, float(self.block([head], slice(row, row + 1)).abs().max()))
        left = [float(reach[row]) for row in order[looked_at : looked_at + 1].tolist()]
        return max([most, *left])

    def scaled(self, weights: torch.Tensor, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        device = weights.device
        values, outputs, gradients = (
            tensor.to(device) for tensor in self.head_vectors.block(head, rows, columns)
        )
        by_weights = gradients @ values.T
        if self.at == "logits":
            along = (gradients * outputs).sum(dim=1, keepdim=True)
            certain = weights > _CERTAIN
            by_weights = (by_weights - along) / (1 - weights).masked_fill(certain, 1.0)
            # The weights of a query sum to at most 1, so at most one of them is nearly 1. Therefore
            # each query occurs at most once in `certain_rows`.
            certain_rows, keys = certain.cpu().nonzero(as_tuple=True)
            numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            for tile in row_tiles(slice(0, len(certain_rows)), self.num_keys):
                chunk = certain_rows[tile], keys[tile]
                exact = self._certain_quotient(head, numbers[chunk[0]], chunk[1] + columns.start)
                by_weights[chunk] = exact.float().to(device)
        return weights * by_weights

    def _certain_quotient(self, head: int, rows: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return (G . v - G . O) / (1 - A) for one key of each query in `rows`.

        v is the value of the key. The weight A of the key is nearly 1, so numerator and denominator
        are differences of nearly equal numbers. Therefore an equal expression is computed in
        float64: G . v minus the sum of A' (G . v') over the other keys of the query, divided by the
        weight of the other keys and the sink. If the query has only one key, the result is G . v.
        If the other keys and the sink have no weight, the result is 0.
        """
        alone = self.base.allowed([head], rows)[0].sum(dim=1) == 1
        others = self.base.block([head], rows)[0].cpu().double()
        others.scatter_(1, keys[:, None], 0.0)
        left = others.sum(dim=1)
        sinks = getattr(self.base, "sinks", None)
        if sinks is not None:
            normalizers = self.base.normalizers([head], rows)[0, 0].cpu().double()
            left += torch.exp(sinks[head].cpu().double() - normalizers)
        values = self.head_vectors.values_of(head).double()
        along = self.head_vectors.gradients[head, rows].double() @ values.T
        mean = (along * others).sum(dim=1) / left.clamp_min(torch.finfo(torch.float64).tiny)
        own = along.gather(1, keys[:, None])[:, 0]
        # Removing the only key of a query makes the output 0, so nothing is subtracted from `own`.
        # If a query has other keys, but they and the sink have no weight, the result is 0.
        return torch.where(alone, own, (own - mean).masked_fill(left == 0, 0.0))


@dataclass(frozen=True, eq=False)
class ValueNorms:
    """Norm of the vector that each key adds to the residual stream for a weight of 1.

    Without a gate, it is the same for all queries. With a gate, the value is multiplied by the gate
    of the query before the projection.

    Attributes
    ----------
    values, rows, gates : Tensor or None
        Values (heads, keys, value_dim), rows of the output projection (heads, value_dim, axes), and
        gates (heads, queries, value_dim), if the heads have gates.
    norms : Tensor or None
        (heads, keys), if the heads have no gates.
    """

    values: torch.Tensor | None = None
    rows: torch.Tensor | None = None
    gates: torch.Tensor | None = None
    norms: torch.Tensor | None = None

    def select(self, queries: torch.Tensor | None, keys: torch.Tensor | None) -> ValueNorms:
        """Return the norms of some queries and keys. None selects all."""

        def some(
            tensor: torch.Tensor | None, positions: torch.Tensor | None
        ) -> torch.Tensor | None:
            return tensor if tensor is None or positions is None else tensor[:, positions.cpu()]

        return ValueNorms(
            some(self.values, keys), self.rows, some(self.gates, queries), some(self.norms, keys)
        )

    @property
    def num_keys(self) -> int:
        """Number of keys."""
        return self._gated()[0].shape[1] if self.norms is None else self.norms.shape[1]

    @cached_property
    def maximum(self) -> float:
        """Upper bound of all norms."""
        if self.norms is not None:
            return float(self.norms.max())
        values, rows, gates = self._gated()
        # A gated value is at most as long as the value times the largest gate of the head.
        largest = gates.amax(dim=(1, 2)) * values.norm(dim=-1).amax(dim=1)
        return float((largest * torch.linalg.matrix_norm(rows, 2)).max())

    def block(self, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        """Return the norms for some queries and keys of a head, (rows or 1, columns)."""
        if self.norms is not None:
            return self.norms[head, None, columns]
        values, projection, gates = self._gated()
        norms = [
            ((values[head, columns] * gate) @ projection[head]).norm(dim=-1)
            for gate in gates[head, rows]
        ]
        return torch.stack(norms) if norms else torch.empty(0, columns.stop - columns.start)

    def _gated(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if self.values is None or self.rows is None or self.gates is None:
            raise TypeError("values, rows and gates must be passed together")
        return self.values, self.rows, self.gates


@dataclass(frozen=True)
class NormAttribution(ScaledAttention):
    """Attributions of the method "value norm": weight times norm (Kobayashi et al. 2020).

    Attributes
    ----------
    norms : ValueNorms
        Norm of each key's value after the gate of the query, if there is one, and after the output
        projection.
    """

    norms: ValueNorms

    @property
    def bound(self) -> float | None:
        """Bound of the norms times that of the weights, or None if the weights have no bound."""
        bound = self.base.bound
        return None if bound is None else bound * self.norms.maximum

    def scaled(self, weights: torch.Tensor, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        return weights * self.norms.block(head, rows, columns).to(weights.device)


@dataclass(frozen=True)
class MixedLayers(LayerAttention):
    """Attributions of the methods "rollout" and "relevance": a product of matrices of layers.

    The attributions of layer l are the matrix ``R = M_l ... M_1 M_0``, with one matrix M for each
    layer up to layer l. This matrix is the only head of the layer. It has the share of each input
    token (columns) in the hidden state of each token after layer l (rows). For rollout (Abnar and
    Zuidema 2020, arXiv 2005.00928), M = A / 2 + I / 2, where A is the mean of the layer's weights
    over the heads that this layer has in the model, and I is the identity. For relevance (Chefer et
    al. 2021, arXiv 2103.15679, equations 5 and 6), M = I + P, where P is the mean of the layer's
    positive attributions by "gradient" over the same heads. Only the requested rows of R are
    computed, and no matrix M is stored.

    Attributes
    ----------
    layers : tuple of LayerAttention
        Layers from the first to layer l. Queries and keys of all layers are the same tokens.
    own : float
        Factor of I in M: 0.5 for rollout, 1 for relevance.
    positive : bool
        Whether negative numbers are set to 0 before the heads are averaged, as for relevance.
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
        return all(layer.causal for layer in self.layers)

    def block(
        self,
        heads: Sequence[int],
        rows: Rows,
        columns: slice | None = None,
        normalizers: torch.Tensor | None = None,
    ) -> torch.Tensor:
        del heads, normalizers
        positions = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows.numpy()
        product = np.zeros((len(positions), self.num_keys))
        product[np.arange(len(product)), positions] = 1.0
        for layer in reversed(self.layers):
            mixed = self.own * product
            for part in row_tiles(slice(0, self.num_queries), self.num_keys):
                columns_of_layer = product[:, part]
                if columns_of_layer.any():
                    mixed += columns_of_layer @ self._mean(layer, part)
            product = mixed
        shown = product if columns is None else product[:, columns]
        return torch.from_numpy(shown.astype(np.float32))[None]

    def _mean(self, layer: LayerAttention, rows: slice) -> NDArray[np.float64]:
        """Return some rows of a layer's matrix M without the summand I or I / 2, (rows, keys)."""
        total = np.zeros((rows.stop - rows.start, self.num_keys))
        for head in range(layer.num_heads):
            block = layer.block([head], rows)[0].cpu().numpy()
            total += np.maximum(block, 0) if self.positive else block
        share = 1.0 if self.positive else 1 - self.own
        return total * (share / layer.num_heads)


def uniform_share_of_first(num_tokens: int, num_layers: int) -> float:
    """Return the attribution of the last token to the first by rollout, for uniform attention.

    In uniform causal attention, each query has the same weight on all keys up to itself. The result
    is a baseline for rollout. It depends only on the numbers of tokens and layers.

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
