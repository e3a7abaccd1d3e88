"""Functions for a softmax that does not hold all logits in memory.

A tile is the logits of some rows and all keys. A block is the logits of some keys and of a given
number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

__all__ = ["exp_in_place", "key_blocks", "row_tiles", "weights_from_logits"]

# Maximum number of logits in a tile (16 MiB of float32). Such a tile is large enough for an
# efficient matrix product, and fits into memory for any text length.
_TILE_ENTRIES = 1 << 22
# Maximum number of logits in a block. On a CPU, a block fits into the cache. A GPU needs larger
# blocks to be fully used.
_BLOCK_ENTRIES = 1 << 19
_DEVICE_BLOCK_ENTRIES = 1 << 24
_LOG2_OF_E = math.log2(math.e)


def row_tiles(rows: slice, num_keys: int) -> Iterator[slice]:
    """Split `rows` into consecutive slices. The logits of a slice and all keys fit into a tile."""
    step = max(1, _TILE_ENTRIES // max(1, num_keys))
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


def key_blocks(columns: slice, num_rows: int, device: torch.device) -> Iterator[slice]:
    """Split `columns` into slices. The logits of `num_rows` rows and one slice are a block."""
    entries = _BLOCK_ENTRIES if device.type == "cpu" else _DEVICE_BLOCK_ENTRIES
    step = 1 << max(0, (entries // max(1, num_rows)).bit_length() - 1)
    for start in range(columns.start, columns.stop, step):
        yield slice(start, min(start + step, columns.stop))


def weights_from_logits(logits: torch.Tensor, log_normalizer: torch.Tensor) -> torch.Tensor:
    """Compute the weights of some keys from their logits and the normalizers of the rows.

    `logits` are (..., rows, columns), and are overwritten by the weights. `log_normalizer` is the
    result of `QueryKeyAttention.log_normalizer`, (..., rows). The weights of a row without an
    allowed key are 0.

    >>> weights_from_logits(torch.zeros(1, 2), torch.tensor([8.0]).log())
    tensor([[0.1250, 0.1250]])
    """
    # The normalizer of a row without an allowed key is minus infinity, like its logits, and their
    # difference would be NaN. Replace it by plus infinity, which gives weights of 0.
    logits -= log_normalizer.masked_fill(torch.isneginf(log_normalizer), torch.inf)[..., None]
    return exp_in_place(logits)


def exp_in_place(exponents: torch.Tensor) -> torch.Tensor:
    """Compute the exponential of each number in place. Return `exponents`.

    >>> exp_in_place(torch.tensor([0.0, -torch.inf]))
    tensor([1., 0.])
    """
    # Exponentials dominate the cost of a softmax. On a CPU, exp2 takes a third of the time of exp.
    exponents *= _LOG2_OF_E
    return exponents.exp2_()
