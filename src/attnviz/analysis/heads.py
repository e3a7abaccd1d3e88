"""Scores of every head of a stack, for the measures of `attnviz.analysis.measures`.

A stack is the attention of one kind, such as self-attention, in all layers of a model. A measure
has one of four kinds: "pairs" (the score is the share of the weight on a set of query-key pairs),
"rows" (the mean of a number that is computed from the weights of each query), "heads" (a number
that is computed from the outputs, the gates or the lost weight of a head) or "maps" (the mean of a
number that is computed from the weights of each token on the patches of an image).

Weights of linear layers can be negative, and their rows have any sum. Their scores are computed
from the shares of the absolute weights of each row (`attnviz.record.linear.AbsoluteShares`). Do not
compare them with scores of softmax layers.

Weights are computed on demand, for a block of some queries (rows) and all keys (columns) at a time.
A long text therefore needs hardly more memory than a short text. The scores of a thousand heads
with 32,768 tokens take hours. ``max_queries=64`` estimates them from 64 queries of each head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, TypeVar, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.analysis.measures import (
    MEASURES,
    SINK_WEIGHT,
    Measure,
    TokenFacts,
    can_show,
    named,
    numbers_of,
    pairs_of,
    values_of,
)
from attnviz.record.patch_maps import Chosen, PatchMaps
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sample_queries
from attnviz.record.softmax import as_rows
from attnviz.record.stack import AttentionStack, as_shares, require_weights
from attnviz.utils.arguments import refuse_arguments
from attnviz.utils.progress import Pace, with_progress

Scores = NDArray[np.float64]
Counts = NDArray[np.int64]
Indices = NDArray[np.int64]
_Value = TypeVar("_Value", np.float32, np.float64, np.bool_)

# Maximum number of weights that are computed at once (8 MiB of float32), unless a single query of
# one head has more.
_MAX_ENTRIES = 1 << 21
# Computing a head with fewer weights takes as long as computing this many. Therefore such a head
# counts as this many weights when `weights_of_some` limits the heads that are computed at once.
_MIN_ENTRIES_PER_HEAD = 1 << 13
# The pairs of a measure in a block of rows are the same in all layers. The pairs of all measures in
# a block are stored if they are at most this many. Otherwise they are computed for each layer.
_MAX_CACHED_PAIRS = 1 << 16
# Number of times that the patches of a map are shuffled for a baseline.
_NUM_SHUFFLED = 8
#: A gate is closed if the absolute value of its mean is below this limit. The head then adds less
#: than a twentieth of its output to the residual stream. `js/src/ui/head-grid/gates.ts` has the
#: same limit.
CLOSED_GATE = 0.05


def measures_of(stack: AttentionStack | AttentionRecord) -> tuple[str, ...]:
    """Return the names of the measures that can have a score for the heads of a stack.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack, or a record, whose first stack is used.

    Returns
    -------
    tuple of str
        Names in the order of `attnviz.analysis.MEASURES`. Measures that cannot have a score for
        `stack` are left out:

        - measures whose property `Measure.one_text` is True, such as ``"self"``, if queries and
          keys are different tokens, as in cross-attention,
        - measures whose pairs do not occur, such as ``"next token"`` in causal attention,
          ``"induction"`` if no token occurs twice, and ``"punctuation"`` without punctuation,
        - measures that are computed from outputs of heads, such as ``"output norm"``, unless the
          record was made with ``attnviz.extract(..., outputs=True)``,
        - measures that are computed from gates of heads, such as ``"gate"``, unless the model has
          gates,
        - ``"lost weight"``, unless the model chooses keys before the softmax,
        - measures of maps, unless the keys (or, if none is a patch, the queries) are patches of one
          image, and measures that need a region.

        The result is empty for signed values, such as differences, but not for linear layers.

    Raises
    ------
    TypeError
        If `stack` is neither a stack nor a record.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[0.7, 0.3], [0.4, 0.6]]]], ["a", "b"])
    >>> [name in measures_of(record) for name in ("previous token", "induction")]
    [True, False]
    """
    stack = stack_of(stack)
    if stack.signed or stack.ranks:
        return ()
    return tuple(measure.name for measure in possible_measures(stack))


def possible_measures(stack: AttentionStack) -> list[Measure]:
    """Return the measures that can have a score for the heads of a stack.

    The caller must check that the stack has no signed values.
    """
    queries, keys = facts_of(stack)
    causal = stack.causal
    return [
        measure
        for measure in MEASURES.values()
        if can_show(measure, queries, keys, causal=causal)
        and (measure.kind != "heads" or has_head_arrays(measure, stack))
        and (measure.kind != "maps" or (has_one_image(stack) and not measure.needs_region))
    ]


def has_one_image(stack: AttentionStack) -> bool:
    """Return whether the tokens of a stack have maps over one image, without further arguments."""
    return len(stack.key_tokens.pictured or stack.query_tokens.pictured) == 1


def has_head_arrays(measure: Measure, stack: AttentionStack) -> bool:
    """Return whether a stack has the arrays that a measure of heads reads."""
    if measure.reads == "lost weight":
        return stack.chooses_keys
    return stack.has_gates if measure.reads == "gates" else stack.has_outputs


def head_array(
    measure: Measure, stack: AttentionStack, layer: int, max_queries: int | None = None
) -> NDArray[np.float32] | None:
    """Return the array of a layer that a measure of heads reads, or None if it has no such array.

    Lost weights are computed for at most `max_queries` queries, by default for all.
    """
    if measure.reads == "lost weight":
        vectors = stack.attention(layer).vectors
        if vectors is None:
            return None
        rows = as_rows(np.concatenate(list(row_blocks(stack, max_queries))))
        lost: NDArray[np.float32] = (
            vectors.lost_weight(range(vectors.num_heads), rows).cpu().numpy()
        )
        return lost
    return stack.gates(layer) if measure.reads == "gates" else stack.outputs(layer)


def closed_heads(stack: AttentionStack, layer: int) -> NDArray[np.bool_]:
    """Return whether each head of a layer has a closed gate, (heads,). See `CLOSED_GATE`."""
    gates = stack.gates(layer)
    if gates is None:
        return np.zeros(stack.num_heads(layer), np.bool_)
    # A gate that is not known is NaN, and does not count as closed.
    closed: NDArray[np.bool_] = np.abs(values_of(MEASURES["gate"], gates)) < CLOSED_GATE
    return closed


def head_scores(
    stack: AttentionStack | AttentionRecord,
    measure: str,
    *,
    max_queries: int | None = None,
    **selection: Unpack[Selection],
) -> list[Scores]:
    """Measure every head of a stack.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the heads, or a record, whose first stack is used. Tokens are compared by their
        ids, or by their texts if ids are unknown.
    measure : str
        One of `attnviz.analysis.MEASURES`, such as ``"previous token"`` or ``"entropy"``.
    max_queries : int, optional
        Maximum number of queries per head. If the text has more, the scores are estimated from
        queries that are spread over the text (`attnviz.record.rows.sample_queries`). By default,
        scores are computed from all queries. ``"output norm"`` and ``"gate"`` always use all
        queries.
    **selection
        For measures of maps, such as ``"region"``: `queries`, `keys` and `image` select the maps,
        as in `attnviz.record.stack.AttentionStack.image_weights`. By default, these are the maps of
        all queries or, if only queries are patches, of all keys. `region` is a box (left, top,
        right, bottom) or a mask, bool, (height, width), in pixels of the image as the user passed
        it to `attnviz.extract` (`attnviz.record.stack.AttentionStack.image_size`).

    Returns
    -------
    list of ndarray of float64
        One array per layer, in the order of ``stack.layers``, each (heads,). For a set of pairs,
        such as ``"previous token"``, a score is the share of a query's weight (in linear layers, of
        its absolute weights) on these pairs, from 0 to 1. It is averaged over the queries for which
        the mask allows at least one of the pairs. For ``"entropy"``, it is the mean over queries,
        in nats: 0 if every query attends to a single key, and log(number of keys) for uniform
        attention to all keys. For ``"output norm"``, it is the mean norm of the head's outputs,
        divided by the mean of this number over the heads of the layer. For ``"gate"``, it is the
        mean factor that multiplies the outputs of the head. For ``"lost weight"``, it is the mean
        weight that the keys that the model did not choose would have. The score of a head is NaN if
        it is not defined for any query, for example because no token repeats, the mask forbids all
        of the pairs, the text has a single token, or the layer has no outputs or gates.

    Raises
    ------
    TypeError
        If `stack` is neither a stack nor a record, or `max_queries` is not an integer.
    ValueError
        If `measure` is unknown, if it compares positions in one text but the queries and keys of
        `stack` are different tokens, or if it needs outputs or gates of heads, which `stack` does
        not have. Also if `max_queries` is not positive, or if `stack` has signed values other than
        those of linear layers, which are not shares of a query's weight.

    See Also
    --------
    uniform_scores : scores of uniform attention, for comparison.
    attnviz.analysis.patterns : some of the same measures for arrays of weights.

    Notes
    -----
    `attnviz.analysis.measures` defines the formulas. The model's mask states to which keys a query
    may attend.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
    >>> [layer.tolist() for layer in head_scores(record.stacks["self"], "previous token")]
    [[0.5]]
    >>> [layer.round(4).tolist() for layer in head_scores(record, "entropy")]
    [[0.3466]]
    """
    stack = stack_of(stack)
    return all_head_scores(stack, [measure], max_queries=max_queries, **selection)[measure]


@with_progress
def all_head_scores(
    stack: AttentionStack | AttentionRecord,
    measures: Sequence[str] | None = None,
    *,
    max_queries: int | None = None,
    **selection: Unpack[Selection],
) -> dict[str, list[Scores]]:
    """Measure every head of a stack with several measures, in one pass over the weights.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the heads, or a record, whose first stack is used.
    measures : sequence of str, optional
        Names of measures. The default is all of `measures_of`.
    max_queries : int, optional
        As for `head_scores`.
    **selection
        As for `head_scores`. Measures of other kinds than maps ignore it.

    Returns
    -------
    dict of str to list of ndarray
        The result of `head_scores` for each measure.

    Raises
    ------
    TypeError, ValueError
        As for `head_scores`.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
    >>> scores = all_head_scores(record.stacks["self"])
    >>> [round(float(scores[name][0][0]), 3) for name in ("previous token", "first token")]
    [0.25, 0.625]
    """
    stack = stack_of(stack)
    names = measures_of(stack) if measures is None else measures
    scoring = Scoring(stack, names, max_queries, selection)
    pace = Pace("scores", sum(stack.heads_per_layer) * scoring.num_rows * len(stack.key_tokens))
    scores: dict[str, list[Scores]] = {name: [] for name in names}
    for layer in stack.layers:
        of_layer, _ = scoring.of_layer(layer, range(stack.num_heads(layer)), pace)
        for name, row in zip(names, of_layer, strict=True):
            scores[name].append(row)
    return scores


def uniform_scores(
    stack: AttentionStack | AttentionRecord,
    measure: str,
    *,
    max_queries: int | None = None,
    **selection: Unpack[Selection],
) -> list[Scores]:
    """Compute the scores of uniform attention, the baseline of `head_scores`.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the tokens and masks, or a record, whose first stack is used.
    measure : str
        One of `attnviz.analysis.MEASURES`.
    max_queries : int, optional
        As for `head_scores`.
    **selection
        As for `head_scores`.

    Returns
    -------
    list of ndarray of float64
        Scores in the form of `head_scores`, for heads that attend equally to all keys that the mask
        allows. Uniform attention has no spatial entropy. For ``"spatial entropy"``, the scores are
        those of the heads with the weights of each map at shuffled patches.

    Raises
    ------
    TypeError, ValueError
        As for `head_scores`. Also if `measure` is computed from the outputs of heads.

    Notes
    -----
    If query i may attend to n keys, its weight on each of them is 1 / n. The learned sinks of some
    models get no weight.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> [layer.tolist() for layer in uniform_scores(record, "previous token")]
    [[0.5]]
    """
    stack = stack_of(stack)
    scoring = Scoring(stack, [measure], max_queries, selection)
    if scoring.measures[0].kind == "heads":
        raise ValueError(f"measure={measure!r} is not computed from weights, so it has no baseline")
    return [scoring.uniform(layer, range(stack.num_heads(layer)))[0] for layer in stack.layers]


class Selection(TypedDict, total=False):
    """Arguments of `head_scores` for measures of maps."""

    queries: Chosen
    keys: Chosen
    image: int | None
    region: Any


def sink_patches(
    stack: AttentionStack | AttentionRecord,
    layer: int,
    head: int,
    *,
    threshold: float = SINK_WEIGHT,
    **selection: Unpack[Selection],
) -> NDArray[np.bool_]:
    """Mark the patches of an image that are attention sinks of a head.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the head, or a record, whose first stack is used.
    layer, head : int
        Layer number and head number. Negative numbers count from the end.
    threshold : float, default 0.3
        A patch is a sink if its mean weight exceeds this number. The mean is over the queries that
        may attend to the image. Heads that read text and image give a patch less: compare with the
        mean weight of a patch.
    **selection
        `queries`, `keys` and `image` select the maps, as for `head_scores`.

    Returns
    -------
    ndarray of bool, (rows, columns)
        Whether each patch is a sink (Gu et al. 2024, arXiv 2410.10781, for tokens).

    Raises
    ------
    IndexError, TypeError, ValueError
        As for `attnviz.record.stack.AttentionStack.image_weights`.

    Examples
    --------
    >>> import attnviz as av
    >>> from attnviz.record import PatchGrid, Tokens
    >>> tokens = Tokens.of(["0,0", "0,1"], grids=[PatchGrid(0, 0, rows=1, columns=2)])
    >>> weights, picture = [[[[0.8, 0.2], [0.9, 0.1]]]], np.zeros((1, 2, 3), np.uint8)
    >>> record = av.AttentionRecord.from_weights(weights, tokens, images=[picture])
    >>> sink_patches(record, layer=0, head=0)
    array([[ True, False]])
    """
    stack = stack_of(stack)
    scoring = Scoring(stack, ["sink patches"], None, selection)
    maps = scoring.maps_of(layer, stack.head_number(layer, head), uniform=False)
    sinks: NDArray[np.bool_] = maps.mean(axis=0) > threshold
    return sinks


class Scoring:
    """Computation of the scores of the heads of a stack, for several measures at once.

    The scores are computed from all queries if `max_queries` is None. Otherwise they are estimated
    from at most this many queries. `names` are the names of the measures. Raise ValueError if a
    measure does not exist or does not fit the stack, or if the stack has signed values. Pass a
    stack of linear layers as shares (`stack_of`).

    Attributes
    ----------
    measures : list of Measure
        The measures, in the order of `names`.
    num_rows : int
        Number of queries whose weights are computed. 0 if all measures have the kind "heads",
        because these do not depend on weights.
    """

    def __init__(
        self,
        stack: AttentionStack,
        names: Sequence[str],
        max_queries: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        require_weights(stack, "scores of heads")
        self.measures = [_fitting(stack, name) for name in names]
        kinds = {measure.kind for measure in self.measures}
        self._stack = stack
        self._queries, self._keys = facts_of(stack)
        self._max_queries = max_queries
        blocks = row_blocks(stack, max_queries)
        self._blocks = list(blocks) if kinds & {"pairs", "rows"} else []
        self.num_rows = sum(map(len, self._blocks))
        self._cached_pairs: dict[int, list[PairIndices | None]] = {}
        if "maps" in kinds:
            self._select_maps(stack, **(selection or {}))
        else:
            refuse_arguments(selection or (), f"measure={', '.join(names)} is not one of maps")

    def _select_maps(
        self,
        stack: AttentionStack,
        *,
        queries: Chosen = None,
        keys: Chosen = None,
        image: int | None = None,
        region: Any = None,
    ) -> None:
        """Select the maps and the region of the measures of maps."""
        maps = PatchMaps.select(stack, queries=queries, keys=keys, image=image)
        if self._max_queries is not None:
            sampled = sample_queries(len(maps.tokens), self._max_queries)
            maps = replace(maps, tokens=tuple(maps.tokens[index] for index in sampled))
        needing = [measure.name for measure in self.measures if measure.needs_region]
        if region is None and needing:
            raise ValueError(
                f"measure={needing[0]!r} needs a region. Pass region=, a box (left, top, right, "
                "bottom) or a mask, (height, width), in pixels of the image."
            )
        self._region = (
            None if region is None else maps.grid.shares(region, stack.image_size(maps.grid))
        )
        self._maps = maps

    def of_layer(
        self, layer: int, heads: Sequence[int], pace: Pace | None = None
    ) -> tuple[Scores, Counts]:
        """Compute the scores of some heads of a layer, (measures, heads).

        The second result, (measures, heads), is the number of queries over which each score is a
        mean. `pace` reports the progress. None creates one for this call. Pass the same `pace` for
        each layer if the progress of several layers is reported together.
        """
        pace = pace or Pace("scores", len(heads) * self.num_rows * len(self._keys))
        sums = _Sums(self.measures, len(heads))
        for rows in self._blocks:
            pairs = self._pairs(rows)
            allowed = allowed_pairs(self._stack, layer, heads, rows)
            for subset, weights in weights_of_some(self._stack, layer, heads, rows):
                mask = allowed if len(allowed) == 1 else allowed[subset]
                sums.add(subset, weights, mask, pairs, (self._queries, self._keys, rows))
                pace.advance(weights.size, len(weights))
        scores, counts = sums.means()
        for number, measure in enumerate(self.measures):
            if measure.kind != "heads":
                continue
            array = head_array(measure, self._stack, layer, self._max_queries)
            if array is not None:
                scores[number] = values_of(measure, array)[list(heads)]
                counts[number] = array.shape[1]
        self._add_map_scores(scores, counts, layer, heads, uniform=False)
        return scores, counts

    def maps_of(self, layer: int, head: int, *, uniform: bool) -> NDArray[np.float64]:
        """Return the maps of a head, or of uniform attention, (tokens, rows, columns).

        Queries that may attend to no patch have no map.
        """
        attention, maps = self._stack.attention(layer), self._maps

        def even(heads: Sequence[int], rows: Any, columns: slice) -> torch.Tensor:
            allowed = attention.allowed(heads, rows)
            return allowed[..., columns] / allowed.sum(dim=-1, keepdim=True).clamp(min=1)

        read = even if uniform else attention.block
        allowed = maps.read(attention.allowed, [head], maps.tokens)[0].flatten(1).any(dim=1)
        weights = maps.read(read, [head], maps.tokens)[0].double()[allowed].numpy()
        if not maps.of_keys:
            weights = weights / np.maximum(weights.sum(axis=(1, 2), keepdims=True), 1e-30)
        of_head: NDArray[np.float64] = weights
        return of_head

    def _add_map_scores(
        self, scores: Scores, counts: Counts, layer: int, heads: Sequence[int], *, uniform: bool
    ) -> None:
        """Set the scores and counts of the measures of maps, (measures, heads)."""
        for number, measure in enumerate(self.measures):
            for index, head in enumerate(heads if measure.kind == "maps" else ()):
                maps = self.maps_of(layer, head, uniform=uniform and not measure.shuffles)
                if uniform and measure.shuffles:
                    flat = np.repeat(maps.reshape(len(maps), -1), _NUM_SHUFFLED, axis=0)
                    flat = np.random.default_rng(0).permuted(flat, axis=1)
                    maps = flat.reshape(-1, *maps.shape[1:])
                numbers = numbers_of(measure, maps, self._region)
                known = numbers[~np.isnan(numbers)]
                counts[number, index] = len(known)
                scores[number, index] = known.mean() if len(known) else np.nan

    def uniform(self, layer: int, heads: Sequence[int]) -> Scores:
        """Compute the scores that `heads` would have with uniform attention, (measures, heads).

        Attention is uniform over the keys that the mask of a head allows. The scores of measures of
        the kind "heads" are NaN.
        """
        shared = self._stack.attention(layer).shares_mask
        sums = _Sums(self.measures, 1 if shared else len(heads))
        for rows in self._blocks:
            pairs = self._pairs(rows)
            for number, head in enumerate(heads[:1] if shared else heads):
                allowed = allowed_pairs(self._stack, layer, [head], rows)
                uniform = allowed / np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
                tokens = self._queries, self._keys, rows
                sums.add(slice(number, number + 1), uniform, allowed, pairs, tokens)
        scores, counts = sums.means()
        if shared:
            scores = np.repeat(scores, len(heads), axis=1)
            counts = np.repeat(counts, len(heads), axis=1)
        self._add_map_scores(scores, counts, layer, heads, uniform=True)
        return scores

    def _pairs(self, rows: Indices) -> list[PairIndices | None]:
        """Return for each measure its pairs in `rows`, or None if its kind is not "pairs"."""
        cached = self._cached_pairs.get(int(rows[0]))
        if cached is not None:
            return cached
        pairs: list[PairIndices | None] = [
            PairIndices.of(pairs_of(measure, self._queries, self._keys, rows))
            if measure.kind == "pairs"
            else None
            for measure in self.measures
        ]
        if sum(len(entry.indices) for entry in pairs if entry is not None) <= _MAX_CACHED_PAIRS:
            self._cached_pairs[int(rows[0])] = pairs
        return pairs


class _Sums:
    """Sums and counts from which the scores of heads are computed: each score is sum / count.

    For each measure of the kind "pairs" or "rows" and each head, there is one sum of values over
    queries, and one count of these queries.
    """

    def __init__(self, measures: Sequence[Measure], num_heads: int) -> None:
        self._measures = measures
        self._sums = np.zeros((len(measures), num_heads))
        self._counts = np.zeros((len(measures), num_heads), np.int64)

    def add(
        self,
        heads: slice,
        weights: NDArray[Any],
        allowed: NDArray[np.bool_],
        pairs: Sequence[PairIndices | None],
        tokens: tuple[TokenFacts, TokenFacts, Indices],
    ) -> None:
        """Add a block of rows to the sums and counts of `heads`, for all measures.

        `weights` has the weights of these heads and rows, (heads, rows, keys). `allowed` states
        whether the mask allows each pair, (heads, rows, keys), or (1, rows, keys) if all heads
        share one mask. `pairs` has for each measure the indices of its pairs in the block, or None
        if its kind is not "pairs". `tokens` is as in `values_of`. The counts grow by the number of
        rows that have an allowed pair (kind "pairs") or a value other than NaN (kind "rows").
        """
        for number, pairs_of_measure in enumerate(pairs):
            if pairs_of_measure is not None:
                self._sums[number, heads] += pairs_of_measure.sums_of(weights)
                self._counts[number, heads] += pairs_of_measure.count_rows(allowed)
            elif self._measures[number].kind == "rows":
                values = values_of(self._measures[number], weights.astype(np.float64), tokens)
                self._sums[number, heads] += np.nansum(values, axis=-1)
                self._counts[number, heads] += np.count_nonzero(~np.isnan(values), axis=-1)

    def means(self) -> tuple[Scores, Counts]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self._counts > 0, self._sums / self._counts, np.nan), self._counts


@dataclass(frozen=True)
class PairIndices:
    """Indices of the pairs of a measure in a block of weights, (rows, keys), sorted by row.

    Many measures have one pair per row. With indices, only a few weights of a block are read.

    Attributes
    ----------
    rows, indices : ndarray of int64, (pairs,)
        Row of each pair, and index of each pair into the flattened block.
    firsts : ndarray of int64
        For each row with a pair, the index into `rows` of its first pair.

    Examples
    --------
    >>> pairs = PairIndices.of(np.eye(2, dtype=np.bool_))
    >>> pairs.sums_of(np.array([[[0.5, 0.5], [0.25, 0.75]]], np.float32))
    array([1.25])
    """

    rows: Indices
    indices: Indices
    firsts: Indices

    @classmethod
    def of(cls, pairs: NDArray[np.bool_]) -> PairIndices:
        """Create the indices of the pairs that are True in `pairs`, (rows, keys)."""
        indices = np.flatnonzero(pairs)
        rows = indices // pairs.shape[1]
        return cls(rows, indices, np.flatnonzero(np.diff(rows, prepend=-1)))

    def values_of(self, block: NDArray[_Value]) -> NDArray[_Value]:
        """Return the entries of `block` at the pairs, (heads, pairs).

        The shape of `block` is (heads, rows, keys).
        """
        return np.take(block.reshape(len(block), -1), self.indices, axis=1)

    def sums_of(self, block: NDArray[_Value]) -> Scores:
        """Return for each head the sum of its entries of `block` at the pairs, (heads,).

        The shape of `block` is (heads, rows, keys).
        """
        sums: Scores = self.values_of(block).sum(axis=1, dtype=np.float64)
        return sums

    def count_rows(self, allowed: NDArray[np.bool_]) -> Counts:
        """Return for each head the number of rows in which at least one of the pairs is allowed.

        `allowed` states whether the mask allows each pair, (heads, rows, keys). If all heads share
        one mask, its shape is (1, rows, keys), and that of the result is (1,).
        """
        if not len(self.firsts) or allowed.all():
            return np.full(len(allowed), len(self.firsts))
        has_pair = np.logical_or.reduceat(self.values_of(allowed), self.firsts, axis=1)
        counts: Counts = np.count_nonzero(has_pair, axis=1)
        return counts


def stack_of(value: object) -> AttentionStack:
    """Return `value` if it is a stack, or its first stack if it is a record.

    A stack of linear layers is returned with the shares of its absolute weights. Raise TypeError
    for other values.
    """
    if isinstance(value, AttentionRecord):
        value = value.stack()
    if isinstance(value, AttentionStack):
        return as_shares(value)
    raise TypeError(
        "stack must be one record, such as attnviz.extract(model, text) returns, or one of its "
        f'stacks, record.stacks["self"]; got {type(value).__name__}. Arrays of weights are '
        "measured by attnviz.analysis.previous_token and similar functions, or become a record "
        "with attnviz.AttentionRecord.from_weights(weights, tokens)."
    )


def _fitting(stack: AttentionStack, name: str) -> Measure:
    """Return the measure `name`.

    Raise ValueError if the measure does not exist, if it compares positions in one text but the
    queries and keys are different tokens, or if it needs outputs or gates of heads, which the stack
    does not have.
    """
    measure = named(name)
    if measure.one_text and not one_text(stack):
        raise ValueError(
            f"measure={name!r} compares positions in one text, but the queries and keys of stack "
            f"{stack.name!r} are different tokens. attnviz.analysis.measures_of(stack) has the "
            "names of all possible measures."
        )
    if measure.kind == "heads" and not has_head_arrays(measure, stack):
        if stack.linear:
            raise ValueError(
                f"measure={name!r} is not defined for the linear layers of stack {stack.name!r}. "
                "Pass a stack of softmax layers."
            )
        if measure.reads == "lost weight":
            raise ValueError(
                f"measure={name!r} needs keys that a model has left out, which stack "
                f"{stack.name!r} does not have. Pass a record of a model with an indexer, such as "
                "DeepSeek-V3.2, for a text with more tokens than the indexer chooses for a query."
            )
        if measure.reads == "gates":
            raise ValueError(
                f"measure={name!r} needs the gates of heads, which stack {stack.name!r} does not "
                "have. Pass a record of attnviz.extract of a model with gates, such as Qwen3.5."
            )
        raise ValueError(
            f"measure={name!r} needs the outputs of heads, which stack {stack.name!r} does not "
            "have. Pass outputs=True to attnviz.extract, or use attnviz.head_statistics(model, "
            "texts). If the record was made so, its notes name the layers without outputs."
        )
    return measure


def weights_of_some(
    stack: AttentionStack, layer: int, heads: Sequence[int], rows: NDArray[np.int64]
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield slices of the list `heads`, each with the weights of its heads, (heads, rows, keys).

    The heads of a slice have at most `_MAX_ENTRIES` weights together, unless one head has more.
    Heads with few weights count as `_MIN_ENTRIES_PER_HEAD` weights.
    """
    attention = stack.attention(layer)
    together = max(1, _MAX_ENTRIES // max(_MIN_ENTRIES_PER_HEAD, len(rows) * attention.num_keys))
    for start in range(0, len(heads), together):
        heads_slice = slice(start, start + together)
        yield heads_slice, attention.block(heads[heads_slice], as_rows(rows)).cpu().numpy()


def allowed_pairs(
    stack: AttentionStack, layer: int, heads: Sequence[int], rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether the mask allows each pair, (heads, rows, keys), or (1, rows, keys).

    The first axis has length 1 if the layer stores one mask for all heads.
    """
    flags: NDArray[np.bool_] = stack.attention(layer).allowed(heads, as_rows(rows)).numpy()
    return flags


def row_blocks(stack: AttentionStack, max_queries: int | None) -> Iterator[NDArray[np.int64]]:
    """Yield blocks of the positions of the queries from which scores are computed, each (rows,).

    If `max_queries` is None, these are all queries. Otherwise they are at most `max_queries`
    queries, spread over the text. The number of queries in a block times the number of keys is at
    most `_MAX_ENTRIES`, unless the block has a single query.
    """
    num_queries = len(stack.query_tokens)
    rows = (
        np.arange(num_queries) if max_queries is None else sample_queries(num_queries, max_queries)
    )
    step = max(1, _MAX_ENTRIES // max(1, len(stack.key_tokens)))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def one_text(stack: AttentionStack) -> bool:
    """Return whether queries and keys are the same tokens."""
    # Compare the objects, because the two texts of cross-attention may have equal tokens.
    return stack.key_tokens is stack.query_tokens


def facts_of(stack: AttentionStack) -> tuple[TokenFacts, TokenFacts]:
    """Return the `TokenFacts` of the query tokens and of the key tokens.

    The same object is returned twice if queries and keys are the same tokens.
    """
    keys = TokenFacts(stack.key_tokens)
    return (keys if one_text(stack) else TokenFacts(stack.query_tokens)), keys
