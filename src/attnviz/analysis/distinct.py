"""The head of a stack whose pattern differs most from uniform attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import (
    allowed_pairs,
    one_text,
    patterns_of,
    row_blocks,
    scores_of_heads,
    stack_of,
    token_codes,
    weights_of_some,
)
from attnviz.analysis.patterns import PairIndices, pairs_of

if TYPE_CHECKING:
    from attnviz.record.record import AttentionRecord
    from attnviz.record.stack import AttentionStack

__all__ = ["DistinctHead", "distinct_head"]

# Maximum number of weights to compute, such as those of 144 heads with 64 queries and 1,800 keys.
# This takes a few tenths of a second.
_MAX_WEIGHTS = 1 << 24
# Maximum number of queries on which heads are compared.
_NUM_QUERIES = 64
# Patterns that are not reported, because many heads of any model show them on any text.
_UNSPECIFIC = frozenset({"first token"})
# Minimum number and share of queries that can show a pattern. With fewer queries, a high score may
# be due to chance, and the pattern is not visible in a view of the head.
_MIN_QUERIES = 8
_MIN_SHARE_OF_QUERIES = 0.25
# Minimum of (score - baseline) / (1 - baseline). With a smaller value, a view of the head does
# not clearly show the pattern.
_MIN_DISTINCT = 0.5


@dataclass(frozen=True)
class DistinctHead:
    """A head and the pattern that it shows most clearly.

    Attributes
    ----------
    layer, head : int
        Numbers of the layer and of the head in the model.
    pattern : str
        One of `attnviz.analysis.PATTERNS`.
    score : float
        Score of the head, as in `head_scores`: the share of the weight on the pattern's pairs.
    baseline : float
        Score of uniform attention, as in `uniform_scores`.
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
    """Find the head whose pattern differs most from uniform attention.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the heads, or a record, whose first stack is used. The weights are computed from
        the record, without running the model.

    Returns
    -------
    DistinctHead or None
        The head and pattern with the largest (score - baseline) / (1 - baseline). `baseline` is the
        score of uniform attention. The quotient is 0 for uniform attention, and 1 if all weight is
        on the pattern's pairs. A pattern is considered only if at least 8 queries, and at least a
        quarter of all queries, can show it. The result is None if

        - no head and pattern has a quotient of at least 0.5,
        - the queries and keys of `stack` are different tokens,
        - `stack` has signed values, such as differences,
        - 64 queries of all heads have more than 2**24 weights (144 heads with over 1,820 tokens).

        The pattern is one of `patterns_of`, except ``"first token"``, because many heads of any
        model attend to the first token of any text.

    See Also
    --------
    head_scores : scores of all heads.
    uniform_scores : scores of uniform attention.

    Raises
    ------
    TypeError
        If `stack` is neither a stack nor a record.

    Notes
    -----
    Heads are compared on up to 64 queries, spread over the text. The quotient corrects the score
    for the baseline, as Cohen's kappa does (Cohen 1960, "A coefficient of agreement for nominal
    scales"). Without this correction, patterns with many pairs would have the highest scores.

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
    """Return the result for a head, measured on the queries from which views compute scores."""
    from attnviz.record.rows import num_scored_queries

    num_queries = num_scored_queries(stack)
    score = float(scores_of_heads(stack, [pattern], layer, [head], num_queries)[0, 0])
    blocks = _pairs(stack, [pattern], num_queries)
    [[(_, baseline, _)]] = _measured(stack, layer, [head], blocks, {}).tolist()
    return DistinctHead(layer, head, pattern, score, baseline, num_queries)


# Query positions of a block of rows, and the pairs of each pattern in these rows.
_Block = tuple[NDArray[np.int64], list[PairIndices]]
# Results of `_of_mask` by index of the block, number of heads and bytes of the mask's flags.
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
    """Measure each pattern in each head of a layer.

    The result is (heads, patterns, 3): the score, the baseline, and the number of queries that can
    show the pattern. `mask_cache` stores the results that depend only on the mask, because most
    layers have the same mask.
    """
    totals = np.zeros((len(heads), len(blocks[0][1]), 3))
    for block, (rows, patterns) in enumerate(blocks):
        for group, weights in weights_of_some(stack, layer, heads, rows):
            for number, pairs in enumerate(patterns):
                totals[group, number, 0] += pairs.sums_of(weights)
        allowed = allowed_pairs(stack, layer, heads, rows)
        mask = block, len(allowed), allowed.tobytes()
        if mask not in mask_cache:
            mask_cache[mask] = _of_mask(allowed, patterns)
        totals[:, :, 1:] += mask_cache[mask]
    with np.errstate(invalid="ignore", divide="ignore"):
        totals[..., :2] /= totals[..., 2:]
    return totals


def _of_mask(allowed: NDArray[np.bool_], patterns: Sequence[PairIndices]) -> NDArray[np.float64]:
    """Measure each pattern in uniform attention under a mask.

    `allowed` is (heads or 1, rows, keys). The result is (heads or 1, patterns, 2): the weight of
    uniform attention on the pattern's pairs, and the number of rows with an allowed pair.
    """
    uniform = 1 / np.maximum(allowed.sum(axis=-1), 1)
    of_patterns = [
        (pairs.sums_by_row(uniform, allowed), pairs.count_rows(allowed)) for pairs in patterns
    ]
    stacked = np.array(of_patterns, np.float64).reshape(len(patterns), 2, len(allowed))
    return stacked.transpose(2, 0, 1)
