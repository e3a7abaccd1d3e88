"""Measurements of every head of a stack in each text: scores, sums of weights, and edges.

A stack is the attention of one kind, such as "self" or "cross", in all layers. A pair is a query
and a key. The mask of a head allows or forbids each pair. The offset of a pair is the position of
its key minus the position of its query. An edge is a pair with its weight.

Most scores have a set of pairs, such as all pairs of a query and the previous token. The score of a
head is its weight on the allowed pairs of this set, divided by the number of queries that have an
allowed pair in the set. Such a score has up to three baselines. The shuffled baseline is the
expected score if the weights of each query are shuffled among its allowed keys. The other two are
the score if each pair of the set had the mean weight of similar pairs outside of the set. For the
baseline from position, these have the same offset. For the baseline from the key, they have the
same key. It is high for attention sinks, which are keys that get much weight from all queries.

The weights are computed for a block at a time, which limits the memory for long texts. A block has
some heads with the same mask, some queries (rows), and all keys. Let W be the weights of a block,
(heads, rows x keys), and let D be 1 for each allowed pair of a score and otherwise 0, (scores, rows
x keys). Then the matrix product W D^T is the weight of each head on the pairs of each score. The
baseline from position is such a product, too.

A system of classes, such as parts of speech, assigns at most one class to each token.

For short texts, calling a function of NumPy or torch takes longer than its arithmetic. Therefore
several texts with equal numbers of tokens can be measured together (`StackText.shape`). All arrays
of measurements have the texts as their first axis.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.analysis.heads import has_head_arrays, head_array, one_text
from attnviz.analysis.measures import MEASURES, Measure, TokenFacts, pairs_of, values_of
from attnviz.corpus.edges import EdgeColumns, hashed, largest_per_head
from attnviz.corpus.roles import SYNTACTIC, definition_of
from attnviz.record.attention import LayerAttention, QueryKeyAttention
from attnviz.record.linear import AbsoluteShares, StateAttention, join_heads
from attnviz.record.masks import BandMask
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]
#: Pairs of each relation in a dependency parse, such as subject and verb. The keys are the names of
#: the scores, such as "syntactic: nsubj". Each value is two arrays: the positions of the queries of
#: all pairs, and the positions of their keys.
Relations = Mapping[str, tuple[Indices, Indices]]

#: Largest absolute offset with a separate column in `StackMeasurements.offsets`.
MAX_OFFSET = 64
#: Labels of the columns of `StackMeasurements.offsets`: the offsets -64 to 64 without the first
#: key, then "first" for the first key of the text at any distance, and "rest" for all other keys.
OFFSET_LABELS = (*map(str, range(-MAX_OFFSET, MAX_OFFSET + 1)), "first", "rest")
_FIRST, _REST = len(OFFSET_LABELS) - 2, len(OFFSET_LABELS) - 1

#: Number of baselines of a score: shuffled, from position, and from the key.
NUM_BASELINES = 3
# Approximate maximum number of entries of W and D of a block together: 16 MiB of float32. W and D
# are the matrices in the description of this module.
_MAX_ENTRIES = 1 << 22
# Maximum number of pairs (queries times keys) of a text that is measured alone and whose layers are
# joined, so that one matrix product computes their weights (`_joined_groups`).
_MAX_JOINED_PAIRS = 1 << 14
# Maximum number of entries of W and D of several texts that are measured together: 2 MiB of
# float32, which fits into the cache of a processor.
_MAX_ENTRIES_TOGETHER = 1 << 19
# Maximum number of strongest edges of a head in one text. Without this limit, all strongest edges
# of a corpus could come from one long text.
_MAX_STRONGEST_PER_TEXT = 4
# Largest absolute offset with a separate mean weight in the baseline from position. Larger offsets
# are clipped to this value, which limits the number of means.
_MAX_PAIR_OFFSET = 1024
# Maximum number of queries of a text, and of pairs of each of them, that are compared with other
# queries for the baseline from the key.
_MAX_COMPARED_QUERIES = 1024
_MAX_COMPARED_KEYS = 16
# Smallest weight by which another weight is divided, to avoid a division by 0.
_TINY = 1e-30
# The score "positional share" is undefined if the variance of the weights of a head, divided by the
# mean of their squares, is at most this number. Such a small variance can be a rounding error.
_NO_VARIANCE = 1e-9
# Name of a score that is not in `MEASURES`, because no kind of measure fits it: the score is
# computed from the sums of the weights at all offsets.
_POSITIONAL_SHARE = "positional share"


def score_names() -> tuple[str, ...]:
    """Return the names of all scores in the order in which views list them.

    The scores of the relations in dependency parses are left out.
    """
    of_kind = {
        kind: [name for name, measure in MEASURES.items() if measure.kind == kind]
        for kind in ("pairs", "rows", "heads")
    }
    return (*of_kind["pairs"], _POSITIONAL_SHARE, *of_kind["rows"], *of_kind["heads"])


def unit_and_definition(score: str) -> tuple[str, str]:
    """Return the unit of a score, and a sentence that says what it is.

    >>> unit_and_definition("entropy")
    ('nats', "Mean over queries of the entropy of a query's weights.")
    """
    if score in MEASURES:
        return MEASURES[score].unit, MEASURES[score].sentence
    if score.startswith(SYNTACTIC):
        return "share", f"Extent to which a head {definition_of(score)}."
    if score == _POSITIONAL_SHARE:
        return "share", (
            "Share of the variance of the weights that the offset of key from query explains "
            "(epsilon squared: 0 for weights in random order)."
        )
    # A score in a loaded file can have a measure that is not registered in this process. Its unit
    # and definition are not known, so return the unit of most scores, and only the name.
    return "share", f"Score “{score}”."


@dataclass(frozen=True, eq=False)
class StackText:
    """A stack of one text, with the data for its measurement.

    Attributes
    ----------
    stack : AttentionStack
        The stack in the record of the text.
    queries, keys : TokenFacts
        Query tokens and key tokens of the stack, with their classes and their frequencies in the
        corpus. The same object if queries and keys are the same tokens.
    text : int
        Index of the text in the corpus. It is part of the seed of the sampled edges, so texts with
        equal tokens get different samples.
    relations : Relations
        Pairs of the relations in the dependency parse of the text. Empty without a parse.
    """

    stack: AttentionStack
    queries: TokenFacts
    keys: TokenFacts
    text: int
    relations: Relations = field(default_factory=dict)

    @cached_property
    def groups(self) -> list[_Group]:
        """All heads of the stack, divided into groups. The heads of a group have the same mask."""
        return list(_groups(self.stack))

    @cached_property
    def shape(self) -> Hashable:
        """Value that must be equal in texts that are measured together.

        It is None if the text must be measured alone, because a group of heads has no
        `_Group.formula`. Otherwise it has:

        - the layers and the numbers of heads of the stack
        - whether the stack has outputs of heads, and whether it has gates
        - whether queries and keys are the same tokens
        - the heads and the formula of each group
        - the names of the relations and classes
        """
        if any(group.formula is None for group in self.groups):
            return None
        return (
            *(self.stack.layers, self.stack.heads_per_layer),
            *(self.stack.has_outputs, self.stack.has_gates),
            one_text(self.stack),
            *((group.formula, group.heads.tobytes()) for group in self.groups),
            *(tuple(self.relations), *self.queries.names.items(), *self.keys.names.items()),
        )

    @property
    def num_entries(self) -> int:
        """Estimated number of entries of W and D (see the module) if the text is a single block."""
        num_scores = len(MEASURES) + len(self.relations)
        num_rows = sum(self.stack.heads_per_layer) + 2 * num_scores
        return num_rows * len(self.queries) * len(self.keys)


def can_measure_together(texts: Sequence[StackText]) -> bool:
    """Whether `measure_stacks` can measure the texts in one call.

    True for a single text. Several texts must have the same `StackText.shape`, and W and D of all
    of them must have at most `_MAX_ENTRIES_TOGETHER` entries.
    """
    if len(texts) == 1:
        return True
    shape = texts[0].shape
    few_entries = len(texts) * texts[0].num_entries <= _MAX_ENTRIES_TOGETHER
    return few_entries and shape is not None and all(text.shape == shape for text in texts)


@dataclass(frozen=True, eq=False)
class StackMeasurements:
    """Measurements of the heads of a stack in some texts. The heads of all layers form one axis.

    Attributes
    ----------
    scores : dict of str to ndarray, (texts, 1 + NUM_BASELINES, heads)
        The second axis has the score, its shuffled baseline, its baseline from position, and its
        baseline from the key (see the description of this module). A number is NaN if it is not
        defined:

        - Scores without a set of pairs, such as entropy, have no baselines. Only "positional share"
          and those that read tokens (`Measure.needs_tokens`) have a shuffled baseline.
        - Scores whose pairs depend only on positions have no baseline from position. In
          cross-attention, all scores have none.
        - Scores whose pairs depend only on the key, such as "first token", have no baseline from
          the key, because no other queries attend to these keys.

        If no head of any text has an allowed pair of a score, the score is left out. Scores that
        are computed from outputs or gates of heads are left out if the record has none.
    offsets : ndarray, (texts, heads, offsets)
        Sums of weights. The columns have the labels `OFFSET_LABELS`. Each weight is in one column:
        "first" if the key is the first key, otherwise the column of its offset, or "rest" if the
        offset has no column. In cross-attention, where offsets have no meaning, all weights are in
        "first" and "rest".
    offset_counts : ndarray, (texts, heads, offsets)
        Number of allowed pairs in each sum of `offsets`. For "first" and "rest", the number of
        queries with at least one allowed pair in the sum.
    classes : dict of str to ndarray, (texts, heads, classes of queries, classes of keys)
        For each system of classes, sums of weights by class of query and class of key.
    class_counts : dict of str to ndarray, (texts, heads, classes of queries)
        For each system of classes, number of queries of each class whose weights are not all 0.
    strongest, sampled : EdgeColumns
        Candidates of these texts for the strongest edges and the sampled edges of the corpus, which
        `attnviz.corpus.edges` selects later. `EdgeColumns.head` is the index of the head among the
        heads of all layers.
    """

    scores: dict[str, Numbers]
    offsets: Numbers
    offset_counts: NDArray[np.int64]
    classes: dict[str, Numbers]
    class_counts: dict[str, NDArray[np.int64]]
    strongest: EdgeColumns
    sampled: EdgeColumns


def measure_stacks(
    texts: Sequence[StackText],
    *,
    seed: int = 0,
    min_orders: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None,
) -> StackMeasurements:
    """Measure the heads of the same stack in one text, or in several (`can_measure_together`).

    The sampled edges depend on `seed` and on the indices of the texts. `min_orders` has a rank for
    each head, (heads,), in two arrays: for strongest and for sampled edges. Edges with a smaller
    rank (`EdgeColumns.order`) are ignored, because the corpus would not keep them. If `min_orders`
    is None, no edges are ignored.
    """
    return _Measuring(texts, seed=seed, min_orders=min_orders).result()


class _Measuring:
    def __init__(
        self,
        texts: Sequence[StackText],
        *,
        seed: int,
        min_orders: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None,
    ) -> None:
        self._texts = texts
        first = texts[0]
        stack = self._stack = first.stack
        self._one_text = one_text(stack)
        heads = [
            (layer, head)
            for layer, num_heads in zip(stack.layers, stack.heads_per_layer, strict=True)
            for head in range(num_heads)
        ]
        self._num_heads, self._num_queries, self._num_keys = (
            len(heads),
            len(stack.query_tokens),
            len(stack.key_tokens),
        )
        zeros = np.zeros(len(heads), np.uint64)
        self._min_strong_orders, self._min_sampled_orders = (
            (zeros, zeros) if min_orders is None else min_orders
        )
        indices = np.array([text.text for text in texts], np.uint64)
        # Mix the seed alone first. ``seed ^ text`` takes the same values for all small seeds, so
        # another seed would only permute the texts. Seed 0 leaves the state at 0, so that files
        # with the default seed can be continued as if one version had measured all texts.
        zero = np.uint64(0)
        state = hashed(zero, np.uint64(seed & 0xFFFFFFFFFFFFFFFF)) ^ hashed(zero, zero)
        start = hashed(state, indices)
        start = hashed(start, np.uint64(zlib.crc32(stack.name.encode())))
        numbers = np.array([layer << 32 | head for layer, head in heads], np.uint64)
        self._hashes = hashed(start[:, None], numbers)
        measures = [
            measure for measure in MEASURES.values() if self._one_text or not measure.one_text
        ]
        self._pair_measures = [measure for measure in measures if measure.kind == "pairs"]
        self._row_measures = [
            measure
            for measure in measures
            if measure.kind == "rows"
            and (
                measure.possible is None
                or any(measure.possible(text.keys, stack.causal) for text in texts)
            )
        ]
        # Leave out lost weights, because computing them takes several times as long as the weights.
        self._head_measures = [
            measure
            for measure in measures
            if measure.kind == "heads"
            and measure.reads != "lost weight"
            and has_head_arrays(measure, stack)
        ]
        # Names of the scores that have a set of pairs. These scores are the last axis of
        # `_pair_weights`, `_shuffled` and `_counts`.
        self._names = (*(measure.name for measure in self._pair_measures), *first.relations)
        count = len(self._names)
        of_heads = (len(texts), self._num_heads)
        # Numerators of these scores, and of their three baselines. The baselines from position and
        # from the key are NaN if they are not defined.
        self._numerators = np.zeros((1 + NUM_BASELINES, *of_heads, count))
        self._numerators[2:] = np.nan
        self._pair_weights, self._shuffled, self._of_position, self._of_keys = self._numerators
        self._counts = np.zeros((*of_heads, count), np.int64)
        self._squares = np.zeros(of_heads)
        # Sums of the numbers of rows, and of those of uniform attention.
        self._row_values = np.zeros((2, *of_heads, len(self._row_measures)))
        self._row_counts = np.zeros((*of_heads, len(self._row_measures)), np.int64)
        self._offsets = np.zeros((*of_heads, len(OFFSET_LABELS)))
        self._offset_counts = np.zeros((*of_heads, len(OFFSET_LABELS)), np.int64)
        # `_diagonals` has the sum of the weights at each offset from -(num_queries - 1) to num_keys
        # - 1. `_diagonal_counts` has the number of allowed pairs at each offset. In cross-attention
        # they have no columns, because offsets have no meaning.
        num_offsets = self._num_queries + self._num_keys - 1 if self._one_text else 0
        self._diagonals = np.zeros((*of_heads, num_offsets))
        self._diagonal_counts = np.zeros((*of_heads, num_offsets), np.int64)
        # Expected value and variance of `_diagonals` if the weights of each query are shuffled
        # among its allowed keys.
        self._shuffled_means = np.zeros((*of_heads, num_offsets))
        self._shuffled_variances = np.zeros((*of_heads, num_offsets))
        # Only scores whose pairs depend on the tokens have a baseline from position.
        positional = {measure.name for measure in self._pair_measures if measure.positional}
        self._token_score_columns = [
            column
            for column, name in enumerate(self._names)
            if self._one_text and name not in positional
        ]
        # For each system of classes, one-hot vectors of the classes of all queries, (texts,
        # queries, classes), and of all keys, (texts, keys, classes).
        self._one_hot = {
            name: (
                _one_hot([text.queries.classes[name] for text in texts], len(classes)),
                _one_hot([text.keys.classes[name] for text in texts], len(classes)),
            )
            for name, classes in first.queries.names.items()
        }
        self._classes = {
            name: np.zeros((*of_heads, query_codes.shape[2], key_codes.shape[2]))
            for name, (query_codes, key_codes) in self._one_hot.items()
        }
        self._class_counts = {
            name: np.zeros((*of_heads, query_codes.shape[2]), np.int64)
            for name, (query_codes, _) in self._one_hot.items()
        }
        # In these edges, `head` is an index into the flattened axes (texts, heads).
        self._strongest: list[EdgeColumns] = []
        self._sampled: list[EdgeColumns] = []

    def result(self) -> StackMeasurements:
        for group in _joined_groups(self._texts):
            self._measure(group)
        return StackMeasurements(
            scores=self._scores(),
            offsets=self._offsets,
            offset_counts=self._offset_counts,
            classes=self._classes,
            class_counts=self._class_counts,
            strongest=self._edges(self._strongest, _MAX_STRONGEST_PER_TEXT),
            sampled=self._edges(self._sampled),
        )

    def _edges(self, parts: list[EdgeColumns], max_edges: int | None = None) -> EdgeColumns:
        """Join edges, and keep at most `max_edges` of each head in each text. None keeps all edges.

        In `parts`, `EdgeColumns.head` is an index into the flattened axes (texts, heads). In the
        result, it is the index of the head among the heads of all layers.
        """
        if max_edges is not None and len(parts) > 1:
            parts = [largest_per_head(parts, max_edges, self._hashes.size)]
        edges = EdgeColumns.joined(parts)
        return replace(edges, head=edges.head % self._num_heads)

    def _measure(self, group: _Group) -> None:
        """Compute the weights of a group one block at a time, and add their measurements."""
        num_texts, scores = len(self._texts), len(self._names)
        columns = 2 * scores
        heads_per_step = max(
            1,
            min(
                len(group),
                _MAX_ENTRIES // (2 * self._num_keys * min(self._num_queries, 32)) - columns,
            ),
        )
        # The weights of several texts fit into one block (`can_measure_together`), and their heads
        # cannot be divided (`_Group.weights`).
        if num_texts > 1:
            heads_per_step = len(group)
        step = max(1, _MAX_ENTRIES // (num_texts * self._num_keys * (heads_per_step + columns)))
        starts = range(0, self._num_queries, step)

        # The last block is cached, so that a single block is made once. Several blocks are made
        # twice, because together they can be too large for the memory.
        @lru_cache(1)
        def block_at(start: int) -> _Block:
            rows = slice(start, min(start + step, self._num_queries))
            allowed = group.allowed(rows)
            return _Block(rows, allowed, self._find_pairs(rows) & allowed)

        same_offset = _SameOffset(num_texts, self._token_score_columns, self._num_queries)
        other_queries = _OtherQueries(num_texts, scores, self._num_queries)
        for block in map(block_at, starts):
            same_offset.count(block)
            other_queries.collect(block)
        for block in map(block_at, starts):
            other_queries.count(block)
        of_heads = group.heads[:, None]
        self._of_position[:, of_heads, same_offset.scores] = same_offset.start[:, None]
        self._of_keys[:, group.heads] = other_queries.start[:, None]
        for block in map(block_at, starts):
            factors = np.concatenate([block.pairs, same_offset.factors(block)], axis=1)
            factors = factors.reshape(num_texts, -1, block.allowed.size).swapaxes(1, 2)
            for first in range(0, len(group), heads_per_step):
                subset = slice(first, first + heads_per_step)
                weights = group.weights(subset, block.rows)
                heads = group.heads[subset]
                by_text = weights.reshape(num_texts, len(heads), *weights.shape[1:])
                sums = by_text.reshape(num_texts, len(heads), -1) @ factors
                self._pair_weights[:, heads] += sums[..., :scores]
                self._of_position[:, heads[:, None], same_offset.scores] += sums[..., scores:]
                self._of_keys[:, heads] += other_queries.sums(block, by_text)
                self._add_weights(heads, by_text, block)

    def _find_pairs(self, rows: slice) -> Flags:
        """Return whether each pair belongs to the set of each score, (texts, scores, rows, keys).

        `rows` are the queries of a block. The mask is ignored: pairs that it forbids can be True.
        """
        positions = np.arange(rows.start, rows.stop)
        shape = (len(self._texts), len(self._names), len(positions), self._num_keys)
        pairs = np.zeros(shape, np.bool_)
        for column, measure in enumerate(self._pair_measures):
            # The pairs of a positional measure depend only on positions. All texts have the same
            # number of tokens, so compute these pairs once for all texts.
            for number, text in enumerate(self._texts[:1] if measure.positional else self._texts):
                into = slice(None) if measure.positional else number
                pairs[into, column] = pairs_of(measure, text.queries, text.keys, positions)
        first = len(self._pair_measures)
        for of_text, text in zip(pairs[:, first:], self._texts, strict=True):
            for flags, (query, key) in zip(of_text, text.relations.values(), strict=True):
                inside = (query >= rows.start) & (query < rows.stop)
                flags[query[inside] - rows.start, key[inside]] = True
        return pairs

    def _add_weights(self, heads: Indices, weights: NDArray[np.float32], block: _Block) -> None:
        """Add the measurements of the weights of one block, (texts, heads, rows, keys).

        `heads` has the indices of the heads of `weights` among the heads of all layers, in
        ascending order.
        """
        # Adding to consecutive heads is faster with a slice than with an array.
        are_consecutive = heads[-1] - heads[0] == len(heads) - 1
        into = slice(heads[0], heads[-1] + 1) if are_consecutive else heads
        num_texts, num_heads, num_rows, num_keys = weights.shape
        sums = weights.sum(axis=3)
        # Shuffled baseline: the expected weight on the pairs of a score if the weights of each
        # query are shuffled among its allowed keys.
        self._shuffled[:, into] += sums @ block.expected.swapaxes(1, 2)
        self._counts[:, into] += block.queries[:, None]
        squares = np.einsum("thrk,thrk->thr", weights, weights)
        self._squares[:, into] += squares.sum(axis=2, dtype=np.float64)
        for column, measure in enumerate(self._row_measures):
            values = self._values_of_rows(measure, weights, block)
            self._row_values[0][:, into, column] += np.nansum(values, axis=2, dtype=np.float64)
            self._row_counts[:, into, column] += np.count_nonzero(~np.isnan(values), axis=2)
            if measure.needs_tokens:
                uniform = (block.allowed / block.num_keys[:, None])[None, None]
                repeated = np.repeat(uniform.astype(np.float32), num_texts, axis=0)
                by_chance = self._values_of_rows(measure, repeated, block)
                self._row_values[1][:, into, column] += np.nansum(by_chance, axis=2)
        self._add_offsets(into, weights, sums, squares, block)
        attends = (sums > 0).astype(np.float32)
        rows_of_texts = weights.reshape(num_texts, -1, num_keys)
        for name, (of_queries, of_keys) in self._one_hot.items():
            codes_of_rows = of_queries[:, block.rows]
            on_classes = (rows_of_texts @ of_keys).reshape(num_texts, num_heads, num_rows, -1)
            self._classes[name][:, into] += codes_of_rows.swapaxes(1, 2)[:, None] @ on_classes
            self._class_counts[name][:, into] += (attends @ codes_of_rows).astype(np.int64)
        self._add_edges(heads, weights, sums, block)

    def _values_of_rows(
        self, measure: Measure, weights: NDArray[np.float32], block: _Block
    ) -> NDArray[Any]:
        """Return the numbers of the rows of `weights`, (texts, heads, rows, keys), for a measure.

        The result is (texts, heads, rows).
        """
        if not measure.needs_tokens:
            return values_of(measure, weights)
        rows = np.arange(block.rows.start, block.rows.stop)
        return np.stack(
            [
                values_of(measure, of_text, (text.queries, text.keys, rows))
                for of_text, text in zip(weights, self._texts, strict=True)
            ]
        )

    def _add_offsets(
        self,
        heads: slice | Indices,
        weights: NDArray[np.float32],
        sums: NDArray[np.float32],
        squares: NDArray[np.float32],
        block: _Block,
    ) -> None:
        is_first_allowed = block.allowed[:, 0]
        self._offsets[:, heads, _FIRST] += weights[..., 0].sum(axis=2)
        self._offset_counts[:, heads, _FIRST] += np.count_nonzero(is_first_allowed)
        if not self._one_text:
            self._offsets[:, heads, _REST] += (sums - weights[..., 0]).sum(axis=2)
            other_keys = block.allowed[:, 1:].any(axis=1)
            self._offset_counts[:, heads, _REST] += np.count_nonzero(other_keys)
            return
        at_offsets = self._offset_slice(block.rows)
        diagonals = np.zeros((*weights.shape[:2], self._diagonals.shape[2]))
        for row in range(len(block.allowed)):
            start = at_offsets.stop - self._num_keys - row
            diagonals[..., start : start + self._num_keys] += weights[..., row, :]
        counts = np.zeros(self._diagonals.shape[2])
        counts[at_offsets] = block.by_offset.sum(axis=0)
        self._diagonals[:, heads] += diagonals
        self._diagonal_counts[:, heads] += counts.astype(np.int64)
        means = sums / block.num_keys
        variances = np.maximum(squares / block.num_keys - means**2, 0)
        self._shuffled_means[:, heads, at_offsets] += means @ block.by_offset
        self._shuffled_variances[:, heads, at_offsets] += variances @ block.by_offset
        # Subtract the weights on the first key from the sums by offset, because the first key has a
        # separate sum ("first"). For the query at position i, the first key has the offset -i.
        columns_of_first_key = self._num_queries - 1 - np.arange(block.rows.start, block.rows.stop)
        diagonals[..., columns_of_first_key] -= weights[..., 0]
        counts[columns_of_first_key] -= is_first_allowed
        zero_offset = self._num_queries - 1
        low, high = max(0, zero_offset - MAX_OFFSET), min(len(counts), zero_offset + MAX_OFFSET + 1)
        into = slice(low - zero_offset + MAX_OFFSET, high - zero_offset + MAX_OFFSET)
        self._offsets[:, heads, into] += diagonals[..., low:high]
        self._offset_counts[:, heads, into] += counts[low:high].astype(np.int64)
        weight_of_rest = diagonals[..., :low].sum(axis=2) + diagonals[..., high:].sum(axis=2)
        self._offsets[:, heads, _REST] += weight_of_rest
        if self._num_keys > MAX_OFFSET + 1:
            offsets = (
                np.arange(self._num_keys) - np.arange(block.rows.start, block.rows.stop)[:, None]
            )
            distant = block.allowed & (np.abs(offsets) > MAX_OFFSET)
            distant[:, 0] = False
            self._offset_counts[:, heads, _REST] += np.count_nonzero(distant.any(axis=1))

    def _offset_slice(self, rows: slice) -> slice:
        """Return the columns of `_diagonals` (its last axis) for the queries `rows`, as a slice.

        `_diagonals` has one column for each offset in the text. The slice has the offsets that
        occur between the queries `rows` and any key, in the order of the columns of
        `_Block.by_offset`.
        """
        start = self._num_queries - 1 - rows.stop + 1
        return slice(start, start + self._num_keys + rows.stop - rows.start - 1)

    def _add_edges(
        self,
        heads: Indices,
        weights: NDArray[np.float32],
        sums: NDArray[np.float32],
        block: _Block,
    ) -> None:
        # Join the axes of texts and heads to one axis, because edges are selected for each head of
        # each text.
        weights = weights.reshape(-1, *weights.shape[2:])
        sums = sums.reshape(len(weights), -1)
        num_texts = len(self._texts)
        text = np.repeat([text.text for text in self._texts], len(heads))
        of_heads = (np.arange(num_texts)[:, None] * self._num_heads + heads).reshape(-1)
        heads = np.tile(heads, num_texts)
        queries = np.arange(block.rows.start, block.rows.stop)
        hashes = hashed(self._hashes.reshape(-1)[of_heads, None], queries.astype(np.uint64))
        keys = weights.argmax(axis=2)
        strongest = np.take_along_axis(weights, keys[:, :, None], axis=2)[:, :, 0]
        # Ignore queries with only one allowed key. Except in heads with an attention sink, the
        # weight of this key is always 1, so these edges could displace all others.
        strongest[:, block.allowed.sum(axis=1) < 2] = 0
        order = (strongest.view(np.uint32).astype(np.uint64) << np.uint64(32)) | (
            hashes >> np.uint64(32)
        )
        num_best = min(_MAX_STRONGEST_PER_TEXT, len(queries))
        best = np.argpartition(order, len(queries) - num_best, axis=1)[:, -num_best:]
        head = np.arange(len(heads))[:, None]
        is_candidate = (order[head, best] >= self._min_strong_orders[heads, None]) & (
            strongest[head, best] > 0
        )
        index, column = np.nonzero(is_candidate)
        row = best[index, column]

        def edges_at(
            order: NDArray[np.uint64], index: Indices, row: Indices, key: Indices
        ) -> EdgeColumns:
            return EdgeColumns.of(
                text[index],
                order=order[index, row],
                head=of_heads[index],
                query=queries[row],
                key=key,
                weight=weights[index, row, key],
            )

        self._strongest.append(edges_at(order, index, row, keys[index, row]))
        order = ~hashes
        index, row = np.nonzero((order >= self._min_sampled_orders[heads, None]) & (sums > 0))
        if not len(index):
            return
        uniform = _to_unit_interval(hashed(hashes[index, row], np.uint64(1)))
        cumulative = np.cumsum(weights[index, row], axis=1, dtype=np.float64)
        key = (cumulative <= (uniform * cumulative[:, -1])[:, None]).sum(axis=1)
        key = np.minimum(key, self._num_keys - 1)
        self._sampled.append(edges_at(order, index, row, key))

    def _scores(self) -> dict[str, Numbers]:
        scores: dict[str, Numbers] = {}
        undefined = np.full(self._squares.shape, np.nan)
        no_baselines = [undefined] * NUM_BASELINES
        with np.errstate(invalid="ignore", divide="ignore"):
            counts = np.where(self._counts > 0, self._counts, np.nan)
            of_pairs = np.moveaxis(self._numerators / counts, 0, 1)
            for column in np.flatnonzero(self._counts.any(axis=(0, 1))).tolist():
                scores[self._names[column]] = of_pairs[..., column]
            if self._one_text:
                share, by_chance = self._positional_share()
                scores[_POSITIONAL_SHARE] = np.stack(
                    [share, by_chance, undefined, undefined], axis=1
                )
            means = np.where(self._row_counts > 0, self._row_values / self._row_counts, np.nan)
            for column, measure in enumerate(self._row_measures):
                of_rows, by_chance = means[..., column]
                if not measure.needs_tokens:
                    by_chance = undefined
                elif not self._row_counts[..., column].any():
                    continue
                scores[measure.name] = np.stack([of_rows, by_chance, undefined, undefined], axis=1)
        for measure in self._head_measures:
            values = np.stack([_values_of_heads(measure, text.stack) for text in self._texts])
            scores[measure.name] = np.stack([values, *no_baselines], axis=1)
        return scores

    def _positional_share(self) -> tuple[Numbers, Numbers]:
        """Return the score "positional share" and its shuffled baseline. Both are (texts, heads).

        The score is the share of the variance of the weights that their offsets explain. The groups
        of this analysis of variance are the offsets. The share (eta squared) is above 0 even for
        weights in random order. Therefore it is corrected: the score is epsilon squared (Kelley
        1935), whose mean is 0 if all weights of a head are permuted at random.

        The baseline is the exact mean of the score if the weights of each query are permuted among
        its allowed keys. Both are NaN if the weights of the head hardly differ (`_NO_VARIANCE`), or
        if each offset has only one pair.
        """
        counts = self._diagonal_counts
        pairs, groups = counts.sum(axis=2), np.count_nonzero(counts, axis=2)
        total = self._diagonals.sum(axis=2) ** 2 / pairs
        variance = self._squares - total
        expected = self._shuffled_means**2 + self._shuffled_variances
        defined = (pairs > groups) & (variance > _NO_VARIANCE * self._squares)
        variance = np.where(defined, variance, np.nan)
        eta, by_chance = (
            ((squares / np.maximum(counts, 1)).sum(axis=2) - total) / variance
            for squares in (self._diagonals**2, expected)
        )
        # The factor `freedom` turns eta squared into epsilon squared. If all weights of a head are
        # permuted at random, the mean of eta squared is (groups - 1) / (pairs - 1), and that of
        # epsilon squared is 0.
        freedom = (pairs - 1) / np.maximum(pairs - groups, 1)
        return 1 - freedom * (1 - eta), 1 - freedom * (1 - by_chance)


@dataclass(frozen=True, eq=False)
class _Group:
    """Heads with the same mask, in one or several layers of a stack.

    Attributes
    ----------
    members : tuple of (LayerAttention, tuple of int)
        For each layer, its attention, and the indices in this layer of the heads that belong to the
        group. A joined group (`_joined_groups`) has a single layer, made of several: it has the
        heads of the first text, then those of the second text, and so on.
    heads : ndarray of int64
        Index of each head of the group among the heads of all layers. A joined group has the
        indices of one text, because they are the same in all texts.
    """

    members: tuple[tuple[LayerAttention, tuple[int, ...]], ...]
    heads: Indices

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def formula(self) -> Hashable:
        """Value that is equal in several texts if their weights can be computed together.

        It has the formula of the layers (`_formula_of`), the mask, and the number of layers. None
        if the layers have different formulas, or if a layer has none. In this case, the weights of
        each layer must be computed separately.
        """
        formulas = {_formula_of(layer) for layer, _ in self.members}
        vectors = self.members[0][0].vectors
        # Masks other than a `BandMask` (causal or sliding window) contain tensors, so compare them
        # by identity.
        mask: object = None if vectors is None else vectors.mask
        if mask is not None and not isinstance(mask, BandMask):
            mask = id(mask)
        formula = formulas.pop()
        return None if formulas or formula is None else (formula, mask, len(self.members))

    def allowed(self, rows: slice) -> Flags:
        attention, heads = self.members[0]
        flags: Flags = attention.allowed(heads[:1], rows)[0].numpy()
        return flags

    def weights(self, subset: slice, rows: slice) -> NDArray[np.float32]:
        """Return the weights of some heads of the group, (heads, rows, keys).

        `subset` selects items of `heads`. If the group has several texts, `subset` must select all
        items. In that case the result has the heads of the first text, then those of the second
        text, and so on.
        """
        if len(self.members) == 1 and subset.start == 0 and subset.stop >= len(self):
            [(attention, heads)] = self.members
            return attention.block(heads, rows).cpu().numpy()
        parts, start = [], 0
        for attention, heads in self.members:
            chosen = heads[max(0, subset.start - start) : max(0, subset.stop - start)]
            start += len(heads)
            if chosen:
                parts.append(attention.block(chosen, rows).cpu().numpy())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _formula_of(layer: LayerAttention) -> Hashable:
    """Return a value that is equal for layers that `_joined` can join, or None.

    It has all that determines the weights, except the values of the inputs and the mask:

    - for a layer with queries and keys, their shapes, the dtype of the queries, the scale and the
      soft cap. None if its heads have different masks, or if it has a bias or sinks
    - for the shares of a linear layer, its rule, and the shapes and dtypes of its inputs
    - for any other layer, None
    """
    if isinstance(layer, AbsoluteShares) and isinstance(layer.base, StateAttention):
        parts = layer.base.parts.items()
        inputs = tuple((name, part.shape, part.dtype) for name, part in parts)
        return type(layer.base), layer.base.erases, inputs
    if (
        not isinstance(layer, QueryKeyAttention)
        or not layer.shares_mask
        or layer.bias is not None
        or layer.sinks is not None
    ):
        return None
    return layer.queries.shape, layer.keys.shape, layer.queries.dtype, layer.scale, layer.softcap


def _joined(layers: Sequence[Any]) -> LayerAttention:
    """Return one layer with the heads of all `layers`. Their `_formula_of` must be equal."""
    if isinstance(layers[0], AbsoluteShares):
        return AbsoluteShares(join_heads(*(layer.base for layer in layers)))
    joined: LayerAttention = replace(
        layers[0],
        queries=torch.cat([layer.queries for layer in layers]),
        keys=torch.cat([layer.keys for layer in layers]),
    )
    return joined


def _joined_groups(texts: Sequence[StackText]) -> Iterator[_Group]:
    """Yield the groups of heads with the same mask. Each group has the heads of all `texts`.

    All layers and texts of a group are joined to one layer, because one large matrix product is
    faster than many small ones. If there is only one text, these groups are not joined:

    - groups with only one layer
    - groups without a `_Group.formula`
    - all groups of a long text (`_MAX_JOINED_PAIRS`)
    """
    for groups in zip(*(text.groups for text in texts), strict=True):
        first = groups[0]
        layers = [layer for group in groups for layer, _ in group.members]
        is_long = len(texts[0].queries) * len(texts[0].keys) > _MAX_JOINED_PAIRS
        if len(texts) == 1 and (first.formula is None or len(layers) == 1 or is_long):
            yield first
            continue
        joined = _joined(layers)
        yield _Group(((joined, tuple(range(joined.num_heads))),), first.heads)


def _groups(stack: AttentionStack) -> Iterator[_Group]:
    """Divide the heads of a stack into groups with the same mask."""
    members: dict[object, list[tuple[LayerAttention, tuple[int, ...]]]] = {}
    indices: dict[object, list[int]] = {}
    index = 0
    for layer in stack.layers:
        attention = stack.attention(layer)
        heads = tuple(range(attention.num_heads))
        parts = [heads] if attention.shares_mask else [(head,) for head in heads]
        for part in parts:
            mask = None if attention.vectors is None else attention.vectors.mask
            shared = (id(mask), attention.causal)
            key: object = shared if attention.shares_mask else (layer, part)
            members.setdefault(key, []).append((attention, part))
            indices.setdefault(key, []).extend(range(index, index + len(part)))
            index += len(part)
    for key, group in members.items():
        yield _Group(tuple(group), np.array(indices[key], np.int64))


class _Block:
    """Queries (rows) of a block, with their allowed keys and the allowed pairs of each score.

    `rows` is the slice of the queries in the text. `allowed`, (rows, keys), is True for the pairs
    that the mask allows. `pairs`, (texts, scores, rows, keys), is True for the allowed pairs that
    belong to a score.
    """

    def __init__(self, rows: slice, allowed: Flags, pairs: Flags) -> None:
        self.rows, self.allowed, self.pairs = rows, allowed, pairs
        per_query = pairs.sum(axis=3)
        # Number of queries that have at least one pair of the score, (texts, scores).
        self.queries = np.count_nonzero(per_query, axis=2)
        # Number of allowed keys of each query, (rows,). Use 1 for a query without allowed keys, to
        # avoid a division by 0.
        self.num_keys = np.maximum(allowed.sum(axis=1), 1)
        # Share of the allowed keys of each query that form a pair of the score with it, (texts,
        # scores, rows).
        self.expected = (per_query / self.num_keys).astype(np.float32)

    @cached_property
    def by_offset(self) -> Numbers:
        """`allowed` with one column for each offset instead of each key, (rows, offsets).

        Column c has the offset ``c - (rows.stop - 1)``. An entry is 1 if the query may attend to
        the key at this offset. It is 0 if the query may not, or if there is no such key.
        """
        num_rows, num_keys = self.allowed.shape
        flags = np.zeros((num_rows, num_keys + num_rows - 1))
        for row, allowed in enumerate(self.allowed):
            start = num_rows - 1 - row
            flags[row, start : start + num_keys] = allowed
        return flags


class _SameOffset:
    """Baseline from position of some scores: mean weights at the offsets of their pairs.

    Each pair of a score has the mean weight of the allowed pairs at its offset that do not belong
    to the score. If there are none, it has the mean weight of the pairs that do. Offsets are
    clipped to [-reach, reach].

    Pass all blocks to `count`, then each of them to `factors`. `scores` are the columns of the
    scores.
    """

    def __init__(self, num_texts: int, scores: Sequence[int], num_queries: int) -> None:
        self.scores = np.array(scores, np.int64)
        self._reach = min(num_queries - 1, _MAX_PAIR_OFFSET)
        shape = (num_texts, len(self.scores), 2 * self._reach + 1)
        # Number of pairs of the scores at each offset, and of all allowed pairs.
        self._counts, self._allowed = np.zeros(shape, np.int64), np.zeros(shape[2], np.int64)

    def _bins(self, offsets: Indices) -> Indices:
        return np.clip(offsets, -self._reach, self._reach) + self._reach

    def count(self, block: _Block) -> None:
        if not len(self.scores):
            return
        shape = self._counts.shape
        text, score, row, key = np.nonzero(block.pairs[:, self.scores])
        bins = self._bins(key - row - block.rows.start)
        bins += (text * shape[1] + score) * shape[2]
        self._counts += np.bincount(bins, minlength=self._counts.size).reshape(shape)
        allowed = block.by_offset.sum(axis=0)
        bins = self._bins(np.arange(len(allowed)) - (block.rows.stop - 1))
        self._allowed += np.bincount(bins, allowed, minlength=shape[2]).astype(np.int64)

    @property
    def start(self) -> Numbers:
        """0 for each text and score with pairs, and otherwise NaN, (texts, scores)."""
        return np.where(self._counts.any(axis=2), 0, np.nan)

    def factors(self, block: _Block) -> NDArray[np.float32]:
        """Return the factor of each weight in the numerator, (texts, scores, rows, keys)."""
        if not len(self.scores):
            return np.zeros((len(self._counts), 0, *block.allowed.shape), np.float32)
        num_others = self._allowed - self._counts
        of_others = (self._counts / np.maximum(num_others, 1)).astype(np.float32)
        of_pairs = (num_others == 0).astype(np.float32)
        num_rows, num_keys = block.allowed.shape
        # The offsets of a row are a window of the offsets of the block, one later for each row
        # before it.
        bins = self._bins(np.arange(1 - num_rows, num_keys) - block.rows.start)
        of_pairs, of_others = (
            np.lib.stride_tricks.sliding_window_view(values[..., bins], num_keys, axis=2)[
                :, :, ::-1
            ]
            for values in (of_pairs, of_others)
        )
        factors: NDArray[np.float32]
        factors = np.where(block.pairs[:, self.scores], of_pairs, of_others)
        factors *= block.allowed
        return factors


class _OtherQueries:
    """Baseline from the key: the weights that the keys of the pairs get from other queries.

    A peer of a pair is another query that may attend to the key, if the two do not belong to the
    score. The peers are 1, 2, 4, 8, ... tokens before or after the query. The weight that a peer
    gives to the key is divided by its weight on the keys that the query may attend to. Otherwise
    an early query of a causal model, with few keys, would give more weight to each of them. A pair
    has the mean of these shares over its peers, and its own weight if it has no peers.

    In a long text, `_MAX_COMPARED_QUERIES` queries are compared, each with at most
    `_MAX_COMPARED_KEYS` of its pairs.

    Pass all blocks to `collect`, then all to `count`, then each of them to `sums`.
    """

    def __init__(self, num_texts: int, num_scores: int, num_queries: int) -> None:
        self._shape = (num_texts, num_scores)
        self._num_queries = num_queries
        self._is_compared = np.zeros(num_queries, np.bool_)
        self._is_compared[sample_queries(num_queries, _MAX_COMPARED_QUERIES)] = True
        # Number of queries with a pair of each score, and of those that are compared.
        self._queries, self._compared = np.zeros((2, *self._shape))
        # First and last allowed key of each query.
        self._first, self._last = np.zeros((2, num_queries), np.int64)
        # Compared pairs: index of the text and of the score in one number, query, key, and number
        # of pairs that each of them stands for.
        self._parts: list[tuple[Any, ...]] = []

    def collect(self, block: _Block) -> None:
        allowed = block.allowed
        self._first[block.rows] = allowed.argmax(axis=1)
        self._last[block.rows] = allowed.shape[1] - 1 - allowed[:, ::-1].argmax(axis=1)
        rows = np.flatnonzero(self._is_compared[block.rows])
        compared = block.pairs if len(rows) == len(allowed) else block.pairs[:, :, rows]
        self._queries += block.queries
        self._compared += np.count_nonzero(compared.any(axis=3), axis=2)
        text, score, row, key = np.nonzero(compared)
        row = rows[row]
        bins = text * self._shape[1] + score
        # Number all pairs of a score and a query from 0, and choose evenly spaced ones.
        starts = np.flatnonzero(np.diff(bins * len(allowed) + row, prepend=-1))
        sizes = np.diff(starts, append=len(bins))
        number = np.arange(len(bins)) - np.repeat(starts, sizes)
        size = np.repeat(sizes, sizes)
        chosen = np.minimum(size, _MAX_COMPARED_KEYS)
        kept = (number + 1) * chosen // size > number * chosen // size
        stands_for = (size / chosen)[kept]
        self._parts.append((bins[kept], row[kept] + block.rows.start, key[kept], stands_for))

    def count(self, block: _Block) -> None:
        """Count the peers of each pair in a block."""
        pair, _ = self._peers(block)
        self._num_peers += np.bincount(pair, minlength=len(self._num_peers))

    @cached_property
    def _pairs(self) -> tuple[Any, ...]:
        return tuple(map(np.concatenate, zip(*self._parts, strict=True)))

    @cached_property
    def _num_peers(self) -> Indices:
        return np.zeros(len(self._pairs[0]), np.int64)

    @cached_property
    def _candidates(self) -> tuple[Indices, Indices]:
        """Pairs and possible peers, sorted by the position of the peer."""
        distances = 2 ** np.arange(max(1, self._num_queries - 1).bit_length())
        steps = np.concatenate([-distances, distances])
        peers = self._pairs[1][:, None] + steps
        pair, step = np.nonzero((peers >= 0) & (peers < self._num_queries))
        peer = peers[pair, step]
        order = np.argsort(peer, kind="stable")
        return pair[order], peer[order]

    def _peers(self, block: _Block) -> tuple[Indices, Indices]:
        """Return each pair that has a peer among the rows of a block, and the row of the peer."""
        pairs, peers = self._candidates
        inside = slice(*np.searchsorted(peers, [block.rows.start, block.rows.stop]))
        pair, row = pairs[inside], peers[inside] - block.rows.start
        bins, _, keys, _ = self._pairs
        text, score = np.divmod(bins[pair], self._shape[1])
        key = keys[pair]
        # A query with only one allowed key must attend to it, whatever the key is.
        several = block.allowed.sum(axis=1) > 1
        valid = several[row] & block.allowed[row, key] & ~block.pairs[text, score, row, key]
        return pair[valid], row[valid]

    @cached_property
    def _defined(self) -> Flags:
        """Whether each score has a pair with peers in each text, (texts * scores).

        If not, its pairs depend only on the key.
        """
        have_peers = self._pairs[0][self._num_peers > 0]
        return np.bincount(have_peers, minlength=math.prod(self._shape)) > 0

    @property
    def start(self) -> Numbers:
        """0 for each text and score that has the baseline, and otherwise NaN, (texts, scores)."""
        return np.where(self._defined, 0, np.nan).reshape(self._shape)

    def sums(self, block: _Block, weights: NDArray[np.float32]) -> Numbers:
        """Return the part of the numerator of the baseline that a block adds.

        `weights` is (texts, heads, rows, keys), and the result (texts, heads, scores).
        """
        bins, queries, keys, stands_for = self._pairs
        pair, row = self._peers(block)
        alone = np.flatnonzero(
            (self._num_peers == 0)
            & self._defined[bins]
            & (queries >= block.rows.start)
            & (queries < block.rows.stop)
        )
        pair = np.concatenate([pair, alone])
        row = np.concatenate([row, queries[alone] - block.rows.start])
        order = np.argsort(bins[pair], kind="stable")
        pair, row = pair[order], row[order]
        if not len(pair):
            return np.zeros((len(weights), weights.shape[1], self._shape[1]))
        text = bins[pair] // self._shape[1]
        of_keys = weights[text, :, row, keys[pair]]
        # torch sums in parallel and is several times as fast as NumPy.
        cumulative = torch.from_numpy(weights).cumsum(dim=3).numpy()
        last, first = self._last[queries[pair]], self._first[queries[pair]]
        total = cumulative[text, :, row, last]
        later = np.flatnonzero(first)
        total[later] -= cumulative[text[later], :, row[later], first[later] - 1]
        own = self._num_peers[pair] == 0
        shares = np.where(own[:, None], of_keys, of_keys / np.maximum(total, of_keys + _TINY))
        scale = (self._queries / np.maximum(self._compared, 1)).ravel()[bins[pair]]
        factors = scale * stands_for[pair] / np.maximum(self._num_peers[pair], 1)
        shares *= factors.astype(np.float32)[:, None]
        starts = np.flatnonzero(np.diff(bins[pair], prepend=-1))
        sums = np.zeros((math.prod(self._shape), weights.shape[1]))
        sums[bins[pair[starts]]] = np.add.reduceat(shares, starts, axis=0, dtype=np.float64)
        return sums.reshape(*self._shape, -1).swapaxes(1, 2)


def _values_of_heads(measure: Measure, stack: AttentionStack) -> Numbers:
    """Return the value of a measure of outputs or gates for each head of a stack, (heads,).

    The kind of the measure is "heads". The value is NaN for the heads of a layer whose outputs or
    gates are not in the record.
    """
    of_layers = [
        np.full(num_heads, np.nan)
        if (array := head_array(measure, stack, layer)) is None
        else values_of(measure, array)
        for layer, num_heads in zip(stack.layers, stack.heads_per_layer, strict=True)
    ]
    return np.concatenate(of_layers)


def _one_hot(codes: list[NDArray[np.int64]], size: int) -> NDArray[np.float32]:
    """Return the codes as one-hot vectors, (texts, tokens, size).

    `codes` has one array, (tokens,), for each text. Codes are below `size`. The vector of the code
    -1 has only zeros.
    """
    flags: NDArray[np.float32] = (np.stack(codes)[..., None] == np.arange(size)).astype(np.float32)
    return flags


def _to_unit_interval(hashes: NDArray[np.uint64]) -> Numbers:
    """Map uint64 hashes to numbers in [0, 1)."""
    numbers: Numbers = (hashes >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return numbers
