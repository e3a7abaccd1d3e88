"""How far apart two correct computations in float32 may be: bounds that tests compare with.

A sum in float32 depends on the order of its terms, which depends on the processor, on the number of
threads and on the shape of the block. So two computations of the same weights differ, and no test
may know by how much they differ on one machine. The bounds here hold for every order of the terms.
They follow Higham, "Accuracy and Stability of Numerical Algorithms" (2002), section 3.1: a sum of n
products is off by at most ``n * u`` times the sum of the products' sizes, to first order in u.
"""

from __future__ import annotations

import torch

from attnviz.record.attention import LayerAttention, QueryKeyAttention
from attnviz.record.record import AttentionRecord

__all__ = ["UNIT", "forwards_error", "logit_error", "relative_error", "weights_error"]

#: Largest relative error of one rounding to float32.
UNIT = 2.0**-24
# Roundings of a logit beside those of its sum: scale, soft cap (four), bias, and difference from
# the row's maximum. The exponential and the quotient have another four, relative to the weight.
_OF_LOGIT = 7
_OF_WEIGHT = 4


def relative_error(attention: LayerAttention, summed: int = 0) -> float:
    """Bound of the relative difference of two computations of a weight, for all weights.

    Also of a sum or mean of `summed` weights, which are not negative.

    With e from `logit_error`, the numerator ``exp(s)`` and the row's sum are off by e relative to
    their values, and the sum of n numerators by another ``n * u``.
    """
    roundings = attention.num_keys + _OF_WEIGHT + summed
    return 2 * (2 * logit_error(attention) + roundings * UNIT)


def weights_error(*attentions: LayerAttention) -> float:
    """Bound of the difference of two computations of a weight, or of a sum over `attentions`.

    If every logit of a row is off by at most e, a weight w is off by at most ``2 * w * (1 - w) *
    e``, so by ``e / 2`` or less. The sum of n numerators adds ``n * u``, as w is at most 1.
    """
    return sum(
        logit_error(attention) + 2 * (attention.num_keys + _OF_WEIGHT) * UNIT
        for attention in attentions
    )


def forwards_error(record: AttentionRecord) -> float:
    """Bound of the difference of a weight in two forwards of a model, which sum in other orders.

    To first order: each layer adds its own error to that of the layers before it.
    """
    layers = [stack.attention(n) for stack in record.stacks.values() for n in stack.layers]
    return weights_error(*layers)


def logit_error(attention: LayerAttention) -> float:
    """Bound of the error of a logit in one computation.

    It is ``(head_dim + 7) * u * size``, with `size` the largest sum of ``|scale * query * key|``,
    plus the largest bias or sink. Weights that were given have no logits: 0.
    """
    if not isinstance(attention, QueryKeyAttention):
        return 0.0
    queries, keys = attention.queries.float(), attention.keys.float()
    # No sum of products is larger than the product of the lengths (Cauchy and Schwarz).
    lengths = queries.norm(dim=-1).max() * keys.norm(dim=-1).max()
    size = abs(attention.scale) * float(lengths) + _largest_added(attention)
    return (queries.shape[-1] + _OF_LOGIT) * UNIT * size


def _largest_added(attention: QueryKeyAttention) -> float:
    """Return the largest absolute bias and sink logit that is finite."""
    parts = [] if attention.sinks is None else [attention.sinks.float()]
    if attention.bias is not None:
        rows, columns = slice(0, attention.num_queries), slice(0, attention.num_keys)
        parts += [attention.bias.added(head, rows, columns) for head in range(attention.num_heads)]
    sizes = [part[torch.isfinite(part)].abs().max() for part in parts]
    return max(map(float, sizes), default=0.0)
