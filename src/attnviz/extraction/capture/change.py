"""Attention that is changed while a model runs.

The model's own attention function computes as always. Then the output of some heads at some queries
is written over by what other weights give. What is not changed keeps the model's own bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.check import uses_sink_as_gate
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import Positions
from attnviz.record.attention import GivenWeights, LayerAttention, QueryKeyAttention
from attnviz.record.softmax import tiles

__all__ = ["ForwardChange", "LayerChange", "apply_change", "check_changeable", "edit_weights"]


@dataclass(frozen=True)
class LayerChange:
    """What is changed in one layer; heads by the model's numbers, queries without padding.

    Attributes
    ----------
    attend : callable
        Takes the layer's attention, and gives what it attends with instead.
    rows : mapping of int to ndarray
        For each head that attends otherwise its queries that do, int64, ascending.
    factors : mapping of int to float
        For each head what its output is multiplied with, at every query.
    shape : tuple of int
        How many queries and keys the layer has.
    """

    attend: Callable[[LayerAttention], LayerAttention]
    rows: Mapping[int, NDArray[np.int64]]
    factors: Mapping[int, float]
    shape: tuple[int, int]

    @property
    def heads(self) -> tuple[int, ...]:
        """Heads that are changed, ascending."""
        return tuple(sorted({*self.rows, *self.factors}))


#: What is changed in a forward: by a module's path, and by which of its runs it is.
ForwardChange = Mapping[tuple[str, int], LayerChange]


def check_changeable(call: AttentionCall, name: str, windows: int) -> None:
    """Raise NotImplementedError where a module's attention cannot be changed.

    `name` is its path in the model.
    """
    kind = type(call.module).__name__
    reason = None
    if call.weights is not None:
        reason = "computes its attention in one function, or in a way that cannot be followed"
    elif windows > 1:
        reason = "attends in windows"
    elif call.num_examples > 1:
        reason = f"attends for {call.num_examples} examples at once"
    elif uses_sink_as_gate(call.module):
        reason = "multiplies its output with a gate that depends on the sink"
    elif call.value is None or not _is_laid_out(call):
        reason = "gives an output that is not (batch, queries, heads, value_dim)"
    if reason is not None:
        raise NotImplementedError(
            f"changes: {name} ({kind}) {reason}, where nothing can be changed yet; give layers= or "
            "stack= without it"
        )


def _is_laid_out(call: AttentionCall) -> bool:
    value, output = call.value, call.output
    return (
        isinstance(output, torch.Tensor)
        and value is not None
        and tuple(output.shape) == (1, call.num_queries, call.num_heads, value.shape[-1])
    )


def _check_whole(attention: LayerAttention, change: LayerChange, name: str) -> None:
    """Refuse an attention that is one of several of its layer."""
    shape = attention.num_queries, attention.num_keys
    if shape != change.shape:
        raise NotImplementedError(
            f"changes: {name} attends in parts, here {shape[0]} x {shape[1]} of "
            f"{change.shape[0]} x {change.shape[1]} tokens, where nothing can be changed yet; give "
            "layers= or stack= without it"
        )


def apply_change(
    call: AttentionCall,
    attention: QueryKeyAttention,
    positions: Positions,
    change: LayerChange,
    name: str,
) -> None:
    """Write over the output of one attention of one example what a change makes of it.

    `attention` is the model's own, all of its heads, and `name` its module's path. Some rows at a
    time: nothing as large as queries times keys is held.
    """
    output, value = call.output, call.value
    if value is None:
        raise TypeError("an attention without values cannot be changed")
    _check_whole(attention, change, name)
    attending = change.attend(attention)
    with torch.no_grad(), torch.autocast(output.device.type, enabled=False):
        for head, rows in change.rows.items():
            own = value[0, attention.key_head(head)]
            if positions.keys is not None:
                own = own[positions.keys.to(own.device)]
            values = own.float()
            placed = torch.from_numpy(rows)
            if positions.queries is not None:
                placed = positions.queries.cpu()[placed]
            for tile in tiles(slice(0, len(rows)), attending.num_keys):
                weights, _ = attending.weights_of_rows(head, rows[tile])
                found = torch.from_numpy(weights).to(values.device) @ values
                output[0, placed[tile].to(output.device), head] = found.to(output.dtype)
        for head, factor in change.factors.items():
            if factor == 0:
                # Also where an output is infinite.
                output[:, :, head] = 0
            else:
                output[:, :, head] *= factor


def edit_weights(
    weights: torch.Tensor, positions: Positions, change: LayerChange, name: str
) -> None:
    """Write over the weights of one example as they come out of a module's softmax.

    (1, heads, queries, keys) or (heads, queries, keys). For modules that compute their attention
    without the dispatcher: what the softmax gives is all that the model goes on with.
    """
    if weights.dim() not in (3, 4) or (weights.dim() == 4 and len(weights) != 1):
        raise NotImplementedError(
            f"changes: {name} attends with weights of the shape {tuple(weights.shape)}, windows or "
            "groups of heads, where nothing can be changed yet; give layers= or stack= without it"
        )
    heads = weights[0] if weights.dim() == 4 else weights
    wrong = [head for head in change.heads if head >= len(heads)]
    if wrong:
        raise NotImplementedError(
            f"changes: {name} has {len(heads)} matrices of weights, and not one for head {wrong[0]}"
        )
    queries, keys = (
        torch.arange(size) if each is None else each.cpu()
        for size, each in zip(heads.shape[1:], (positions.queries, positions.keys), strict=True)
    )
    with torch.no_grad():
        own = GivenWeights(heads.detach().cpu()[:, queries][:, :, keys].float())
        _check_whole(own, change, name)
        attending = change.attend(own)
        for head, rows in change.rows.items():
            for tile in tiles(slice(0, len(rows)), attending.num_keys):
                found, _ = attending.weights_of_rows(head, rows[tile])
                placed = queries[torch.from_numpy(rows[tile])]
                block = torch.from_numpy(found).to(heads)
                heads[head, placed[:, None].to(heads.device), keys.to(heads.device)] = block
        for head, factor in change.factors.items():
            heads[head] *= factor
