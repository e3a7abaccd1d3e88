"""The head of a stack whose pattern stands out most from uniform attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import (
    one_text,
    patterns_of,
    row_blocks,
    scores_of_heads,
    stack_of,
    token_codes,
    weights_of_some,
)
from attnviz.analysis.patterns import PairIndices, pairs_of
from attnviz.utils.progress import run_steps

if TYPE_CHECKING:
    from attnviz.record.record import AttentionRecord
    from attnviz.record.stack import AttentionStack

__all__ = ["DistinctHead", "distinct_head"]

# Weights that are computed in a few tenths of a second: 64 queries of 144 heads, 1,800 keys.
_MAX_WEIGHTS = 1 << 24
# Number of queries on which heads are compared.
_NUM_QUERIES = 64
# Many heads of any model attend to the first token of any text.
_UNSPECIFIC = frozenset({"first token"})
# With fewer queries, a high score may be chance, and the picture of the head does not show it.
_MIN_QUERIES = 8
_MIN_SHARE_OF_QUERIES = 0.25
# A smaller quotient is not visible as a pattern at a glance.
_MIN_DISTINCT = 0.5


@dataclass(frozen=True)
class DistinctHead:
    """A head and the pattern that it shows most distinctly.

    Attributes
    ----------
    layer, head : int
        Layer and head, as the model numbers them.
    pattern : str
        One of `attnviz.analysis.PATTERNS`.
    score : float
        The score that `head_scores` returns: the share of the weight on the pattern's pairs.
    baseline : float
        The score of uniform attention, as `uniform_scores` returns it.
    num_queries : int or None
        Number of sampled queries from which `score` and `baseline` are estimated. None if they
        come from all queries.

    Examples
    --------
    >>> distinct = DistinctHead(3, 1, "previous token", score=0.9, baseline=0.2, num_queries=None)
    >>> round((distinct.score - distinct.baseline) / (1 - distinct.baseline), 3)
    0.875
    """

    layer: int
    head: int
    pattern: str
    score: float
    baseline: float
    num_queries: int | None


def distinct_head(stack: AttentionStack | AttentionRecord) -> DistinctHead | None:
    """Find the head with the most distinct pattern.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the heads, or a record, whose first stack is used. The weights are computed from
        the record, without running the model.

    Returns
    -------
    DistinctHead or None
        The head with the largest (score - baseline) / (1 - baseline). `baseline` is the score of
        uniform attention. The quotient is 0 for uniform attention, and 1 if all weight is on the
        pattern. None if

        - the quotient is below 0.5 for every head,
        - the queries and keys of `stack` are different tokens,
        - fewer than 8 queries, or fewer than a quarter of them, can show any pattern,
        - `stack` has signed numbers, such as differences,
        - 64 queries of all heads have more than 2**24 weights (144 heads of 1,800 tokens).

        The pattern is one of `patterns_of` the stack, except ``"first token"``: many heads of any
        model attend to the first token of any text.

    See Also
    --------
    head_scores : the scores of all heads.
    uniform_scores : the scores of uniform attention.

    Raises
    ------
    TypeError
        If `stack` is neither a stack nor a record.

    Notes
    -----
    Heads are compared on up to 64 queries, spread over the text. The quotient corrects the score
    for the baseline as Cohen's kappa does (Cohen 1960, "A coefficient of agreement for nominal
    scales"). Without the correction a pattern with many pairs would win.

    Examples
    --------
    >>> import attnviz as av
    >>> uniform, before = np.full((10, 10), 0.1), np.eye(10, k=-1)
    >>> before[0, 0] = 1
    >>> stack = av.AttentionRecord.from_weights([[uniform, before]], list("abcdefghij")).stack()
    >>> best = distinct_head(stack)
    >>> best.layer, best.head, best.pattern, best.score, round(best.baseline, 2)
    (0, 1, 'previous token', 1.0, 0.1)
    """
    stack = stack_of(stack)
    if stack.signed or not one_text(stack):
        return None
    num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
    num_heads = sum(stack.heads_per_layer)
    if num_heads * min(num_queries, _NUM_QUERIES) * num_keys > _MAX_WEIGHTS:
        return None
    patterns = [name for name in patterns_of(stack) if name not in _UNSPECIFIC]
    blocks = _pairs(stack, patterns, min(num_queries, _NUM_QUERIES))
    num_sampled = sum(len(rows) for rows, _ in blocks)
    min_count = max(_MIN_QUERIES / num_queries, _MIN_SHARE_OF_QUERIES) * num_sampled
    best: tuple[float, int, int, str] | None = None
    mask_cache: _MaskCache = {}
    for layer in stack.layers:
        heads = range(stack.num_heads(layer))
        measured = _measured(stack, layer, heads, blocks, mask_cache)
        for head, of_patterns in zip(heads, measured.tolist(), strict=True):
            for pattern, (score, baseline, count) in zip(patterns, of_patterns, strict=True):
                if count < min_count or baseline >= 1:
                    continue
                distinct = (score - baseline) / (1 - baseline)
                if distinct >= _MIN_DISTINCT and (best is None or distinct > best[0]):
                    best = (distinct, layer, head, pattern)
    if best is None:
        return None
    _, layer, head, pattern = best
    return _as_shown(stack, layer, head, pattern)


def _as_shown(stack: AttentionStack, layer: int, head: int, pattern: str) -> DistinctHead:
    """Return the chosen head with scores from as many queries as views use."""
    from attnviz.record.rows import num_scored_queries

    num_queries = num_scored_queries(stack)
    score = float(run_steps(scores_of_heads(stack, [pattern], layer, [head], num_queries))[0, 0])
    blocks = _pairs(stack, [pattern], num_queries)
    [[(_, baseline, _)]] = _measured(stack, layer, [head], blocks, {}).tolist()
    return DistinctHead(layer, head, pattern, score, baseline, num_queries)


# Query positions, and for each pattern its pairs in these rows.
_Block = tuple[NDArray[np.int64], list[PairIndices]]
# Results of `_of_mask` by block, number of heads and flags.
_MaskCache = dict[tuple[int, int, bytes], NDArray[np.float64]]


def _pairs(stack: AttentionStack, patterns: Sequence[str], max_queries: int | None) -> list[_Block]:
    codes = token_codes(stack)
    num_keys = len(stack.key_tokens)
    return [
        (rows, [PairIndices.of(pairs_of(pattern, rows, num_keys, codes)) for pattern in patterns])
        for rows in row_blocks(stack, max_queries)
    ]


def _measured(
    stack: AttentionStack,
    layer: int,
    heads: Sequence[int],
    blocks: Sequence[_Block],
    mask_cache: _MaskCache,
) -> NDArray[np.float64]:
    """Return score, baseline and number of queries for each head and pattern: (heads, patterns, 3).

    `mask_cache` keeps the numbers that depend only on a mask, because most layers have the same
    masks.
    """
    totals = np.zeros((len(heads), len(blocks[0][1]), 3))
    for block, (rows, patterns) in enumerate(blocks):
        for group, weights, allowed in weights_of_some(stack, layer, heads, rows):
            for number, pairs in enumerate(patterns):
                totals[group, number, 0] += pairs.sums_of(weights)
            mask = block, len(allowed), allowed.tobytes()
            if mask not in mask_cache:
                mask_cache[mask] = _of_mask(allowed, patterns)
            totals[group, :, 1:] += mask_cache[mask]
    with np.errstate(invalid="ignore", divide="ignore"):
        totals[..., :2] /= totals[..., 2:]
    return totals


def _of_mask(allowed: NDArray[np.bool_], patterns: Sequence[PairIndices]) -> NDArray[np.float64]:
    """Return the weight of uniform attention on each pattern, and the number of rows with a pair.

    The shape is (heads, patterns, 2).
    """
    uniform = 1 / np.maximum(allowed.sum(axis=-1), 1)
    of_patterns = [
        (pairs.sums_by_row(uniform, allowed), pairs.count_rows(allowed)) for pairs in patterns
    ]
    stacked = np.array(of_patterns, np.float64).reshape(len(patterns), 2, len(allowed))
    return stacked.transpose(2, 0, 1)
