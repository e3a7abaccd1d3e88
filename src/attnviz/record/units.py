"""Attention between units instead of tokens. A unit is a word, or other neighbouring tokens.

With the tokens i of a unit I as queries and the tokens j of a unit J as keys,

    weight[I, J] = mean over i in I of (sum over j in J of weights[i, j])

(Clark et al. 2019, arXiv 1906.04341, section 4.1): attention to a unit is the sum over its tokens,
and attention from a unit is the mean over its tokens. If the rows of tokens sum to 1, so do the
rows of units. The row of a unit without tokens is 0.

Units without tokens occur in comparisons of two texts, because both texts must have the same units.
A token that only the first text has becomes a unit of both texts. In the second text, this unit has
no tokens, and all weights to it and from it are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import Columns, DerivedAttention, Heads, LayerAttention, Normalizers
from attnviz.record.masks import Rows
from attnviz.record.pooling import pool
from attnviz.record.softmax import count_rows, row_groups, tile_rows

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class UnitAttention(DerivedAttention):
    """Attention of a layer between units, computed on demand.

    `base` is the attention between tokens. `query_starts` and `key_starts` are int64, (units,).
    Entry u is the number of tokens before unit u, so the entries ascend from 0. If unit u has no
    tokens, entry u + 1 is the same number.

    >>> from attnviz.record.attention import StoredWeights
    >>> base = StoredWeights(torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.5, 0.25]]]))
    >>> units = UnitAttention(base, np.array([0, 2]), np.array([0, 2, 2]))
    >>> units.block([0], slice(1, 2))
    tensor([[[0.7500, 0.0000, 0.2500]]])
    """

    query_starts: Positions
    key_starts: Positions

    def __post_init__(self) -> None:
        """Raise TypeError if `base` has units, or ValueError if the starts do not fit `base`."""
        if self.base.merged or isinstance(self.base, UnitAttention):
            raise TypeError("base already has units. Pass the attention between tokens.")
        for name, starts, size in (
            ("query_starts", self.query_starts, self.base.num_queries),
            ("key_starts", self.key_starts, self.base.num_keys),
        ):
            is_list = starts.ndim == 1 and starts.dtype == np.int64 and len(starts) > 0
            if not is_list or starts[0] != 0 or starts[-1] > size or (np.diff(starts) < 0).any():
                raise ValueError(
                    f"{name} must ascend from 0 to at most {size}, the number of tokens before "
                    f"each unit; got {starts.dtype} of shape {starts.shape}"
                )

    @property
    def num_queries(self) -> int:
        return len(self.query_starts)

    @property
    def num_keys(self) -> int:
        return len(self.key_starts)

    @cached_property
    def _query_lengths(self) -> Positions:
        return np.diff(self.query_starts, append=self.base.num_queries)

    @cached_property
    def _key_lengths(self) -> Positions:
        return np.diff(self.key_starts, append=self.base.num_keys)

    @property
    def merged(self) -> bool:
        """Whether any unit has several tokens."""
        return bool(self._query_lengths.max() > 1 or self._key_lengths.max() > 1)

    @property
    def bound(self) -> float | None:
        """Bound of `base`, or None if units have several tokens and it excludes their sums."""
        return None if self.merged and not self.base.bounds_sums else self.base.bound

    @property
    def causal(self) -> bool:
        """Whether the mask is known to forbid attention to all later units.

        True if no token may attend to a later token, and the query units are the last of the key
        units, with the same tokens. In other cases, a later unit could contain tokens to which the
        query may attend, so the result is False.
        """
        if not self.base.causal or self.num_queries > self.num_keys:
            return False
        offset = 0 if self.base.vectors is None else self.base.vectors.offset
        last = self.key_starts[self.num_keys - self.num_queries :]
        return bool(np.array_equal(last - offset, self.query_starts))

    @property
    def shares_mask(self) -> bool:
        return self.base.shares_mask

    @property
    def num_softmaxes(self) -> int:
        """`num_softmaxes` of `base`, or 0 if a unit of queries has several tokens.

        The weights of such a unit are means over several rows of `base`, each of which has its own
        normalizer.
        """
        return 0 if self._query_lengths.max() > 1 else self.base.num_softmaxes

    def normalizers(self, heads: Heads, rows: Rows) -> torch.Tensor:
        """Return the softmax normalizers of the units `rows`, as in `LayerAttention.normalizers`.

        A normalizer is the log-sum-exp of the logits of a query. If `num_softmaxes` is 0, the
        result is empty. Otherwise, each unit of queries has at most one token. Its normalizer is
        that of this token, or minus infinity if it has no token.
        """
        if not self.num_softmaxes:
            return super().normalizers(heads, rows)
        tokens, lengths = self._queries(rows)
        known = self.base.normalizers(heads, tokens)
        normalizers = known.new_full((*known.shape[:2], len(lengths)), -torch.inf)
        normalizers[..., np.flatnonzero(lengths)] = known
        return normalizers

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        _, lengths = self._queries(rows)
        known = None
        if normalizers is not None and self.num_softmaxes:
            known = normalizers[..., np.flatnonzero(lengths)]

        def tokens_block(queries: Rows, part: slice, keys: slice) -> torch.Tensor:
            return self.base.block(
                heads, queries, keys, None if known is None else known[..., part]
            )

        sums = self._pool(tokens_block, np.add, heads, rows, columns)
        if not self.merged:
            return torch.from_numpy(sums)
        return torch.from_numpy(sums / np.maximum(1, lengths)[:, None]).float()

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        """Return whether each unit of `rows` may attend to each unit of `columns`.

        Unit I may attend to unit J if any token of I may attend to any token of J. The result is
        bool, (heads, rows, columns).
        """

        def tokens_allowed(queries: Rows, part: slice, keys: slice) -> torch.Tensor:
            del part
            return self.base.allowed(heads, queries, keys)

        return torch.from_numpy(self._pool(tokens_allowed, np.logical_or, heads, rows, columns))

    def has_allowed_key(self, heads: Heads, rows: Rows) -> torch.Tensor:
        tokens, lengths = self._queries(rows)
        flags = self.base.has_allowed_key(heads, tokens).numpy()
        units = np.zeros((len(flags), len(lengths)), np.bool_)
        if flags.size:
            pooled = np.logical_or.reduceat(flags, _first_tokens(lengths), axis=1)
            units[:, lengths > 0] = pooled
        return torch.from_numpy(units)

    def key_range(self, rows: Rows) -> slice:
        tokens, _ = self._queries(rows)
        keys = self.base.key_range(tokens) if count_rows(tokens) else slice(0, 0)
        if keys.start >= keys.stop:
            return slice(0, 0)
        ends = [keys.start, keys.stop - 1]
        first, last = (np.searchsorted(self.key_starts, ends, side="right") - 1).tolist()
        return slice(first, last + 1)

    def units_of_tokens(self) -> tuple[Positions, Positions]:
        """Return the index of the unit of each query token and of each key token of `base`."""
        query_units = np.repeat(np.arange(self.num_queries), self._query_lengths)
        return query_units, np.repeat(np.arange(self.num_keys), self._key_lengths)

    def _queries(self, rows: Rows) -> tuple[Rows, Positions]:
        """Return the positions of all query tokens of the units `rows`, as rows of `base`.

        The second result is the number of query tokens in each of these units.
        """
        return _tokens_of(rows, self.query_starts, self._query_lengths)

    def _pool(
        self,
        block_of: Callable[[Rows, slice, slice], torch.Tensor],
        how: np.ufunc,
        heads: Heads,
        rows: Rows,
        columns: slice | None,
    ) -> NDArray[Any]:
        """Combine the weights or flags of the token pairs in each pair of units with `how`.

        `how` is `numpy.add` for weights, or `numpy.logical_or` for flags. The result is (heads,
        `rows`, `columns`), and is 0 or False for units without tokens. `block_of` returns weights
        or flags of `base` for a group of query tokens. Its arguments are the positions of the
        group, the indices of the group among all query tokens of `rows`, and the positions of all
        key tokens of `columns`.
        """
        queries, lengths = self._queries(rows)
        keys, key_lengths = _tokens_of(
            columns or slice(0, self.num_keys), self.key_starts, self._key_lengths
        )
        query_units, key_units = np.flatnonzero(lengths), np.flatnonzero(key_lengths)
        dtype: Any = np.bool_
        if how is np.add:
            # Sums of weights are computed in float64. If each unit has at most one token, weights
            # are only copied, and float32 suffices.
            dtype = np.float64 if self.merged else np.float32
        pooled: NDArray[Any] = np.zeros((len(heads), len(query_units), len(key_units)), dtype)
        starts = _first_tokens(lengths), _first_tokens(key_lengths)
        all_keys = slice(0, int(key_lengths.sum()))
        for part, group in row_groups(queries, tile_rows(len(heads) * all_keys.stop)):
            block = block_of(group, part, keys).cpu().numpy()
            if self.merged:
                pool(pooled, block, (np.arange(part.start, part.stop), all_keys), starts, how)
            else:
                pooled[:, part] = block
        if pooled.shape[1:] == (len(lengths), len(key_lengths)):
            return pooled
        units: NDArray[Any] = np.zeros((len(heads), len(lengths), len(key_lengths)), dtype)
        units[:, query_units[:, None], key_units] = pooled
        return units


def _tokens_of(units: Rows, starts: Positions, lengths: Positions) -> tuple[Any, Positions]:
    """Return the positions of the tokens in `units`, and the number of tokens in each of `units`.

    `starts` and `lengths` are (all units of the layer,): the position of the first token, and the
    number of tokens. If `units` is a slice, the positions are a slice, otherwise an int64 tensor.
    """
    if isinstance(units, slice):
        chosen = lengths[units]
        start = int(starts[units.start]) if len(chosen) else 0
        return slice(start, start + int(chosen.sum())), chosen
    numbers = units.numpy()
    tokens = [np.arange(starts[unit], starts[unit] + lengths[unit]) for unit in numbers]
    return torch.from_numpy(np.concatenate([starts[:0], *tokens])), lengths[numbers]


def _first_tokens(lengths: Positions) -> Positions:
    """Return the index of the first token of each unit that has tokens, (units with tokens,).

    `lengths` is the number of tokens of each unit. The index counts the tokens of these units only:
    the lengths 2, 0 and 3 give the indices 0 and 2.
    """
    first: Positions = (np.cumsum(lengths) - lengths)[lengths > 0]
    return first


def in_units(
    attention: LayerAttention, query_starts: Positions, key_starts: Positions
) -> LayerAttention:
    """Return `attention` between units instead of its rows and columns.

    `query_starts` and `key_starts` define the units as in `UnitAttention`, with the rows and
    columns of `attention` as tokens. If each row and each column is a unit, return `attention`
    itself. If the rows and columns of `attention` are units already, each new unit combines some of
    them. Its weights are then computed from the tokens: they are means over all query tokens of the
    new unit, not means of the earlier means.
    """
    sides = (query_starts, attention.num_queries), (key_starts, attention.num_keys)
    if all(np.array_equal(starts, np.arange(count)) for starts, count in sides):
        return attention
    if isinstance(attention, UnitAttention):
        base = attention.base
        query_starts = np.append(attention.query_starts, base.num_queries)[query_starts]
        key_starts = np.append(attention.key_starts, base.num_keys)[key_starts]
        return UnitAttention(base, query_starts, key_starts)
    return UnitAttention(attention, query_starts, key_starts)
