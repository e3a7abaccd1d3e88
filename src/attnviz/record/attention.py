"""The one formula: attention weights from queries, keys and what else goes into the logits.

For a head with queries q, keys k (as the model's attention receives them, after rotary position
and normalisation), a scale, a position bias b, a mask m, a soft cap c and a sink logit s,

    logits = cap(scale * q k^T) + b        cap(x) = c tanh(x / c)
    weights = softmax over the allowed keys and the sink, the sink's column dropped

(Vaswani et al. 2017, equation 1; Gemma 2 report, section 2, for the cap; gpt-oss model card for the
sink). Rows sum to 1, except with a sink (1 minus its share) and where no key is allowed (zeros).

`LayerAttention` is what callers use of a layer; which class it has does not matter to them.
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
from attnviz.record.softmax import blocks, normalized, powers, tiles

__all__ = [
    "DerivedAttention",
    "GivenWeights",
    "LayerAttention",
    "QueryKeyAttention",
    "ReweightedAttention",
    "RowsOfHeads",
    "ScaledAttention",
]

# Rows that blocks of keys are multiplied with at once.
_ROWS_AT_ONCE = 256
# The same of rows that are sampled from all over a text: of a causal one, early rows need few keys.
_SAMPLED_ROWS_AT_ONCE = 8

Numbers = NDArray[np.float64]


class RowsOfHeads(Protocol):
    """Some queries of some heads: every further look at them costs the keys looked at."""

    def weights(self, some: slice, columns: slice) -> Numbers:
        """Weights of some of the rows, (heads, rows, columns)."""
        ...

    def allowed(self, some: slice, columns: slice) -> NDArray[np.bool_]:
        """What the mask lets through of some of the rows, (heads, rows, columns)."""
        ...


class LayerAttention(ABC):
    """What a record knows of a layer, however its weights came."""

    @property
    @abstractmethod
    def num_heads(self) -> int:
        """Number of query heads."""

    @property
    @abstractmethod
    def num_queries(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def num_keys(self) -> int:
        """Number of columns."""

    @property
    def causal(self) -> bool:
        """Whether no query may look ahead, as far as the mask says."""
        return False

    @property
    def merged(self) -> bool:
        """Whether rows and columns are words, each made of several tokens."""
        return False

    @property
    def bound(self) -> float | None:
        """What no weight exceeds in size, known without a look at any; None where it is not."""
        return None

    @property
    def vectors(self) -> QueryKeyAttention | None:
        """Its queries and keys; None where only weights are known, and of words."""
        return None

    @property
    def given_weights(self) -> torch.Tensor | None:
        """(heads, queries, keys); None where weights are computed."""
        return None

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """What weights are made from: `vectors` or `given_weights`."""
        if self.vectors is not None:
            return self.vectors.queries, self.vectors.keys
        return () if self.given_weights is None else (self.given_weights,)

    @abstractmethod
    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns); starts and stops are given."""

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether the mask lets queries attend to keys, bool, (rows, columns); True where unknown.

        A weight of zero does not say that it had to be.
        """
        del head
        return np.ones((rows.stop - rows.start, columns.stop - columns.start), np.bool_)

    def key_range(self, rows: Rows) -> slice:
        """Keys outside of which it is known that some queries (at least one) have no weight."""
        del rows
        return slice(0, self.num_keys)

    def has_allowed_key(self, head: int, rows: slice) -> NDArray[np.bool_]:
        """Whether queries may attend to any key at all, bool, (rows,)."""
        keys = slice(0, self.num_keys)
        flags = [self.allowed(head, some, keys).any(axis=1) for some in tiles(rows, self.num_keys)]
        return np.concatenate([np.zeros(0, np.bool_), *flags])

    def weights_of_rows(
        self, head: int, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Weights of any queries, and what the mask lets through, (rows, keys) each.

        Of not many queries: all of their weights are held at once.

        >>> given = GivenWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
        >>> given.weights_of_rows(0, np.array([1]))[0]
        array([[0.25, 0.75]], dtype=float32)
        """
        columns = slice(0, self.num_keys)
        # Neighbours at once: of a short text, all.
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        each = [slice(int(run[0]), int(run[-1]) + 1) for run in runs]
        return (
            np.concatenate([self.weights(head, row, columns) for row in each]),
            np.concatenate([self.allowed(head, row, columns) for row in each]),
        )

    def weights_of_heads(self, heads: Sequence[int], rows: slice) -> NDArray[np.float32]:
        """Weights of some heads and queries and all keys, float32, (heads, rows, keys).

        Of not many: all of them are held at once.

        >>> given = GivenWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
        >>> given.weights_of_heads([0], slice(1, 2))
        array([[[0.25, 0.75]]], dtype=float32)
        """
        return np.stack([self.weights(head, rows, slice(0, self.num_keys)) for head in heads])

    def rows_of_each_head(
        self, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """As `weights_of_rows` of some heads, (heads, rows, keys) each, to be read only.

        Of one mask that all heads share the second is (1, rows, keys).

        >>> given = GivenWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
        >>> given.rows_of_each_head([0], np.array([1]))[0]
        array([[[0.25, 0.75]]], dtype=float32)
        """
        found = [self.weights_of_rows(head, rows) for head in heads]
        masks = [allowed for _, allowed in found][: 1 if self.shares_mask else len(found)]
        return np.stack([weights for weights, _ in found]), np.stack(masks)

    @property
    def shares_mask(self) -> bool:
        """Whether it is known that all heads may attend to the same keys."""
        return False

    def rows_of_heads(
        self, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> Iterator[tuple[list[int], RowsOfHeads]]:
        """Look at some queries of heads, together where they read the same keys.

        Yields which of `heads` these are, and their queries in the order of `rows`, not many.

        >>> given = GivenWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
        >>> [(which, some)] = given.rows_of_heads([0], np.array([1]))
        >>> some.weights(slice(0, 1), slice(0, 1)).tolist()
        [[[0.25]]]
        """
        for number, head in enumerate(heads):
            yield [number], _WholeRows(*self.weights_of_rows(head, rows))


@dataclass(frozen=True)
class DerivedAttention(LayerAttention):
    """An attention over other rows and columns than `base`, whose heads it has."""

    base: LayerAttention

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return self.base.num_heads

    @property
    def bound(self) -> float | None:
        """That of `base`: what keys of a row have together is at most what all of them have."""
        return self.base.bound


@dataclass(frozen=True)
class ReweightedAttention(DerivedAttention):
    """Other numbers in the rows and columns of `base`, with its mask."""

    @property
    def num_queries(self) -> int:
        """Number of rows."""
        return self.base.num_queries

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.base.num_keys

    @property
    def causal(self) -> bool:
        """Whether no query may look ahead, as far as the mask says."""
        return self.base.causal

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether the mask lets queries attend to keys, bool, (rows, columns)."""
        return self.base.allowed(head, rows, columns)


@dataclass(frozen=True)
class ScaledAttention(ReweightedAttention):
    """The weights of `base`, each multiplied by a number of its pair."""

    @abstractmethod
    def scaled(self, weights: torch.Tensor, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        """Numbers of a head's block, float32, of its weights, (rows, columns)."""

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Numbers of a head's block, float32, (rows, columns)."""
        weights = torch.from_numpy(self.base.weights(head, rows, columns))
        block: NDArray[np.float32] = self.scaled(weights, head, rows, columns).cpu().numpy()
        return block


@dataclass(frozen=True)
class QueryKeyAttention(LayerAttention):
    """A layer's attention as queries and keys; weights are computed when asked for.

    Attributes
    ----------
    queries : Tensor
        (heads, queries, head_dim), in the dtype that the model's attention received.
    keys : Tensor
        (key_heads, keys, head_dim); ``heads`` is a multiple of ``key_heads`` and query head h reads
        key head ``h // (heads // key_heads)`` (grouped-query attention, Ainslie et al. 2023).
    scale : float
        Factor of the dot products, usually 1 / sqrt(head_dim).
    mask : Mask or None
        Which keys each query may attend to; None is all.
    bias : Bias or None
        Added to the logits after the soft cap.
    softcap : float or None
        Bound of the soft cap.
    sinks : Tensor or None
        (heads,): a learned logit a head, which takes its share of each row.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    scale: float
    mask: Mask | None = None
    bias: Bias | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse shapes that do not fit together."""
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
                f"sinks must be ({queries[0]},), a logit a head; got {tuple(self.sinks.shape)}"
            )

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return self.queries.shape[0]

    @property
    def num_key_heads(self) -> int:
        """Number of key heads."""
        return self.keys.shape[0]

    @property
    def num_queries(self) -> int:
        """Number of rows."""
        return self.queries.shape[1]

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.keys.shape[1]

    @property
    def causal(self) -> bool:
        """Whether no query may look ahead, as far as the mask says."""
        return self.mask is not None and self.mask.causal

    @property
    def bound(self) -> float:
        """1, as of any softmax."""
        return 1.0

    @property
    def vectors(self) -> QueryKeyAttention:
        """Itself."""
        return self

    @property
    def offset(self) -> int:
        """The key position that query 0 stands at, as far as the mask says."""
        return 0 if self.mask is None else self.mask.offset

    def key_head(self, head: int) -> int:
        """Key head that a query head reads."""
        return head // (self.num_heads // self.keys.shape[0])

    def only_head(self, head: int) -> QueryKeyAttention:
        """One head and the key head that it reads, as head 0."""
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
        """The same tokens in another order; queries and keys are the same tokens.

        `order` is int64, (tokens,): which token comes where.
        """
        there = order.to(self.queries.device)
        return replace(
            self,
            queries=self.queries[:, there],
            keys=self.keys[:, there],
            mask=None if self.mask is None else self.mask.permute(order),
            bias=None if self.bias is None else self.bias.permute(order),
        )

    def logits(self, head: int, rows: Rows, columns: slice | None = None) -> torch.Tensor:
        """Logits of some queries and keys, all keys when left out.

        float32, (rows, columns), on the device of the queries; minus infinity where a key is not
        allowed.
        """
        return self.shared_logits([head], rows, columns)[0]

    def shared_logits(
        self, heads: Sequence[int], rows: Rows, columns: slice | None = None
    ) -> torch.Tensor:
        """As `logits`, (heads, rows, columns), of heads that read the same keys, at once."""
        columns = slice(0, self.num_keys) if columns is None else columns
        if len(heads) == 1:
            queries = self.queries[heads[0], rows]
        else:
            queries = torch.stack([self.queries[head, rows] for head in heads])
        keys = self.keys[self.key_head(heads[0]), columns].float()
        device = queries.device
        # What is stored gives the same weights wherever it is read.
        with torch.autocast(device.type, enabled=False):
            # The queries are scaled, which are fewer than their logits.
            logits = (queries.float() * self.scale) @ keys.T
        logits = logits[None] if len(heads) == 1 else logits
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        if self.bias is not None:
            for which, head in _by_head(self.bias, heads):
                logits[which] += self.bias.added(head, rows, columns, device)
        if self.mask is not None:
            seen = self.mask.fully_visible_keys(rows, columns)
            # Of a causal block only the keys near the diagonal are looked at one by one.
            for part in (slice(columns.start, seen.start), slice(seen.stop, columns.stop)):
                if part.start == part.stop:
                    continue
                at = slice(part.start - columns.start, part.stop - columns.start)
                for which, head in _by_head(self.mask, heads):
                    allowed = self.mask.allowed(head, rows, part, device)
                    logits[which, :, at].masked_fill_(~allowed, -torch.inf)
        return logits

    def logits_of_products(
        self, products: torch.Tensor, heads: Sequence[int], rows: torch.Tensor
    ) -> torch.Tensor:
        """Make logits of scaled products of queries and all keys, in place, where they lie.

        `products` are (..., heads, rows, keys) of any examples that share mask and bias, and `rows`
        the numbers of the queries, int64, (heads, rows), or (1, rows) where heads have the same.

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
            for which, head, numbers in _with_rows(self.bias, heads, rows):
                added = self.bias.added(head, numbers.flatten(), columns, device)
                products[..., which, :, :] += added.reshape(
                    len(numbers) if len(added) > 1 else 1, -1, self.num_keys
                )
        if self.mask is not None:
            for which, head, numbers in _with_rows(self.mask, heads, rows):
                allowed = self.mask.allowed(head, numbers.flatten(), columns, device)
                products[..., which, :, :].masked_fill_(
                    ~allowed.reshape(len(numbers), -1, self.num_keys), -torch.inf
                )
        return products

    def key_range(self, rows: Rows) -> slice:
        """Keys outside of which the mask allows some queries (at least one) nothing."""
        everything = slice(0, self.num_keys)
        return everything if self.mask is None else self.mask.key_range(rows, self.num_keys)

    def log_normalizer(self, head: int, rows: Rows) -> torch.Tensor:
        """Logarithm of what each query's weights are divided by, the sink included.

        float32, (rows,), on the device of the queries; minus infinity where nothing is allowed.
        ``exp(logits - log_normalizer)`` are the weights, of whichever keys (`normalized`).

        >>> attention = QueryKeyAttention(torch.zeros(1, 2, 4), torch.zeros(1, 8, 4), 0.5)
        >>> attention.log_normalizer(0, slice(0, 2)).exp().round()
        tensor([8., 8.])
        """
        numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        sums = torch.empty(len(numbers), dtype=torch.float32, device=self.queries.device)
        with torch.no_grad():
            for start in range(0, len(numbers), _ROWS_AT_ONCE):
                some = slice(start, min(start + _ROWS_AT_ONCE, len(numbers)))
                part: Rows = numbers[some]
                if isinstance(rows, slice):
                    part = slice(rows.start + some.start, rows.start + some.stop)
                sums[some] = self.shared_log_normalizer([head], part)[0]
        return sums

    def shared_log_normalizer(self, heads: Sequence[int], rows: Rows) -> torch.Tensor:
        """As `log_normalizer`, (heads, rows), of heads that read the same keys, at once.

        Summed up over blocks of keys, each against the largest logit so far (Milakov and
        Gimelshein 2018, arXiv 1805.02867), so that no row is ever held whole.
        """
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        shape, device = (len(heads), count), self.queries.device
        most = torch.full(shape, -torch.inf, device=device)
        total = torch.zeros(shape, device=device)
        if self.sinks is not None:
            most = self.sinks[list(heads)].float().to(device)[:, None].expand(shape)
            total = torch.ones(shape, device=device)
        for columns in blocks(self.key_range(rows), shape[0] * count, device):
            logits = self.shared_logits(heads, rows, columns)
            higher = torch.maximum(most, logits.amax(dim=-1))
            # A row that has seen nothing yet is held against 0: infinities have no difference.
            against = higher.masked_fill(torch.isneginf(higher), 0.0)
            logits -= against[..., None]
            total = total * torch.exp(most - against) + powers(logits).sum(dim=-1)
            most = higher
        return most + torch.log(total)

    def log_normalizer_from(self, head: int, logits: torch.Tensor) -> torch.Tensor:
        """As `log_normalizer`, from the logits of all keys that are allowed: (rows, keys).

        They may be logarithms of sums over several keys each.
        """
        total = torch.logsumexp(logits, dim=-1)
        if self.sinks is None:
            return total
        sink = self.sinks[head].to(total.device, total.dtype)
        return torch.logaddexp(total, sink.expand_as(total))

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns)."""
        block = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.float32)
        device = self.queries.device.type
        with torch.no_grad(), torch.autocast(device, enabled=False):
            for tile in tiles(rows, self.num_keys):
                # What no query of the tile sees is nothing, and is not computed.
                keys = self.key_range(tile)
                seen = slice(max(keys.start, columns.start), min(keys.stop, columns.stop))
                if seen.start >= seen.stop:
                    continue
                logits = self.logits(head, tile, keys)
                if self.sinks is not None:
                    sink = self.sinks[head].float().to(logits.device).expand(len(logits), 1)
                    weights = torch.softmax(torch.cat([logits, sink], dim=1), dim=1)[:, :-1]
                else:
                    # A row in which no key is allowed gives NaN: it attends to nothing.
                    weights = torch.softmax(logits, dim=1)
                    nothing = torch.isneginf(logits.amax(dim=1))
                    weights[nothing] = 0.0
                start = tile.start - rows.start
                at = slice(seen.start - columns.start, seen.stop - columns.start)
                weights = weights[:, seen.start - keys.start : seen.stop - keys.start]
                block[start : start + len(weights), at] = weights.cpu().numpy()
        return block

    def weights_of_heads(self, heads: Sequence[int], rows: slice) -> NDArray[np.float32]:
        """Weights of some heads and queries and all keys, float32, (heads, rows, keys)."""
        device = self.queries.device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            if tuple(heads) == tuple(range(len(self.queries))) and len(self.keys) == len(heads):
                # All of them as they lie: no copy.
                queries, keys = self.queries[:, rows], self.keys
            else:
                queries = self.queries[list(heads), rows]
                keys = self.keys[[self.key_head(head) for head in heads]]
            queries, keys = self.scale * queries.float(), keys.float()
            numbers = torch.arange(rows.start, rows.stop)[None]
            logits = self.logits_of_products(queries @ keys.transpose(1, 2), heads, numbers)
            if self.sinks is None:
                # A row in which no key is allowed gives NaN: it attends to nothing.
                nothing = torch.isneginf(logits.amax(dim=-1))
                weights = torch.softmax(logits, dim=-1).masked_fill_(nothing[..., None], 0.0)
            else:
                sinks = self.sinks[list(heads)].float().to(device)[:, None, None]
                logits = torch.cat([logits, sinks.expand(*logits.shape[:2], 1)], dim=-1)
                weights = torch.softmax(logits, dim=-1)[..., :-1]
        block: NDArray[np.float32] = weights.cpu().numpy()
        return block

    @property
    def shares_mask(self) -> bool:
        """Whether it is known that all heads may attend to the same keys."""
        return self.mask is None or self.mask.num_heads == 1

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether the mask lets a head's queries attend to keys, bool, (rows, columns)."""
        if self.mask is None:
            return super().allowed(head, rows, columns)
        flags: NDArray[np.bool_] = self.mask.allowed(head, rows, columns).cpu().numpy()
        return flags

    def has_allowed_key(self, head: int, rows: slice) -> NDArray[np.bool_]:
        """Whether a head's queries may attend to any key at all, bool, (rows,)."""
        count, keys = rows.stop - rows.start, slice(0, self.num_keys)
        if not count or self.mask is None:
            return np.ones(count, np.bool_)
        seen = self.mask.fully_visible_keys(rows, keys)
        if seen.start < seen.stop:
            # All of them see the same key, as in a causal text.
            return np.ones(count, np.bool_)
        parts = tiles(rows, self.num_keys)
        return np.concatenate([self.allowed(head, p, self.key_range(p)).any(axis=1) for p in parts])

    def weights_of_rows(
        self, head: int, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Weights of any queries, and what the mask lets through, (rows, keys) each."""
        numbers = torch.from_numpy(rows)
        with torch.no_grad():
            logits = self.logits(head, numbers)
            allowed = ~torch.isneginf(logits)
            weights = normalized(logits, self.log_normalizer(head, numbers))
        return weights.cpu().numpy(), allowed.cpu().numpy()

    def rows_of_heads(
        self, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> Iterator[tuple[list[int], RowsOfHeads]]:
        """Look at some queries of heads, together where they read the same keys."""
        groups: dict[int, list[int]] = {}
        for number, head in enumerate(heads):
            groups.setdefault(self.key_head(head), []).append(number)
        for numbers in groups.values():
            yield numbers, _SharedKeys(self, [heads[number] for number in numbers], rows)


@dataclass(frozen=True)
class GivenWeights(LayerAttention):
    """A layer's attention, given as weights: floating point, (heads, queries, keys)."""

    values: torch.Tensor

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return self.values.shape[0]

    @property
    def num_queries(self) -> int:
        """Number of rows."""
        return self.values.shape[1]

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.values.shape[2]

    @property
    def given_weights(self) -> torch.Tensor:
        """`values`."""
        return self.values

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns)."""
        block: NDArray[np.float32] = self.values[head, rows, columns].float().cpu().numpy().copy()
        return block

    def weights_of_heads(self, heads: Sequence[int], rows: slice) -> NDArray[np.float32]:
        """Weights of some heads and queries and all keys, float32, (heads, rows, keys)."""
        # A list of heads copies them.
        block: NDArray[np.float32] = self.values[list(heads), rows].float().cpu().numpy()
        return block

    def weights_of_rows(
        self, head: int, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Weights of any queries, and what the mask lets through, (rows, keys) each."""
        values = self.values[head, torch.from_numpy(rows)]
        block: NDArray[np.float32] = values.float().cpu().numpy()
        return block, np.ones(block.shape, np.bool_)

    def rows_of_each_head(
        self, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Weights of any queries of some heads, and that all keys are open, as no mask is known."""
        if not _follow(heads):
            which = torch.tensor(list(heads), dtype=torch.int64)[:, None]
            values = self.values[which, torch.from_numpy(rows)]
        elif _follow(rows):
            values = self.values[heads[0] : heads[-1] + 1, int(rows[0]) : int(rows[-1]) + 1]
        else:
            values = self.values[heads[0] : heads[-1] + 1]
            values = values.index_select(1, torch.from_numpy(rows).to(values.device))
        block: NDArray[np.float32] = values.float().cpu().numpy()
        # They may be the given ones themselves.
        block.flags.writeable = False
        return block, np.ones((1, *block.shape[1:]), np.bool_)

    @property
    def shares_mask(self) -> bool:
        """True: no mask is known."""
        return True

    def has_allowed_key(self, head: int, rows: slice) -> NDArray[np.bool_]:
        """True: no mask is known."""
        del head
        return np.ones(rows.stop - rows.start, np.bool_)

    def permute(self, order: torch.Tensor) -> GivenWeights:
        """The same tokens in another order; queries and keys are the same tokens."""
        return GivenWeights(self.values[:, order][:, :, order])


def _follow(numbers: Sequence[int] | NDArray[np.int64]) -> bool:
    """Whether numbers, ascending or not, are each one more than that before; at least one."""
    count = len(numbers)
    if not count or numbers[-1] - numbers[0] != count - 1:
        return False
    if isinstance(numbers, np.ndarray):
        return bool((numbers[1:] - numbers[:-1] == 1).all())
    return tuple(numbers) == tuple(range(numbers[0], numbers[0] + count))


class _WholeRows:
    """Rows of one head that are held whole, as its weights were given or merged."""

    def __init__(self, weights: NDArray[np.float32], allowed: NDArray[np.bool_]) -> None:
        self._weights = weights[None].astype(np.float64)
        self._allowed = allowed[None]

    def weights(self, some: slice, columns: slice) -> Numbers:
        return self._weights[:, some, columns]

    def allowed(self, some: slice, columns: slice) -> NDArray[np.bool_]:
        return self._allowed[:, some, columns]


class _SharedKeys:
    """Rows of heads that read the same keys; what they are divided by is summed up once."""

    def __init__(
        self, layer: QueryKeyAttention, heads: Sequence[int], rows: NDArray[np.int64]
    ) -> None:
        # The keys as float32 once, not again for each look.
        keys = layer.keys[layer.key_head(heads[0])][None].float()
        # All heads share the only key head: no list of as many numbers for each group.
        self._layer = replace(layer, keys=keys)
        self._heads = heads
        self._rows = torch.from_numpy(rows)
        with torch.no_grad():
            parts = [
                self._layer.shared_log_normalizer(heads, part)
                for part in self._rows.split(_SAMPLED_ROWS_AT_ONCE)
            ]
        sums = torch.cat(parts, dim=1)
        # Nothing allowed is minus infinity on both sides, which have no difference.
        self._sums = sums.masked_fill(torch.isneginf(sums), torch.inf)

    def weights(self, some: slice, columns: slice) -> Numbers:
        with torch.no_grad():
            logits = self._layer.shared_logits(self._heads, self._rows[some], columns)
            weights: Numbers = normalized(logits, self._sums[:, some]).double().cpu().numpy()
        return weights

    def allowed(self, some: slice, columns: slice) -> NDArray[np.bool_]:
        rows, mask = self._rows[some], self._layer.mask
        flags = np.ones((len(self._heads), len(rows), columns.stop - columns.start), np.bool_)
        if mask is not None:
            for which, head in _by_head(mask, self._heads):
                flags[which] = mask.allowed(head, rows, columns, torch.device("cpu")).numpy()
        return flags


def _by_head(part: Mask | Bias, heads: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Which of some heads share entries of a mask or bias, and the number of one of them."""
    if part.num_heads == 1:
        yield slice(None), 0
        return
    for number, head in enumerate(heads):
        yield slice(number, number + 1), head


def _with_rows(
    part: Mask | Bias, heads: Sequence[int], rows: torch.Tensor
) -> Iterator[tuple[slice, int, torch.Tensor]]:
    """As `_by_head`, and with the numbers of the queries of these heads: (heads or 1, rows)."""
    for which, head in _by_head(part, heads):
        yield which, head, rows[which] if len(rows) > 1 else rows
