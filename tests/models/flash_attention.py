"""Functions of flash attention 3 with its names and signatures, computed by torch on any device.

transformers calls them as it calls the package `flash_attn_interface`, which needs a GPU.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

Tensor = torch.Tensor
NAME = "flash_attn_interface"


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
) -> Tensor:
    """Compute the attention of one text. Tensors are (tokens, heads, head_dim)."""
    groups = query.shape[1] // key.shape[1]
    queries = query.float().transpose(0, 1)
    keys, values = (
        tensor.float().transpose(0, 1).repeat_interleave(groups, dim=0) for tensor in (key, value)
    )
    logits = queries @ keys.mT * (softmax_scale or query.shape[-1] ** -0.5)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    # The last query is the same token as the last key.
    own = torch.arange(len(query))[:, None] + len(key) - len(query)
    distance = torch.arange(len(key)) - own
    left, right = window_size[0], 0 if causal else window_size[1]
    hidden = (distance > right) & (right >= 0) | (-distance > left) & (left >= 0)
    weights = torch.softmax(logits.masked_fill(hidden.to(logits.device), -torch.inf), dim=-1)
    return (weights @ values).transpose(0, 1).to(query.dtype)


def flash_attn_func(  # noqa: PLR0917  # the signature of the package
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Any = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Tensor:
    options: Any = {"causal": causal, "window_size": window_size, "softcap": softcap}
    texts = zip(q, k, v, strict=True)
    return torch.stack(
        [_attention(*text, softmax_scale=softmax_scale, **options) for text in texts]
    )


def flash_attn_varlen_func(  # noqa: PLR0917
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Any = None,
    seqused_k: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: Any = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Tensor:
    options: Any = {"causal": causal, "window_size": window_size, "softcap": softcap}
    sizes = (cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist())
    texts = zip(q.split(sizes[0]), k.split(sizes[1]), v.split(sizes[1]), strict=True)
    return torch.cat([_attention(*text, softmax_scale=softmax_scale, **options) for text in texts])


def package() -> ModuleType:
    """Return a module with the functions that transformers imports."""
    module = ModuleType(NAME)
    vars(module).update(
        flash_attn_func=flash_attn_func,
        flash_attn_varlen_func=flash_attn_varlen_func,
        flash_attn_with_kvcache=None,
    )
    return module
