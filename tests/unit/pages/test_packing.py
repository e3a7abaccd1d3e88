"""Bytes packed as text: they are unchanged, and the strategy is chosen once for similar data."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

from attnviz.pages.packing import packed

RANDOM = np.random.default_rng(0)
# Runs of zeros and noise, like weights, and exact repetitions, like code.
WEIGHTS = np.tril(RANDOM.integers(0, 60, (400, 400), np.uint8)).tobytes()
CODE = RANDOM.integers(0, 256, 700, np.uint8).tobytes() * 300


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


@pytest.mark.parametrize("data", [b"", b"a", WEIGHTS, CODE, CODE * 20])
def test_nothing_is_lost(data: bytes) -> None:
    assert unpacked(packed(data)) == data


@pytest.mark.parametrize("data", [WEIGHTS, CODE])
def test_the_better_strategy_is_used(data: bytes) -> None:
    sizes = []
    for strategy in (zlib.Z_RLE, zlib.Z_DEFAULT_STRATEGY):
        packer = zlib.compressobj(6, strategy=strategy)
        sizes.append(len(packer.compress(data) + packer.flush()))
    assert abs(sizes[0] - sizes[1]) > 0.01 * max(sizes)
    assert len(base64.b64decode(packed(data))) == min(sizes)


def test_the_middle_of_a_long_text_decides_the_strategy() -> None:
    long = WEIGHTS[:80_000] + CODE + WEIGHTS[:80_000]
    whole = zlib.compressobj(6, strategy=zlib.Z_DEFAULT_STRATEGY)
    assert base64.b64decode(packed(long)) == whole.compress(long) + whole.flush()
