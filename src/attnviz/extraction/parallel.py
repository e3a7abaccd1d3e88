"""Functions that reject models whose heads, layers or tokens are split across processes.

Data parallel models (DDP, FSDP) are not affected: every process has all heads and tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from attnviz.extraction.modules import attention_modules


def check_parallel(model: nn.Module) -> None:
    """Raise NotImplementedError if this process has only a part of the tokens, layers or heads."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return
    # Two functions of torch split tokens. `context_parallel` replaces torch's attention function,
    # and `parallelize_module` adds hooks to modules. The new function and the hooks are defined in
    # the ring attention of torch, which `_is_ring` recognises.
    hooks = [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]
    if any(map(_is_ring, [functional.scaled_dot_product_attention, *hooks])):
        raise NotImplementedError(
            "model: it runs in context parallel, so each process has a part of the tokens and "
            "of the weights, which cannot be shown yet. Call attnviz outside of "
            "context_parallel, with the whole text."
        )
    part = None
    if getattr(getattr(model, "_pp_stage", None), "pp_size", 1) > 1:
        part = "layers"
    elif (getattr(model, "_tp_size", None) or 1) > 1 or _has_split_heads(model):
        part = "attention heads"
    if part is not None:
        raise NotImplementedError(
            f"model: its {part} are split across processes, and this process has a part of them, "
            "which cannot be shown. Load the whole model in one process (from_pretrained without "
            "tp_plan and without a distributed_config; device_map='auto' spreads its layers over "
            "the devices of one process) and pass it to attnviz."
        )


def _is_ring(function: Any) -> bool:
    """Whether a function is from torch's ring attention, which splits tokens across processes."""
    function = getattr(function, "func", function)
    home = str(getattr(function, "__module__", ""))
    return home.startswith("torch.distributed.tensor.experimental.")


def _has_split_heads(model: nn.Module) -> bool:
    """Whether parameters of any attention module are split across processes, other than by FSDP."""
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    gathered = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, FSDPModule)
        for parameter in module.parameters()
    }
    for entry in attention_modules(model):
        for parameter in entry.module.parameters():
            if isinstance(parameter, DTensor):
                placements = enumerate(parameter.placements)
                divided = [axis for axis, placed in placements if not placed.is_replicate()]
                # The processes form a grid with one or more axes (the mesh). `divided` has the axes
                # along which the parameter is split. For a parameter of FSDP, the first of these
                # axes does not count, because FSDP gathers the parameter along it before use.
                divided = divided[id(parameter) in gathered :]
                if any(parameter.device_mesh.size(axis) > 1 for axis in divided):
                    return True
    return False
