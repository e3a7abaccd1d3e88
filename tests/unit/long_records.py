"""Functions that make long records, with attention as in a language model or with zero vectors."""

from __future__ import annotations

import math

import torch

import attnviz as av
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens

#: Positions of a query, and of the key that it attends to most, as shares of the text length.
NEEDLE = (0.75, 0.2)


def long_record(
    tokens: int,
    *,
    layers: int = 1,
    heads: int = 4,
    key_heads: int = 2,
    head_dim: int = 64,
    causal: bool = True,
    varied: bool = False,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> av.AttentionRecord:
    """Return a record whose queries attend to near tokens, to tokens of their topic and to token 0.

    As in Llama, query heads share key heads. Query ``int(0.75 * tokens)`` gives nearly all of its
    weight to key ``int(0.2 * tokens)``: one bright cell that an overview must show. If `varied`,
    the shares of near tokens, topics and token 0 differ at random between heads.
    """
    generator = torch.Generator().manual_seed(seed)
    position = torch.arange(tokens, dtype=torch.float32)
    # The scalar product of the waves of two positions is largest if the positions are close.
    wavelengths = torch.tensor([64.0, 256.0, 1024.0, 8192.0])
    angles = 2 * math.pi * position[:, None] / wavelengths
    waves = torch.cat([angles.cos(), angles.sin()], dim=1)
    topics = torch.randn((8, 6), generator=generator)
    topic = topics[torch.arange(tokens) * 24 // tokens % 8]
    query_at, key_at = (int(share * tokens) for share in NEEDLE)
    queries, keys = [], []
    root = math.sqrt(head_dim)
    for _ in range(layers):
        q = torch.randn((heads, tokens, head_dim), generator=generator)
        k = torch.randn((key_heads, tokens, head_dim), generator=generator)
        local = torch.linspace(0.2, 1.6, heads)[:, None, None]
        q[:, :, :8], k[:, :, :8] = local * root * waves, waves
        q[:, :, 8:14], k[:, :, 8:14] = root * topic * (1.8 - local) / 2, topic
        # Dimension 14 gives weight to token 0, and dimension 15 lets `query_at` attend to `key_at`.
        q[:, :, 14], k[:, :, 14] = root, 0.0
        k[:, 0, 14] = math.log(tokens) + 1
        q[:, :, 15], k[:, :, 15] = 0.0, 0.0
        q[:, query_at, 15], k[:, key_at, 15] = root, 40.0
        if varied:
            strengths = torch.rand((3, heads, 1, 1), generator=generator)
            q[:, :, :8] *= 5 * strengths[0] ** 2
            q[:, :, 8:14] *= 3 * strengths[1] ** 2
            q[:, :, 14:15] *= 1.4 * strengths[2]
        queries.append(q.to(dtype))
        keys.append(k.to(dtype))
    names = [f"word{index}" for index in range(tokens)]
    return av.AttentionRecord.from_qk(queries, keys, names, causal=causal, model="long")


def alike(layers: int, heads: int, tokens: int, *, causal: bool = True) -> av.AttentionRecord:
    """Return a record of zero vectors. Layers and entries share memory, so any size is possible."""
    side = torch.zeros(1, 1, 1).expand(heads, tokens, 1)
    attention = QueryKeyAttention(side, side, 1.0, BandMask(None, 0) if causal else None)
    names = Tokens.of([f"word{index}" for index in range(tokens)])
    stack = AttentionStack("self", dict.fromkeys(range(layers), attention), names)
    return av.AttentionRecord({"self": stack})
