"""Whether weights computed from queries and keys are those that the model's attention used."""

from __future__ import annotations

import math
import sys

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import Positions
from attnviz.record.attention import QueryKeyAttention

__all__ = ["agrees_with_weights", "check_output", "uses_sink_as_gate"]


# How far the model's own attention output may lie from weights @ values, relative to the largest
# value: rounding of the model's dtype, well under what any wrong formula gives.
_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


# The same for weights that were computed in sight.
_WEIGHT_TOLERANCE = {
    torch.float64: 1e-4,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}


def _rows(attention: QueryKeyAttention) -> set[int]:
    """Rows that are held against the model's own: they cost next to nothing."""
    return {attention.num_queries // 2, attention.num_queries - 1}


def agrees_with_weights(attention: QueryKeyAttention, own: torch.Tensor, *, head: int) -> bool:
    """Whether weights from what was traced are those that the softmax gave."""
    if tuple(own.shape) != (attention.num_heads, attention.num_queries, attention.num_keys):
        return False
    tolerance = _WEIGHT_TOLERANCE.get(attention.queries.dtype, 5e-2)
    for row in _rows(attention):
        found = attention.weights(head, slice(row, row + 1), slice(0, attention.num_keys))
        error = float((torch.from_numpy(found)[0] - own[head, row].float().cpu()).abs().max())
        # A row in which nothing is allowed is even in the model, and nothing here.
        if found.any() and not error <= tolerance:
            return False
    return True


def check_output(
    call: AttentionCall,
    attention: QueryKeyAttention,
    index: int,
    unpadded: Positions,
    name: str,
    *,
    turn: int,
) -> None:
    """Hold a few rows of the weights against the output that the model's attention gave.

    Two rows of one head a layer notice a formula that is not the model's: a mask that is ignored, a
    gate, a term that came in by a keyword which isn't known here.
    """
    output, value = call.output, call.value
    if not isinstance(output, torch.Tensor) or value is None or uses_sink_as_gate(call.module):
        return
    expected_shape = (*attention.queries.shape[1:2], attention.num_heads, value.shape[-1])
    if unpadded.queries is None and tuple(output.shape[1:]) != expected_shape:
        return
    head = turn % attention.num_heads
    value_head = head // (attention.num_heads // value.shape[1])
    values = value.detach()[index if value.shape[0] > 1 else 0, value_head]
    if unpadded.keys is not None:
        values = values[unpadded.keys.to(values.device)]
    values = values.float().cpu()
    tolerance = _TOLERANCE.get(value.dtype, 5e-2) * float(values.abs().max())
    for row in _rows(attention):
        weights = attention.weights(head, slice(row, row + 1), slice(0, attention.num_keys))
        if not weights.any():
            continue
        position = row if unpadded.queries is None else int(unpadded.queries[row])
        given = output.detach()[index if output.shape[0] > 1 else 0, position, head].float().cpu()
        error = float((torch.from_numpy(weights)[0] @ values - given).abs().max())
        if math.isnan(error):
            raise ValueError(
                f"model: the attention of {name} ({type(call.module).__name__}) gave NaN; look at "
                "its weights, and at the precision that it runs in"
            )
        if not error <= tolerance:
            raise NotImplementedError(
                f"model: the attention of {name} ({type(call.module).__name__}, implementation "
                f"{call.implementation!r}) is not softmax(scale * q k^T + bias + mask): its output "
                f"differs by {error:.2g} (allowed {tolerance:.2g}). Its weights are not known; "
                "draw weights of your own with AttentionRecord.from_weights"
            )


def uses_sink_as_gate(module: nn.Module) -> bool:
    """Whether a model's own code uses the sink as a gate on the output, outside of its weights.

    A sink's share of a row and such a gate give the same output: only the code tells.
    """
    eager = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
    return "sigmoid" in getattr(getattr(eager, "__code__", None), "co_names", ())
