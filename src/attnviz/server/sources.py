"""Where a produced token came from, as a view says it: the keys that all heads look at most.

``js/src/ui/generated-token/sources.tsx`` shows it.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from attnviz.record.sources import sources_of_query
from attnviz.record.stack import AttentionStack
from attnviz.utils.progress import Steps

__all__ = ["SourceKey", "SourcesHeader", "affords_sources", "sources_header"]

#: Keys that a view lists.
KEYS = 8
# A page contains the sources of all its answer's tokens, where that takes a second or two.
_MOST_WEIGHTS = 50_000_000
_MOST_TOKENS = 1000
_DIGITS = 5


class SourceKey(TypedDict):
    """One of the keys.

    Attributes
    ----------
    key : int
        Its position.
    mean : float
        Its mean weight over all heads.
    even : float
        What it would have if each head attended evenly to all keys that its mask allows.
    layer, head : int
        The head that gives it most.
    most : float
        What that head gives it.
    """

    key: int
    mean: float
    even: float
    layer: int
    head: int
    most: float


class SourcesHeader(TypedDict):
    """What all heads attend to from one query.

    Attributes
    ----------
    query : int
        The query.
    keys : list of SourceKey
        The keys with the largest means, the largest first.
    heads, layers : int
        How many heads of how many layers the mean is over.
    rest : float
        What all other keys have together, without what goes to no key.
    """

    query: int
    keys: list[SourceKey]
    heads: int
    layers: int
    rest: float


def sources_header(stack: AttentionStack, query: int, count: int = KEYS) -> Steps[SourcesHeader]:
    """The keys that all heads look at most from a query, in steps.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
    >>> from attnviz.utils.progress import completed
    >>> found = completed(sources_header(record.stack(), 1))
    >>> [(each["key"], each["mean"]) for each in found["keys"]]
    [(1, 0.75), (0, 0.25)]
    """
    found = yield from sources_of_query(stack, query)
    keys: list[SourceKey] = []
    top = found.top(count)
    for key in top.tolist():
        layer, head = found.heads[found.strongest_heads[key]].tolist()
        keys.append(
            {
                "key": key,
                "mean": round(float(found.means[key]), _DIGITS),
                "even": round(float(found.even[key]), _DIGITS),
                "layer": layer,
                "head": head,
                "most": round(float(found.most[key]), _DIGITS),
            }
        )
    rest = max(0.0, float(found.means.sum() - found.means[top].sum()))
    return {
        "query": query,
        "keys": keys,
        "heads": len(found.heads),
        "layers": len(stack.layers),
        "rest": round(rest, _DIGITS),
    }


def affords_sources(stack: AttentionStack) -> bool:
    """Whether a page contains the sources of all tokens that were produced.

    >>> import attnviz as av
    >>> weights = [[[[1.0, 0.0], [0.25, 0.75]]]]
    >>> affords_sources(av.AttentionRecord.from_weights(weights, ["a", "b"]).stack())
    True
    """
    count = len({each.query for each in stack.query_tokens.predictions})
    heads = sum(stack.heads_per_layer)
    weights = int(np.prod([count, heads, len(stack.key_tokens)], dtype=np.int64))
    return count <= _MOST_TOKENS and weights <= _MOST_WEIGHTS
