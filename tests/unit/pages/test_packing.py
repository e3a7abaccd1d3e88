"""`packed` compresses data with the better of two zlib strategies and encodes it as base64."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest

from attnviz.pages.packing import packed

RANDOM = np.random.default_rng(0)
# `WEIGHTS` has runs of zeros and noise. `CODE` repeats 700 random bytes.
WEIGHTS = np.tril(RANDOM.integers(0, 60, (400, 400), np.uint8)).tobytes()
CODE = RANDOM.integers(0, 256, 700, np.uint8).tobytes() * 300


@pytest.mark.parametrize("data", [b"", b"a", WEIGHTS, CODE * 20])
def test_nothing_is_lost(data: bytes) -> None:
    assert zlib.decompress(base64.b64decode(packed(data))) == data


# `packed` tries strategies on the middle of long data. The last case has `CODE` in the middle.
@pytest.mark.parametrize("data", [WEIGHTS, CODE, WEIGHTS[:80_000] + CODE + WEIGHTS[:80_000]])
def test_the_better_strategy_is_used(data: bytes) -> None:
    strategy = zlib.Z_RLE if data == WEIGHTS else zlib.Z_DEFAULT_STRATEGY
    packer = zlib.compressobj(6, strategy=strategy)
    assert base64.b64decode(packed(data)) == packer.compress(data) + packer.flush()
