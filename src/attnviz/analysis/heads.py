"""Pattern scores and entropy of every head of a stack.

Weights are computed on demand, for a block of some queries and all keys at a time. A long text
therefore needs hardly more memory than a short text. The scores of a thousand heads with 32,768
tokens take hours. ``max_queries=64`` estimates them from 64 queries of each head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.patterns import PATTERNS, PairIndices, codes_of, pairs_of
from attnviz.utils.progress import Pace

if TYPE_CHECKING:
    from attnviz.record.record import AttentionRecord
    from attnviz.record.stack import AttentionStack

__all__ = [
    "PATTERNS",
    "all_head_scores",
    "head_entropy",
    "head_scores",
    "patterns_of",
    "uniform_scores",
]

Scores = NDArray[np.float64]

# Maximum number of weights that are computed at once (8 MiB of float32).
_MAX_ENTRIES = 1 << 21
# A head with fewer weights counts as this many for the limit, because it takes as long to compute.
_MIN_ENTRIES_PER_HEAD = 1 << 13
# The pairs of all patterns in a block of rows are cached for the next layers if there are at most
# this many.
_MAX_CACHED_PAIRS = 1 << 16
_FOR_ANY_STACK = ("first token",)
_WITH_REPETITIONS = ("same token", "induction")


def patterns_of(stack: AttentionStack | AttentionRecord) -> tuple[str, ...]:
    """Return the patterns that the heads of a stack can show.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack, or a record, whose first stack is used.

    Returns
    -------
    tuple of str
        Those of `PATTERNS` that are possible, in the same order. If queries and keys are different
        tokens, as in cross attention, this is only ``"first token"``. ``"next token"`` is not
        possible in causal attention. ``"previous token"`` and ``"next token"`` need two tokens.
        ``"same token"`` and ``"induction"`` need a token that occurs twice. The result is empty for
        signed values, such as differences.

    Raises
    ------
    TypeError
        If `stack` is neither a stack nor a record.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> patterns_of(record.stacks["self"])
    ('previous token', 'next token', 'self', 'first token')
    """
    stack = stack_of(stack)
    if stack.signed:
        return ()
    if not one_text(stack):
        return _FOR_ANY_STACK
    codes = token_codes(stack)
    return tuple(
        pattern
        for pattern in PATTERNS
        if not (pattern in ("previous token", "next token") and len(codes) == 1)
        and not (pattern == "next token" and stack.causal)
        and not (pattern in _WITH_REPETITIONS and len(np.unique(codes)) == len(codes))
    )


def head_scores(
    stack: AttentionStack | AttentionRecord, pattern: str, *, max_queries: int | None = None
) -> list[Scores]:
    """Measure how much every head of a stack shows a pattern.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the heads, or a record, whose first stack is used. Tokens are compared by their
        ids, or by their texts if ids are unknown.
    pattern : str
        One of `PATTERNS`.
    max_queries : int, optional
        Maximum number of queries per head. If the text has more, the scores are estimated from
        queries that are spread over the text (`attnviz.record.rows.sample_queries`). By default,
        scores are computed from all queries.

    Returns
    -------
    list of ndarray of float64
        One array per layer, in the order of ``stack.layers``, each (heads,). A score is the share
        of the weight on the pattern's query-key pairs, from 0 to 1, as a mean over the queries that
        can show the pattern. The score is NaN if no query can show the pattern, for example because
        no token repeats, the mask forbids all of the pairs, or the text has a single token.

    Raises
    ------
    TypeError
        If `stack` is neither a stack nor a record, or `max_queries` is not an integer.
    ValueError
        If `pattern` is unknown, or needs queries and keys of one text and those of `stack` are
        different tokens. Also if `max_queries` is not positive, or if `stack` has signed values,
        which are not shares of a query's weight.

    See Also
    --------
    uniform_scores : scores of uniform attention, for comparison.
    attnviz.analysis.patterns : the same measures for arrays of weights.

    Notes
    -----
    `attnviz.analysis.patterns` defines the formula. The allowed pairs are those of the model's
    mask.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> scores = head_scores(record.stacks["self"], "previous token")
    >>> [layer.round(6).tolist() for layer in scores]
    [[0.4]]
    """
    stack = stack_of(stack)
    _check_pattern(stack, pattern)
    return _measured(stack, [pattern], max_queries)[pattern]


def all_head_scores(
    stack: AttentionStack | AttentionRecord, *, max_queries: int | None = None
) -> dict[str, list[Scores]]:
    """Measure how much every head of a stack shows each pattern of `patterns_of`.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the heads, or a record, whose first stack is used.
    max_queries : int, optional
        As for `head_scores`.

    Returns
    -------
    dict of str to list of ndarray
        The result of `head_scores` for each pattern.

    Raises
    ------
    TypeError, ValueError
        As for `head_scores`.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
    >>> scores = all_head_scores(record.stacks["self"])
    >>> {pattern: float(layers[0][0]) for pattern, layers in scores.items()}
    {'previous token': 0.25, 'next token': 0.0, 'self': 0.875, 'first token': 0.625}
    """
    stack = stack_of(stack)
    _need_weights(stack, "scores of patterns")
    return _measured(stack, patterns_of(stack), max_queries)


def head_entropy(
    stack: AttentionStack | AttentionRecord, *, max_queries: int | None = None
) -> list[Scores]:
    """Measure how widely every head of a stack spreads its attention.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the heads, or a record, whose first stack is used.
    max_queries : int, optional
        As for `head_scores`.

    Returns
    -------
    list of ndarray of float64
        One array per layer, in the order of ``stack.layers``, each (heads,). An entropy is in nats.
        It is 0 if every query attends to a single key, log(number of keys) for uniform attention to
        all keys, and NaN if no query attends to any key.

    Raises
    ------
    TypeError
        If `stack` is neither a stack nor a record, or `max_queries` is not an integer.
    ValueError
        If `stack` has signed values, or `max_queries` is not positive.

    Notes
    -----
    The entropy of a head is the mean over queries of -sum_j w_j log w_j (Clark et al. 2019, arXiv
    1906.04341, section 3.3). The weights w_j of a row are first divided by their sum, because rows
    with an attention sink do not sum to 1. Rows of zeros are excluded.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
    >>> [layer.round(4).tolist() for layer in head_entropy(record.stacks["self"])]
    [[0.3466]]
    """
    stack = stack_of(stack)
    _need_weights(stack, "entropies")
    measured = []
    for layer, num_heads in zip(stack.layers, stack.heads_per_layer, strict=True):
        entropies = np.full(num_heads, np.nan)
        for head in range(num_heads):
            total, count = 0.0, 0
            for rows in row_blocks(stack, max_queries):
                [(_, block)] = weights_of_some(stack, layer, [head], rows)
                weights = block[0].astype(np.float64)
                sums = weights.sum(axis=1)
                weights = weights[sums > 0] / sums[sums > 0, None]
                logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
                total -= float((weights * logarithms).sum())
                count += len(weights)
            # If a rounded weight is larger than 1, the entropy is negative. Return 0 instead.
            entropies[head] = max(0.0, total / count) if count else np.nan
        measured.append(entropies)
    return measured


def uniform_scores(
    stack: AttentionStack | AttentionRecord, pattern: str, *, max_queries: int | None = None
) -> list[Scores]:
    """Compute the scores of uniform attention, the baseline of `head_scores` and `head_entropy`.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack with the tokens and masks, or a record, whose first stack is used.
    pattern : str
        One of `PATTERNS`, or ``"entropy"``.
    max_queries : int, optional
        As for `head_scores`.

    Returns
    -------
    list of ndarray of float64
        Scores in the form of `head_scores`, for heads that attend equally to all keys that the mask
        allows.

    Raises
    ------
    TypeError, ValueError
        As for `head_scores`.

    Notes
    -----
    If query i may attend to n keys, its weight on each of them is 1 / n. Attention sinks are
    ignored.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> [layer.tolist() for layer in uniform_scores(record, "previous token")]
    [[0.5]]
    """
    stack = stack_of(stack)
    entropy = pattern == "entropy"
    _need_weights(stack, "scores of uniform attention")
    if not entropy:
        _check_pattern(stack, pattern)
    codes = token_codes(stack) if pattern in _WITH_REPETITIONS else None
    measured = []
    for layer, num_heads in zip(stack.layers, stack.heads_per_layer, strict=True):
        scores = np.full(num_heads, np.nan)
        for head in range(num_heads):
            total, count = 0.0, 0
            for rows in row_blocks(stack, max_queries):
                allowed = allowed_pairs(stack, layer, [head], rows)[0]
                keys = allowed.sum(axis=1)
                if entropy:
                    total += float(np.log(keys[keys > 0]).sum())
                    count += int(np.count_nonzero(keys))
                    continue
                pairs = pairs_of(pattern, rows, len(stack.key_tokens), codes) & allowed
                total += float((pairs.sum(axis=1) / np.maximum(keys, 1)).sum())
                count += int(np.count_nonzero(pairs.any(axis=1)))
            scores[head] = total / count if count else np.nan
        measured.append(scores)
    return measured


def scores_of_heads(
    stack: AttentionStack,
    patterns: Sequence[str],
    layer: int,
    heads: Sequence[int],
    max_queries: int | None = None,
    *,
    pace: Pace | None = None,
    pair_cache: dict[int, list[PairIndices]] | None = None,
) -> Scores:
    """Compute the scores of `patterns` in `heads` of a layer.

    `pair_cache` stores the pairs of all `patterns` in a block of rows, by the first row. Pass the
    same cache for all layers of a stack.

    Returns
    -------
    ndarray of float64, (patterns, heads)
        Scores as `head_scores` returns them.
    """
    for pattern in patterns:
        _check_pattern(stack, pattern)
    codes = token_codes(stack) if any(name in _WITH_REPETITIONS for name in patterns) else None
    num_keys = len(stack.key_tokens)
    pace = pace or _pace(stack, len(heads), max_queries)
    mass = np.zeros((len(patterns), len(heads)))
    counts = np.zeros((len(patterns), len(heads)), np.int64)
    for rows in row_blocks(stack, max_queries):
        pattern_pairs = None if pair_cache is None else pair_cache.get(int(rows[0]))
        if pattern_pairs is None:
            pattern_pairs = [
                PairIndices.of(pairs_of(name, rows, num_keys, codes)) for name in patterns
            ]
        if (
            pair_cache is not None
            and sum(len(pairs_of_pattern.indices) for pairs_of_pattern in pattern_pairs)
            <= _MAX_CACHED_PAIRS
        ):
            pair_cache[int(rows[0])] = pattern_pairs
        allowed = allowed_pairs(stack, layer, heads, rows)
        for number, pairs in enumerate(pattern_pairs):
            counts[number] += pairs.count_rows(allowed)
        for heads_slice, weights in weights_of_some(stack, layer, heads, rows):
            for number, pairs in enumerate(pattern_pairs):
                mass[number, heads_slice] += pairs.sums_of(weights)
            pace.advance(weights.size, len(weights))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, mass / counts, np.nan)


def stack_of(value: object) -> AttentionStack:
    """Return a stack itself, or the first stack of a record. Raise TypeError for other values."""
    # Import the record here, because it imports torch, and functions of arrays do not need torch.
    from attnviz.record.record import AttentionRecord, AttentionStack

    if isinstance(value, AttentionStack):
        return value
    if isinstance(value, AttentionRecord):
        return value.stack()
    if isinstance(value, list | tuple) and value and isinstance(value[0], AttentionRecord):
        raise TypeError(f"stack is a list of {len(value)} records. Pass one of them, records[i].")
    if isinstance(value, Mapping):
        raise TypeError("stack is a mapping. Pass one of its stacks, record.stacks[name].")
    raise TypeError(
        "stack must be a record, such as attnviz.extract(model, text) returns, or one of its "
        f'stacks, record.stacks["self"]; got {type(value).__name__}. Arrays of weights are '
        "measured by attnviz.analysis.previous_token and similar functions, or become a record "
        "with attnviz.AttentionRecord.from_weights(weights, tokens)."
    )


def _need_weights(stack: AttentionStack, what: str) -> None:
    # Import the stack here, because it imports torch, and functions of arrays do not need torch.
    from attnviz.record.stack import check_weights

    check_weights(stack, what)


def _check_pattern(stack: AttentionStack, pattern: str) -> None:
    _need_weights(stack, "scores of patterns")
    possible = PATTERNS if one_text(stack) else _FOR_ANY_STACK
    if pattern not in PATTERNS:
        raise ValueError(
            f"pattern={pattern!r} does not exist. Pass one of {', '.join(map(repr, possible))} for "
            f"stack {stack.name!r}."
        )
    if pattern not in possible:
        raise ValueError(
            f"pattern={pattern!r} compares positions in one text, but the queries and keys of "
            f"stack {stack.name!r} are different tokens. Pass one of "
            f"{', '.join(map(repr, possible))}."
        )


def _measured(
    stack: AttentionStack, patterns: Sequence[str], max_queries: int | None
) -> dict[str, list[Scores]]:
    measured: dict[str, list[Scores]] = {pattern: [] for pattern in patterns}
    pace = _pace(stack, sum(stack.heads_per_layer), max_queries)
    pair_cache: dict[int, list[PairIndices]] = {}
    for layer, num_heads in zip(stack.layers, stack.heads_per_layer, strict=True):
        heads = range(num_heads)
        shares = scores_of_heads(
            stack, patterns, layer, heads, max_queries, pace=pace, pair_cache=pair_cache
        )
        for pattern, scores in zip(patterns, shares, strict=True):
            measured[pattern].append(scores)
    return measured


def _pace(stack: AttentionStack, num_heads: int, max_queries: int | None) -> Pace:
    num_queries = len(stack.query_tokens)
    rows = num_queries if max_queries is None else min(num_queries, max_queries)
    return Pace("scores", num_heads * rows * len(stack.key_tokens))


def weights_of_some(
    stack: AttentionStack, layer: int, heads: Sequence[int], rows: NDArray[np.int64]
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield slices of `heads`, each with the weights of these heads, (heads, rows, keys).

    A slice has a single head, or at most `_MAX_ENTRIES` weights.
    """
    # Import the function here, because its module imports torch.
    from attnviz.record.softmax import as_rows

    attention = stack.attention(layer)
    together = max(1, _MAX_ENTRIES // max(_MIN_ENTRIES_PER_HEAD, len(rows) * attention.num_keys))
    for start in range(0, len(heads), together):
        heads_slice = slice(start, start + together)
        yield heads_slice, attention.block(heads[heads_slice], as_rows(rows)).cpu().numpy()


def allowed_pairs(
    stack: AttentionStack, layer: int, heads: Sequence[int], rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether the mask allows each pair, (heads, rows, keys).

    The first axis may have length 1 if all heads have the same mask.
    """
    from attnviz.record.softmax import as_rows

    flags: NDArray[np.bool_] = stack.attention(layer).allowed(heads, as_rows(rows)).numpy()
    return flags


def row_blocks(stack: AttentionStack, max_queries: int | None) -> Iterator[NDArray[np.int64]]:
    """Yield query positions in blocks. A block has one query or up to `_MAX_ENTRIES` pairs.

    At most `max_queries` positions are selected, or all positions if `max_queries` is None.
    """
    from attnviz.record.rows import sample_queries

    num_queries = len(stack.query_tokens)
    rows = (
        np.arange(num_queries) if max_queries is None else sample_queries(num_queries, max_queries)
    )
    step = max(1, _MAX_ENTRIES // max(1, len(stack.key_tokens)))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def one_text(stack: AttentionStack) -> bool:
    """Whether queries and keys are the same tokens."""
    # Compare the objects, because the two texts of cross attention may have equal tokens.
    return stack.key_tokens is stack.query_tokens


def token_codes(stack: AttentionStack) -> NDArray[np.int64]:
    """Return a number for each key token. Tokens with the same id have the same number.

    If ids are unknown, texts are compared instead.
    """
    tokens = stack.key_tokens
    return codes_of(tokens.text if tokens.ids is None else tokens.ids, len(tokens))
