"""Functions that reject models whose heads, layers or tokens are split across processes.

Data parallel models (DDP, FSDP) are not affected: every process has all heads and tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from attnviz.extraction.modules import attention_modules

_WHOLE_MODEL = (
    "Load the whole model in one process (from_pretrained without tp_plan and without a "
    "distributed_config; device_map='auto' spreads its layers over the devices of one "
    "process) and pass it to attnviz."
)


def check_parallel(model: nn.Module) -> None:
    """Raise NotImplementedError if this process has only a part of the tokens, layers or heads."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return
    if _in_context_parallel(model):
        raise NotImplementedError(
            "model: it runs in context parallel, so each process has a part of the tokens and "
            "of the weights, which cannot be shown yet. Call attnviz outside of "
            "context_parallel, with the whole text."
        )
    if getattr(getattr(model, "_pp_stage", None), "pp_size", 1) > 1:
        raise NotImplementedError(
            "model: its layers are split across processes (pipeline parallel), and this "
            f"process has a part of them, which cannot be shown yet. {_WHOLE_MODEL}"
        )
    num_processes = _processes_of_heads(model)
    if num_processes > 1:
        raise NotImplementedError(
            f"model: its attention heads are split across {num_processes} processes (tensor "
            "parallel), and this process has a part of them, which cannot be shown. "
            f"{_WHOLE_MODEL}"
        )


def _in_context_parallel(model: nn.Module) -> bool:
    """Whether torch has replaced attention by ring attention, which splits the tokens."""
    # `context_parallel` replaces the attention function. `parallelize_module` adds hooks instead.
    hooks = (hook for module in model.modules() for hook in module._forward_pre_hooks.values())
    return _is_ring(functional.scaled_dot_product_attention) or any(map(_is_ring, hooks))


def _is_ring(function: Any) -> bool:
    function = getattr(function, "func", function)
    home = str(getattr(function, "__module__", ""))
    return home.startswith("torch.distributed.tensor.experimental.")


def _processes_of_heads(model: nn.Module) -> int:
    """Return across how many processes the heads are split: 1 if this process has all heads."""
    from torch.distributed.tensor import DTensor

    by_fsdp = _parameters_of_fsdp(model)
    for entry in attention_modules(model):
        for parameter in entry.module.parameters():
            if isinstance(parameter, DTensor):
                mesh = parameter.device_mesh
                divided = [
                    axis
                    for axis, placement in enumerate(parameter.placements)
                    if not placement.is_replicate()
                ]
                # FSDP splits parameters along the first split axis of the mesh, but gathers them
                # before use. Therefore this axis does not count for parameters of FSDP.
                split_axes = [
                    axis for axis in divided[id(parameter) in by_fsdp :] if mesh.size(axis) > 1
                ]
                if split_axes:
                    return mesh.size(split_axes[-1])
    # In older versions of transformers, the parameters are plain tensors, and `_tp_size` is the
    # number of processes.
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return 1
    return getattr(model, "_tp_size", None) or 1


def _parameters_of_fsdp(model: nn.Module) -> set[int]:
    from torch.distributed import fsdp

    # torch before 2.6 does not have FSDPModule.
    kind = getattr(fsdp, "FSDPModule", ())
    return {
        id(parameter)
        for module in model.modules()
        if isinstance(module, kind)
        for parameter in module.parameters()
    }
