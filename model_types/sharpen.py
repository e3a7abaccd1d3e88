"""Sharpen a random model: scale its queries and keys until rows of weights have clear maxima.

A row has the weights of one query. A random model attends almost uniformly, so weights from a wrong
formula would hardly differ from the right weights. The peak of a module is the median, over its
rows, of the largest weight in a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

# Names of modules that make queries or keys (kv_b_proj also makes values), and of their norms.
_ALONE = re.compile(
    r"^(q|k|query|key|q_proj|k_proj|q_lin|k_lin|to_q|to_k|w_q|w_k|wq|wk|linear_q|linear_k|q_linear"
    r"|k_linear|query_proj|key_proj|q_attn|fc_q|fc_k|query_layer|key_layer|q_b_proj|kv_b_proj"
    r"|linear_query|linear_key|q_up_proj|k_up_proj|query_global|key_global|project_q|project_k"
    r"|q_head|sr_q|convolution_projection_query|convolution_projection_key"
    r"|q_norm|k_norm|q_layernorm|k_layernorm|query_norm|key_norm|q_ln|k_ln|norm_q|norm_k"
    r"|query_layernorm|key_layernorm|q_bproj|queries|keys|query_dense|key_dense|content_q)$",
    re.IGNORECASE,
)
# Names of modules that make two or all of queries, keys and values.
_FUSED = re.compile(
    r"^(qkv|qkv_proj|c_attn|query_key_value|in_proj|wqkv|qkv_linear|kv|kv_proj|to_kv|att_proj"
    r"|to_qkv|qkv_bias|query_key|kv_linear|attn_qkv|in_proj_qkv|w_pack|qk|qk_proj|proj_qkv)$",
    re.IGNORECASE,
)
# Names, other than "weight", of parameters that make queries, keys or positions.
_PARAMETERS = re.compile(r"^(q|k|r|in_proj_weight|seg_embed)$")
# Target range of the peak.
_AIM = (0.3, 0.9)
_TRIES = 9

# Weights by the name of the attention module that computed them. "" has those of the whole model.
Measured = Mapping[str, Sequence[torch.Tensor]]


@dataclass
class _Group:
    """Parameters that make the queries and keys of one attention module.

    One more group has the parameters of all attention modules whose weights are not known.

    Attributes
    ----------
    parameters : list of Tensor
        Weights of the module's query and key projections, and of norms of queries and keys.
    step : float
        Factor by which the next scaling multiplies or divides the parameters.
    below : bool or None
        Whether the `peak` of the module's attention weights was below the target range `_AIM`
        before the last scaling. None before the first scaling.
    """

    parameters: list[torch.Tensor] = field(default_factory=list)
    step: float = 2.0
    below: bool | None = None

    def adapt(self, current: float) -> bool:
        """Scale the parameters if `current`, the peak of the weights, is outside the target range.

        If the last scaling moved the peak to the other side of the range, first replace `step` by
        its square root. Return whether the parameters were scaled. They are not scaled if `current`
        is not finite.
        """
        if not np.isfinite(current) or _AIM[0] <= current <= _AIM[1]:
            return False
        below = current < _AIM[0]
        if self.below is not None and below != self.below:
            self.step = self.step**0.5
        self.below = below
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.mul_(self.step if below else 1 / self.step)
        return True


def sharpen(model: nn.Module, measure: Callable[[], Measured]) -> None:
    """Scale queries and keys until the `peak` of each attention module is in the target range.

    `measure` runs the model and returns its weights by module (see `Measured`). For modules without
    known weights, the peak of the whole model counts. The parameters are scaled at most `_TRIES`
    times. If a scaling makes weights infinite or NaN, it is undone, and the scaling ends.
    """
    measured = measure()
    groups: dict[str, _Group] = {}
    for name, parameter in _query_key_parameters(model):
        owners = [owner for owner in measured if owner and f"{name}.".startswith(f"{owner}.")]
        groups.setdefault(max(owners, key=len, default=""), _Group()).parameters.append(parameter)
    for _ in range(_TRIES):
        before = [parameter.clone() for group in groups.values() for parameter in group.parameters]
        adapted = [group.adapt(peak(measured.get(name, ()))) for name, group in groups.items()]
        if not any(adapted):
            return
        measured = measure()
        if not np.isfinite(peak(measured.get("", ()))):
            # The weights are no longer finite, so restore the previous parameters.
            parameters = [parameter for group in groups.values() for parameter in group.parameters]
            with torch.no_grad():
                for parameter, values in zip(parameters, before, strict=True):
                    parameter.copy_(values)
            return


def _query_key_parameters(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (module name, parameter or part of it) for parameters that make queries or keys."""
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        weight = getattr(module, "weight", None)
        parameters: Iterable[torch.Tensor] = ()
        if not isinstance(weight, torch.Tensor):
            parameters = _in_module(last, module)
        elif _ALONE.match(last):
            parameters = [weight.data]
        elif _FUSED.match(last):
            parameters = [_part(last, module, weight.data)]
        for parameter in parameters:
            yield name, parameter


def _in_module(name: str, module: nn.Module) -> Iterator[torch.Tensor]:
    if _ALONE.match(name):
        # The module is a sequence of a convolution and a norm (CvT, MobileViT).
        yield from (parameter.data for parameter in module.parameters() if parameter.dim() >= 2)
    for own, parameter in module.named_parameters(recurse=False):
        if own == "in_proj_weight":
            yield parameter.data[: 2 * len(parameter) // 3]
        elif _PARAMETERS.match(own) and parameter.dim() >= 2:
            yield parameter.data


def _part(name: str, module: nn.Module, weight: torch.Tensor) -> torch.Tensor:
    """Return the part of a joint projection that makes queries and keys.

    If the layout of the projection is unknown, return the whole weight.
    """
    if name == "c_attn" and not isinstance(module, nn.Linear):
        return weight[:, : 2 * weight.shape[1] // 3]
    if name in ("qkv", "Wqkv", "to_qkv") and weight.shape[0] == 3 * weight.shape[1]:
        return weight[: 2 * weight.shape[0] // 3]
    return weight


def peak(weights: Iterable[torch.Tensor]) -> float:
    """Return the median, over rows, of the largest weight in a row.

    Only rows with at least three nonzero weights count. If rows have three or more keys, but no row
    has three nonzero weights, return 1: then the logits are too large, and `sharpen` reduces them.
    Return NaN if no row has three keys.
    """
    maxima: list[NDArray[np.float32]] = []
    sharpest = float("nan")
    for layer in weights:
        if layer.dim() < 2 or layer.shape[-1] < 3:
            continue
        sharpest = 1.0
        rows = layer.detach().float().reshape(-1, layer.shape[-1])
        maxima.append(rows[(rows > 0).sum(-1) >= 3].max(-1).values.numpy())
    values = np.concatenate(maxima) if maxima else np.empty(0)
    return float(np.median(values)) if len(values) else sharpest
