"""What a record holds, told to a view without any weights.

A long text's tokens would make a message that some hosts end: it travels deflated, in parts.
``Source.describe`` in ``js/src/client/source.ts`` is the other side.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from typing import Any

from attnviz.analysis import patterns_of
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.rows import SAMPLED_QUERIES, affords_maps
from attnviz.record.tokens import Tokens

__all__ = ["describe", "packed_description"]

# Below, the description travels as it is: readable for whoever looks into the messages.
_MOST_CHARACTERS = 100_000


def describe(record: AttentionRecord) -> dict[str, Any]:
    """Say what a record holds, without any weights.

    Parameters
    ----------
    record : AttentionRecord
        The record.

    Returns
    -------
    dict
        Fit for JSON: model, notes, and for each stack its layers, heads and tokens; ``heads``, the
        numbers of the heads that were kept, layer by layer, only where some are missing;
        ``sampled``, how many queries estimates are made from, only where whole maps of all heads
        would take too long.
    """
    sizes = [{"height": each.shape[0], "width": each.shape[1]} for each in record.images]
    return {
        "model": record.model,
        "notes": list(record.notes),
        **({"images": sizes} if sizes else {}),
        "stacks": [_describe_stack(stack) for stack in record.stacks.values()],
    }


def _describe_stack(stack: AttentionStack) -> dict[str, Any]:
    same = stack.key_tokens is stack.query_tokens
    return {
        "name": stack.name,
        "layers": list(stack.layers),
        "heads_per_layer": list(stack.heads_per_layer),
        **({} if stack.has_all_heads else {"heads": _kept_heads(stack)}),
        "query_tokens": _describe_tokens(stack.query_tokens),
        "key_tokens": None if same else _describe_tokens(stack.key_tokens),
        "normalized": stack.normalized,
        "maximum": stack.maximum,
        "causal": stack.causal,
        "vectors": stack.has_vectors,
        "patterns": list(patterns_of(stack)),
        **_sampled(stack),
        **_zeros(stack),
    }


def _kept_heads(stack: AttentionStack) -> list[list[int]]:
    return [list(stack.kept_heads(layer)) for layer in stack.layers]


def _sampled(stack: AttentionStack) -> dict[str, Any]:
    """Queries that estimates are made from, where whole maps of all heads would take too long."""
    layers = [stack.attention(layer) for layer in stack.layers]
    if affords_maps(layers, len(stack.query_tokens) * len(stack.key_tokens)):
        return {}
    return {"sampled": min(SAMPLED_QUERIES, len(stack.query_tokens))}


def _zeros(stack: AttentionStack) -> dict[str, Any]:
    """Exact zeros by layer and head, where there are any: codecs round small weights to them."""
    counts = [
        [
            stack.exact_zeros(layer=layer, head=head) if head in stack.kept_heads(layer) else None
            for head in range(heads)
        ]
        for layer, heads in zip(stack.layers, stack.heads_per_layer, strict=True)
    ]
    if not any(count is not None and count.zeros for layer in counts for count in layer):
        return {}
    pairs = [
        [[0, 0] if count is None else [count.zeros, count.counted] for count in layer]
        for layer in counts
    ]
    return {"zeros": pairs}


def _describe_tokens(tokens: Tokens) -> dict[str, Any]:
    return {
        "text": list(tokens.text),
        "special": [position for position, flag in enumerate(tokens.special) if flag],
        "sequence": list(tokens.sequence),
        **({"grids": list(map(asdict, tokens.grids))} if tokens.grids else {}),
        **({"predictions": list(map(asdict, tokens.predictions))} if tokens.predictions else {}),
    }


def packed_description(description: dict[str, Any]) -> bytes | None:
    """Deflate what `describe` gave, where it is long.

    Parameters
    ----------
    description : dict
        The description.

    Returns
    -------
    bytes or None
        Deflated UTF-8 of its JSON; None where that is short enough to travel as it is.
    """
    # Characters outside a text's encoding are escaped: a token may hold half of a pair.
    text = json.dumps(description, separators=(",", ":"))
    return None if len(text) <= _MOST_CHARACTERS else zlib.compress(text.encode("ascii"))
