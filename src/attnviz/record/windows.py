"""Attention within windows: which tokens share one, and what is added inside of each.

Models that look at an image window by window (Swin, the towers of some vision-language models)
compute one small attention a window. In a record they are one attention over all tokens, of which
only pairs in the same window are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Device", "Rows", "WindowBias", "WindowMask"]

#: Queries of a block: start and stop of a slice, or an int64 tensor of their numbers.
Rows = slice | torch.Tensor
#: Where a block is made; None is where the mask or bias itself lies.
Device = torch.device | None


@dataclass(frozen=True)
class WindowMask:
    """Keys allowed within the query's own window.

    Attributes
    ----------
    query_windows, key_windows : Tensor
        int64, (queries,) and (keys,): the number of the window that each token lies in.

    Examples
    --------
    >>> windows = torch.tensor([0, 0, 1])
    >>> WindowMask(windows, windows).allowed(0, slice(0, 1), slice(0, 3)).tolist()
    [[True, True, False]]
    """

    query_windows: torch.Tensor
    key_windows: torch.Tensor

    def allowed(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Flags of a block, bool, (rows, columns); the same for every head."""
        del head
        queries = self.query_windows[rows].to(device)
        return queries[:, None] == self.key_windows[columns].to(device)


@dataclass(frozen=True)
class WindowBias:
    """A bias that depends on where in the window query and key lie.

    Attributes
    ----------
    values : Tensor
        float32, (windows or 1, heads or 1, queries of a window, keys of a window).
    query_windows, key_windows : Tensor
        int64, (queries,) and (keys,): the number of the window that each token lies in.
    query_places, key_places : Tensor
        int64, (queries,) and (keys,): the place of each token in its window.
    """

    values: torch.Tensor
    query_windows: torch.Tensor
    key_windows: torch.Tensor
    query_places: torch.Tensor
    key_places: torch.Tensor

    def added(self, head: int, rows: Rows, columns: slice, device: Device = None) -> torch.Tensor:
        """Values of a block, float32, (rows, columns); 0 where the windows differ."""
        values = self.values[:, head if self.values.shape[1] > 1 else 0].to(device)
        windows = self.query_windows[rows][:, None].to(device)
        block = values[
            windows if len(values) > 1 else torch.zeros_like(windows),
            self.query_places[rows][:, None].to(device),
            self.key_places[columns].to(device),
        ]
        return block.masked_fill(windows != self.key_windows[columns].to(device), 0.0)
