"""Function that lets kernels of fla and mamba-ssm run on a CPU, in Triton's interpreter.

Triton interprets kernels if the environment variable ``TRITON_INTERPRET`` is 1. The kernels are
those that a GPU runs. Some of their surroundings need a GPU, or differ in the interpreter, so this
module replaces them. The compiled kernel of Mamba-1 cannot be interpreted. mamba-ssm's reference
function replaces it, and is called through the Python interface of mamba-ssm.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

#: Whether this process interprets kernels.
INTERPRETS = os.environ.get("TRITON_INTERPRET") == "1"


def prepare() -> None:
    """Prepare this process for interpreted kernels, before fla or mamba-ssm is imported."""
    from triton.runtime import autotuner, interpreter

    initialize, execute = autotuner.Autotuner.__init__, interpreter.GridExecutor.__call__

    def with_one_setting(self: Any, *args: Any, **options: Any) -> None:
        # Keep one setting of a kernel. To choose one of several, Triton would measure their time on
        # a GPU.
        initialize(self, *args, **options)
        self.configs = self.configs[:1]

    def tensors(*bounds: Any) -> Iterator[Any]:
        # Kernels call methods of the variable of a loop. It is a tensor on a GPU, but an int in the
        # interpreter.
        for number in builtins.range(*map(int, bounds)):
            yield interpreter._implicit_cvt(number)

    def with_tensors(self: Any, *args: Any, **options: Any) -> Any:
        namespace = self.fn.__globals__
        namespace["range"] = tensors
        try:
            return execute(self, *args, **options)
        finally:
            namespace.pop("range", None)

    autotuner.Autotuner.__init__ = with_one_setting
    interpreter.GridExecutor.__call__ = with_tensors
    # mamba-ssm calls its kernels in the context of a device, whose index is None on a CPU.
    torch.cuda.device = contextlib.nullcontext  # type: ignore[assignment, misc]
    sys.modules["selective_scan_cuda"] = compiled = ModuleType("selective_scan_cuda")
    compiled.fwd = _selective_scan  # type: ignore[attr-defined]


def _selective_scan(
    inputs: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the outputs, the states and the outputs after the gate, as the compiled kernel does.

    The interface reads only the last state: ``states[:, :, -1, 1::2]``. The others are 0 here.
    """
    from mamba_ssm.ops.selective_scan_interface import selective_scan_ref

    *scanned, gate, bias, softplus = arguments
    output, last = selective_scan_ref(
        inputs, *scanned, None, bias, softplus, return_last_state=True
    )
    states = torch.stack([torch.zeros_like(last), last], dim=-1).flatten(-2)[:, :, None]
    return output, states, output * torch.nn.functional.silu(gate)
