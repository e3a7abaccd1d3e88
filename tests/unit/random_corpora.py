"""Functions that make records and corpora of random queries and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from attnviz import AttentionRecord, AttentionStack, Corpus, Tokens
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, Mask
from unit.records import vectors, words

CAUSAL = BandMask(None, 0)


def attention(
    num_tokens: int,
    *,
    heads: int = 3,
    key_heads: int | None = None,
    size: int = 8,
    mask: Mask | None = CAUSAL,
    num_keys: int | None = None,
    seed: int = 0,
    **options: Any,
) -> QueryKeyAttention:
    """Return a layer of random queries with the mean 1 and random keys with the mean -1."""
    keys = num_tokens if num_keys is None else num_keys
    return QueryKeyAttention(
        vectors(heads, num_tokens, size, seed=seed) + 1.0,
        1.7 * vectors(key_heads or heads, keys, size, seed=seed + 1000) - 1.0,
        scale=size**-0.5,
        mask=mask,
        **options,
    )


def record(num_tokens: int, *, layers: int = 2, seed: int = 0, **options: Any) -> AttentionRecord:
    """Return a record of one stack with random layers from `attention`."""
    attentions = {
        layer: attention(num_tokens, seed=seed + 100 * layer, **options) for layer in range(layers)
    }
    tokens = Tokens.of(words(num_tokens))
    return AttentionRecord({"self": AttentionStack("self", attentions, tokens)}, model="made")


def corpus(
    lengths: Sequence[int],
    *,
    max_points: int = 10_000,
    columns: Mapping[str, Any] | None = None,
    order: int = 0,
    **options: Any,
) -> Corpus:
    """Return a corpus of random records, which have the numbers of tokens in `lengths`."""
    records = [record(length, seed=number, **options) for number, length in enumerate(lengths)]
    return Corpus(records, max_points=max_points, seed=order, columns=columns)


def cross_record(
    num_queries: int, num_keys: int, seed: int = 0, *, decoder: bool = False
) -> AttentionRecord:
    """Return a record of two layers of cross-attention.

    With `decoder`, the record also has three layers of self-attention of the query tokens.
    """
    queries, keys = Tokens.of(words(num_queries, "d")), Tokens.of(words(num_keys, "e"))
    cross = {
        layer: attention(num_queries, num_keys=num_keys, mask=None, seed=seed + 100 * layer)
        for layer in (0, 1)
    }
    stacks = {"cross": AttentionStack("cross", cross, queries, keys)}
    if decoder:
        layers = {layer: attention(num_queries, seed=seed + 7 * layer) for layer in (0, 1, 2)}
        stacks = {"decoder": AttentionStack("decoder", layers, queries), **stacks}
    return AttentionRecord(stacks, model="made")


def with_vectors(queries: torch.Tensor, keys: torch.Tensor, lengths: Sequence[int]) -> Corpus:
    """Return a causal corpus of one layer: `queries` and `keys`, split into texts of `lengths`."""
    records = []
    for start, length in zip(np.cumsum([0, *lengths]).tolist(), lengths, strict=False):
        rows = slice(start, start + length)
        layer = QueryKeyAttention(queries[:, rows], keys[:, rows], 1.0, mask=CAUSAL)
        stack = AttentionStack("self", {0: layer}, Tokens.of(words(length)))
        records.append(AttentionRecord({"self": stack}, model="given"))
    return Corpus(records)
