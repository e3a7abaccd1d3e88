"""Models in half precision: how far their own weights lie from a float32 softmax."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from attnviz.record.attention import QueryKeyAttention

__all__ = ["half_precision_note"]

_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
# So many queries of one head a layer are enough to tell how much rounding does.
_ROWS = 8


def half_precision_note(
    attentions: Sequence[tuple[torch.dtype | None, object]],
) -> str | None:
    """Say what a record's weights are where the model computes in half precision.

    Parameters
    ----------
    attentions : sequence of (dtype, object)
        For each of the model's layers in which precision its queries came, and what is kept.

    Returns
    -------
    str or None
        With the largest difference from weights in the model's own precision that is found in a
        sample, some queries of a head of each layer; None where none received half precision.
    """
    halves = {
        number: attention
        for number, (dtype, attention) in enumerate(attentions)
        if isinstance(attention, QueryKeyAttention) and dtype == attention.queries.dtype in _NAMES
    }
    if not halves:
        return None
    worst = max(_difference(each, number % each.num_heads) for number, each in halves.items())
    name = _NAMES[next(iter(halves.values())).queries.dtype]
    return (
        f"The model's attention computes in {name}: weights are a float32 softmax of its queries "
        f"and keys. In a sample, {_ROWS} queries of a head a layer, those rounded as in eager "
        f"attention differ by up to {worst:.2g}; others may by more."
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
