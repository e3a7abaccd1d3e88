"""Shares of passages: how much of the weight of each query falls on each passage of the text.

For weights A and a passage S, the share of query i is the sum of A[i, j] over j in S. Its baseline
is the share of uniform attention: the keys of S that i may attend to, divided by all such keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import stack_of
from attnviz.analysis.measures import SINK_WEIGHT
from attnviz.record.attention import LayerAttention
from attnviz.record.edited import UniformWeights
from attnviz.record.record import AttentionRecord
from attnviz.record.softmax import as_rows
from attnviz.record.stack import AttentionStack, require_weights
from attnviz.record.units import in_units
from attnviz.utils.arguments import as_list

Shares = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PassageShares:
    """Shares of the passages of a text in the weights of some heads and queries.

    Attributes
    ----------
    names : tuple of str
        Names of the passages.
    queries : ndarray of int64, (queries,)
        Positions of the queries.
    shares : ndarray of float64, (heads, queries, passages)
        Share of each passage in the weights of each query, from 0 to 1. NaN for a query that has
        weight only on the first token, if this token is left out.
    uniform : ndarray of float64, (heads, queries, passages)
        The same for uniform attention to the keys that the mask allows.
    lookback : ndarray of float64, (heads, queries)
        Mean weight on the prompt, divided by the sum of it and the mean weight on the answer so far
        (Chuang et al. 2024, arXiv 2407.07071). NaN unless the query is a token of the answer.
    without_first : bool
        Whether the first token is left out of shares and baselines, because it is a sink.

    Examples
    --------
    >>> one = np.full((1, 2, 1), 0.5)
    >>> PassageShares(("doc",), np.arange(2), one, one, one[..., 0], False).summary("shares")
    (array([0.5]), array([0.]))
    """

    names: tuple[str, ...]
    queries: NDArray[np.int64]
    shares: Shares
    uniform: Shares
    lookback: Shares
    without_first: bool

    def summary(self, of: str = "shares") -> tuple[Shares, Shares]:
        """Return the mean over heads and queries, and its standard error over queries.

        Parameters
        ----------
        of : {"shares", "uniform", "lookback"}
            Attribute that is summarised.

        Returns
        -------
        tuple of ndarray
            Mean and standard error, (passages,), or () for ``"lookback"``. The error is NaN with
            fewer than two queries.
        """
        values = getattr(self, of).mean(axis=0)
        values = values[~np.isnan(values)] if of == "lookback" else values
        if len(values) < 2:
            return values.sum(axis=0) if len(values) else np.array(np.nan), values.sum(
                axis=0
            ) * np.nan
        return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def passage_shares(
    stack: AttentionStack | AttentionRecord,
    layer: int,
    heads: int | Iterable[int] | None = None,
    *,
    queries: Sequence[int] | None = None,
    without_first: bool | None = None,
) -> PassageShares:
    """Measure how much of the weight of each query falls on each passage.

    Parameters
    ----------
    stack : AttentionStack or AttentionRecord
        Stack whose keys have passages (`AttentionRecord.with_passages`), or a record, whose first
        stack is used.
    layer : int
        Layer number. Negative numbers count from the end.
    heads : int or iterable of int, optional
        Head numbers. All by default.
    queries : sequence of int, optional
        Positions of the queries. By default, these are the queries that predicted the tokens of the
        answer (`Tokens.predictions`), or all queries without an answer.
    without_first : bool, optional
        Whether to leave out the first token, to which heads attend that do not need attention. By
        default, it is left out if its mean weight exceeds 0.3.

    Returns
    -------
    PassageShares

    Raises
    ------
    IndexError
        If a layer or head does not exist.
    TypeError, ValueError
        If the keys have no passages, or the stack has signed values or ranks.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> record = record.with_passages({"doc": (0, 1), "question": (1, 2)})
    >>> shares = passage_shares(record, layer=0, without_first=False)
    >>> shares.names, shares.shares[0].round(2).tolist()
    (('doc', 'question'), [[1.0, 0.0], [0.4, 0.6]])
    """
    stack = stack_of(stack)
    require_weights(stack, "shares of passages")
    passages = stack.key_tokens.passages
    if not passages:
        raise ValueError(
            f"stack {stack.name!r}: its keys have no passages. Pass record.with_passages({{...}})."
        )
    predictions = stack.query_tokens.predictions
    if queries is None:
        queries = [one.query for one in predictions] or range(len(stack.query_tokens))
    rows = np.asarray(queries, np.int64)
    numbers = range(stack.num_heads(layer)) if heads is None else as_list(heads)
    chosen = [stack.head_number(layer, head) for head in numbers]
    attention = stack.attention(layer)
    # Each passage, the tokens between two passages, and the first token are a unit.
    ends = sorted({0, 1, *(end for one in passages for end in (one.start, one.stop))})
    starts = np.array([end for end in ends if end < attention.num_keys])
    units = [(starts >= one.start) & (starts < one.stop) for one in passages]

    def sums(base: LayerAttention, keys: NDArray[np.int64]) -> Shares:
        grouped = in_units(base, np.arange(attention.num_queries), keys)
        of_units: Shares = grouped.block(chosen, as_rows(rows)).double().cpu().numpy()
        return of_units

    of_model, of_uniform = sums(attention, starts), sums(UniformWeights(attention), starts)
    if without_first is None:
        without_first = bool(of_model[..., 0].mean() > SINK_WEIGHT)
    if without_first:
        of_model, of_uniform = map(_without_first, (of_model, of_uniform))
    lookback = np.full(of_model.shape[:2], np.nan)
    start = predictions[0].query + 1 if predictions else attention.num_keys
    new = np.flatnonzero(rows >= start)
    if len(new) and start < attention.num_keys:
        context, answer = np.moveaxis(sums(attention, np.array([0, start]))[:, new], -1, 0)
        context, answer = context / start, answer / (rows[new] + 1 - start)
        lookback[:, new] = context / (context + answer)
    shares, uniform = (
        np.stack([weights[..., unit].sum(axis=-1) for unit in units], axis=-1)
        for weights in (of_model, of_uniform)
    )
    names = tuple(one.name for one in passages)
    return PassageShares(names, rows, shares, uniform, lookback, without_first)


def _without_first(weights: Shares) -> Shares:
    """Return weights without the first key, divided by their sum. Both are (..., keys)."""
    others = weights.copy()
    others[..., 0] = 0
    sums = others.sum(axis=-1, keepdims=True)
    return others / np.where(sums > 0, sums, np.nan)
