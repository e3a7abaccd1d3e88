"""Corpora of random queries and keys with the spread of trained heads."""

from __future__ import annotations

import torch

import attnviz as av

TEXT_TOKENS, HEAD_DIM = 100, 64


def random_corpus(points: int, layers: int, heads: int) -> av.Corpus:
    """Return a corpus with `points` queries and keys and heads for positions and topics.

    Each text has `TEXT_TOKENS` tokens.
    """
    generator = torch.Generator().manual_seed(0)
    position = torch.arange(TEXT_TOKENS, dtype=torch.float32)
    angles = 2 * torch.pi * position[:, None] / torch.tensor([16.0, 48.0, 128.0])
    waves = torch.cat([angles.cos(), angles.sin()], dim=1)
    topics = torch.randn(24, HEAD_DIM, generator=generator)
    near = torch.rand(layers, heads, 1, 1, generator=generator)
    records = []
    for _ in range(max(1, points // (2 * TEXT_TOKENS))):
        topic = topics[torch.randint(24, (TEXT_TOKENS,), generator=generator)]
        queries, keys = (
            torch.randn(2, layers, heads, TEXT_TOKENS, HEAD_DIM, generator=generator)
            + 2 * (1 - near) * topic
        )
        queries[..., : waves.shape[1]] += 6 * near * waves
        keys[..., : waves.shape[1]] += 6 * near * waves
        words = [f"word{number}" for number in topic[:, 0].argsort().tolist()]
        record = av.AttentionRecord.from_qk(queries, keys, words, causal=True, model="made up")
        records.append(record)
    return av.Corpus(records, max_points=points)
