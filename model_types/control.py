"""Control experiment: the comparison with a model's own weights must find faults.

A fault is a change of one input of a layer's weights, such as the queries, the scale or the mask.
If the record has only the weights of a layer, without queries and keys, the weights are changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from model_types.compare import Match, layer_weights

# The comparison finds a fault if a weight differs by more than this from the model's own weight. It
# is ten times the tolerance for right layers (`compare.TOLERANCE`).
NOTICED = 1e-3


def unnoticed(matches: list[Match]) -> list[str]:
    """Insert several faults into each layer, one at a time. Return those that are not found.

    Each is described by the stack, the layer, the fault, and the difference of the weights. Layers
    in which each query may attend to at most one key are skipped, because faults in their queries
    and keys change no weights.
    """
    missed: list[str] = []
    for match in matches:
        for pair in match.pairs:
            if not _can_choose(pair.attention):
                continue
            for name, corrupted in _corruptions(pair.attention):
                error = pair.difference(layer_weights(corrupted))
                if not error > NOTICED:
                    missed.append(f"{pair.stack} {pair.layer} {name} ({error:.0e})")
    return missed


def _can_choose(attention: LayerAttention) -> bool:
    """Return whether any query may attend to two or more keys.

    If a query may attend to one key only, this key has weight 1, even if the query or the key is
    wrong. The weight is smaller only if the head has a sink, a learned logit that takes a share of
    the weight.
    """
    allowed = attention.allowed(range(attention.num_heads), slice(0, attention.num_queries))
    return bool(allowed.sum(-1).max() > 1)


def _corruptions(attention: LayerAttention) -> Iterator[tuple[str, LayerAttention]]:
    if not isinstance(attention, QueryKeyAttention):
        values = torch.from_numpy(layer_weights(attention))
        yield "weights rolled", StoredWeights(values.roll(1, -1))
        return
    yield "keys rolled", dataclasses.replace(attention, keys=attention.keys.roll(1, 1))
    yield "queries rolled", dataclasses.replace(attention, queries=attention.queries.roll(1, 1))
    yield "scale halved", dataclasses.replace(attention, scale=attention.scale / 2)
    if attention.mask is not None:
        yield "mask dropped", dataclasses.replace(attention, mask=None)
    if attention.bias is not None:
        yield "bias dropped", dataclasses.replace(attention, bias=None)
    if attention.softcap is not None:
        yield "soft cap dropped", dataclasses.replace(attention, softcap=None)
    if attention.sinks is not None:
        yield "sinks dropped", dataclasses.replace(attention, sinks=None)
