"""Cache of the softmax normalizers of attention rows.

A row has the weights of one query. Its softmax normalizer is the logarithm of the sum by which the
softmax divides (log-sum-exp of the logits).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, QueryKeyAttention, ScaledAttention
from attnviz.record.difference import DifferenceAttention
from attnviz.record.masks import Rows
from attnviz.record.softmax import row_tiles, weights_from_logits
from attnviz.record.stack import AttentionStack
from attnviz.server.cache import ByteCache
from attnviz.utils.progress import Pace

__all__ = ["CACHE_BYTES", "RowNormalizers", "slice_rows", "softmax_sides"]

# Default maximum size of the cache in bytes. A head needs 4 bytes per query, which is half a
# megabyte for 131,072 tokens.
CACHE_BYTES = 48_000_000
# The cache is not used for texts with at most this many keys, because computing a complete row is
# fast enough.
_MAX_RECOMPUTED_KEYS = 4096


def softmax_sides(attention: LayerAttention) -> tuple[LayerAttention, ...]:
    """Return the attention objects from whose queries and keys the weights of a layer are computed.

    For a difference ``b - a``, they are `a` and `b`. For scaled weights, the only item is the
    attention before scaling. Otherwise the only item is `attention`. The tuple is empty if one of
    them has no queries and keys.
    """
    sides: tuple[LayerAttention, ...] = (attention,)
    if isinstance(attention, DifferenceAttention):
        sides = attention.a, attention.b
    elif isinstance(attention, ScaledAttention):
        sides = (attention.base,)
    return sides if all(side.vectors is not None for side in sides) else ()


class RowNormalizers:
    """Cache of softmax normalizers, with methods that compute weights from them.

    The softmax divides each row by a sum over all keys. If this sum is cached, the time to compute
    a small block of weights depends on the size of the block and not on the length of the text.

    Parameters
    ----------
    max_bytes : int
        Maximum size of the cached normalizers in bytes. The normalizers of the least recently used
        heads are dropped first.

    Examples
    --------
    >>> import attnviz as av
    >>> vectors = torch.zeros(1, 2, 4)
    >>> stack = av.AttentionRecord.from_qk([vectors], [vectors], ["a", "b"], causal=True).stack()
    >>> RowNormalizers().block(
    ...     stack, layer=0, head=0, rows=slice(1, 2), columns=slice(0, 1)
    ... )
    array([[0.5]], dtype=float32)
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._cache: ByteCache[torch.Tensor] = ByteCache(
            max_bytes, lambda normalizers: normalizers.nbytes
        )

    def block(
        self,
        stack: AttentionStack,
        *,
        layer: int,
        head: int,
        rows: Rows,
        columns: slice,
        pace: Pace | None = None,
    ) -> NDArray[np.float32]:
        """Compute the weights of the queries `rows` on the keys `columns`.

        Returns
        -------
        ndarray
            Weights, float32, (rows, columns).
        """
        count = len(rows) if isinstance(rows, torch.Tensor) else rows.stop - rows.start
        block = np.zeros((count, columns.stop - columns.start), np.float32)
        pace = pace or Pace("weights", count * len(stack.key_tokens))
        for part in row_tiles(slice(0, count), len(stack.key_tokens)):
            part_rows = slice_rows(rows, part)
            block[part], computed = self._part(stack, layer, head, part_rows, columns)
            pace.advance(computed)
        return block

    def _part(
        self, stack: AttentionStack, layer: int, head: int, rows: Rows, columns: slice
    ) -> tuple[NDArray[np.float32], int]:
        """Return the weights of `rows` and `columns`, and the number of logits or weights computed.

        This number is larger than the number of returned weights if normalizers are not cached.
        """
        attention, num_keys = stack.attention(layer), len(stack.key_tokens)
        head = stack.head_number(layer, head)
        sides = softmax_sides(attention)
        if not sides or num_keys <= max(_MAX_RECOMPUTED_KEYS, columns.stop - columns.start):
            if isinstance(rows, torch.Tensor):
                block = attention.weights_of_rows(head, rows.numpy())[0][:, columns]
            else:
                block = stack.weights(layer=layer, head=head, rows=rows, columns=columns)
            return block, len(block) * num_keys
        numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        blocks, computed = [], 0
        for side_index, side in enumerate(sides):
            vectors = _require_vectors(side)
            normalizers = self.log_normalizers(stack, layer, head, side_index)
            with torch.no_grad():
                missing = numbers[torch.isnan(normalizers[rows])]
                if len(missing):
                    normalizers[missing] = vectors.log_normalizer(head, missing).cpu()
                logits = vectors.logits(head, rows, columns)
                blocks.append(weights_from_logits(logits, normalizers[rows].to(logits.device)))
            computed += len(missing) * num_keys + logits.numel()
        block = _combine_sides(blocks, attention, head, rows, columns).cpu().numpy()
        return block, computed

    def whole_rows(
        self, stack: AttentionStack, *, layer: int, head: int, rows: slice
    ) -> torch.Tensor:
        """Compute the weights of the queries `rows` on all keys.

        The normalizers are cached, except for short texts and layers without queries and keys.

        Returns
        -------
        Tensor
            Weights, float32, (rows, keys), on the device of the layer's queries or on the CPU.
        """
        attention = stack.attention(layer)
        head = stack.head_number(layer, head)
        sides = softmax_sides(attention)
        if not sides or len(stack.key_tokens) <= _MAX_RECOMPUTED_KEYS:
            return torch.from_numpy(stack.weights(layer=layer, head=head, rows=rows))
        blocks = [
            self._whole_rows(
                _require_vectors(side),
                head,
                self.log_normalizers(stack, layer, head, side_index),
                rows,
            )
            for side_index, side in enumerate(sides)
        ]
        return _combine_sides(blocks, attention, head, rows, slice(0, attention.num_keys))

    @staticmethod
    def _whole_rows(
        attention: QueryKeyAttention, head: int, normalizers: torch.Tensor, rows: slice
    ) -> torch.Tensor:
        device, num_keys = attention.queries.device, attention.num_keys
        with torch.no_grad():
            weights = torch.zeros(rows.stop - rows.start, num_keys, device=device)
            for tile in row_tiles(rows, num_keys):
                part = weights[tile.start - rows.start : tile.stop - rows.start]
                key_range = attention.key_range(tile)
                if key_range.start >= key_range.stop:
                    normalizers[tile] = -torch.inf
                    continue
                logits = attention.logits(head, tile, key_range)
                log_normalizer = attention.log_normalizer_from(head, logits)
                part[:, key_range] = weights_from_logits(logits, log_normalizer)
                normalizers[tile] = log_normalizer.cpu()
        return weights

    def log_normalizers(
        self, stack: AttentionStack, layer: int, head: int, side: int = 0
    ) -> torch.Tensor:
        """Return the cached normalizers of a head. The caller may fill in missing values.

        `side` is an index into `softmax_sides`. For a difference ``b - a``, 0 selects the
        normalizers of `a` and 1 those of `b`. Other layers have only index 0.

        Returns
        -------
        Tensor
            Log-sum-exp of the logits of each query, float32, (queries,), on the CPU. NaN for
            queries whose value is missing.
        """
        key = (stack.name, layer, head, side)
        normalizers = self._cache.get(key)
        if normalizers is None:
            self._cache[key] = normalizers = torch.full((len(stack.query_tokens),), torch.nan)
        return normalizers

    @property
    def num_bytes(self) -> int:
        return self._cache.num_bytes


def slice_rows(rows: Rows, part: slice) -> Rows:
    """Return ``rows[part]``, where `rows` can be a tensor of positions or a slice."""
    if isinstance(rows, torch.Tensor):
        return rows[part]
    return slice(rows.start + part.start, rows.start + part.stop)


def _require_vectors(attention: LayerAttention) -> QueryKeyAttention:
    """Return the queries and keys of `attention`. Raise ValueError if it has only weights."""
    vectors = attention.vectors
    if vectors is None:
        raise ValueError("this attention has weights, but no queries and keys")
    return vectors


def _combine_sides(
    sides: Sequence[torch.Tensor],
    attention: LayerAttention,
    head: int,
    rows: Rows,
    columns: slice,
) -> torch.Tensor:
    """Compute the weights of `attention` from those of its `softmax_sides`: scale or subtract.

    A difference is 0 for queries that have no allowed key in one of the two attention objects.
    """
    if isinstance(attention, ScaledAttention):
        return attention.scaled(sides[0], head, rows, columns)
    if len(sides) == 1:
        return sides[0]
    a, b = sides
    slices = [rows] if isinstance(rows, slice) else [slice(n, n + 1) for n in rows.tolist()]
    has_key = np.concatenate([attention.has_allowed_key(head, part) for part in slices])
    defined = torch.from_numpy(has_key).to(b.device)
    return (b - a.to(b.device)).masked_fill_(~defined[:, None], 0.0)
