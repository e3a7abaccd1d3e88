"""Tests of `joined_windows`, which joins the attention of several windows into one layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from attnviz.extraction.capture.collector import joined_windows
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DenseBias
from unit.records import vectors

HEADS, WINDOWS, SIZE = 2, 3, 4
TOKENS = WINDOWS * SIZE


def windows(*, causal: bool = False) -> list[QueryKeyAttention]:
    return [
        QueryKeyAttention(
            vectors(HEADS, SIZE, 8, seed=2 * window),
            vectors(HEADS, SIZE, 8, seed=2 * window + 1),
            scale=0.5,
            bias=DenseBias(vectors(HEADS, SIZE, SIZE, seed=9)),
            mask=BandMask(None, 0) if causal else None,
        )
        for window in range(WINDOWS)
    ]


def by_hand(parts: list[QueryKeyAttention], head: int) -> NDArray[np.float64]:
    """Return the softmax weights of a head in all windows as a block-diagonal matrix."""
    blocks = []
    for part in parts:
        logits = part.queries[head].double() @ part.keys[head].double().T * 0.5
        logits += vectors(HEADS, SIZE, SIZE, seed=9)[head]
        if part.mask is not None:
            logits = logits.masked_fill(torch.ones(SIZE, SIZE).triu(1) > 0, -torch.inf)
        blocks.append(logits.softmax(1))
    block_diagonal: NDArray[np.float64] = torch.block_diag(*blocks).numpy()
    return block_diagonal


@pytest.mark.parametrize("causal", [False, True])
def test_joined_windows_equal_a_softmax_per_window(*, causal: bool) -> None:
    parts = windows(causal=causal)
    attention = joined_windows(parts)
    everything = slice(0, TOKENS)
    for head in range(HEADS):
        expected = by_hand(parts, head)
        assert_allclose(attention.block([head], everything)[0], expected, atol=1e-6)
        part = attention.block([head], slice(3, 6), slice(2, 9))[0]
        assert_allclose(part, expected[3:6, 2:9], atol=1e-6)
        assert_array_equal(attention.allowed([head], everything)[0], expected > 0)
