"""Attention within windows as one attention of all tokens, compared with a softmax per window."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.collector import joined_windows
from attnviz.pages.vectors import encode_vectors_in_steps
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DenseBias
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.progress import run_steps
from unit.records import vectors

HEADS, WINDOWS, SIZE = 2, 3, 4
TOKENS = WINDOWS * SIZE


def windows(*, with_bias: bool = False, causal: bool = False) -> list[QueryKeyAttention]:
    bias = DenseBias(vectors(HEADS, SIZE, SIZE, seed=9)) if with_bias else None
    return [
        QueryKeyAttention(
            vectors(HEADS, SIZE, 8, seed=2 * window),
            vectors(HEADS, SIZE, 8, seed=2 * window + 1),
            scale=0.5,
            bias=bias,
            mask=BandMask(None, 0) if causal else None,
        )
        for window in range(WINDOWS)
    ]


def by_hand(parts: list[QueryKeyAttention], head: int) -> NDArray[np.float64]:
    """Return a block-diagonal matrix of each window's softmax."""
    blocks = []
    for part in parts:
        logits = part.queries[head].double() @ part.keys[head].double().T * 0.5
        if part.bias is not None:
            logits += part.bias.added(head, slice(0, SIZE), slice(0, SIZE))
        if part.mask is not None:
            logits = logits.masked_fill(torch.ones(SIZE, SIZE).triu(1) > 0, -torch.inf)
        blocks.append(logits.softmax(1))
    block_diagonal: NDArray[np.float64] = torch.block_diag(*blocks).numpy()
    return block_diagonal


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_joined_windows_equal_a_softmax_per_window(*, with_bias: bool, causal: bool) -> None:
    parts = windows(with_bias=with_bias, causal=causal)
    attention = joined_windows(parts, "module")
    everything = slice(0, TOKENS), slice(0, TOKENS)
    for head in range(HEADS):
        expected = by_hand(parts, head)
        actual = attention.weights(head, *everything)
        assert np.abs(actual - expected).max() < 1e-6
        part = attention.weights(head, slice(3, 6), slice(2, 9))
        assert np.allclose(part, actual[3:6, 2:9], rtol=0, atol=1e-6)
        assert np.array_equal(attention.allowed(head, *everything), expected > 0)


def record() -> AttentionRecord:
    attention = joined_windows(windows(with_bias=True), "module")
    assert isinstance(attention, QueryKeyAttention)
    tokens = Tokens.of([f"t{position}" for position in range(TOKENS)])
    return AttentionRecord({"vision": AttentionStack("vision", {0: attention}, tokens)})


def test_a_page_stores_windows_as_allowed_pairs() -> None:
    layer = run_steps(encode_vectors_in_steps(record().stacks.values()))["layers"][0]
    assert layer["mask"]["kind"] == "packed"
    assert layer["bias"]["kind"] == "dense"
    assert layer["bias"]["heads"] == HEADS
