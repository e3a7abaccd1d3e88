"""Records that several test files use, made without any model."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.masks import BandMask, DenseBias, DistanceBias, PackedMask
from attnviz.record import AttentionRecord, AttentionStack
from attnviz.tokens import Tokens
from attnviz.weights import GivenWeights, QueryKeyAttention

# Texts that end tags, begin scripts, fetch images, hide, turn the reading direction or are not
# characters at all.
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "\"'`\\",
    "${alert(1)}{policy}%s",
    "\u202egnp.exe\u202c",
    "\x00",
    "👩‍🚀",
    "\ud800",
    "",
)


def shares(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Random weights whose rows sum to 1."""
    logits = np.random.default_rng(seed).normal(size=shape, scale=2)
    powers = np.exp(logits)
    weights: NDArray[np.float32] = (powers / powers.sum(-1, keepdims=True)).astype(np.float32)
    return weights


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random vectors, float32."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator)


def words(count: int, prefix: str = "t") -> list[str]:
    return [f"{prefix}{position}" for position in range(count)]


def given_record(heads_per_layer: tuple[int, ...] = (2, 3), num_tokens: int = 5) -> AttentionRecord:
    """Given weights, layers numbered from 0."""
    layers = [
        shares(heads, num_tokens, num_tokens, seed=layer)
        for layer, heads in enumerate(heads_per_layer)
    ]
    return AttentionRecord.from_weights(layers, words(num_tokens), model="given")


def encoder_decoder_record() -> AttentionRecord:
    """Three stacks: 6 and 4 tokens; layers, heads and the numbers of both differ."""
    return AttentionRecord.from_weights(
        encoder_attentions=[shares(3, 6, 6, seed=1), shares(3, 6, 6, seed=2)],
        decoder_attentions=[shares(2, 4, 4, seed=3)] * 3,
        cross_attentions=[shares(1, 4, 6, seed=4), shares(5, 4, 6, seed=5)],
        encoder_tokens=words(6, "e"),
        decoder_tokens=words(4, "d"),
        model="encoder-decoder",
    )


def captured_record() -> AttentionRecord:
    """Every kind of layer that a model can leave behind, in two stacks, with gaps."""
    flags = torch.from_numpy(np.random.default_rng(5).random((4, 6, 6)) < 0.6)
    flags[:, 3] = False
    causal = BandMask(None, 0)
    packed = PackedMask.pack(flags)
    by_distance = DistanceBias(vectors(4, 11, seed=6), 6)
    dense = DenseBias(vectors(1, 1, 6, seed=7))
    queries, keys = vectors(4, 6, 8, seed=8), vectors(2, 6, 8, seed=9)
    tokens = Tokens.of(
        ["[CLS]", *words(4), "[SEP]"],
        special=[True, False, False, False, False, True],
        sequence=[None, 0, 0, 1, 1, None],
        ids=[101, 1, 2, 3, 4, 102],
    )
    own = {
        2: QueryKeyAttention(queries, keys, 0.25, mask=causal),
        3: QueryKeyAttention(queries, keys, 0.25, mask=causal, softcap=30.0),
        5: QueryKeyAttention(queries, keys, 0.5, mask=packed, bias=by_distance),
        7: QueryKeyAttention(
            queries.bfloat16(), keys.bfloat16(), 0.3, mask=packed, sinks=vectors(4, seed=10)
        ),
        11: QueryKeyAttention(queries.half(), keys.half(), 0.3, mask=causal, bias=by_distance),
        12: QueryKeyAttention(queries, keys, 0.3, bias=dense),
    }
    cross = {0: GivenWeights(torch.from_numpy(shares(3, 6, 2, seed=11)))}
    return AttentionRecord(
        {
            "self": AttentionStack("self", own, tokens),
            "cross": AttentionStack("cross", cross, tokens, Tokens.of(["x", " y"])),
        },
        model="captured",
        notes=["made by hand"],
    )
