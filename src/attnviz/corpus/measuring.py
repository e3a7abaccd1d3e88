"""Measurements of every head of a stack in one text: scores, baselines, sums and edges.

The weights are computed for blocks of heads and queries, so that the memory does not grow with the
length of the text. All heads with the same mask are measured together: for weights W, (heads,
queries x keys), and pairs D, (scores, queries x keys), the weight on all pairs is the matrix
product W D^T.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.analysis.heads import one_text, token_codes
from attnviz.analysis.patterns import pairs_of
from attnviz.analysis.token_kinds import KINDS, kinds_of, words_of
from attnviz.corpus.edges import EdgeColumns, hashed, largest_per_head
from attnviz.record.attention import LayerAttention
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens

__all__ = [
    "FARTHEST",
    "OFFSET_LABELS",
    "OF_POSITIONS",
    "OF_TOKENS",
    "SCORES",
    "Relations",
    "StackNumbers",
    "TokenFacts",
    "measured",
]

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.int64]
#: Queries and keys of the pairs of each syntactic relation.
Relations = Mapping[str, tuple[Places, Places]]

#: Scores that depend only on the positions of query and key.
OF_POSITIONS = ("previous token", "next token", "first token", "self")
#: Scores that depend on the tokens.
OF_TOKENS = (
    "same token",
    "induction",
    "same word",
    "delimiter",
    "punctuation",
    "special tokens",
    "rarest token",
)
_WITHOUT_PAIRS = ("positional share", "entropy")
#: All scores that need no parse, in the order in which they are shown.
SCORES = (*OF_POSITIONS, *OF_TOKENS, *_WITHOUT_PAIRS)
_WITHIN_ONE_TEXT = ("previous token", "next token", "self", "same token", "induction", "same word")

#: Largest offset with a separate sum.
FARTHEST = 64
OFFSET_LABELS = (*map(str, range(-FARTHEST, FARTHEST + 1)), "first", "rest")
_FIRST, _REST = len(OFFSET_LABELS) - 2, len(OFFSET_LABELS) - 1

# Maximum number of weights and pairs in memory: 16 MiB of float32.
_ENTRIES = 1 << 22
# Maximum number of strongest edges of a head from one text, each of another query. Without it, one
# long text could fill the list.
_STRONGEST_OF_A_TEXT = 4
# All larger offsets of pairs count as one offset.
_FARTHEST_ALONE = 1024
# A variance below this share of the sum of squared weights is rounding.
_NO_VARIANCE = 1e-9

_KIND = {name: code for code, name in enumerate(KINDS)}


@dataclass(frozen=True, eq=False)
class TokenFacts:
    """Tokens of one side of a stack with the properties that the scores use.

    Attributes
    ----------
    tokens : Tokens
        The tokens.
    classes : mapping of str to ndarray of int
        Class code of each token in each system of classes, -1 for none.
    names : mapping of str to tuple of str
        Names of the classes of each system, by code.
    frequencies : mapping of int or str to int
        Counts of tokens in the corpus, by id, or by text if ids are not known.
    """

    tokens: Tokens
    classes: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    frequencies: Mapping[int | str, int] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        """Index of the kind of each token in `KINDS`."""
        return kinds_of(self.tokens)

    @cached_property
    def words(self) -> Places:
        """Number of the word of each token, -1 for none."""
        return words_of(self.tokens)

    def on_keys(self, score: str) -> Flags:
        """Flag the keys of a score that does not depend on the query, (tokens,)."""
        kinds = self.kinds
        first = np.arange(len(kinds)) == 0
        flags: Flags
        if score == "first token":
            flags = first
        elif score == "punctuation":
            flags = kinds == _KIND["punctuation"]
        elif score == "special tokens":
            flags = kinds == _KIND["special"]
        elif score == "delimiter":
            flags = (kinds == _KIND["punctuation"]) | ((kinds == _KIND["special"]) & ~first)
        else:
            flags = self._rarest()
        return flags

    def _rarest(self) -> Flags:
        """Flag the rarest token: by count in the corpus, then in the text.

        No token is flagged if more than half are equally rare.
        """
        counted = (self.kinds != _KIND["special"]) & (self.kinds != _KIND["patch"])
        flags = np.zeros(len(counted), np.bool_)
        if not counted.any():
            return flags
        names: Sequence[int | str] = (
            self.tokens.text if self.tokens.ids is None else self.tokens.ids
        )
        here: dict[int | str, int] = {}
        for place in np.flatnonzero(counted).tolist():
            here[names[place]] = here.get(names[place], 0) + 1
        rarity = {name: (self.frequencies.get(name, 0), count) for name, count in here.items()}
        least = min(rarity.values())
        for place in np.flatnonzero(counted).tolist():
            flags[place] = rarity[names[place]] == least
        if 2 * np.count_nonzero(flags) > np.count_nonzero(counted):
            flags[:] = False
        return flags


@dataclass(frozen=True, eq=False)
class StackNumbers:
    """Measurements of the heads of a stack in one text. The heads of all layers form one axis.

    Attributes
    ----------
    scores : dict of str to ndarray, (3, heads)
        Each score that the text defines, followed by its two baselines: with shuffled keys, and
        from the position alone. NaN if undefined.
    offsets, offset_counts : ndarray, (heads, offsets)
        Sums of weights by offset, and numbers of pairs, or of queries for "first" and "rest".
    classes : dict of str to ndarray, (heads, classes, classes)
        Sums of weights by class of query and class of key, for each system of classes.
    class_counts : dict of str to ndarray, (heads, classes)
        Number of queries of each class with any weight.
    strongest, sampled : EdgeColumns
        Edges that may be among those that are kept.
    """

    scores: dict[str, Numbers]
    offsets: Numbers
    offset_counts: NDArray[np.int64]
    classes: dict[str, Numbers]
    class_counts: dict[str, NDArray[np.int64]]
    strongest: EdgeColumns
    sampled: EdgeColumns


def measured(
    stack: AttentionStack,
    queries: TokenFacts,
    keys: TokenFacts,
    *,
    text: int,
    seed: int = 0,
    relations: Relations | None = None,
    least: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None,
) -> StackNumbers:
    """Measure a stack of one text.

    `least` has the smallest order of each head that can still be kept, of the strongest and of the
    sampled edges.
    """
    measuring = _Measuring(
        stack, queries, keys, text=text, seed=seed, relations=relations or {}, least=least
    )
    return measuring.result()


class _Measuring:
    def __init__(
        self,
        stack: AttentionStack,
        queries: TokenFacts,
        keys: TokenFacts,
        *,
        text: int,
        seed: int,
        relations: Relations,
        least: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None,
    ) -> None:
        self._stack, self._queries, self._keys = stack, queries, keys
        self._text, self._relations = text, relations
        self._one_text = one_text(stack)
        heads = [(layer, head) for layer in stack.layers for head in range(stack.num_heads(layer))]
        self._num_heads, self._n, self._m = (
            len(heads),
            len(stack.query_tokens),
            len(stack.key_tokens),
        )
        none = np.zeros(len(heads), np.uint64)
        self._least_strong, self._least_sampled = (none, none) if least is None else least
        start = hashed(np.uint64(seed & 0xFFFFFFFFFFFFFFFF), np.uint64(text))
        start = hashed(start, np.uint64(zlib.crc32(stack.name.encode())))
        numbers = np.array([layer << 32 | head for layer, head in heads], np.uint64)
        self._hashes = hashed(start, numbers)
        self._on_keys = {name: keys.on_keys(name) for name in ("first token", *OF_TOKENS[3:])}
        self._names = tuple(self._possible())
        self._codes = self._token_codes() if self._one_text else np.zeros(0, np.int64)
        count = len(self._names)
        self._mass = np.zeros((self._num_heads, count))
        self._shuffled = np.zeros((self._num_heads, count))
        self._counts = np.zeros((self._num_heads, count), np.int64)
        self._squares = np.zeros(self._num_heads)
        self._entropy = np.zeros(self._num_heads)
        self._rows = np.zeros(self._num_heads, np.int64)
        self._offsets = np.zeros((self._num_heads, len(OFFSET_LABELS)))
        self._offset_counts = np.zeros((self._num_heads, len(OFFSET_LABELS)), np.int64)
        # Indexed by offset j - i, from -(n - 1).
        wide = self._n + self._m - 1 if self._one_text else 0
        self._diagonals = np.zeros((self._num_heads, wide))
        self._diagonal_counts = np.zeros((self._num_heads, wide), np.int64)
        # Means and variances of these sums if the weights of each query are shuffled.
        self._shuffled_means = np.zeros((self._num_heads, wide))
        self._shuffled_variances = np.zeros((self._num_heads, wide))
        # Weight and number of the pairs of token scores, by offset up to `self._farthest`.
        self._farthest = min(self._n, _FARTHEST_ALONE)
        self._of_tokens = [n for n, name in enumerate(self._names) if name not in OF_POSITIONS]
        bins = len(self._of_tokens) * (2 * self._farthest + 1) if self._one_text else 0
        self._on_pairs = np.zeros((self._num_heads, bins))
        self._pair_counts = np.zeros((self._num_heads, bins))
        self._one_hot = {
            name: (
                _one_hot(queries.classes[name], len(classes)),
                _one_hot(keys.classes[name], len(classes)),
            )
            for name, classes in queries.names.items()
        }
        self._classes = {
            name: np.zeros((self._num_heads, one.shape[1], other.shape[1]))
            for name, (one, other) in self._one_hot.items()
        }
        self._class_counts = {
            name: np.zeros((self._num_heads, one.shape[1]), np.int64)
            for name, (one, _) in self._one_hot.items()
        }
        self._strongest: list[EdgeColumns] = []
        self._sampled: list[EdgeColumns] = []

    def _possible(self) -> Iterator[str]:
        for name in (*OF_POSITIONS, *OF_TOKENS):
            if name in _WITHIN_ONE_TEXT and not self._one_text:
                continue
            if name in self._on_keys and not self._on_keys[name].any():
                continue
            yield name
        yield from self._relations

    def _token_codes(self) -> Places:
        """Return a code for each distinct token. Every patch has a different code."""
        codes = token_codes(self._stack)
        patches = self._keys.kinds == _KIND["patch"]
        codes[patches] = codes.max(initial=0) + 1 + np.arange(np.count_nonzero(patches))
        return codes

    def result(self) -> StackNumbers:
        for group in _groups(self._stack):
            self._measure(group)
        num_heads = self._num_heads
        return StackNumbers(
            scores=self._scores(),
            offsets=self._offsets,
            offset_counts=self._offset_counts,
            classes=self._classes,
            class_counts=self._class_counts,
            strongest=largest_per_head(self._strongest, _STRONGEST_OF_A_TEXT, num_heads),
            sampled=EdgeColumns.joined(self._sampled),
        )

    def _measure(self, group: _Group) -> None:
        """Measure the heads of a group in blocks of queries."""
        scores = len(self._names)
        together = max(1, min(len(group), _ENTRIES // (2 * self._m * min(self._n, 32)) - scores))
        step = max(1, _ENTRIES // (self._m * (together + scores)))
        for start in range(0, self._n, step):
            rows = slice(start, min(start + step, self._n))
            allowed = group.allowed(rows)
            pairs = self._pairs(rows) & allowed
            block = _Block(rows, allowed, pairs)
            if self._one_text:
                block.sort_pairs(pairs[self._of_tokens], self._farthest)
            for first in range(0, len(group), together):
                some = slice(first, first + together)
                self._add(group.places[some], group.weights(some, rows), block)

    def _pairs(self, rows: slice) -> Flags:
        """Flag the pairs of every score, (scores, rows, keys)."""
        found = np.zeros((len(self._names), rows.stop - rows.start, self._m), np.bool_)
        for place, name in enumerate(self._names):
            if name in self._on_keys:
                found[place] = self._on_keys[name]
            elif name == "same word":
                words = self._keys.words
                here = words[rows, None]
                found[place] = (here == words) & (here >= 0)
                own = np.arange(rows.start, rows.stop)
                found[place, own - rows.start, own] = False
            elif name in self._relations:
                query, key = self._relations[name]
                inside = (query >= rows.start) & (query < rows.stop)
                found[place, query[inside] - rows.start, key[inside]] = True
            else:
                found[place] = pairs_of(name, rows, self._m, self._codes)
        return found

    def _add(self, places: Places, weights: NDArray[np.float32], block: _Block) -> None:
        flat = weights.reshape(len(weights), -1)
        sums = weights.sum(axis=2)
        self._mass[places] += flat @ block.flat_pairs.T
        # Expected weight on the pairs if the allowed keys of each query are shuffled.
        self._shuffled[places] += sums @ block.expected.T
        self._counts[places] += block.queries
        squares = np.einsum("hrk,hrk->hr", weights, weights)
        self._squares[places] += squares.sum(axis=1, dtype=np.float64)
        attends = sums > 0
        self._rows[places] += np.count_nonzero(attends, axis=1)
        logarithms = np.log(np.maximum(weights, np.float32(1e-30)))
        inner = np.einsum("hrk,hrk->hr", weights, logarithms)
        safe = np.where(attends, sums, 1)
        self._entropy[places] += np.where(attends, np.log(safe) - inner / safe, 0).sum(axis=1)
        self._add_offsets(places, weights, sums, squares, block)
        for name, (of_queries, of_keys) in self._one_hot.items():
            here = of_queries[block.rows]
            self._classes[name][places] += here.T @ (weights @ of_keys)
            self._class_counts[name][places] += (attends.astype(np.float32) @ here).astype(np.int64)
        self._add_edges(places, weights, sums, block)

    def _add_offsets(
        self,
        places: Places,
        weights: NDArray[np.float32],
        sums: NDArray[np.float32],
        squares: NDArray[np.float32],
        block: _Block,
    ) -> None:
        first = block.allowed[:, 0]
        self._offsets[places, _FIRST] += weights[:, :, 0].sum(axis=1)
        self._offset_counts[places, _FIRST] += np.count_nonzero(first)
        if not self._one_text:
            self._offsets[places, _REST] += (sums - weights[:, :, 0]).sum(axis=1)
            others = block.allowed[:, 1:].any(axis=1)
            self._offset_counts[places, _REST] += np.count_nonzero(others)
            return
        flat = weights.reshape(len(weights), -1)
        at_offsets = self._at_offsets(block.rows)
        diagonals = np.zeros((len(places), self._diagonals.shape[1]))
        diagonals[:, at_offsets] = _moved(weights).sum(axis=1)
        counts = np.zeros(self._diagonals.shape[1])
        counts[at_offsets] = block.by_offset.sum(axis=0)
        self._diagonals[places] += diagonals
        self._diagonal_counts[places] += counts.astype(np.int64)
        means = sums / block.num_keys
        variances = np.maximum(squares / block.num_keys - means**2, 0)
        self._shuffled_means[places, at_offsets] += means @ block.by_offset
        self._shuffled_variances[places, at_offsets] += variances @ block.by_offset
        if len(block.bins):
            on_pairs = flat[:, block.flat_places].astype(np.float64)
            sums_of_bins = np.add.reduceat(on_pairs, block.starts, axis=1)
            self._on_pairs[places[:, None], block.bins] += sums_of_bins
            self._pair_counts[places[:, None], block.bins] += block.in_bins
        # The first key has its own sum, so it is removed from the diagonals.
        at = self._n - 1 - np.arange(block.rows.start, block.rows.stop)
        diagonals[:, at] -= weights[:, :, 0]
        counts[at] -= first
        middle = self._n - 1
        low, high = max(0, middle - FARTHEST), min(len(counts), middle + FARTHEST + 1)
        into = slice(low - middle + FARTHEST, high - middle + FARTHEST)
        self._offsets[places, into] += diagonals[:, low:high]
        self._offset_counts[places, into] += counts[low:high].astype(np.int64)
        far = diagonals[:, :low].sum(axis=1) + diagonals[:, high:].sum(axis=1)
        self._offsets[places, _REST] += far
        if self._m > FARTHEST + 1:
            offsets = np.arange(self._m) - np.arange(block.rows.start, block.rows.stop)[:, None]
            distant = block.allowed & (np.abs(offsets) > FARTHEST)
            distant[:, 0] = False
            self._offset_counts[places, _REST] += np.count_nonzero(distant.any(axis=1))

    def _at_offsets(self, rows: slice) -> slice:
        """Return the slice of all offsets to which the columns of `_moved` belong."""
        start = self._n - 1 - rows.stop + 1
        return slice(start, start + self._m + rows.stop - rows.start - 1)

    def _add_edges(
        self,
        places: Places,
        weights: NDArray[np.float32],
        sums: NDArray[np.float32],
        block: _Block,
    ) -> None:
        queries = np.arange(block.rows.start, block.rows.stop)
        hashes = hashed(self._hashes[places, None], queries.astype(np.uint64))
        keys = weights.argmax(axis=2)
        strong = np.take_along_axis(weights, keys[:, :, None], axis=2)[:, :, 0]
        # A query with a single allowed key always has weight 1.
        strong[:, block.allowed.sum(axis=1) < 2] = 0
        order = (strong.view(np.uint32).astype(np.uint64) << np.uint64(32)) | (
            hashes >> np.uint64(32)
        )
        most = min(_STRONGEST_OF_A_TEXT, len(queries))
        best = np.argpartition(order, len(queries) - most, axis=1)[:, -most:]
        head = np.arange(len(places))[:, None]
        kept = (order[head, best] >= self._least_strong[places, None]) & (strong[head, best] > 0)
        which, column = np.nonzero(kept)
        row = best[which, column]
        self._strongest.append(
            EdgeColumns.of(
                self._text,
                order=order[which, row],
                head=places[which],
                query=queries[row],
                key=keys[which, row],
                weight=strong[which, row],
            )
        )
        order = ~hashes
        which, row = np.nonzero((order >= self._least_sampled[places, None]) & (sums > 0))
        if not len(which):
            return
        drawn = _uniform(hashed(hashes[which, row], np.uint64(1)))
        running = np.cumsum(weights[which, row], axis=1, dtype=np.float64)
        key = (running <= (drawn * running[:, -1])[:, None]).sum(axis=1)
        key = np.minimum(key, self._m - 1)
        self._sampled.append(
            EdgeColumns.of(
                self._text,
                order=order[which, row],
                head=places[which],
                query=queries[row],
                key=key,
                weight=weights[which, row, key],
            )
        )

    def _scores(self) -> dict[str, Numbers]:
        found: dict[str, Numbers] = {}
        nothing = np.full(self._num_heads, np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            counts = np.where(self._counts > 0, self._counts, np.nan)
            mass, shuffled = self._mass / counts, self._shuffled / counts
            alone = self._position_alone() / counts
            for place, name in enumerate(self._names):
                if np.isnan(counts[:, place]).all():
                    continue
                position = nothing if name in OF_POSITIONS else alone[:, place]
                found[name] = np.stack([mass[:, place], shuffled[:, place], position])
            if self._one_text:
                found["positional share"] = np.stack([*self._positional_share(), nothing])
            entropy = np.where(self._rows > 0, self._entropy / self._rows, np.nan)
            found["entropy"] = np.stack([np.maximum(entropy, 0), nothing, nothing])
        return found

    def _position_alone(self) -> Numbers:
        """Return the weight on the pairs of each score that their offsets alone predict.

        Each pair gets the mean weight of the other pairs at its offset, or its own mean if there
        are no others.
        """
        alone = np.full((self._num_heads, len(self._names)), np.nan)
        if not self._one_text:
            return alone
        shape = (self._num_heads, len(self._of_tokens), -1)
        counts = self._pair_counts.reshape(shape)
        on_pairs = self._on_pairs.reshape(shape)
        sums, pairs = (
            _gathered(each, self._n, self._farthest)[:, None]
            for each in (self._diagonals, self._diagonal_counts)
        )
        others = pairs - counts
        there = others > 0
        means = np.where(there, (sums - on_pairs) / np.where(there, others, 1), 0)
        means = np.where(there, np.maximum(means, 0), on_pairs / np.maximum(counts, 1))
        alone[:, self._of_tokens] = (means * counts).sum(axis=2)
        return alone

    def _positional_share(self) -> tuple[Numbers, Numbers]:
        """Return the share of the variance of the weights that offsets explain, and its baseline.

        The share is epsilon squared (Kelley 1935), with offsets as the groups of an analysis of
        variance. Unlike eta squared, its mean is 0 for weights in random order. The baseline is its
        exact mean over all permutations of the weights of each query among its allowed keys.
        """
        counts = self._diagonal_counts
        pairs, groups = counts.sum(axis=1), np.count_nonzero(counts, axis=1)
        total = self._diagonals.sum(axis=1) ** 2 / pairs
        variance = self._squares - total
        expected = self._shuffled_means**2 + self._shuffled_variances
        known = (pairs > groups) & (variance > _NO_VARIANCE * self._squares)
        variance = np.where(known, variance, np.nan)
        eta, by_chance = (
            ((squares / np.maximum(counts, 1)).sum(axis=1) - total) / variance
            for squares in (self._diagonals**2, expected)
        )
        # In random order the groups explain (groups - 1) / (pairs - 1) of the variance.
        freedom = (pairs - 1) / np.maximum(pairs - groups, 1)
        return 1 - freedom * (1 - eta), 1 - freedom * (1 - by_chance)


@dataclass(frozen=True, eq=False)
class _Group:
    """Heads of any layers with the same mask."""

    members: tuple[tuple[LayerAttention, tuple[int, ...]], ...]
    places: Places

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def looks_causal(self) -> bool:
        """Whether the given weights of all heads are zero above the diagonal."""
        given = [attention.given_weights for attention, _ in self.members]
        return all(
            values is not None
            and values.shape[1] == values.shape[2] > 1
            and not torch.triu(values, 1).any()
            for values in given
        )

    def allowed(self, rows: slice) -> Flags:
        attention, heads = self.members[0]
        flags = attention.allowed(heads[0], rows, slice(0, attention.num_keys))
        if self.looks_causal:
            # The model's own `attentions`: masked weights are zeros.
            flags &= np.tri(len(flags), flags.shape[1], rows.start, dtype=bool)
        return flags

    def weights(self, some: slice, rows: slice) -> NDArray[np.float32]:
        """Return the weights of some of the heads, (heads, rows, keys)."""
        found, start = [], 0
        for attention, heads in self.members:
            here = heads[max(0, some.start - start) : max(0, some.stop - start)]
            start += len(heads)
            if here:
                found.append(attention.weights_of_heads(here, rows))
        return found[0] if len(found) == 1 else np.concatenate(found)


def _groups(stack: AttentionStack) -> Iterator[_Group]:
    """Group the heads of a stack by mask."""
    members: dict[object, list[tuple[LayerAttention, tuple[int, ...]]]] = {}
    places: dict[object, list[int]] = {}
    place = 0
    for layer in stack.layers:
        attention = stack.attention(layer)
        heads = tuple(range(attention.num_heads))
        parts = [heads] if attention.shares_mask else [(head,) for head in heads]
        for part in parts:
            mask = None if attention.vectors is None else attention.vectors.mask
            key: object = id(mask) if attention.shares_mask else (layer, part)
            members.setdefault(key, []).append((attention, part))
            places.setdefault(key, []).extend(range(place, place + len(part)))
            place += len(part)
    for key, found in members.items():
        yield _Group(tuple(found), np.array(places[key], np.int64))


class _Block:
    """A range of queries with their allowed keys and the pairs of each score."""

    def __init__(self, rows: slice, allowed: Flags, pairs: Flags) -> None:
        self.rows, self.allowed = rows, allowed
        self.flat_pairs = pairs.reshape(len(pairs), -1).astype(np.float32)
        per_query = pairs.sum(axis=2)
        # Number of queries that have a pair, (scores,).
        self.queries = np.count_nonzero(per_query, axis=1)
        # Number of allowed keys of each query, at least 1.
        self.num_keys = np.maximum(allowed.sum(axis=1), 1)
        # Share of the allowed keys that form a pair of the score, (scores, rows).
        self.expected = (per_query / self.num_keys).astype(np.float32)

    @cached_property
    def by_offset(self) -> Numbers:
        """1 for each allowed pair, by query and offset as in `_moved`, otherwise 0."""
        flags: Numbers = _moved(self.allowed[None].astype(np.float32))[0].astype(np.float64)
        return flags

    def sort_pairs(self, pairs: Flags, farthest: int) -> None:
        """Sort the flagged `pairs`, (scores, rows, keys), into bins of score and offset."""
        score, row, key = np.nonzero(pairs)
        offset = np.clip(key - row - self.rows.start, -farthest, farthest) + farthest
        bins = score * (2 * farthest + 1) + offset
        order = np.argsort(bins, kind="stable")
        self.flat_places = row[order] * pairs.shape[2] + key[order]
        self.bins, self.starts, self.in_bins = np.unique(
            bins[order], return_index=True, return_counts=True
        )


def _moved(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shift the rows so that columns are offsets: (first axis, rows, keys + rows - 1).

    Column c has the pairs with key - query = c - (rows - 1), both counted from the block's start.
    """
    some, count, num_keys = values.shape
    wide = num_keys + count - 1
    # Rows are padded by one entry more than `wide`: read at `wide`, each row shifts by one more.
    padded = np.zeros((some, count, wide + 1), np.float32)
    padded[:, :, :num_keys] = values[:, ::-1]
    return padded.reshape(some, -1)[:, : count * wide].reshape(some, count, wide)[:, ::-1]


def _gathered(diagonals: NDArray[Any], num_tokens: int, farthest: int) -> Numbers:
    """Sum `diagonals` by offset, clipped to `farthest`: (heads, 2 * farthest + 1)."""
    offsets = np.arange(diagonals.shape[1]) - (num_tokens - 1)
    bins = np.clip(offsets, -farthest, farthest) + farthest
    found = np.zeros((len(diagonals), 2 * farthest + 1))
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    found[:, bins[starts]] = np.add.reduceat(diagonals, starts, axis=1)
    return found


def _one_hot(codes: NDArray[np.int64], size: int) -> NDArray[np.float32]:
    flags: NDArray[np.float32] = (codes[:, None] == np.arange(size)).astype(np.float32)
    return flags


def _uniform(hashes: NDArray[np.uint64]) -> Numbers:
    """Map hashes to numbers from 0 to below 1."""
    numbers: Numbers = (hashes >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return numbers
