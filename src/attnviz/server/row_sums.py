"""What rows of weights are divided by, kept for later requests of the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, QueryKeyAttention, ScaledAttention
from attnviz.record.difference import DifferenceAttention
from attnviz.record.masks import Rows
from attnviz.record.softmax import normalized, tiles
from attnviz.record.stack import AttentionStack
from attnviz.server.cache import ByteCache
from attnviz.utils.progress import Pace, Steps

__all__ = ["KEPT_BYTES", "RowSums", "softmax_sides", "some_rows"]

# Four bytes a query: a head of 131,072 tokens takes half a megabyte.
KEPT_BYTES = 48_000_000
# Below so many keys a row is computed again as fast as it is looked up.
_LONG = 4096


def softmax_sides(attention: LayerAttention) -> tuple[LayerAttention, ...]:
    """The attentions whose queries and keys give a layer's weights; none where they are not known.

    Of a difference both sides, what is taken away first; of weights that are multiplied those
    weights; of any other attention itself.
    """
    sides: tuple[LayerAttention, ...] = (attention,)
    if isinstance(attention, DifferenceAttention):
        sides = attention.a, attention.b
    elif isinstance(attention, ScaledAttention):
        sides = (attention.base,)
    return sides if all(side.vectors is not None for side in sides) else ()


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
    >>> from attnviz.utils.progress import completed
    >>> steps = RowSums().block(stack, layer=0, head=0, rows=slice(1, 2), columns=slice(0, 1))
    >>> completed(steps)
    array([[0.5]], dtype=float32)
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept: ByteCache[torch.Tensor] = ByteCache(kept_bytes, lambda sums: sums.nbytes)

    def block(
        self,
        stack: AttentionStack,
        *,
        layer: int,
        head: int,
        rows: Rows,
        columns: slice,
        pace: Pace | None = None,
    ) -> Steps[NDArray[np.float32]]:
        """Weights of some queries and neighbouring keys, in steps.

        Returns
        -------
        ndarray
            float32, (rows, columns).
        """
        count = len(rows) if isinstance(rows, torch.Tensor) else rows.stop - rows.start
        block = np.zeros((count, columns.stop - columns.start), np.float32)
        pace = pace or Pace("weights", count * len(stack.key_tokens))
        for part in tiles(slice(0, count), len(stack.key_tokens)):
            some = some_rows(rows, part)
            block[part], computed = self._part(stack, layer, head, some, columns)
            yield from pace.did(computed)
        return block

    def _part(
        self, stack: AttentionStack, layer: int, head: int, rows: Rows, columns: slice
    ) -> tuple[NDArray[np.float32], int]:
        """Weights of some queries and keys, and how many were computed for them."""
        attention, num_keys = stack.attention(layer), len(stack.key_tokens)
        head = stack.head_number(layer, head)
        sides = softmax_sides(attention)
        if not sides or num_keys <= max(_LONG, columns.stop - columns.start):
            if isinstance(rows, torch.Tensor):
                block = attention.weights_of_rows(head, rows.numpy())[0][:, columns]
            else:
                block = stack.weights(layer=layer, head=head, rows=rows, columns=columns)
            return block, len(block) * num_keys
        numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        found, computed = [], 0
        for number, side in enumerate(sides):
            known = _vectors(side)
            sums = self.of(stack, layer, head, number)
            with torch.no_grad():
                missing = numbers[torch.isnan(sums[rows])]
                if len(missing):
                    sums[missing] = known.log_normalizer(head, missing).cpu()
                logits = known.logits(head, rows, columns)
                found.append(normalized(logits, sums[rows].to(logits.device)))
            computed += len(missing) * num_keys + logits.numel()
        block = _together(found, attention, head, rows, columns).cpu().numpy()
        return block, computed

    def whole_rows(
        self, stack: AttentionStack, *, layer: int, head: int, rows: slice
    ) -> torch.Tensor:
        """Weights of some queries and all keys; what they were divided by is kept.

        Returns
        -------
        Tensor
            float32, (rows, keys), on the device of the queries: as much memory as its entries take.
        """
        attention = stack.attention(layer)
        head = stack.head_number(layer, head)
        sides = softmax_sides(attention)
        if not sides or len(stack.key_tokens) <= _LONG:
            return torch.from_numpy(stack.weights(layer=layer, head=head, rows=rows))
        found = [
            self._whole_rows(_vectors(side), head, self.of(stack, layer, head, number), rows)
            for number, side in enumerate(sides)
        ]
        return _together(found, attention, head, rows, slice(0, attention.num_keys))

    @staticmethod
    def _whole_rows(
        attention: QueryKeyAttention, head: int, sums: torch.Tensor, rows: slice
    ) -> torch.Tensor:
        device, num_keys = attention.queries.device, attention.num_keys
        with torch.no_grad():
            weights = torch.zeros(rows.stop - rows.start, num_keys, device=device)
            for tile in tiles(rows, num_keys):
                part = weights[tile.start - rows.start : tile.stop - rows.start]
                reach = attention.reach(tile)
                if reach.start >= reach.stop:
                    sums[tile] = -torch.inf
                    continue
                logits = attention.logits(head, tile, reach)
                total = attention.log_normalizer_from(head, logits)
                part[:, reach] = normalized(logits, total)
                sums[tile] = total.cpu()
        return weights

    def of(self, stack: AttentionStack, layer: int, head: int, side: int = 0) -> torch.Tensor:
        """The logarithms of the sums of a head, to be read and to be filled.

        Of a difference those of one of its sides, by their places in `softmax_sides`.

        Returns
        -------
        Tensor
            float32, (queries,), on the CPU wherever the record lies; NaN where nothing is known.
        """
        key = (stack.name, layer, head, side)
        sums = self._kept.get(key)
        if sums is None:
            self._kept[key] = sums = torch.full((len(stack.query_tokens),), torch.nan)
        return sums

    @property
    def num_bytes(self) -> int:
        """Bytes that are kept."""
        return self._kept.num_bytes


def some_rows(rows: Rows, part: slice) -> Rows:
    """Those of some queries that stand at the places of `part`."""
    if isinstance(rows, torch.Tensor):
        return rows[part]
    return slice(rows.start + part.start, rows.start + part.stop)


def _vectors(attention: LayerAttention) -> QueryKeyAttention:
    """A layer's queries and keys."""
    vectors = attention.vectors
    if vectors is None:
        raise ValueError("only weights are known, and no queries and keys")
    return vectors


def _together(
    sides: Sequence[torch.Tensor],
    attention: LayerAttention,
    head: int,
    rows: Rows,
    columns: slice,
) -> torch.Tensor:
    """A block of a layer, of the weights of its `softmax_sides`.

    A difference is 0 for queries that one side lacks.
    """
    if isinstance(attention, ScaledAttention):
        return attention.scaled(sides[0], head, rows, columns)
    if len(sides) == 1:
        return sides[0]
    a, b = sides
    each = [rows] if isinstance(rows, slice) else [slice(n, n + 1) for n in rows.tolist()]
    attends = np.concatenate([attention.attends(head, some) for some in each])
    there = torch.from_numpy(attends).to(b.device)
    return (b - a.to(b.device)).masked_fill_(~there[:, None], 0.0)
