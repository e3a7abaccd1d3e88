"""One pass over a layer's weights for all that a page makes of them, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from attnviz.pages.limits import count_rows
from attnviz.record.record import AttentionRecord
from attnviz.record.softmax import tiles
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import check_weights

__all__ = ["SmallMaps", "progress", "weight_tiles"]


def progress(record: AttentionRecord, doing: str) -> Any:
    """A bar over all queries of all heads, silent for the second that most pages take.

    Parameters
    ----------
    record : AttentionRecord
        The record.
    doing : str
        What is done with them.

    Returns
    -------
    tqdm
        To be updated by rows, and closed.
    """
    rows = sum(map(count_rows, record.stacks.values()))
    return tqdm(
        total=rows, desc=f"page: {doing}", unit="row", unit_scale=True, delay=1.0, leave=False
    )


def weight_tiles(
    stack: AttentionStack, layer: int, head: int
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """A head's weights, tile by tile of its rows.

    Parameters
    ----------
    stack : AttentionStack
        The stack.
    layer, head : int
        Which head.

    Yields
    ------
    rows : slice
        Neighbouring, in order.
    weights : ndarray
        float32, (rows, columns).

    Raises
    ------
    ValueError
        If a weight is NaN, infinite, negative or larger than can occur.
    """
    of = f"stack {stack.name!r}, layer {layer}, head {head}"
    for rows in tiles(slice(0, len(stack.query_tokens)), len(stack.key_tokens)):
        weights = stack.weights(layer=layer, head=head, rows=rows)
        check_weights(weights[None], stack.maximum, of=of)
        yield rows, weights


class SmallMaps:
    """Maps of a layer's heads, pooled by the maximum tile by tile.

    Cells cover what those of `attnviz.server.codec.pool_max` do.

    Parameters
    ----------
    heads, rows, columns : int
        Size of the layer.
    size : int
        Largest number of cells of a side, at least 1.

    Examples
    --------
    >>> maps = SmallMaps(1, 4, 4, size=2)
    >>> maps.add(0, slice(0, 3), np.eye(4, dtype=np.float32)[:3])
    >>> maps.add(0, slice(3, 4), np.eye(4, dtype=np.float32)[3:] / 2)
    >>> maps.cells
    array([[[1., 0.],
            [0., 1.]]], dtype=float32)
    """

    def __init__(self, heads: int, rows: int, columns: int, size: int) -> None:
        self._starts = [_starts(rows, size), _starts(columns, size)]
        self.cells = np.zeros((heads, *map(len, self._starts)), np.float32)

    def add(self, place: int, rows: slice, weights: NDArray[np.float32]) -> None:
        """Take in some rows of a head.

        Parameters
        ----------
        place : int
            Which head.
        rows : slice
            Which rows.
        weights : ndarray
            float32, (rows, columns).
        """
        row_starts, column_starts = self._starts
        first = int(np.searchsorted(row_starts, rows.start, side="right")) - 1
        last = int(np.searchsorted(row_starts, rows.stop, side="left"))
        begins = np.maximum(row_starts[first:last] - rows.start, 0)
        # Along the rows first, as they lie in memory.
        pooled = np.maximum.reduceat(weights, column_starts, axis=1)
        pooled = np.maximum.reduceat(pooled, begins, axis=0)
        cells = self.cells[place, first:last]
        np.maximum(cells, pooled, out=cells)


def _starts(count: int, size: int) -> NDArray[np.int64]:
    cells = min(count, size)
    return np.arange(cells) * count // cells
