"""Control experiment: the comparison must fail if queries, masks or other inputs are wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from model_types.compare import Match, layer_weights

# The weights of a corrupted layer must differ by more than this from the model's own weights: ten
# times the tolerance of right layers.
NOTICED = 1e-3


def unnoticed(matches: list[Match]) -> list[str]:
    """Corrupt each layer in several ways. Name the corruptions that the comparison cannot notice.

    Layers in which each query may attend to at most one key are skipped, because corruptions of
    their queries and keys change no weights.
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

    In a layer without sinks (learned logits that take a share of each row), a single allowed key
    has weight 1, even if queries or keys are wrong.
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
