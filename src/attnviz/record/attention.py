"""The attention of a layer: weights computed from queries and keys, or stored weights.

For a head with queries q, keys k (as the model's attention receives them, after rotary position
embedding and normalization), a scale, a position bias b, a mask, a soft cap c and a sink logit s,

    logits = cap(scale * q k^T) + b        cap(x) = c tanh(x / c)
    weights = softmax of s and of the logits of the allowed keys, without the column of s

(Vaswani et al. 2017, equation 1; Gemma 2 report, section 2, for the cap; gpt-oss model card for the
sink). Rows sum to 1, except with a sink (1 minus the sink's share) and if no key is allowed (0).

Rows are queries and columns are keys. A block has the weights of some heads, some rows and some
columns. Callers get weights from `LayerAttention.block`, whether these are stored or computed.

When a layer is created, its tensors may still be copied from a device. Therefore, constructors of
layers check only the shapes and dtypes of tensors, never their numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar

import torch

from attnviz.record.masks import BandMask, Bias, ChosenMask, LeftOutMask, Mask, Rows
from attnviz.record.softmax import (
    count_rows,
    exp_in_place,
    key_blocks,
    row_groups,
    tile_rows,
    weights_from_logits,
)
from attnviz.utils.arguments import set_fields

#: Head numbers of a layer, in any order. No head occurs twice.
Heads = Sequence[int]
#: Keys of a block: a slice with start and stop, or None for all keys.
Columns = slice | None
#: Result of the method `LayerAttention.normalizers`. If it is None, `LayerAttention.block` computes
#: what it needs itself.
Normalizers = torch.Tensor | None

# Number of rows with which a matrix product of queries and keys is efficient. For normalizers, it
# is the maximum number of rows of all heads together in one product. For a block, it is the number
# of rows that every head must have in a product of several heads, unless the block has fewer rows.
_ROWS_PER_PRODUCT = 256
# Maximum number of stored weights of a layer of which the zeros are examined. Reading more of them
# from a file could take longer than drawing a view.
_MAX_EXAMINED = 1 << 25
_CAUSAL = BandMask(None, 0)


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
        """Whether a row or column combines several tokens, such as the tokens of a word."""
        return False

    @property
    def bound(self) -> float | None:
        """Upper bound of the absolute values of the weights, found without computing weights.

        None if this is not possible.
        """
        return None

    @property
    def bounds_sums(self) -> bool:
        """Whether `bound` is also valid for the sum of several weights of a row."""
        return True

    @property
    def original(self) -> LayerAttention:
        """The attention at the beginning of a chain of `DerivedAttention`, or the layer itself.

        For example, this is the attention between tokens if the layer is an edited copy of
        attention between words.
        """
        return self

    @property
    def vectors(self) -> QueryKeyAttention | None:
        """The layer itself if it is a `QueryKeyAttention`, otherwise None."""
        return None

    @property
    def shares_mask(self) -> bool:
        """Whether all heads are known to have the same mask."""
        return False

    @abstractmethod
    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        """Return the weights of `heads` for the queries `rows` on the keys `columns`.

        By default, `columns` are all keys. A softmax needs the logits of complete rows, even if
        only a few columns are returned. To compute only the logits of the returned columns, pass
        the result of the method `normalizers` for the same heads and rows. Layers whose
        `num_softmaxes` is 0 ignore it. The result is float32, (heads, rows, columns), on the device
        of the layer's tensors or on the CPU. Do not change it, because it can be a part of stored
        weights.

        >>> layer = StoredWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
        >>> layer.block([0], slice(1, 2))
        tensor([[[0.2500, 0.7500]]])
        """

    @property
    def num_softmaxes(self) -> int:
        """Number of normalizers that `block` needs for each row of a head.

        It is 1 for a layer of queries and keys, and 2 for the difference of two such layers, which
        has two softmaxes. It is 0 if normalizers do not help to compute a block, for example
        because weights are stored.
        """
        return 0

    def normalizers(self, heads: Heads, rows: Rows) -> torch.Tensor:
        """Return the softmax normalizers of the queries `rows`, which can be passed to `block`.

        The normalizer of a query is the logarithm of its softmax denominator: the log-sum-exp of
        the sink and of its logits for the allowed keys. It is minus infinity if the query has
        neither an allowed key nor a sink. The result is float32, (`num_softmaxes`, heads, rows).
        It is empty if `num_softmaxes` is 0.
        """
        return torch.empty(0, len(heads), count_rows(rows))

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        """Return whether each query may attend to each key, by default for all keys.

        The result is bool, (heads, rows, columns), on the CPU. The first axis may have length 1 if
        all heads have the same mask. If no mask is known, all entries are True. A weight of zero
        does not prove that a mask forbids the pair.
        """
        del heads
        columns = columns or slice(0, self.num_keys)
        return torch.ones(1, count_rows(rows), columns.stop - columns.start, dtype=torch.bool)

    def left_out(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        """Return whether each query-key pair is left out, by default for all keys.

        A pair is left out if the query could attend to the key, but the model has chosen other keys
        before the softmax (see `attnviz.record.masks.ChosenMask`). The result has the shape, dtype
        and device of `allowed`, which is False for these pairs. Layers of merged words never
        have such pairs.
        """
        del heads
        columns = columns or slice(0, self.num_keys)
        return torch.zeros(1, count_rows(rows), columns.stop - columns.start, dtype=torch.bool)

    def key_range(self, rows: Rows) -> slice:
        """Return a range of keys that contains all allowed keys of the queries `rows`.

        `rows` must not be empty. The range may be larger than necessary. By default, it contains
        all keys.
        """
        del rows
        return slice(0, self.num_keys)

    def has_allowed_key(self, heads: Heads, rows: Rows) -> torch.Tensor:
        """Return whether each query may attend to at least one key, bool, (heads or 1, rows).

        The result is on the CPU. As in `allowed`, its first axis may have length 1 if all heads
        have the same mask.
        """
        groups = row_groups(rows, tile_rows(len(heads) * self.num_keys))
        flags = [self.allowed(heads, group).any(dim=-1) for _, group in groups]
        return torch.cat(flags, dim=1) if flags else torch.ones(1, 0, dtype=torch.bool)


@dataclass(frozen=True)
class DerivedAttention(LayerAttention):
    """Attention of a layer that is computed from another attention, `base`, when it is needed.

    The number of heads is that of `base`. Rows, columns or weights may differ.
    """

    base: LayerAttention

    @property
    def bounds_sums(self) -> bool:
        return self.base.bounds_sums

    @property
    def original(self) -> LayerAttention:
        return self.base.original

    @property
    def num_heads(self) -> int:
        return self.base.num_heads

    @property
    def bound(self) -> float | None:
        """Bound of `base`, which may be None. Subclasses whose weights can be larger override it.

        The bound of softmax weights, or of their differences, is also valid for the sum of several
        weights of a row, such as those of the tokens of a word.
        """
        return self.base.bound


@dataclass(frozen=True)
class ReweightedAttention(DerivedAttention):
    """Attention with the rows and columns of `base`, but other weights.

    The mask is also that of `base`, unless a subclass overrides `allowed`.
    """

    @property
    def num_queries(self) -> int:
        return self.base.num_queries

    @property
    def num_keys(self) -> int:
        return self.base.num_keys

    @property
    def causal(self) -> bool:
        return self.base.causal

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        return self.base.allowed(heads, rows, columns)

    def left_out(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        return self.base.left_out(heads, rows, columns)


@dataclass(frozen=True)
class ScaledAttention(ReweightedAttention):
    """Weights of `base`, each multiplied by a factor for its head, query and key."""

    @abstractmethod
    def scaled(self, weights: torch.Tensor, head: int, rows: Rows, columns: slice) -> torch.Tensor:
        """Return `weights` multiplied by the factors of the subclass, (rows, columns).

        `weights` are those of `head` in `base` for these rows and columns.
        """

    @property
    def num_softmaxes(self) -> int:
        return self.base.num_softmaxes

    def normalizers(self, heads: Heads, rows: Rows) -> torch.Tensor:
        return self.base.normalizers(heads, rows)

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        columns = columns or slice(0, self.num_keys)
        weights = self.base.block(heads, rows, columns, normalizers)
        scaled = torch.empty_like(weights)
        for number, head in enumerate(heads):
            scaled[number] = self.scaled(weights[number], head, rows, columns)
        return scaled


@dataclass(frozen=True)
class StoredAttention(LayerAttention):
    """Attention of a layer that stores tensors, such as queries and keys, or its weights."""

    @property
    def parts(self) -> dict[str, torch.Tensor]:
        """Tensors that the layer stores, by the name of their attribute."""
        return {
            name: value
            for name in self.__dataclass_fields__
            if isinstance(value := getattr(self, name), torch.Tensor)
        }

    @abstractmethod
    def permute(self, order: torch.Tensor) -> StoredAttention:
        """Return the attention of the same tokens in another order.

        Queries and keys must be the same tokens. Token ``i`` of the result is token ``order[i]`` of
        this layer. `order` is int64, (tokens,).
        """


@dataclass(frozen=True)
class QueryKeyAttention(StoredAttention):
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
        if len(queries) != 3 or len(keys) != 3 or queries[2] != keys[2]:
            raise ValueError(
                "queries and keys must be (heads, tokens, head_dim) with the same head_dim; got "
                f"{queries} and {keys}"
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
        """1, the largest possible weight of a softmax."""
        return 1.0

    @property
    def vectors(self) -> QueryKeyAttention:
        return self

    @property
    def offset(self) -> int:
        """Index of the key that is the same token as query 0.

        For example, it is not 0 if keys of earlier tokens come from a cache. It is 0 if the mask
        does not define it.
        """
        return 0 if self.mask is None else self.mask.offset

    def key_head(self, head: int) -> int:
        """Return the key head that a query head reads."""
        return head // (self.num_heads // self.keys.shape[0])

    def permute(self, order: torch.Tensor) -> QueryKeyAttention:
        indices = order.to(self.queries.device)
        return replace(
            self,
            queries=self.queries[:, indices],
            keys=self.keys[:, indices],
            mask=None if self.mask is None else self.mask.permute(order),
            bias=None if self.bias is None else self.bias.permute(order),
        )

    def logits(self, heads: Heads, rows: Rows, columns: slice | None = None) -> torch.Tensor:
        """Return the logits of `heads` for the queries `rows`, by default for all keys.

        The result is float32, (heads, rows, columns), on the device of the queries. Logits of keys
        that are not allowed are minus infinity.
        """
        columns = columns or slice(0, self.num_keys)
        queries = _of_heads(self.queries, heads, rows)
        shared = self.num_heads // self.num_key_heads
        key_heads = [head // shared for head in heads]
        # In grouped-query attention, several of `heads` may share keys. Multiply the keys of each
        # group once, with the queries of all of its heads. This needs groups of equal size, whose
        # heads are consecutive in `heads`. Otherwise, multiply them once for each head.
        distinct = list(dict.fromkeys(key_heads))
        if key_heads == [head for head in distinct for _ in range(len(heads) // len(distinct))]:
            key_heads = distinct
        keys = _of_heads(self.keys, key_heads, columns).float()
        # Disable autocast. The weights would otherwise change if the caller has enabled it.
        with torch.autocast(queries.device.type, enabled=False):
            # Scaling the queries takes fewer operations than scaling the logits.
            scaled = queries.float() * self.scale
            products = scaled.reshape(len(keys), -1, scaled.shape[2]) @ keys.transpose(1, 2)
        return self.logits_of_products(products.view(*queries.shape[:2], -1), heads, rows, columns)

    def logits_of_products(
        self,
        products: torch.Tensor,
        heads: Heads,
        rows: Rows,
        columns: slice | None = None,
    ) -> torch.Tensor:
        """Apply the soft cap, bias and mask to dot products in place. Return `products`.

        `products` are scaled dot products of queries and keys, (..., heads, rows, columns), and
        become the logits. An axis before the heads has several examples, for which the bias and
        mask are the same. `rows` may also be an int64 tensor with two axes, (heads or 1, rows), if
        the heads have different query positions.

        >>> from attnviz.record.masks import BandMask
        >>> vectors = torch.zeros(1, 3, 4)
        >>> attention = QueryKeyAttention(vectors, vectors, 0.5, mask=BandMask(None, 0))
        >>> attention.logits_of_products(torch.ones(1, 1, 3), [0], slice(1, 2))
        tensor([[[1., 1., -inf]]])
        """
        columns = columns or slice(0, self.num_keys)
        device, num_rows = products.device, products.shape[-2]
        if self.softcap is not None:
            products.div_(self.softcap).tanh_().mul_(self.softcap)
        if self.bias is not None:
            for group, head, positions in _by_head(self.bias, heads, rows):
                added = self.bias.added(head, positions, columns, device)
                # A bias that is the same for all queries has a single row, which is broadcast.
                products[..., group, :, :] += (
                    added if len(added) == 1 else added.unflatten(0, (-1, num_rows))
                )
        if self.mask is not None:
            for group, head, positions in _by_head(self.mask, heads, rows):
                visible = self.mask.fully_visible_keys(positions, columns)
                # All queries may attend to the `visible` keys. Read the mask only for the columns
                # before and after these keys.
                for part in (
                    slice(columns.start, visible.start),
                    slice(visible.stop, columns.stop),
                ):
                    if part.start < part.stop:
                        allowed = self.mask.allowed(head, positions, part, device)
                        local = slice(part.start - columns.start, part.stop - columns.start)
                        products[..., group, :, local].masked_fill_(
                            ~allowed.unflatten(0, (-1, num_rows)), -torch.inf
                        )
        return products

    def key_range(self, rows: Rows) -> slice:
        everything = slice(0, self.num_keys)
        return everything if self.mask is None else self.mask.key_range(rows, self.num_keys)

    @property
    def num_softmaxes(self) -> int:
        return 1

    def normalizers(self, heads: Heads, rows: Rows) -> torch.Tensor:
        """Return the softmax normalizers of the queries `rows`, (1, heads, rows).

        Logits are computed for one range of keys after another, so that long rows of logits are
        never completely in memory. Before their exponentials are summed, the largest logit of the
        row so far is subtracted (online softmax, Milakov and Gimelshein 2018, arXiv 1805.02867).

        >>> attention = QueryKeyAttention(torch.zeros(1, 2, 4), torch.zeros(1, 8, 4), 0.5)
        >>> attention.normalizers([0], slice(0, 2)).exp().round()
        tensor([[[8., 8.]]])
        """
        device = self.queries.device
        normalizers = torch.empty(1, len(heads), count_rows(rows), device=device)
        with torch.no_grad():
            for part, group in self._row_groups(rows, max(1, _ROWS_PER_PRODUCT // len(heads))):
                normalizers[0, :, part] = self._normalizers(heads, group)
        return normalizers

    def _row_groups(self, rows: Rows, max_rows: int) -> Iterator[tuple[slice, Rows]]:
        """Split `rows` into groups of at most `max_rows`, and yield items as `softmax.row_groups`.

        Groups are smaller if `rows` are single positions far from each other, such as sampled
        queries, and attention is causal. All queries of a group are multiplied with the same keys,
        up to the last query of the group. The early queries of a large group would therefore be
        multiplied with many keys to which they may not attend.
        """
        if isinstance(rows, torch.Tensor) and self.causal and len(rows):
            is_spread = int(rows[-1] - rows[0]) > self.num_keys // 8
            max_rows = min(max_rows, max(8, len(rows) // 8)) if is_spread else max_rows
        return row_groups(rows, max_rows)

    def _normalizers(self, heads: Heads, rows: Rows) -> torch.Tensor:
        shape, device = (len(heads), count_rows(rows)), self.queries.device
        maximum = torch.full(shape, -torch.inf, device=device)
        total = torch.zeros(shape, device=device)
        if self.sinks is not None:
            maximum = self.sinks[list(heads)].float().to(device)[:, None].expand(shape)
            total = torch.ones(shape, device=device)
        for columns in key_blocks(self.key_range(rows), shape[0] * shape[1], device):
            logits = self.logits(heads, rows, columns)
            new_maximum = torch.maximum(maximum, logits.amax(dim=-1))
            # The maximum of a row is minus infinity until a key is allowed. Subtract 0 from such a
            # row, because the difference of two infinities is NaN.
            reference = new_maximum.masked_fill(torch.isneginf(new_maximum), 0.0)
            logits -= reference[..., None]
            total = total * torch.exp(maximum - reference) + exp_in_place(logits).sum(dim=-1)
            maximum = new_maximum
        return maximum + torch.log(total)

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        columns = columns or slice(0, self.num_keys)
        width, count = columns.stop - columns.start, count_rows(rows)
        block = torch.zeros(len(heads), count, width, device=self.queries.device)
        num_computed = self.num_keys if normalizers is None else width
        # All logits that are computed at once must fit into a tile (`softmax.tile_rows`). With more
        # heads, fewer rows of each head fit, and products with few rows are slow. Compute only as
        # many heads at once as fit with `_ROWS_PER_PRODUCT` rows each, or with all `rows` if these
        # are fewer.
        together = tile_rows(min(count, _ROWS_PER_PRODUCT) * num_computed)
        for start in range(0, len(heads), together):
            heads_part = slice(start, start + together)
            known = None if normalizers is None else normalizers[0, heads_part]
            self._fill(block[heads_part], heads[heads_part], rows, columns, known)
        return block

    def _fill(
        self,
        block: torch.Tensor,
        heads: Heads,
        rows: Rows,
        columns: slice,
        normalizers: torch.Tensor | None,
    ) -> None:
        """Write the weights of `heads` into `block`, (heads, rows, columns).

        `block` contains zeros when the method is called, and keeps them for keys that are not
        allowed. `normalizers`, (heads, rows), are the log-sum-exps of these heads and rows: item 0
        of the result of the method `normalizers`. If they are None, the logits of complete rows are
        computed, because the softmax needs all of them.
        """
        num_computed = self.num_keys if normalizers is None else columns.stop - columns.start
        with torch.no_grad():
            for part, group in self._row_groups(rows, tile_rows(len(heads) * num_computed)):
                # No query of the group may attend to keys outside `keys`. The weights of these
                # outer keys stay 0 and are not computed.
                keys = self.key_range(group)
                shown = slice(max(keys.start, columns.start), min(keys.stop, columns.stop))
                if shown.start >= shown.stop:
                    continue
                if normalizers is None:
                    weights = self._softmax(heads, self.logits(heads, group, keys))
                    weights = weights[..., shown.start - keys.start : shown.stop - keys.start]
                else:
                    weights = weights_from_logits(
                        self.logits(heads, group, shown), normalizers[:, part].to(block.device)
                    )
                block[:, part, shown.start - columns.start : shown.stop - columns.start] = weights

    def _softmax(self, heads: Heads, logits: torch.Tensor) -> torch.Tensor:
        """Return the weights of complete rows, (heads, rows, keys), without the sink's share.

        `logits` have the same shape, and include all keys that the rows may attend to.
        """
        if self.sinks is not None:
            sinks = self.sinks[list(heads)].float().to(logits.device)[:, None, None]
            with_sinks = torch.cat([logits, sinks.expand(*logits.shape[:2], 1)], dim=-1)
            return torch.softmax(with_sinks, dim=-1)[..., :-1]
        weights = torch.softmax(logits, dim=-1)
        # torch.softmax returns NaN for a row without an allowed key. Replace the NaN by 0.
        if bool(weights[..., 0].isnan().any()):
            is_empty = torch.isneginf(logits.amax(dim=-1))
            weights.masked_fill_(is_empty[..., None], 0.0)
        return weights

    @property
    def shares_mask(self) -> bool:
        return self.mask is None or self.mask.num_heads == 1

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        if self.mask is None:
            return super().allowed(heads, rows, columns)
        columns = columns or slice(0, self.num_keys)
        masked = [0] if self.shares_mask else heads
        flags = [self.mask.allowed(head, rows, columns, torch.device("cpu")) for head in masked]
        return torch.stack(flags)

    def left_out(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        if self.mask is None:
            return super().left_out(heads, rows, columns)
        return replace(self, mask=LeftOutMask(self.mask)).allowed(heads, rows, columns)

    def lost_weight(self, heads: Heads, rows: Rows) -> torch.Tensor:
        """Return the total weight that the left-out keys of each query would have, (heads, rows).

        These are the weights of a softmax over the sink and all keys that the query could attend
        to, chosen or left out. The total is exactly 0 for a query without left-out keys.

        >>> from attnviz.record.masks import BandMask, ChosenMask
        >>> vectors = torch.zeros(1, 4, 2)
        >>> window = ChosenMask(BandMask(0, 0), BandMask(None, 0))
        >>> QueryKeyAttention(vectors, vectors, 0.5, window).lost_weight([0], slice(0, 4))
        tensor([[0.0000, 0.5000, 0.6667, 0.7500]])
        """
        if not isinstance(self.mask, ChosenMask):
            return torch.zeros(len(heads), count_rows(rows))
        # The sum over the left-out keys is more precise than 1 minus the sum over the others.
        left_out = replace(self, mask=LeftOutMask(self.mask), sinks=None).normalizers(heads, rows)
        everything = replace(self, mask=self.mask.base).normalizers(heads, rows)
        return torch.exp(left_out - everything)[0].nan_to_num()

    def has_allowed_key(self, heads: Heads, rows: Rows) -> torch.Tensor:
        count = count_rows(rows)
        if count and self.mask is not None:
            visible = self.mask.fully_visible_keys(rows, slice(0, self.num_keys))
            if visible.start == visible.stop:
                return super().has_allowed_key(heads, rows)
        # Either `rows` is empty, there is no mask, or at least one key is visible to all `rows`,
        # such as the first token of a causal text.
        return torch.ones(1, count, dtype=torch.bool)


@dataclass(frozen=True)
class StoredWeights(StoredAttention):
    """Attention of a layer, stored as floating-point weights, (heads, queries, keys).

    No mask is known, but a causal mask is recognised by its zeros. Other zeros can be weights.
    """

    weights: torch.Tensor

    def __post_init__(self) -> None:
        if not self.weights.is_floating_point():
            set_fields(self, weights=self.weights.float())
        if self.weights.requires_grad:
            set_fields(self, weights=self.weights.detach())

    @property
    def num_heads(self) -> int:
        return self.weights.shape[0]

    @property
    def num_queries(self) -> int:
        return self.weights.shape[1]

    @property
    def num_keys(self) -> int:
        return self.weights.shape[2]

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        del normalizers
        values = _of_heads(self.weights, heads, rows)
        if columns is not None:
            values = values[..., columns]
        return values.float()

    @property
    def shares_mask(self) -> bool:
        """True, because `allowed` is the same for all heads."""
        return True

    @property
    def causal(self) -> bool:
        """Whether the zeros of the weights are those of a causal mask.

        >>> StoredWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]])).causal
        True
        """
        return self._mask is not None

    @cached_property
    def _mask(self) -> BandMask | None:
        """Causal mask, if the zeros of the weights are those of such a mask.

        This is the case if no query has weight on a later key in any head, and each query has
        weight on its own key in some head, unless it has no weight at all, or no query has weight
        on this key (padding). The last query is assumed to be at the position of the last key. A
        single query shows no mask, and a very large layer is not examined.
        """
        offset = self.num_keys - self.num_queries
        examined = 0 < self.weights.numel() <= _MAX_EXAMINED
        if offset < 0 or self.num_queries < 2 or not examined:
            return None
        # torch reduces bool tensors slowly.
        has_weight = self.weights.bool().view(torch.uint8).amax(dim=0)
        own = has_weight.diagonal(offset)
        is_explained = own | (has_weight.amax(dim=1) == 0) | (has_weight.amax(dim=0)[offset:] == 0)
        keys = torch.arange(self.num_keys, device=has_weight.device)
        # For uint8, this is ten times as fast as `triu`.
        is_later = keys > keys[: self.num_queries, None] + offset
        if bool((has_weight.bool() & is_later).any()) or not bool(is_explained.all() & own.any()):
            return None
        return BandMask(None, 0, offset)

    def key_range(self, rows: Rows) -> slice:
        if self._mask is None:
            return super().key_range(rows)
        return self._mask.key_range(rows, self.num_keys)

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        if self._mask is None:
            return super().allowed(heads, rows, columns)
        return self._mask.allowed(0, rows, columns or slice(0, self.num_keys))[None]

    def has_allowed_key(self, heads: Heads, rows: Rows) -> torch.Tensor:
        del heads
        return torch.ones(1, count_rows(rows), dtype=torch.bool)

    def permute(self, order: torch.Tensor) -> StoredWeights:
        return StoredWeights(self.weights[:, order][:, :, order])


@dataclass(frozen=True)
class ComputedAttention(StoredAttention):
    """Attention without a softmax, computed from the stored tensors. All heads have one mask."""

    #: Name of the class in saved files.
    kind: ClassVar[str]

    @property
    def settings(self) -> dict[str, bool]:
        """Flags that the layer stores, by the name of their attribute."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, bool)}

    @property
    def bounds_sums(self) -> bool:
        """False, because rows may have any sum."""
        return False

    @property
    def shares_mask(self) -> bool:
        return True

    def permute(self, order: torch.Tensor) -> ComputedAttention:
        """Raise NotImplementedError, because the attention depends on the order of the tokens."""
        del order
        raise NotImplementedError(
            "the tokens of a linear layer or an indexer cannot be sorted in another order"
        )


class CausalAttention(ComputedAttention):
    """Attention of each token to itself and earlier tokens."""

    @property
    @abstractmethod
    def num_keys(self) -> int:
        """Number of tokens, which are the rows and the columns."""

    @property
    def num_queries(self) -> int:
        return self.num_keys

    @property
    def causal(self) -> bool:
        return True

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        del heads
        return _CAUSAL.allowed(0, rows, columns or slice(0, self.num_keys))[None]

    def key_range(self, rows: Rows) -> slice:
        return _CAUSAL.key_range(rows, self.num_keys)

    def has_allowed_key(self, heads: Heads, rows: Rows) -> torch.Tensor:
        del heads
        return torch.ones(1, count_rows(rows), dtype=torch.bool)


def _of_heads(values: torch.Tensor, heads: Heads, rows: Rows) -> torch.Tensor:
    """Return ``values[heads, rows]``, (heads, rows, ...), without a copy if possible."""
    if tuple(heads) == tuple(range(heads[0], heads[0] + len(heads))):
        return values[heads[0] : heads[0] + len(heads), rows]
    if isinstance(rows, slice):
        return values[list(heads), rows]
    return values[torch.tensor(list(heads))[:, None], rows]


def _by_head(part: Mask | Bias, heads: Heads, rows: Rows) -> Iterator[tuple[slice, int, Rows]]:
    """Split `heads` into groups that have the same entries of the mask or bias `part`.

    If `part` has the same entries for all heads, all `heads` are one group. Otherwise, each head is
    a group. Yield three items for each group:

    - the slice of its indices in `heads`
    - the argument `head` for methods of `part`: 0 for the group of all heads, otherwise the head
    - its query positions with one axis: `rows`, or if `rows` is a tensor with two axes, (heads or
      1, rows), the positions of all heads of the group, one head after the other
    """
    shared = part.num_heads == 1
    groups = [slice(None)] if shared else [slice(n, n + 1) for n in range(len(heads))]
    for number, group in enumerate(groups):
        positions = rows
        if isinstance(rows, torch.Tensor) and rows.dim() == 2:
            positions = rows[group if len(rows) > 1 else slice(None)].flatten()
        yield group, 0 if shared else heads[number], positions
