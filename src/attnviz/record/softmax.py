"""A softmax in parts: sizes of tiles and blocks, and weights from logits and normalizers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

__all__ = ["exp_in_place", "key_blocks", "row_tiles", "weights_from_logits"]

# Largest tile of logits, in entries (16 MiB of float32): large enough for an efficient matrix
# product, small enough for any text length.
_TILE_ENTRIES = 1 << 22
# Largest block of keys, in entries. On a CPU it fits into the cache. A GPU needs larger blocks to
# be fully used.
_BLOCK_ENTRIES = 1 << 19
_DEVICE_BLOCK_ENTRIES = 1 << 24
_LOG2_OF_E = math.log2(math.e)


def row_tiles(rows: slice, num_keys: int) -> Iterator[slice]:
    """Yield consecutive slices of `rows` whose logits with all keys are at most one tile."""
    step = max(1, _TILE_ENTRIES // max(1, num_keys))
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


def key_blocks(columns: slice, num_rows: int, device: torch.device) -> Iterator[slice]:
    """Yield consecutive slices of `columns` whose logits with `num_rows` rows are one block."""
    entries = _BLOCK_ENTRIES if device.type == "cpu" else _DEVICE_BLOCK_ENTRIES
    step = 1 << max(0, (entries // max(1, num_rows)).bit_length() - 1)
    for start in range(columns.start, columns.stop, step):
        yield slice(start, min(start + step, columns.stop))


def weights_from_logits(logits: torch.Tensor, log_normalizer: torch.Tensor) -> torch.Tensor:
    """Return the weights of a subset of keys, (..., rows, columns), from logits and normalizers.

    `logits` are overwritten. `log_normalizer` is (..., rows), as `QueryKeyAttention` returns it.
    The weights of a row without an allowed key are 0.

    >>> weights_from_logits(torch.zeros(1, 2), torch.tensor([8.0]).log())
    tensor([[0.1250, 0.1250]])
    """
    # Rows without an allowed key: the difference of two infinities would be NaN.
    logits -= log_normalizer.masked_fill(torch.isneginf(log_normalizer), torch.inf)[..., None]
    return exp_in_place(logits)


def exp_in_place(exponents: torch.Tensor) -> torch.Tensor:
    """Compute the exponential function in place.

    >>> exp_in_place(torch.tensor([0.0, -torch.inf]))
    tensor([1., 0.])
    """
    # Powers of two take a CPU a third of the time, and they dominate the cost of a softmax.
    exponents *= _LOG2_OF_E
    return exponents.exp2_()
