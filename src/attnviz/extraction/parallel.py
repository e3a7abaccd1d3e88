"""Models that are divided over processes in a way that hides heads or tokens from each of them.

Data parallel models (DDP, FSDP) give every process all heads of all tokens, and are read as usual.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from attnviz.extraction.modules import attention_modules

__all__ = ["check_parallel"]

_WHOLE_MODEL = (
    "Load the whole model in each process that extracts (from_pretrained without tp_plan and "
    "without a distributed_config; device_map='auto' spreads its layers over the devices of one "
    "process) and give that to attnviz"
)


def check_parallel(model: nn.Module) -> None:
    """Raise NotImplementedError where this process sees a part of the heads or of the tokens.

    Tensor parallel: each process has some heads, and would number them from 0. Context parallel:
    each process has some tokens.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    if _in_context_parallel(model):
        raise NotImplementedError(
            "model: it runs in context parallel, where each process has a part of the tokens and "
            "of the weights, which cannot be shown yet. Call attnviz outside of context_parallel, "
            "with the whole text"
        )
    split = _heads_are_split(model)
    if split:
        raise NotImplementedError(
            f"model: its attention heads are divided over {split} processes (tensor parallel), and "
            "this process has a part of them under numbers that are not the model's; such models "
            f"cannot be shown yet. {_WHOLE_MODEL}"
        )


def _in_context_parallel(model: nn.Module) -> bool:
    """Whether torch has put its ring attention in the place of attention."""
    # Inside of `context_parallel` the function is replaced; `parallelize_module` sets hooks.
    hooks = (each for module in model.modules() for each in module._forward_pre_hooks.values())
    return _is_ring(functional.scaled_dot_product_attention) or any(map(_is_ring, hooks))


def _is_ring(function: Any) -> bool:
    function = getattr(function, "func", function)
    home = str(getattr(function, "__module__", ""))
    return home.startswith("torch.distributed.tensor.experimental.")


def _heads_are_split(model: nn.Module) -> int:
    """Over how many processes the heads are divided; 0 where each process has all of them."""
    from torch.distributed.tensor import DTensor

    by_fsdp = _parameters_of_fsdp(model)
    for entry in attention_modules(model):
        for parameter in entry.module.parameters():
            if isinstance(parameter, DTensor):
                divided = [
                    size
                    for size, placement in zip(
                        parameter.device_mesh.shape, parameter.placements, strict=True
                    )
                    if not placement.is_replicate()
                ]
                # FSDP divides parameters along an axis of its own, which comes first, and gathers
                # them before they are used.
                left = [size for size in divided[id(parameter) in by_fsdp :] if size > 1]
                if left:
                    return left[-1]
    # Older versions of transformers leave plain tensors in each process.
    size = getattr(model, "_tp_size", None) or 1
    plain = not any(isinstance(each, DTensor) for each in model.parameters())
    return int(size) if plain and size > 1 else 0


def _parameters_of_fsdp(model: nn.Module) -> set[int]:
    from torch.distributed import fsdp

    # In torch from 2.6 on.
    kind = getattr(fsdp, "FSDPModule", ())
    return {
        id(parameter)
        for module in model.modules()
        if isinstance(module, kind)
        for parameter in module.parameters()
    }
