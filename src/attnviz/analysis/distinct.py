"""The head of a stack that shows a pattern most clearly, compared with uniform attention.

Views open at this head. A stack is the attention of one kind, such as self-attention, in all
layers. A pattern is a set of query-key pairs, such as each query with the previous token. The score
of a head for a pattern is the share of the head's weight that is on these pairs.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np

from attnviz.analysis.heads import Scoring, closed_heads, possible_measures, stack_of
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import num_scored_queries
from attnviz.record.stack import AttentionStack

# Maximum number of weights that are computed to compare the heads: number of heads times number of
# compared queries times number of keys. If more were needed, `distinct_head` returns None.
# Computing this many weights, such as those of 144 heads with 64 queries and 1,820 keys, takes a
# few tenths of a second.
_MAX_WEIGHTS = 1 << 24
# To compare the heads, the score of each head is computed from at most this many queries.
_NUM_QUERIES = 64
# A pattern is considered only if the mask allows a pair of the pattern for at least `_MIN_QUERIES`
# queries, and for at least the share `_MIN_SHARE_OF_QUERIES` of all queries. With fewer queries, a
# high score may be due to chance, and the pattern is hardly visible in a view of the head.
_MIN_QUERIES = 8
_MIN_SHARE_OF_QUERIES = 0.25
# Minimum of (score - baseline) / (1 - baseline), where the baseline is the score of uniform
# attention. With a smaller value, a view of the head does not clearly show the pattern.
_MIN_DISTINCT = 0.5


@dataclass(frozen=True)
class DistinctHead:
    """The head of a stack that shows a pattern most clearly, and this pattern.

    Attributes
    ----------
    layer, head : int
        Numbers of the layer and of the head in the model.
    pattern : str
        Name of the pattern, a key of `attnviz.analysis.MEASURES`.
    score : float
        Score of the head, as in `head_scores`: the share of the weight on the pattern's pairs.
    baseline : float
        Score of uniform attention, as in `uniform_scores`.
    num_queries : int or None
        Number of sampled queries from which `score` and `baseline` are estimated. None if they
        are computed from all queries.

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
    """Find the head of a stack that shows a pattern most clearly, compared with uniform attention.

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
        on the pattern's pairs. A pattern is considered only if the mask allows a pair of the
        pattern for at least 8 queries, and for at least a quarter of all queries. For long texts,
        these numbers are estimated from the compared queries (see Notes). A head whose mean gate is
        below 0.05 in size is not considered. The result is None if

        - no pair of a head and a pattern has a quotient of at least 0.5,
        - no pattern is possible, for example because queries and keys are different tokens,
        - `stack` has signed values, such as differences, or ranks,
        - the compared queries of all heads have more than 2**24 weights, for example 64 queries of
          144 heads with more than 1,820 keys.

        The patterns are the measures whose property `Measure.opens_views` is True. ``"first
        token"`` is not one of them, because many heads of any model attend to the first token of
        any text.

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
    num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
    num_heads = sum(stack.heads_per_layer)
    num_weights = num_heads * min(num_queries, _NUM_QUERIES) * num_keys
    if num_weights > _MAX_WEIGHTS or stack.signed or stack.ranks:
        return None
    patterns = [measure.name for measure in possible_measures(stack) if measure.opens_views]
    if not patterns:
        return None
    scoring = Scoring(stack, patterns, min(num_queries, _NUM_QUERIES))
    min_count = max(_MIN_QUERIES / num_queries, _MIN_SHARE_OF_QUERIES) * scoring.num_rows
    candidates = []
    for layer in stack.layers:
        heads = range(stack.num_heads(layer))
        scores, counts = scoring.of_layer(layer, heads)
        baselines = scoring.uniform(layer, heads)
        considered = (counts >= min_count) & (baselines < 1) & ~np.isnan(scores)
        considered &= ~closed_heads(stack, layer)
        differences = np.where(considered, scores - baselines, 0)
        distinct = (differences / np.where(considered, 1 - baselines, 1)).T
        head, index = divmod(int(distinct.argmax()), len(patterns))
        candidates.append((distinct[head, index], layer, head, patterns[index]))
    # If several layers have the same largest quotient, `max` returns the first of these layers.
    largest, layer, head, pattern = max(candidates, key=operator.itemgetter(0))
    if largest < _MIN_DISTINCT:
        return None
    # Measure the head again with the queries that views use, so that its score is the one that they
    # show. Views use all queries, unless the stack is very large.
    sampled = num_scored_queries(stack)
    scoring = Scoring(stack, [pattern], sampled)
    scores, _ = scoring.of_layer(layer, [head])
    baseline = float(scoring.uniform(layer, [head])[0, 0])
    return DistinctHead(layer, head, pattern, float(scores[0, 0]), baseline, sampled)
