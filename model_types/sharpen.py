"""Sharpen a random model: scale its queries and keys until its attention has clear maxima.

A random model attends almost uniformly. Attention weights that are computed with a wrong formula
would then hardly differ from the model's weights, and a comparison would not find the error.

A row has the attention weights of one query. The peak of an attention module is the median, over
its rows, of the largest weight in a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

# Names of modules that make queries or keys, and of norms of queries or keys. Only kv_b_proj also
# makes values.
_ALONE = re.compile(
    r"^(q|k|query|key|q_proj|k_proj|q_lin|k_lin|to_q|to_k|w_q|w_k|wq|wk|linear_q|linear_k|q_linear"
    r"|k_linear|query_proj|key_proj|q_attn|fc_q|fc_k|query_layer|key_layer|q_b_proj|kv_b_proj"
    r"|linear_query|linear_key|q_up_proj|k_up_proj|query_global|key_global|project_q|project_k"
    r"|q_head|sr_q|convolution_projection_query|convolution_projection_key"
    r"|q_norm|k_norm|q_layernorm|k_layernorm|query_norm|key_norm|q_ln|k_ln|norm_q|norm_k"
    r"|query_layernorm|key_layernorm|q_bproj|queries|keys|query_dense|key_dense|content_q)$",
    re.IGNORECASE,
)
# Names of modules that make at least two of queries, keys and values.
_FUSED = re.compile(
    r"^(qkv|qkv_proj|c_attn|query_key_value|in_proj|wqkv|qkv_linear|kv|kv_proj|to_kv|att_proj"
    r"|to_qkv|qkv_bias|query_key|kv_linear|attn_qkv|in_proj_qkv|w_pack|qk|qk_proj|proj_qkv)$",
    re.IGNORECASE,
)
# Names of parameters that belong to the attention module itself, and not to a projection: "q", "k",
# "r" (keys of relative positions) and "seg_embed" in XLNet, and "in_proj_weight" in
# `torch.nn.MultiheadAttention`.
_PARAMETERS = re.compile(r"^(q|k|r|in_proj_weight|seg_embed)$")
# Target range of the peak.
_AIM = (0.3, 0.9)
# Maximum number of scalings.
_TRIES = 9

# Attention weights by the name of the module that computed them. The key "" has the weights of the
# whole model.
Measured = Mapping[str, Sequence[torch.Tensor]]


@dataclass
class _Group:
    """Parameters that are scaled together.

    These parameters make the queries and keys of one attention module. One more group has the
    parameters of all attention modules whose attention weights are not known.

    Attributes
    ----------
    parameters : list of Tensor
        Parameters of query and key projections, and of norms of queries and keys.
    step : float
        Factor by which the next scaling multiplies or divides the parameters.
    below : bool or None
        Whether the peak was below the target range before the last scaling. None before the first
        scaling.
    """

    parameters: list[torch.Tensor] = field(default_factory=list)
    step: float = 2.0
    below: bool | None = None

    def adapt(self, current: float) -> bool:
        """Scale the parameters if `current`, the peak, is outside the target range.

        If the last scaling moved the peak to the other side of the range, first replace `step` by
        its square root. Do not scale the parameters if `current` is not finite. Return whether they
        were scaled.
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
    """Scale queries and keys until the peak of each attention module is in the target range.

    `measure` runs the model and returns its attention weights by module (see `Measured`). If it
    does not return the weights of a module, the module is scaled by the peak of the whole model.

    The parameters are scaled at most `_TRIES` times. If the peak of the whole model is infinite or
    NaN after a scaling, the scaling is undone and the function returns.
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
            # The peak is no longer finite, so restore the previous parameters.
            parameters = [parameter for group in groups.values() for parameter in group.parameters]
            with torch.no_grad():
                for parameter, values in zip(parameters, before, strict=True):
                    parameter.copy_(values)
            return


def _query_key_parameters(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name of the module, parameter) for each parameter that makes queries or keys.

    If a parameter also makes values, the yielded tensor is its part for queries and keys (see
    `_part`).
    """
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
        # The module itself has no weight, but contains modules that have one: a convolution and a
        # norm (CvT), or a linear layer (Gemma 4's vision and sound encoders). Take only matrices
        # and kernels, not biases or the parameters of norms.
        yield from (parameter.data for parameter in module.parameters() if parameter.dim() >= 2)
    for own, parameter in module.named_parameters(recurse=False):
        if own == "in_proj_weight":
            yield parameter.data[: 2 * len(parameter) // 3]
        elif _PARAMETERS.match(own) and parameter.dim() >= 2:
            yield parameter.data


def _part(name: str, module: nn.Module, weight: torch.Tensor) -> torch.Tensor:
    """Return the part of `weight` that makes queries and keys.

    `weight` is the weight of a linear layer, `module`, that also makes values. If it is unknown
    which rows or columns make the values, return the whole weight.
    """
    if name == "c_attn" and not isinstance(module, nn.Linear):
        return weight[:, : 2 * weight.shape[1] // 3]
    if name in ("qkv", "Wqkv", "to_qkv") and weight.shape[0] == 3 * weight.shape[1]:
        return weight[: 2 * weight.shape[0] // 3]
    return weight


def peak(weights: Iterable[torch.Tensor]) -> float:
    """Return the median, over rows, of the largest weight in a row.

    `weights` has one tensor for each layer, whose last axis has the keys. Only rows with at least
    three nonzero weights count.

    Return NaN if no tensor has three or more keys, or if all weights are NaN. If there are three or
    more keys, but no row has three nonzero weights, the logits are too large. Then return 1, so
    that `sharpen` reduces the logits.
    """
    maxima: list[NDArray[np.float32]] = []
    sharpest = float("nan")
    for layer in weights:
        if layer.dim() < 2 or layer.shape[-1] < 3:
            continue
        rows = layer.detach().float().reshape(-1, layer.shape[-1])
        if not rows.isnan().all():
            sharpest = 1.0
        maxima.append(rows[(rows > 0).sum(-1) >= 3].max(-1).values.numpy())
    values = np.concatenate(maxima) if maxima else np.empty(0)
    return float(np.median(values)) if len(values) else sharpest
