"""Models in half precision: how far their own weights lie from a float32 softmax."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from attnviz.weights import QueryKeyAttention

__all__ = ["half_precision_note"]

_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
# So many queries of one head a layer are enough to tell how much rounding does.
_ROWS = 8


def half_precision_note(dtype: torch.dtype, attentions: Iterable[object]) -> str | None:
    """Say what a record's weights are where the model computes in half precision.

    Parameters
    ----------
    dtype : dtype
        The model's.
    attentions : iterable of object
        What is kept of its layers.

    Returns
    -------
    str or None
        With the largest difference from weights in the model's own precision, measured on some
        queries of a head of each layer; None where the model computes in another dtype.
    """
    if dtype not in _NAMES:
        return None
    note = (
        f"The model computes in {_NAMES[dtype]}: weights are a float32 softmax of its queries and "
        "keys"
    )
    differences = [
        _difference(attention, number % attention.num_heads)
        for number, attention in enumerate(attentions)
        if isinstance(attention, QueryKeyAttention) and attention.queries.dtype == dtype
    ]
    if not differences:
        return f"{note}."
    return (
        f"{note}; rounded as in eager attention they would differ by up to "
        f"{max(differences):.2g} (measured on {_ROWS} queries of a head a layer)."
    )


def _difference(attention: QueryKeyAttention, head: int) -> float:
    """Largest difference of a weight when each step is rounded to the dtype of the queries."""
    rows = slice(max(0, attention.num_queries - _ROWS), attention.num_queries)
    queries, keys = attention.queries[head, rows], attention.keys[attention.key_head(head)]
    dtype = queries.dtype
    exact = (queries.float() @ keys.float().T) * attention.scale
    rounded = (queries @ keys.T * attention.scale).to(dtype).float()
    logits = attention.logits(head, rows)
    if attention.softcap is None:
        logits = (logits + (rounded - exact).to(logits.device)).to(dtype).float()
    own = torch.softmax(logits, dim=1).to(dtype).float()
    found = torch.softmax(attention.logits(head, rows), dim=1)
    return float((own - found).nan_to_num(0.0).abs().max())
