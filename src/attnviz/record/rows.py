"""Some queries of several heads, whose weights of any keys are computed together.

Heads that read the same keys are multiplied with them at once, and what a row's weights are divided
by is summed up once: every further look at a row costs no more than the keys that are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, QueryKeyAttention
from attnviz.record.head_subset import KeptHeads, vectors_of_layer
from attnviz.record.masks import BandMask, PackedMask
from attnviz.record.merged import MergedWeights
from attnviz.record.sampled import weights_of_rows
from attnviz.record.softmax import blocks
from attnviz.record.windows import Rows

__all__ = ["RowsOfHeads", "rows_of_heads"]

# Neighbouring queries that are multiplied with keys at once: a causal text's early ones need few.
_ROWS_AT_ONCE = 8

Numbers = NDArray[np.float64]


class RowsOfHeads(Protocol):
    """Some queries of some heads."""

    @property
    def totals(self) -> Numbers:
        """Weight of all keys together, (heads, rows)."""
        ...

    @property
    def sunk(self) -> Numbers:
        """What an attention sink takes, (heads, rows)."""
        ...

    def weights(self, some: slice, columns: slice) -> Numbers:
        """Weights of some of the rows, (heads, rows, columns)."""
        ...

    def allowed(self, some: slice, columns: slice) -> NDArray[np.bool_]:
        """What the mask lets through of some of the rows, (heads, rows, columns)."""
        ...


def rows_of_heads(
    attention: LayerAttention, heads: Sequence[int], rows: NDArray[np.int64]
) -> Iterator[tuple[list[int], RowsOfHeads]]:
    """Look at some queries of heads, together where they read the same keys.

    Parameters
    ----------
    attention : LayerAttention
        What is kept of the layer.
    heads : sequence of int
        The model's numbers of heads that were kept.
    rows : ndarray of int64
        The queries, not many.

    Yields
    ------
    places : list of int
        Which of `heads` these are.
    rows : RowsOfHeads
        Their queries, in the order of `rows`.

    Examples
    --------
    >>> from attnviz.record.attention import GivenWeights
    >>> given = GivenWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
    >>> [(places, found)] = rows_of_heads(given, [0], np.array([1]))
    >>> found.weights(slice(0, 1), slice(0, 1)).tolist()
    [[[0.25]]]
    """
    if isinstance(attention, MergedWeights):
        words = _Words(attention, rows)
        for numbers, tokens in rows_of_heads(attention.base, heads, words.rows):
            yield numbers, _MergedRows(tokens, words)
        return
    vectors = vectors_of_layer(attention)
    if vectors is None:
        for number, head in enumerate(heads):
            yield [number], _WholeRows(*weights_of_rows(attention, head, rows))
        return
    places = [attention.place(h) if isinstance(attention, KeptHeads) else h for h in heads]
    groups: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        groups.setdefault(vectors.key_head(place), []).append(number)
    for key_head, numbers in groups.items():
        yield numbers, _SharedKeys(vectors, key_head, [places[at] for at in numbers], rows)


class _WholeRows:
    """Rows of one head that are held whole, as its weights were given or merged."""

    def __init__(self, weights: NDArray[np.float32], allowed: NDArray[np.bool_]) -> None:
        self._weights = weights[None].astype(np.float64)
        self._allowed = allowed[None]
        self.totals = self._weights.sum(axis=-1)
        self.sunk = np.zeros_like(self.totals)

    def weights(self, some: slice, columns: slice) -> Numbers:
        return self._weights[:, some, columns]

    def allowed(self, some: slice, columns: slice) -> NDArray[np.bool_]:
        return self._allowed[:, some, columns]


class _Words:
    """Which tokens some words that are queries, and any that are keys, are made of."""

    def __init__(self, attention: MergedWeights, words: NDArray[np.int64]) -> None:
        starts = np.append(attention.query_starts, attention.base.num_queries)
        self._keys = np.append(attention.key_starts, attention.base.num_keys)
        self.lengths = (starts[1:] - starts[:-1])[words]
        # Where each word begins among the tokens of all of them, and where the last one ends.
        self._firsts = np.concatenate([[0], np.cumsum(self.lengths)])
        self.rows = np.concatenate([np.arange(starts[word], starts[word + 1]) for word in words])

    def tokens(self, some: slice) -> tuple[slice, NDArray[np.int64]]:
        """Rows of some of the words, and where each word begins in them."""
        start, stop, _ = some.indices(len(self.lengths))
        begin, end = int(self._firsts[start]), int(self._firsts[stop])
        return slice(begin, end), self._firsts[start:stop] - begin

    def keys(self, words: slice) -> tuple[slice, NDArray[np.int64]]:
        """Keys of some words, and where each word begins in them."""
        begin, end = int(self._keys[words.start]), int(self._keys[words.stop])
        return slice(begin, end), self._keys[words] - begin


class _MergedRows:
    """Rows of words, from those of their tokens: keys are summed, queries averaged."""

    def __init__(self, tokens: RowsOfHeads, words: _Words) -> None:
        self._tokens = tokens
        self._words = words
        _, firsts = words.tokens(slice(None))
        self.totals = np.add.reduceat(tokens.totals, firsts, axis=1) / words.lengths
        self.sunk = np.add.reduceat(tokens.sunk, firsts, axis=1) / words.lengths

    def weights(self, some: slice, columns: slice) -> Numbers:
        (rows, firsts), (keys, first_keys) = self._words.tokens(some), self._words.keys(columns)
        summed = np.add.reduceat(self._tokens.weights(rows, keys), first_keys, axis=2)
        lengths = self._words.lengths[some][:, None]
        merged: Numbers = np.add.reduceat(summed, firsts, axis=1) / lengths
        return merged

    def allowed(self, some: slice, columns: slice) -> NDArray[np.bool_]:
        (rows, firsts), (keys, first_keys) = self._words.tokens(some), self._words.keys(columns)
        flags = np.logical_or.reduceat(self._tokens.allowed(rows, keys), first_keys, axis=2)
        merged: NDArray[np.bool_] = np.logical_or.reduceat(flags, firsts, axis=1)
        return merged


class _SharedKeys:
    """Rows of heads that read the same keys, and those keys, as float32."""

    def __init__(
        self,
        layer: QueryKeyAttention,
        key_head: int,
        places: list[int],
        rows: NDArray[np.int64],
    ) -> None:
        self._layer = layer
        self._places = places
        self._rows = torch.from_numpy(rows)
        self._queries = layer.queries[places][:, self._rows].float()
        self._keys = layer.keys[key_head].float()
        starts = range(0, len(rows), _ROWS_AT_ONCE)
        with torch.no_grad():
            parts = [self._log_sum_exp(slice(start, start + _ROWS_AT_ONCE)) for start in starts]
        sums = torch.cat(parts, dim=1)
        nothing = torch.isneginf(sums)
        # Nothing allowed is minus infinity on both sides, which have no difference.
        self._sums = sums.masked_fill(nothing, torch.inf)
        self.sunk = np.zeros(tuple(sums.shape))
        if layer.sinks is not None:
            sinks = layer.sinks[places].float().to(sums.device)
            self.sunk = torch.exp(sinks[:, None] - self._sums).double().cpu().numpy()
        self.totals = np.where(nothing.cpu().numpy(), 0.0, 1.0 - self.sunk)

    def weights(self, some: slice, columns: slice) -> Numbers:
        with torch.no_grad():
            weights = torch.exp(self._logits(some, columns) - self._sums[:, some, None])
        found: Numbers = weights.double().cpu().numpy()
        return found

    def allowed(self, some: slice, columns: slice) -> NDArray[np.bool_]:
        rows = self._rows[some]
        allowed = np.ones((len(self._places), len(rows), columns.stop - columns.start), np.bool_)
        for heads, flags in self._flags(rows, columns, torch.device("cpu")):
            allowed[heads] = flags.numpy()
        return allowed

    def _logits(self, some: slice, columns: slice) -> torch.Tensor:
        """Logits of some of the rows, float32, (heads, rows, columns)."""
        layer, rows = self._layer, self._rows[some]
        device = self._queries.device
        with torch.autocast(device.type, enabled=False):
            logits = torch.matmul(self._queries[:, some], self._keys[columns].T)
        logits *= layer.scale
        if layer.softcap is not None:
            logits = torch.tanh(logits / layer.softcap) * layer.softcap
        if layer.bias is not None:
            for number, place in enumerate(self._places):
                logits[number] += layer.bias.added(place, rows, columns, device)
        for heads, flags in self._flags(rows, columns, device):
            logits[heads] = logits[heads].masked_fill_(~flags, -torch.inf)
        return logits

    def _flags(
        self, rows: Rows, columns: slice, device: torch.device
    ) -> list[tuple[slice, torch.Tensor]]:
        """What the mask lets through, by heads that it is the same for; none where that is all."""
        mask = self._layer.mask
        if mask is None or (isinstance(mask, BandMask) and mask.covers(rows, columns)):
            return []
        if not isinstance(mask, PackedMask) or len(mask.bits) == 1:
            return [(slice(None), mask.allowed(0, rows, columns, device))]
        return [
            (slice(number, number + 1), mask.allowed(place, rows, columns, device))
            for number, place in enumerate(self._places)
        ]

    def _log_sum_exp(self, some: slice) -> torch.Tensor:
        """Logarithm of what the weights of some of the rows are divided by, (heads, rows).

        As `QueryKeyAttention.log_sum_exp`, for all heads of the group with one product.
        """
        rows = self._rows[some]
        shape = (len(self._places), len(rows))
        device = self._queries.device
        most = torch.full(shape, -torch.inf, device=device)
        total = torch.zeros(shape, device=device)
        if self._layer.sinks is not None:
            sinks = self._layer.sinks[self._places].float().to(device)
            most, total = sinks[:, None].expand(shape), torch.ones(shape, device=device)
        for columns in blocks(self._layer.reach(rows), shape[0] * shape[1], device):
            logits = self._logits(some, columns)
            higher = torch.maximum(most, logits.amax(dim=-1))
            # A row that has seen nothing yet is held against 0: infinities have no difference.
            against = higher.masked_fill(torch.isneginf(higher), 0.0)
            logits -= against[..., None]
            total = total * torch.exp(most - against) + logits.exp_().sum(dim=-1)
            most = higher
        return most + torch.log(total)
