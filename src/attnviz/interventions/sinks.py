"""Share of heads in which a token is an attention sink.

Many heads of trained models give most of their weight to one token, usually the first, if they have
nothing to read (Xiao et al. 2024, arXiv 2309.17453). Without this token, these heads read other
tokens instead, so its removal changes more than what the token says.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.softmax import row_tiles
from attnviz.record.stack import AttentionStack

# A token is a sink of a head if its mean weight exceeds that of uniform attention by more than this
# share of the largest possible excess.
_EXCESS = 0.3


def sink_shares(stack: AttentionStack) -> NDArray[np.float64] | None:
    """Return for each token the share of the heads of all layers in which it is a sink, (tokens,).

    A token is a sink of a head if its weight, averaged over all other queries that may attend to
    it, is much larger than with uniform attention. If w is the mean weight and u that of uniform
    attention, ``(w - u) / (1 - u)`` must exceed 0.3. Tokens to which no other query may attend have
    the share 0. Return None if the stack has no self-attention with a softmax.
    """
    if stack.signed or stack.linear or stack.ranks or stack.key_tokens is not stack.query_tokens:
        return None
    is_sink = np.concatenate([_is_sink(stack.attention(number)) for number in stack.layers])
    return np.asarray(is_sink.mean(axis=0), dtype=np.float64)


def _is_sink(attention: LayerAttention) -> NDArray[np.bool_]:
    """Return for each head and key whether the key is a sink, (heads, keys)."""
    heads, count = range(attention.num_heads), attention.num_keys
    weight, uniform, queries = torch.zeros(3, len(heads), count, dtype=torch.float64).unbind()
    for rows in row_tiles(slice(0, count), len(heads) * count):
        allowed = attention.allowed(heads, rows)
        share = allowed.double() / allowed.sum(dim=-1, keepdim=True).clamp(min=1)
        others = allowed.clone()
        own = torch.arange(rows.start, rows.stop)
        others[:, own - rows.start, own] = False
        weight += (attention.block(heads, rows).cpu().double() * others).sum(dim=1)
        uniform += (share * others).sum(dim=1)
        queries += others.sum(dim=1)
    excess = (weight - uniform) / (queries - uniform).clamp(min=1e-9)
    return ((queries > 0) & (excess > _EXCESS)).numpy()
