"""A softmax piece by piece: how much is computed at once, and how pieces become weights."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

__all__ = ["blocks", "normalized", "powers", "tiles"]

# A tile of logits of at most this many entries (16 MiB of float32) is computed at once: large
# enough for the matrix product to be efficient, small enough for any length.
_TILE_ENTRIES = 1 << 22
# Blocks of keys are about as large as a processor's cache, whose memory would be waited
# for, and much larger on a device that has to be kept busy.
_BLOCK_ENTRIES = 1 << 19
_DEVICE_BLOCK_ENTRIES = 1 << 24
_LOG2_OF_E = math.log2(math.e)


def tiles(rows: slice, num_keys: int) -> Iterator[slice]:
    """Split rows into neighbours, in order, so that a tile of them with all keys stays small."""
    step = max(1, _TILE_ENTRIES // max(1, num_keys))
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


def blocks(columns: slice, num_rows: int, device: torch.device) -> Iterator[slice]:
    """Split keys into neighbours, in order, whose blocks with some rows are computed fast."""
    entries = _BLOCK_ENTRIES if device.type == "cpu" else _DEVICE_BLOCK_ENTRIES
    step = 1 << max(0, (entries // max(1, num_rows)).bit_length() - 1)
    for start in range(columns.start, columns.stop, step):
        yield slice(start, min(start + step, columns.stop))


def normalized(logits: torch.Tensor, log_normalizer: torch.Tensor) -> torch.Tensor:
    """Weights of some keys, (..., rows, columns), from what their queries' weights are divided by.

    `logits` are overwritten; `log_normalizer` is (..., rows), as `QueryKeyAttention` gives it. The
    weights are 0 where a query may attend to nothing.

    >>> normalized(torch.zeros(1, 2), torch.tensor([8.0]).log())
    tensor([[0.1250, 0.1250]])
    """
    # Nothing allowed is minus infinity on both sides, which have no difference.
    logits -= log_normalizer.masked_fill(torch.isneginf(log_normalizer), torch.inf)[..., None]
    return powers(logits)


def powers(exponents: torch.Tensor) -> torch.Tensor:
    """Exponential function, in place.

    >>> powers(torch.tensor([0.0, -torch.inf]))
    tensor([1., 0.])
    """
    # Powers of two take a processor a third of the time, and are most of what a softmax takes.
    exponents *= _LOG2_OF_E
    return exponents.exp2_()
