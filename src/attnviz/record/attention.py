"""The attention of a layer: weights computed from queries and keys, or stored weights.

For a head with queries q, keys k (as the model's attention receives them, after rotary position
embedding and normalization), a scale, a position bias b, a mask, a soft cap c and a sink logit s,

    logits = cap(scale * q k^T) + b        cap(x) = c tanh(x / c)
    weights = softmax over the allowed keys and the sink, without the sink's column

(Vaswani et al. 2017, equation 1; Gemma 2 report, section 2, for the cap; gpt-oss model card for the
sink). Rows sum to 1, except with a sink (1 minus the sink's share) and if no key is allowed (0).

Rows are queries and columns are keys. A block is the part of a head's weights that belongs to some
rows and some columns. All other modules use the interface `LayerAttention`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.masks import Bias, Mask, Rows
from attnviz.record.softmax import exp_in_place, key_blocks, row_tiles, weights_from_logits

__all__ = [
    "DerivedAttention",
    "LayerAttention",
    "QueryKeyAttention",
    "ReweightedAttention",
    "RowsOfHeads",
    "ScaledAttention",
    "StoredWeights",
]

# Number of queries that are multiplied with a block of keys at once.
_ROWS_PER_PRODUCT = 256
# Smaller number for queries that are sampled from the whole text. In causal attention, a group of
# queries is multiplied with the keys up to the last query of the group. Small groups at the
# beginning of the text therefore need few keys.
_SAMPLED_ROWS_PER_PRODUCT = 8

Numbers = NDArray[np.float64]


class RowsOfHeads(Protocol):
    """Selected rows of several heads. Each call reads some of these rows and some columns."""

    def weights(self, rows: slice, columns: slice) -> Numbers:
        """Return weights, float64, (heads, rows, columns). `rows` counts only selected rows."""
        ...

    def allowed(self, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Return whether each query-key pair is allowed, bool, (heads, rows, columns)."""
        ...


class LayerAttention(ABC):
    """Interface to the attention of one layer. Subclasses store or compute the weights."""

    @property
    @abstractmethod
    def num_heads(self) -> int:
        """Number of query heads."""

    @property
    @abstractmethod
    def num_queries(self) -> int:
        """Number of queries, which are the rows."""

    @property
    @abstractmethod
    def num_keys(self) -> int:
        """Number of keys, which are the columns."""

    @property
    def causal(self) -> bool:
        """Whether the mask is known to forbid attention to all later keys."""
        return False

    @property
    def merged(self) -> bool:
        """Whether tokens were merged into words, which are then the rows and columns."""
        return False

    @property
    def bound(self) -> float | None:
        """Upper bound of the absolute weights that is known without reading them, or None."""
        return None

    @property
    def vectors(self) -> QueryKeyAttention | None:
        """The layer itself if it is a `QueryKeyAttention`, otherwise None."""
        return None

    @property
    def stored_weights(self) -> torch.Tensor | None:
        """Weights of a `StoredWeights` layer, (heads, queries, keys). None for other layers."""
        return None

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Queries and keys of `vectors`, or `stored_weights`, or no tensor if both are None."""
        if self.vectors is not None:
            return self.vectors.queries, self.vectors.keys
        return () if self.stored_weights is None else (self.stored_weights,)

    @abstractmethod
    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Return a block of weights, float32, (rows, columns).

        The slices must have a start and a stop.
        """

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Return whether each query may attend to each key, bool, (rows, columns).

        If no mask is known, all entries are True. A weight of zero does not prove that a mask
        forbids the pair.
        """
        del head
        return np.ones((rows.stop - rows.start, columns.stop - columns.start), np.bool_)

    def key_range(self, rows: Rows) -> slice:
        """Return a range of keys outside which the queries `rows` have no weight.

        Pass at least one query.
        """
        del rows
        return slice(0, self.num_keys)

    def has_allowed_key(self, head: int, rows: slice) -> NDArray[np.bool_]:
        """Return whether each query may attend to at least one key, bool, (rows,)."""
        keys = slice(0, self.num_keys)
        flags = [
            self.allowed(head, tile, keys).any(axis=1) for tile in row_tiles(rows, self.num_keys)
        ]
        return np.concatenate([np.zeros(0, np.bool_), *flags])

    def weights_of_rows(
        self, head: int, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the weights and the flags of `allowed` for the queries `rows`, (rows, keys) each.

        Pass few queries: the result holds all of their weights in memory.

        >>> layer = StoredWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
        >>> layer.weights_of_rows(0, np.array([1]))[0]
        array([[0.25, 0.75]], dtype=float32)
        """
        columns = slice(0, self.num_keys)
        # Read consecutive rows with one slice.
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        slices = [slice(int(run[0]), int(run[-1]) + 1) for run in runs]
        return (
            np.concatenate([self.weights(head, rows_slice, columns) for rows_slice in slices]),
            np.concatenate([self.allowed(head, rows_slice, columns) for rows_slice in slices]),
        )

    def weights_of_heads(self, heads: Sequence[int], rows: slice) -> NDArray[np.float32]:
        """Return the weights of `heads` for all keys, float32, (heads, rows, keys).

        Pass few queries: the result holds all of their weights in memory.

        >>> layer = StoredWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
        >>> layer.weights_of_heads([0], slice(1, 2))
        array([[[0.25, 0.75]]], dtype=float32)
        """
        return np.stack([self.weights(head, rows, slice(0, self.num_keys)) for head in heads])

    def rows_of_each_head(
        self, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the results of `weights_of_rows` for all `heads`, (heads, rows, keys) each.

        Do not change the arrays, which may share memory with the layer. If `shares_mask` is True,
        the second array is (1, rows, keys).

        >>> layer = StoredWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
        >>> layer.rows_of_each_head([0], np.array([1]))[0]
        array([[[0.25, 0.75]]], dtype=float32)
        """
        results = [self.weights_of_rows(head, rows) for head in heads]
        masks = [allowed for _, allowed in results][: 1 if self.shares_mask else len(results)]
        return np.stack([weights for weights, _ in results]), np.stack(masks)

    @property
    def shares_mask(self) -> bool:
        """Whether all heads are known to have the same mask."""
        return False

    def rows_of_heads(
        self, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> Iterator[tuple[list[int], RowsOfHeads]]:
        """Yield the weights of the queries `rows`, for one group of `heads` after another.

        Each item contains the indices of the group in `heads`, and a `RowsOfHeads` of these heads.
        Pass few queries, because some layers load complete rows into memory.

        >>> layer = StoredWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
        >>> [(indices, rows)] = layer.rows_of_heads([0], np.array([1]))
        >>> rows.weights(slice(0, 1), slice(0, 1)).tolist()
        [[[0.25]]]
        """
        for number, head in enumerate(heads):
            yield [number], _CompleteRows(*self.weights_of_rows(head, rows))


@dataclass(frozen=True)
class DerivedAttention(LayerAttention):
    """Attention that is computed from the attention `base`, with the same number of heads.

    Rows, columns or weights may differ from those of `base`.
    """

    base: LayerAttention

    @property
    def num_heads(self) -> int:
        return self.base.num_heads

    @property
    def bound(self) -> float | None:
        """Bound of `base`, which also bounds the sum of several weights of a row."""
        return self.base.bound


@dataclass(frozen=True)
class ReweightedAttention(DerivedAttention):
    """Attention with the rows and columns of `base`, and by default its mask, but other weights."""

    @property
    def num_queries(self) -> int:
        return self.base.num_queries

    @property
    def num_keys(self) -> int:
        return self.base.num_keys

    @property
    def causal(self) -> bool:
        return self.base.causal

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        return self.base.allowed(head, rows, columns)


@dataclass(frozen=True)
class ScaledAttention(ReweightedAttention):
    """The weights of `base`, each multiplied by a factor that depends on the pair."""

    @abstractmethod
    def scaled(self, weights: torch.Tensor, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        """Multiply a block of weights of `base` by the factor of each pair, (rows, columns)."""

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        weights = torch.from_numpy(self.base.weights(head, rows, columns))
        block: NDArray[np.float32] = self.scaled(weights, head, rows, columns).cpu().numpy()
        return block


@dataclass(frozen=True)
class QueryKeyAttention(LayerAttention):
    """Attention of a layer, stored as queries and keys. Weights are computed on demand.

    Attributes
    ----------
    queries : Tensor
        (heads, queries, head_dim), in the dtype that the model's attention received.
    keys : Tensor
        (key_heads, keys, head_dim). ``heads`` is a multiple of ``key_heads``: query head h reads
        key head ``h // (heads // key_heads)`` (grouped-query attention, Ainslie et al. 2023).
    scale : float
        Factor of the dot products, usually 1 / sqrt(head_dim).
    mask : Mask or None
        Keys that each query may attend to. None means all.
    bias : Bias or None
        Values added to the logits after the soft cap.
    softcap : float or None
        Limit c of the soft cap. None if logits are not capped.
    sinks : Tensor or None
        (heads,): a learned logit per head, which takes a share of the weight of each row. None if
        the model has no sinks.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    scale: float
    mask: Mask | None = None
    bias: Bias | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if the shapes do not match."""
        queries, keys = tuple(self.queries.shape), tuple(self.keys.shape)
        if len(queries) != 3 or len(keys) != 3:
            raise ValueError(
                f"queries and keys must be (heads, tokens, head_dim); got {queries} and {keys}"
            )
        if queries[2] != keys[2]:
            raise ValueError(
                f"queries have head_dim {queries[2]} but keys {keys[2]}; they must be equal"
            )
        if keys[0] == 0 or queries[0] % keys[0]:
            raise ValueError(
                f"{queries[0]} query heads cannot share {keys[0]} key heads; "
                "the first must be a multiple of the second"
            )
        if self.sinks is not None and tuple(self.sinks.shape) != (queries[0],):
            raise ValueError(
                f"sinks must be ({queries[0]},), one logit per head; got {tuple(self.sinks.shape)}"
            )

    @property
    def num_heads(self) -> int:
        return self.queries.shape[0]

    @property
    def num_key_heads(self) -> int:
        return self.keys.shape[0]

    @property
    def num_queries(self) -> int:
        return self.queries.shape[1]

    @property
    def num_keys(self) -> int:
        return self.keys.shape[1]

    @property
    def causal(self) -> bool:
        return self.mask is not None and self.mask.causal

    @property
    def bound(self) -> float:
        """1, because the weights are the result of a softmax."""
        return 1.0

    @property
    def vectors(self) -> QueryKeyAttention:
        return self

    @property
    def offset(self) -> int:
        """Position of query 0 among the keys, or 0 if the mask does not define it."""
        return 0 if self.mask is None else self.mask.offset

    def key_head(self, head: int) -> int:
        """Return the key head that a query head reads."""
        return head // (self.num_heads // self.keys.shape[0])

    def only_head(self, head: int) -> QueryKeyAttention:
        """Return a layer with a single query head, and with the key head that this head reads."""
        shared = self.key_head(head)
        return replace(
            self,
            queries=self.queries[head : head + 1],
            keys=self.keys[shared : shared + 1],
            mask=None if self.mask is None else self.mask.only_head(head),
            bias=None if self.bias is None else self.bias.only_head(head),
            sinks=None if self.sinks is None else self.sinks[head : head + 1],
        )

    def permute(self, order: torch.Tensor) -> QueryKeyAttention:
        """Return this attention for the same tokens in another order.

        Queries and keys must be the same tokens. `order` is int64, (tokens,): the old position of
        the token at each new position.
        """
        indices = order.to(self.queries.device)
        return replace(
            self,
            queries=self.queries[:, indices],
            keys=self.keys[:, indices],
            mask=None if self.mask is None else self.mask.permute(order),
            bias=None if self.bias is None else self.bias.permute(order),
        )

    def logits(self, head: int, rows: Rows, columns: slice | None = None) -> torch.Tensor:
        """Return the logits of a block, by default for all keys.

        The result is float32, (rows, columns), on the device of the queries. Logits of keys that
        are not allowed are minus infinity.
        """
        return self.shared_logits([head], rows, columns)[0]

    def shared_logits(
        self, heads: Sequence[int], rows: Rows, columns: slice | None = None
    ) -> torch.Tensor:
        """Return the logits of several heads that read the same keys, (heads, rows, columns)."""
        columns = slice(0, self.num_keys) if columns is None else columns
        if len(heads) == 1:
            queries = self.queries[heads[0], rows]
        else:
            queries = torch.stack([self.queries[head, rows] for head in heads])
        keys = self.keys[self.key_head(heads[0]), columns].float()
        device = queries.device
        # Disable autocast. The weights would otherwise change if the caller has enabled it.
        with torch.autocast(device.type, enabled=False):
            # Scaling the queries takes fewer operations than scaling the logits.
            logits = (queries.float() * self.scale) @ keys.T
        logits = logits[None] if len(heads) == 1 else logits
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        if self.bias is not None:
            for group, head in _by_head(self.bias, heads):
                logits[group] += self.bias.added(head, rows, columns, device)
        if self.mask is not None:
            visible = self.mask.fully_visible_keys(rows, columns)
            # All queries may attend to the `visible` keys. Read the mask only for the columns
            # before and after these keys.
            for part in (slice(columns.start, visible.start), slice(visible.stop, columns.stop)):
                if part.start == part.stop:
                    continue
                local = slice(part.start - columns.start, part.stop - columns.start)
                for group, head in _by_head(self.mask, heads):
                    allowed = self.mask.allowed(head, rows, part, device)
                    logits[group, :, local].masked_fill_(~allowed, -torch.inf)
        return logits

    def logits_of_products(
        self, products: torch.Tensor, heads: Sequence[int], rows: torch.Tensor
    ) -> torch.Tensor:
        """Apply the soft cap, bias and mask to dot products in place. Return `products`.

        `products` are scaled dot products of queries with all keys, (..., heads, rows, keys). Axes
        before the heads are examples that share the mask and bias. `rows` are the positions of the
        queries, int64, (heads, rows), or (1, rows) if they are the same in all heads.

        >>> from attnviz.record.masks import BandMask
        >>> vectors = torch.zeros(1, 3, 4)
        >>> attention = QueryKeyAttention(vectors, vectors, 0.5, mask=BandMask(None, 0))
        >>> attention.logits_of_products(torch.ones(1, 1, 3), [0], torch.tensor([[1]]))
        tensor([[[1., 1., -inf]]])
        """
        device, columns = products.device, slice(0, self.num_keys)
        if self.softcap is not None:
            products.div_(self.softcap).tanh_().mul_(self.softcap)
        if self.bias is not None:
            for group, head, numbers in _by_head_with_rows(self.bias, heads, rows):
                added = self.bias.added(head, numbers.flatten(), columns, device)
                products[..., group, :, :] += added.reshape(
                    len(numbers) if len(added) > 1 else 1, -1, self.num_keys
                )
        if self.mask is not None:
            for group, head, numbers in _by_head_with_rows(self.mask, heads, rows):
                allowed = self.mask.allowed(head, numbers.flatten(), columns, device)
                products[..., group, :, :].masked_fill_(
                    ~allowed.reshape(len(numbers), -1, self.num_keys), -torch.inf
                )
        return products

    def key_range(self, rows: Rows) -> slice:
        everything = slice(0, self.num_keys)
        return everything if self.mask is None else self.mask.key_range(rows, self.num_keys)

    def log_normalizer(self, head: int, rows: Rows) -> torch.Tensor:
        """Return the logarithm of the softmax denominator of each query, including the sink.

        The result is float32, (rows,), on the device of the queries. An entry is minus infinity if
        the query has neither an allowed key nor a sink. With this result, `weights_from_logits`
        computes the weights of some of the keys from their logits.

        >>> attention = QueryKeyAttention(torch.zeros(1, 2, 4), torch.zeros(1, 8, 4), 0.5)
        >>> attention.log_normalizer(0, slice(0, 2)).exp().round()
        tensor([8., 8.])
        """
        numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        sums = torch.empty(len(numbers), dtype=torch.float32, device=self.queries.device)
        with torch.no_grad():
            for start in range(0, len(numbers), _ROWS_PER_PRODUCT):
                chunk = slice(start, min(start + _ROWS_PER_PRODUCT, len(numbers)))
                positions: Rows = numbers[chunk]
                if isinstance(rows, slice):
                    positions = slice(rows.start + chunk.start, rows.start + chunk.stop)
                sums[chunk] = self.shared_log_normalizer([head], positions)[0]
        return sums

    def shared_log_normalizer(self, heads: Sequence[int], rows: Rows) -> torch.Tensor:
        """Return `log_normalizer` of several heads that read the same keys, (heads, rows).

        Exponentials are summed over one block of keys after another, relative to the largest logit
        so far (online softmax, Milakov and Gimelshein 2018, arXiv 1805.02867). No complete row is
        in memory.
        """
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        shape, device = (len(heads), count), self.queries.device
        maximum = torch.full(shape, -torch.inf, device=device)
        total = torch.zeros(shape, device=device)
        if self.sinks is not None:
            maximum = self.sinks[list(heads)].float().to(device)[:, None].expand(shape)
            total = torch.ones(shape, device=device)
        for columns in key_blocks(self.key_range(rows), shape[0] * count, device):
            logits = self.shared_logits(heads, rows, columns)
            new_maximum = torch.maximum(maximum, logits.amax(dim=-1))
            # The maximum of a row is minus infinity until a key is allowed. Subtract 0 from such a
            # row, because the difference of two infinities is NaN.
            reference = new_maximum.masked_fill(torch.isneginf(new_maximum), 0.0)
            logits -= reference[..., None]
            total = total * torch.exp(maximum - reference) + exp_in_place(logits).sum(dim=-1)
            maximum = new_maximum
        return maximum + torch.log(total)

    def log_normalizer_from(self, head: int, logits: torch.Tensor) -> torch.Tensor:
        """Compute `log_normalizer` of some queries from the logits of all of their allowed keys.

        `logits` is (rows, keys). Instead of several keys, `logits` may contain one column with the
        log-sum-exp of their logits.
        """
        total = torch.logsumexp(logits, dim=-1)
        if self.sinks is None:
            return total
        sink = self.sinks[head].to(total.device, total.dtype)
        return torch.logaddexp(total, sink.expand_as(total))

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        block = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.float32)
        device = self.queries.device.type
        with torch.no_grad(), torch.autocast(device, enabled=False):
            for tile in row_tiles(rows, self.num_keys):
                # No query of the tile (a slice of `rows`) may attend to keys outside `keys`. The
                # weights of keys outside `keys` stay 0 and are not computed.
                keys = self.key_range(tile)
                computed = slice(max(keys.start, columns.start), min(keys.stop, columns.stop))
                if computed.start >= computed.stop:
                    continue
                logits = self.logits(head, tile, keys)
                if self.sinks is not None:
                    sink = self.sinks[head].float().to(logits.device).expand(len(logits), 1)
                    weights = torch.softmax(torch.cat([logits, sink], dim=1), dim=1)[:, :-1]
                else:
                    # The softmax of a row without an allowed key is NaN. Its weights are 0.
                    weights = torch.softmax(logits, dim=1)
                    is_empty = torch.isneginf(logits.amax(dim=1))
                    weights[is_empty] = 0.0
                start = tile.start - rows.start
                target = slice(computed.start - columns.start, computed.stop - columns.start)
                weights = weights[:, computed.start - keys.start : computed.stop - keys.start]
                block[start : start + len(weights), target] = weights.cpu().numpy()
        return block

    def weights_of_heads(self, heads: Sequence[int], rows: slice) -> NDArray[np.float32]:
        device = self.queries.device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            if tuple(heads) == tuple(range(len(self.queries))) and len(self.keys) == len(heads):
                # If each head reads its own keys and all heads are requested in order, slices
                # avoid the copy that a list index makes.
                queries, keys = self.queries[:, rows], self.keys
            else:
                queries = self.queries[list(heads), rows]
                keys = self.keys[[self.key_head(head) for head in heads]]
            queries, keys = self.scale * queries.float(), keys.float()
            numbers = torch.arange(rows.start, rows.stop)[None]
            logits = self.logits_of_products(queries @ keys.transpose(1, 2), heads, numbers)
            if self.sinks is None:
                # The softmax of a row without an allowed key is NaN. Its weights are 0.
                is_empty = torch.isneginf(logits.amax(dim=-1))
                weights = torch.softmax(logits, dim=-1).masked_fill_(is_empty[..., None], 0.0)
            else:
                sinks = self.sinks[list(heads)].float().to(device)[:, None, None]
                logits = torch.cat([logits, sinks.expand(*logits.shape[:2], 1)], dim=-1)
                weights = torch.softmax(logits, dim=-1)[..., :-1]
        block: NDArray[np.float32] = weights.cpu().numpy()
        return block

    @property
    def shares_mask(self) -> bool:
        return self.mask is None or self.mask.num_heads == 1

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        if self.mask is None:
            return super().allowed(head, rows, columns)
        flags: NDArray[np.bool_] = self.mask.allowed(head, rows, columns).cpu().numpy()
        return flags

    def has_allowed_key(self, head: int, rows: slice) -> NDArray[np.bool_]:
        count, keys = rows.stop - rows.start, slice(0, self.num_keys)
        if not count or self.mask is None:
            return np.ones(count, np.bool_)
        visible = self.mask.fully_visible_keys(rows, keys)
        if visible.start < visible.stop:
            # All queries may attend to at least one key, such as the first token of a causal text.
            return np.ones(count, np.bool_)
        all_tiles = row_tiles(rows, self.num_keys)
        return np.concatenate(
            [self.allowed(head, tile, self.key_range(tile)).any(axis=1) for tile in all_tiles]
        )

    def weights_of_rows(
        self, head: int, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        numbers = torch.from_numpy(rows)
        with torch.no_grad():
            logits = self.logits(head, numbers)
            allowed = ~torch.isneginf(logits)
            weights = weights_from_logits(logits, self.log_normalizer(head, numbers))
        return weights.cpu().numpy(), allowed.cpu().numpy()

    def rows_of_heads(
        self, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> Iterator[tuple[list[int], RowsOfHeads]]:
        groups: dict[int, list[int]] = {}
        for number, head in enumerate(heads):
            groups.setdefault(self.key_head(head), []).append(number)
        for numbers in groups.values():
            yield numbers, _SharedKeys(self, [heads[number] for number in numbers], rows)


@dataclass(frozen=True)
class StoredWeights(LayerAttention):
    """Attention of a layer, stored as floating-point weights, (heads, queries, keys)."""

    values: torch.Tensor

    @property
    def num_heads(self) -> int:
        return self.values.shape[0]

    @property
    def num_queries(self) -> int:
        return self.values.shape[1]

    @property
    def num_keys(self) -> int:
        return self.values.shape[2]

    @property
    def stored_weights(self) -> torch.Tensor:
        return self.values

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        block: NDArray[np.float32] = self.values[head, rows, columns].float().cpu().numpy().copy()
        return block

    def weights_of_heads(self, heads: Sequence[int], rows: slice) -> NDArray[np.float32]:
        # Indexing with a list makes a copy, so callers may change the result.
        block: NDArray[np.float32] = self.values[list(heads), rows].float().cpu().numpy()
        return block

    def weights_of_rows(
        self, head: int, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        values = self.values[head, torch.from_numpy(rows)]
        block: NDArray[np.float32] = values.float().cpu().numpy()
        return block, np.ones(block.shape, np.bool_)

    def rows_of_each_head(
        self, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        if not _is_consecutive(heads):
            head_indices = torch.tensor(list(heads), dtype=torch.int64)[:, None]
            values = self.values[head_indices, torch.from_numpy(rows)]
        elif _is_consecutive(rows):
            values = self.values[heads[0] : heads[-1] + 1, int(rows[0]) : int(rows[-1]) + 1]
        else:
            values = self.values[heads[0] : heads[-1] + 1]
            values = values.index_select(1, torch.from_numpy(rows).to(values.device))
        block: NDArray[np.float32] = values.float().cpu().numpy()
        # The array may share memory with the stored weights, which must not be changed.
        block.flags.writeable = False
        return block, np.ones((1, *block.shape[1:]), np.bool_)

    @property
    def shares_mask(self) -> bool:
        """True, because no mask is known."""
        return True

    def has_allowed_key(self, head: int, rows: slice) -> NDArray[np.bool_]:
        del head
        return np.ones(rows.stop - rows.start, np.bool_)

    def permute(self, order: torch.Tensor) -> StoredWeights:
        """Return these weights for the same tokens in another order, as in `QueryKeyAttention`."""
        return StoredWeights(self.values[:, order][:, :, order])


def _is_consecutive(numbers: Sequence[int] | NDArray[np.int64]) -> bool:
    """Whether each number is one more than its predecessor. False if `numbers` is empty."""
    count = len(numbers)
    if not count or numbers[-1] - numbers[0] != count - 1:
        return False
    if isinstance(numbers, np.ndarray):
        return bool((numbers[1:] - numbers[:-1] == 1).all())
    return tuple(numbers) == tuple(range(numbers[0], numbers[0] + count))


class _CompleteRows:
    """`RowsOfHeads` of a single head, with complete rows in memory."""

    def __init__(self, weights: NDArray[np.float32], allowed: NDArray[np.bool_]) -> None:
        self._weights = weights[None].astype(np.float64)
        self._allowed = allowed[None]

    def weights(self, rows: slice, columns: slice) -> Numbers:
        return self._weights[:, rows, columns]

    def allowed(self, rows: slice, columns: slice) -> NDArray[np.bool_]:
        return self._allowed[:, rows, columns]


class _SharedKeys:
    """`RowsOfHeads` of heads that read the same keys, computed from queries and keys.

    The softmax normalizers of the rows are computed once.
    """

    def __init__(
        self, layer: QueryKeyAttention, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> None:
        # Convert the keys to float32 once, not for each block.
        keys = layer.keys[layer.key_head(heads[0])][None].float()
        # With a single key head, `key_head` returns 0 for every head.
        self._layer = replace(layer, keys=keys)
        self._heads = heads
        self._rows = torch.from_numpy(rows)
        with torch.no_grad():
            parts = [
                self._layer.shared_log_normalizer(heads, part)
                for part in self._rows.split(_SAMPLED_ROWS_PER_PRODUCT)
            ]
        sums = torch.cat(parts, dim=1)
        # The normalizer of a row without an allowed key is minus infinity, like its logits, and
        # their difference would be NaN. Replace it by plus infinity, which gives weights of 0.
        self._sums = sums.masked_fill(torch.isneginf(sums), torch.inf)

    def weights(self, rows: slice, columns: slice) -> Numbers:
        with torch.no_grad():
            logits = self._layer.shared_logits(self._heads, self._rows[rows], columns)
            weights: Numbers = (
                weights_from_logits(logits, self._sums[:, rows]).double().cpu().numpy()
            )
        return weights

    def allowed(self, rows: slice, columns: slice) -> NDArray[np.bool_]:
        positions, mask = self._rows[rows], self._layer.mask
        flags = np.ones((len(self._heads), len(positions), columns.stop - columns.start), np.bool_)
        if mask is not None:
            for group, head in _by_head(mask, self._heads):
                flags[group] = mask.allowed(head, positions, columns, torch.device("cpu")).numpy()
        return flags


def _by_head(part: Mask | Bias, heads: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Yield slices of `heads` that share their entries in a mask or bias.

    Each slice comes with the head whose entries must be read. If all heads share the entries, the
    only slice contains all `heads`. Otherwise, each slice contains a single head.
    """
    if part.num_heads == 1:
        yield slice(None), 0
        return
    for number, head in enumerate(heads):
        yield slice(number, number + 1), head


def _by_head_with_rows(
    part: Mask | Bias, heads: Sequence[int], rows: torch.Tensor
) -> Iterator[tuple[slice, int, torch.Tensor]]:
    """Yield the results of `_by_head`, and the row positions of each slice, (heads or 1, rows)."""
    for group, head in _by_head(part, heads):
        yield group, head, rows[group] if len(rows) > 1 else rows
