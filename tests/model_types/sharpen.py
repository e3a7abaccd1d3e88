"""Sharpening: queries and keys of a random model are scaled until its rows are peaked.

A random model attends nearly evenly, so that any formula looks right. Here a wrong one shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["peak", "sharpen"]

# Modules that make queries and keys, or queries, keys and values at once; and norms after them.
_ALONE = re.compile(
    r"^(q|k|query|key|q_proj|k_proj|q_lin|k_lin|to_q|to_k|w_q|w_k|wq|wk|linear_q|linear_k|q_linear"
    r"|k_linear|query_proj|key_proj|q_attn|fc_q|fc_k|query_layer|key_layer|q_b_proj|kv_b_proj"
    r"|linear_query|linear_key|q_up_proj|k_up_proj|query_global|key_global|project_q|project_k"
    r"|q_head|sr_q|convolution_projection_query|convolution_projection_key"
    r"|q_norm|k_norm|q_layernorm|k_layernorm|query_norm|key_norm|q_ln|k_ln|norm_q|norm_k"
    r"|query_layernorm|key_layernorm|q_bproj|queries|keys|query_dense|key_dense|content_q)$",
    re.IGNORECASE,
)
_FUSED = re.compile(
    r"^(qkv|qkv_proj|c_attn|query_key_value|in_proj|wqkv|qkv_linear|kv|kv_proj|to_kv|att_proj"
    r"|to_qkv|qkv_bias|query_key|kv_linear|attn_qkv|in_proj_qkv|w_pack|qk|qk_proj|proj_qkv)$",
    re.IGNORECASE,
)
_PARAMETERS = re.compile(r"^(q|k|r|in_proj_weight|seg_embed)$")
_AIM = (0.3, 0.9)
_TRIES = 9

Reference = Iterable[Any]


def sharpen(model: nn.Module, reference: Callable[[], list[torch.Tensor]]) -> float:
    """Scale queries and keys until the median of the rows' largest weights is in the aim.

    Returns that median; nan where the model gives no weights.
    """
    places = list(_places(model))
    found = peak(reference())
    if not places:
        return found
    step = 2.0
    low: bool | None = None
    for _ in range(_TRIES):
        if not np.isfinite(found) or _AIM[0] <= found <= _AIM[1]:
            break
        below = found < _AIM[0]
        if low is not None and below != low:
            step = step**0.5
        low = below
        factor = step if below else 1 / step
        before = [place.detach().clone() for place in places]
        with torch.no_grad():
            for place in places:
                place.mul_(factor)
        after = peak(reference())
        if not np.isfinite(after):
            with torch.no_grad():
                for place, values in zip(places, before, strict=True):
                    place.copy_(values)
            break
        found = after
    return found


def _places(model: nn.Module) -> Iterator[torch.Tensor]:
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        weight = getattr(module, "weight", None)
        if not isinstance(weight, torch.Tensor):
            if isinstance(module, nn.Module) and _ALONE.match(last):
                # Convolution and norm in a sequence (CvT, MobileViT).
                yield from (p for n, p in module.named_parameters() if p.dim() >= 2)
            for own, parameter in module.named_parameters(recurse=False):
                if own == "in_proj_weight":
                    yield parameter.data[: 2 * len(parameter) // 3]
                elif _PARAMETERS.match(own) and parameter.dim() >= 2:
                    yield parameter.data
            continue
        if _ALONE.match(last):
            yield weight.data
        elif _FUSED.match(last):
            yield from _part(last, module, weight.data)


def _part(name: str, module: nn.Module, weight: torch.Tensor) -> Iterator[torch.Tensor]:
    """The part of a fused projection that makes queries and keys, where it comes first."""
    if name == "c_attn" and not isinstance(module, nn.Linear):
        yield weight[:, : 2 * weight.shape[1] // 3]
    elif name in ("qkv", "Wqkv", "to_qkv") and weight.shape[0] == 3 * weight.shape[1]:
        yield weight[: 2 * weight.shape[0] // 3]
    else:
        yield weight


def peak(weights: Iterable[torch.Tensor | None]) -> float:
    """Median of the largest weight of every row that may attend to three keys or more."""
    found: list[NDArray[np.float32]] = []
    for layer in weights:
        if layer is None or layer.dim() < 2 or layer.shape[-1] < 3:
            continue
        rows = layer.detach().float().reshape(-1, layer.shape[-1])
        rows = rows[(rows > 0).sum(-1) >= 3]
        found.append(rows.max(-1).values.numpy() if len(rows) else np.empty(0, np.float32))
    values = np.concatenate(found) if found else np.empty(0)
    return float(np.median(values)) if len(values) else float("nan")
