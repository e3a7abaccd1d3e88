"""Cache of the softmax normalizers of attention rows.

A row has the weights of one query. Its softmax normalizer is the logarithm of the sum by which the
softmax divides (log-sum-exp of the logits).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from attnviz.record.masks import Rows
from attnviz.record.softmax import count_rows, row_groups, tile_rows
from attnviz.record.stack import AttentionStack
from attnviz.server.cache import ByteCache
from attnviz.utils.progress import Pace

# Default maximum size of the cache in bytes. A head needs 4 bytes per query, which is half a
# megabyte for 131,072 tokens. A head with differences of weights needs twice as much.
CACHE_BYTES = 48_000_000
# If a text has at most this many keys, the cache is not used, because computing complete rows is
# fast enough.
_MAX_RECOMPUTED_KEYS = 4096


class RowNormalizers:
    """Cache of softmax normalizers.

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
    >>> RowNormalizers().block(stack, 0, [0], slice(1, 2), slice(0, 1))
    tensor([[[0.5000]]])
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._cache: ByteCache[torch.Tensor] = ByteCache(
            max_bytes, lambda normalizers: normalizers.nbytes
        )

    def block(
        self,
        stack: AttentionStack,
        layer: int,
        heads: Sequence[int],
        rows: Rows,
        columns: slice | None = None,
        *,
        cached: bool = True,
        pace: Pace | None = None,
    ) -> torch.Tensor:
        """Compute a block of weights as `LayerAttention.block` does.

        For long texts, cached normalizers are used, unless `cached` is False. Rows are computed in
        groups, to limit the memory and to report the progress.
        """
        attention, num_keys = stack.attention(layer), len(stack.key_tokens)
        pace = pace or Pace("weights", len(heads) * count_rows(rows) * num_keys)
        blocks = [attention.block(heads, slice(0, 0), columns)]
        for _, group in row_groups(rows, tile_rows(len(heads) * num_keys)):
            normalizers = None
            if cached and attention.num_softmaxes and num_keys > _MAX_RECOMPUTED_KEYS:
                normalizers = self._normalizers(stack, layer, heads, group)
            blocks.append(attention.block(heads, group, columns, normalizers))
            pace.advance(len(heads) * count_rows(group) * num_keys)
        return torch.cat(blocks, dim=1)

    def _normalizers(
        self, stack: AttentionStack, layer: int, heads: Sequence[int], rows: Rows
    ) -> torch.Tensor:
        """Return the result of `LayerAttention.normalizers` from the cache.

        If the normalizer of a row is missing for one of `heads`, compute and cache the normalizers
        of this row for all of `heads`.
        """
        attention = stack.attention(layer)
        cached = []
        for head in heads:
            key = stack.name, layer, head
            of_head = self._cache.get(key)
            if of_head is None:
                size = attention.num_softmaxes, attention.num_queries
                # NaN stands for a normalizer that has not been computed yet.
                self._cache[key] = of_head = torch.full(size, torch.nan)
            cached.append(of_head)
        normalizers = torch.stack([of_head[:, rows] for of_head in cached], dim=1)
        is_missing = normalizers.isnan().any(dim=0).any(dim=0)
        if bool(is_missing.any()):
            positions = torch.arange(attention.num_queries)[rows][is_missing]
            normalizers[..., is_missing] = attention.normalizers(heads, positions).cpu()
            for of_head, computed in zip(cached, normalizers.unbind(dim=1), strict=True):
                of_head[:, rows] = computed
        return normalizers

    @property
    def num_bytes(self) -> int:
        return self._cache.num_bytes
