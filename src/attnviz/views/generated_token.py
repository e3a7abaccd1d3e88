"""How a view walks through the tokens that a model produced: one place, said by three traits.

A token is shown by the row of the query that predicted it, or by the row where it is itself the
query. Which token, by which of the two, and which query is pinned: whichever is set, the others
follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.record.predictions import Prediction

__all__ = ["Walk", "query_of", "settled"]


@dataclass(frozen=True)
class Walk:
    """Where a view stands among the tokens that were produced.

    Attributes
    ----------
    token : int or None
        The pinned query.
    prediction : int or None
        Which of the tokens that were produced.
    as_query : bool
        Whether it is shown where it is itself the query.
    """

    token: int | None
    prediction: int | None
    as_query: bool


def query_of(prediction: Prediction, *, as_query: bool) -> int:
    """Find the query whose row shows a token that was produced.

    Parameters
    ----------
    prediction : Prediction
        The token.
    as_query : bool
        Whether its own row is wanted; that of a token which was never read is none.

    Returns
    -------
    int

    Examples
    --------
    >>> from attnviz.record.predictions import Candidate
    >>> last = Prediction(query=3, token=Candidate(".", 5, 0.9), candidates=(), row=None)
    >>> query_of(last, as_query=True)
    3
    """
    own = prediction.row
    return own if as_query and own is not None else prediction.query


def settled(predictions: Sequence[Prediction], before: Walk, now: Walk) -> Walk:
    """Let the others follow what was set.

    Parameters
    ----------
    predictions : sequence of Prediction
        What the queries of the stack predicted.
    before : Walk
        As it was.
    now : Walk
        As it was set. Where pin and prediction were both set, and don't say the same, the pin
        counts.

    Returns
    -------
    Walk
        The same place in all three; settled again it stays as it is.

    Examples
    --------
    >>> settled([], Walk(None, None, False), Walk(3, 1, False))
    Walk(token=3, prediction=None, as_query=False)
    """
    each = None
    if now.prediction is not None and 0 <= now.prediction < len(predictions):
        each = predictions[now.prediction]
    as_query = now.as_query and not (each is not None and each.row is None)
    if now.token == before.token:
        if each is not None and (now.prediction, now.as_query) != (
            before.prediction,
            before.as_query,
        ):
            return Walk(query_of(each, as_query=as_query), now.prediction, as_query)
        if now.prediction is None and before.prediction is not None:
            return replace(now, token=None)
    if each is not None and query_of(each, as_query=as_query) == now.token:
        return replace(now, as_query=as_query)
    rows = [other.row if now.as_query else other.query for other in predictions]
    found = rows.index(now.token) if now.token is not None and now.token in rows else None
    return replace(now, prediction=found)
