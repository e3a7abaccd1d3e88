"""Functions for a softmax that does not hold all logits in memory.

Logits are computed in parts of limited size. A tile has the logits of as many rows as fit, for all
keys. A key block has the logits of given rows, for a range of as many keys as fit. Several heads
count as several rows or as several keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.masks import Rows

# Maximum number of logits in a tile of several rows (16 MiB of float32). A matrix product of this
# size is efficient. A single row may have more logits.
_TILE_ENTRIES = 1 << 22
# Maximum number of logits in a key block on a CPU, so that it fits into the cache.
_BLOCK_ENTRIES = 1 << 19
# Maximum number of logits in a key block on other devices. A GPU is fully used only by large ones.
_DEVICE_BLOCK_ENTRIES = 1 << 24
_LOG2_OF_E = math.log2(math.e)


def as_rows(positions: NDArray[np.int64]) -> Rows:
    """Convert ascending positions to a slice if they are consecutive, otherwise to a tensor.

    >>> as_rows(np.array([2, 3]))
    slice(2, 4, None)
    """
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return torch.from_numpy(positions)


def count_rows(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def tile_rows(num_keys: int) -> int:
    """Return the number of rows whose logits for `num_keys` keys fit into a tile, at least 1."""
    return max(1, _TILE_ENTRIES // max(1, num_keys))


def row_tiles(rows: slice, num_keys: int) -> Iterator[slice]:
    """Split `rows` into consecutive slices of at most `tile_rows(num_keys)` rows."""
    step = tile_rows(num_keys)
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))


def row_groups(rows: Rows, max_rows: int) -> Iterator[tuple[slice, Rows]]:
    """Split `rows` into consecutive groups of at most `max_rows`.

    Yield two items for each group: the slice of its indices in `rows`, and its rows, a slice or
    tensor like `rows`.

    >>> [group.tolist() for _, group in row_groups(torch.tensor([2, 3, 5]), 2)]
    [[2, 3], [5]]
    """
    for start in range(0, count_rows(rows), max_rows):
        part = slice(start, min(start + max_rows, count_rows(rows)))
        if isinstance(rows, slice):
            yield part, slice(rows.start + part.start, rows.start + part.stop)
        else:
            yield part, rows[part]


def key_blocks(columns: slice, num_rows: int, device: torch.device) -> Iterator[slice]:
    """Split `columns` into consecutive slices, so that each slice fits into a key block.

    `num_rows` is the number of rows of all heads.
    """
    entries = _BLOCK_ENTRIES if device.type == "cpu" else _DEVICE_BLOCK_ENTRIES
    step = 1 << max(0, (entries // max(1, num_rows)).bit_length() - 1)
    for start in range(columns.start, columns.stop, step):
        yield slice(start, min(start + step, columns.stop))


def weights_from_logits(logits: torch.Tensor, log_normalizer: torch.Tensor) -> torch.Tensor:
    """Return the softmax weights of some columns, computed from their logits and normalizers.

    `logits` are (..., rows, columns). The weights replace them in the same tensor.
    `log_normalizer` are the results of `QueryKeyAttention.normalizers` for the rows, (..., rows).
    The weights of a row without an allowed key are 0.

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


def strongest_keys(weights: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `count` largest weights of each row and their keys, in descending order.

    `weights` are (rows, keys). Both results are (rows, min(count, keys)). Keys with equal weights
    are sorted by position.

    >>> [part.tolist() for part in strongest_keys(torch.tensor([[0.25, 0.5, 0.25]]), 2)]
    [[[0.5, 0.25]], [[1, 0]]]
    """
    _, keys = weights.topk(min(count, weights.shape[1]), dim=1)
    keys = keys.sort(dim=1).values
    strongest, order = weights.gather(1, keys).sort(dim=1, descending=True, stable=True)
    return strongest, keys.gather(1, order)
