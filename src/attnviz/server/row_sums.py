"""What rows of weights are divided by, kept for whoever looks at the same rows again."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.softmax import normalized, tiles
from attnviz.record.stack import AttentionStack
from attnviz.server.cache import ByteCache

__all__ = ["RowSums"]

# Four bytes a query: a head of 131,072 tokens takes half a megabyte.
_KEPT_BYTES = 64_000_000
# Below so many keys a row is computed again as fast as it is looked up.
_LONG = 4096


class RowSums:
    """Weights of parts of rows, without the rest of the row where it was seen before.

    A row's weights are divided by a sum over all its keys. Kept, it makes a small block of a long
    text as cheap as its own cells.

    Parameters
    ----------
    kept_bytes : int
        What is kept at most; of the heads that were not lately asked for the sums are forgotten.

    Examples
    --------
    >>> import attnviz as av
    >>> vectors = torch.zeros(1, 2, 4)
    >>> stack = av.AttentionRecord.from_qk([vectors], [vectors], ["a", "b"], causal=True).stack()
    >>> RowSums().block(stack, layer=0, head=0, rows=slice(1, 2), columns=slice(0, 1))
    array([[0.5]], dtype=float32)
    """

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept: ByteCache[torch.Tensor] = ByteCache(kept_bytes, lambda sums: sums.nbytes)

    def block(
        self, stack: AttentionStack, *, layer: int, head: int, rows: slice, columns: slice
    ) -> NDArray[np.float32]:
        """Weights of some queries and keys.

        Parameters
        ----------
        stack : AttentionStack
            The stack.
        layer, head : int
            Which head, the layer by the model's number.
        rows, columns : slice
            Start and stop given.

        Returns
        -------
        ndarray
            float32, (rows, columns).

        Raises
        ------
        IndexError
            If the layer or head does not exist.
        """
        known = None
        if len(stack.key_tokens) > max(_LONG, columns.stop - columns.start):
            known = self._vectors(stack, layer, head)
        if known is None:
            return stack.weights(layer=layer, head=head, rows=rows, columns=columns)
        attention, place = known
        sums = self.of(stack, layer, head)
        with torch.no_grad():
            missing = torch.isnan(sums[rows]).nonzero().flatten() + rows.start
            if len(missing):
                sums[missing] = attention.log_normalizer(place, missing).cpu()
            logits = attention.logits(place, rows, columns)
            weights = normalized(logits, sums[rows].to(logits.device))
        block: NDArray[np.float32] = weights.cpu().numpy()
        return block

    def whole_rows(
        self, stack: AttentionStack, *, layer: int, head: int, rows: slice
    ) -> torch.Tensor:
        """Weights of some queries and all keys; what they were divided by is kept.

        Parameters
        ----------
        stack : AttentionStack
            The stack.
        layer, head : int
            Which head.
        rows : slice
            Start and stop given.

        Returns
        -------
        Tensor
            float32, (rows, keys), on the device of the queries: as much memory as its entries take.

        Raises
        ------
        IndexError
            If the layer or head does not exist.
        """
        known = self._vectors(stack, layer, head)
        if known is None or len(stack.key_tokens) <= _LONG:
            return torch.from_numpy(stack.weights(layer=layer, head=head, rows=rows))
        attention, place = known
        sums = self.of(stack, layer, head)
        device, num_keys = attention.queries.device, attention.num_keys
        with torch.no_grad():
            weights = torch.zeros(rows.stop - rows.start, num_keys, device=device)
            for tile in tiles(rows, num_keys):
                part = weights[tile.start - rows.start : tile.stop - rows.start]
                reach = attention.reach(tile)
                if reach.start >= reach.stop:
                    sums[tile] = -torch.inf
                    continue
                logits = attention.logits(place, tile, reach)
                total = attention.log_normalizer_from(place, logits)
                part[:, reach] = normalized(logits, total)
                sums[tile] = total.cpu()
        return weights

    @staticmethod
    def _vectors(
        stack: AttentionStack, layer: int, head: int
    ) -> tuple[QueryKeyAttention, int] | None:
        # Weights of nothing, for the words of an error where the head does not exist.
        stack.weights(layer=layer, head=head, rows=slice(0, 0), columns=slice(0, 0))
        attention = stack.attention(layer)
        return None if attention.vectors is None else (attention.vectors, attention.index(head))

    def of(self, stack: AttentionStack, layer: int, head: int) -> torch.Tensor:
        """The logarithms of the sums of a head, to be read and to be filled.

        Parameters
        ----------
        stack : AttentionStack
            The stack.
        layer, head : int
            Which head.

        Returns
        -------
        Tensor
            float32, (queries,), on the CPU wherever the record lies; NaN where nothing is known.
        """
        key = (stack.name, layer, head)
        sums = self._kept.get(key)
        if sums is None:
            self._kept[key] = sums = torch.full((len(stack.query_tokens),), torch.nan)
        return sums

    @property
    def num_bytes(self) -> int:
        """Bytes that are kept."""
        return self._kept.num_bytes
