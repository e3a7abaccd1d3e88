"""Bounds of the difference between two correct computations in float32.

A sum in float32 depends on the order of its terms, which depends on the processor, the number of
threads and the shape of the block. Two computations of the same weights therefore differ, and a
test must not take its tolerance from the difference on one machine. The bounds in this file hold
for every order of the terms. They follow Higham, "Accuracy and Stability of Numerical Algorithms"
(2002), section 3.1: the error of a sum of n products is at most ``n * u`` times the sum of their
absolute values, to first order in u.
"""

from __future__ import annotations

import torch

from attnviz.record.attention import LayerAttention, QueryKeyAttention
from attnviz.record.record import AttentionRecord

#: Largest relative error of one rounding to float32.
UNIT = 2.0**-24
# Roundings of a logit in addition to those of its sum: scale, soft cap (four), bias, and the
# subtraction of the row's maximum.
_OF_LOGIT = 7
# Roundings of a weight in the exponential and the quotient.
_OF_WEIGHT = 4


def relative_error(attention: LayerAttention, summed: int = 0) -> float:
    """Return a bound of the relative difference between two computations of the same weight.

    The bound also holds for a sum or mean of `summed` weights, which are not negative. With e from
    `logit_error`, the numerator and the denominator of the softmax each have a relative error of
    at most e, and the sum of n numerators adds ``n * u``.
    """
    roundings = attention.num_keys + _OF_WEIGHT + summed
    return 2 * (2 * logit_error(attention) + roundings * UNIT)


def weights_error(*attentions: LayerAttention) -> float:
    """Return a bound of the absolute difference between two computations of a weight.

    For several `attentions`, the bound holds for the sum of one weight of each. If every logit of a
    row has an error of at most e, a weight w has an error of at most ``2 * w * (1 - w) * e``, which
    is at most ``e / 2``. The sum of n numerators adds ``n * u``, because w is at most 1.
    """
    return sum(
        logit_error(attention) + 2 * (attention.num_keys + _OF_WEIGHT) * UNIT
        for attention in attentions
    )


def forwards_error(record: AttentionRecord) -> float:
    """Return a bound of the absolute difference of a weight between two forward passes of a model.

    The passes may sum in different orders. To first order, the errors of all layers add up.
    """
    layers = [stack.attention(n) for stack in record.stacks.values() for n in stack.layers]
    return weights_error(*layers)


def logit_error(attention: LayerAttention) -> float:
    """Return a bound of the error of a logit in one computation.

    The bound is ``(head_dim + 7) * u * size``, where `size` bounds the sum of ``|scale * query *
    key|`` plus the largest absolute bias or sink. Weights without logits have the bound 0.
    """
    if not isinstance(attention, QueryKeyAttention):
        return 0.0
    queries, keys = attention.queries.float(), attention.keys.float()
    # The Cauchy-Schwarz inequality bounds the sum of products by the product of the norms.
    lengths = queries.norm(dim=-1).max() * keys.norm(dim=-1).max()
    size = abs(attention.scale) * float(lengths) + _largest_added(attention)
    return (queries.shape[-1] + _OF_LOGIT) * UNIT * size


def _largest_added(attention: QueryKeyAttention) -> float:
    """Return the largest absolute value of the finite biases and sink logits."""
    parts = [] if attention.sinks is None else [attention.sinks.float()]
    if attention.bias is not None:
        rows, columns = slice(0, attention.num_queries), slice(0, attention.num_keys)
        parts += [attention.bias.added(head, rows, columns) for head in range(attention.num_heads)]
    sizes = [part[torch.isfinite(part)].abs().max() for part in parts]
    return max(map(float, sizes), default=0.0)
