"""Search for the output projections of attention modules.

The output projection maps the concatenated outputs of all heads to the residual stream. It is found
while the model runs: it is the module that receives the output of the attention.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.change import ModuleRun, output_by_head
from attnviz.extraction.capture.dispatch import AttentionCall, observe
from attnviz.extraction.models import hook, in_this_thread
from attnviz.interventions.example import MINIMAL_CAPTURE, Example
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.progress import report

# Number of keys whose values are projected in one call.
_KEYS_AT_ONCE = 1024
# Maximum relative difference between the projection of all heads and the sum of the projections of
# single heads.
_LINEAR = 1e-3


@dataclass(frozen=True, eq=False)
class ProjectedValues:
    """Values of one attention module, and its output projection.

    To project a value of one head, the projection is called with zeros for all other heads. The
    result for zeros alone (the bias) is subtracted. So any module that computes a linear map plus a
    bias can be the projection.

    Attributes
    ----------
    values : Tensor
        Values, (key_heads, keys, value_dim).
    output : Tensor
        Outputs of all heads at the first query, (heads, value_dim).
    projection : Module
        Module that takes the concatenated outputs of all heads.
    """

    values: torch.Tensor
    output: torch.Tensor
    projection: nn.Module

    def norms(self, head: int) -> torch.Tensor:
        """Compute the norm of each key's value after the output projection, for one head.

        The result has the shape (keys,) and the dtype float32.
        """
        heads, width = self.output.shape
        values = self.values[head // (heads // len(self.values))]
        norms = torch.empty(len(values))
        for start in range(0, len(values), _KEYS_AT_ONCE):
            chunk = slice(start, start + _KEYS_AT_ONCE)
            norms[chunk] = self._projected(values[chunk], head * width).float().norm(dim=-1).cpu()
            report("value norms", min(chunk.stop, len(values)), len(values), "key")
        return norms

    @property
    def linear(self) -> bool:
        """Whether the projection of all heads is the sum of the projections of each head."""
        width = self.output.shape[1]
        parts = [self._projected(row[None], head * width) for head, row in enumerate(self.output)]
        whole = self._projected(self.output.flatten()[None], 0)
        off = (torch.stack(parts).sum(dim=0) - whole).abs().max()
        return float(off) <= _LINEAR * max(1.0, float(whole.abs().max()))

    def _projected(self, values: torch.Tensor, start: int) -> torch.Tensor:
        """Return the projection of `values` without the bias.

        `start` is the index of the first entry of `values` in the input of the projection. The
        other entries are 0.
        """
        padded = values.new_zeros(1, len(values) + 1, self.output.numel())
        padded[0, :-1, start : start + values.shape[-1]] = values
        with torch.no_grad():
            projected: torch.Tensor = self.projection(padded)[0]
        return projected[:-1] - projected[-1]


class FollowedOutputs:
    """Observer that finds the output projections of attention modules while a model runs.

    The output projection is the first module with a two-dimensional weight whose input is the
    output of the attention. `found` has the values and the projection of each attention module.

    Parameters
    ----------
    model : Module
        The model.
    most_bytes : float
        Maximum size of the stored values in bytes. Attention modules whose values would exceed it
        are left out.
    """

    def __init__(self, model: nn.Module, most_bytes: float = math.inf) -> None:
        self.found: dict[ModuleRun, ProjectedValues] = {}
        self._model: Any = model
        self._names = {id(module): name for name, module in model.named_modules()}
        self._room = most_bytes
        self._turns: Counter[str] = Counter()
        self._waiting: tuple[ModuleRun, AttentionCall] | None = None

    def watch(self, undo: Cleanup) -> None:
        """Observe the model until the ``with`` block of `undo` ends.

        If the model runs several times, `found` has the values of the last run.
        """
        leaves = [
            module
            for module in self._model.modules()
            if not any(module.children())
            and isinstance(getattr(module, "weight", None), torch.Tensor)
        ]
        matrices = [module for module in leaves if module.weight.dim() == 2]
        begin, look = in_this_thread(self._begin), in_this_thread(self._look)
        hook((self._model.register_forward_pre_hook(function) for function in (begin,)), undo)
        hook((module.register_forward_pre_hook(look) for module in matrices), undo)
        observe(self._take, undo)

    def _begin(self, *_: Any) -> None:
        self._turns.clear()
        self._waiting = None

    def _take(self, call: AttentionCall) -> None:
        name = self._names.get(id(call.module), "")
        self._turns[name] += 1
        self._waiting = (name, self._turns[name] - 1), call

    def _look(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._waiting is None or not inputs or not isinstance(inputs[0], torch.Tensor):
            return
        module_run, call = self._waiting
        output, value = call.output, call.value
        if not isinstance(output, torch.Tensor) or inputs[0].numel() != output.numel():
            return
        # The last axis of the input must have the concatenated outputs of all heads. In channel
        # attention, it has another size.
        if inputs[0].shape[-1:] != (output.shape[2:].numel(),) or not _is_same(inputs[0], output):
            return
        self._waiting = None
        if value is None or output.dim() != 4 or len(value) != 1:
            return
        previous = self.found.pop(module_run, None)
        if previous is not None:
            self._room += previous.values.nbytes
        if value.nbytes <= self._room:
            self._room -= value.nbytes
            # `output[0, 0]` is a view, which would keep the whole output in memory.
            row = output[0, 0].detach().clone()
            self.found[module_run] = ProjectedValues(value[0].detach().clone(), row, module)


def head_norms(example: Example) -> dict[ModuleRun, torch.Tensor]:
    """Return the norm of each key's value after the output projection, (heads, keys), float32.

    Attention modules are left out if no output projection is found, or if it is not linear.
    """
    return {
        module_run: torch.stack([projected.norms(head) for head in range(len(projected.output))])
        for module_run, projected in _followed(example).items()
        if projected.linear
    }


def projections_of(example: Example) -> dict[ModuleRun, nn.Module]:
    """Return the output projections. Attention modules without a known one are left out."""
    return {
        module_run: projected.projection for module_run, projected in _followed(example).items()
    }


def _followed(example: Example) -> dict[ModuleRun, ProjectedValues]:
    following = FollowedOutputs(example.loaded.model)

    def check(call: AttentionCall, module_run: ModuleRun) -> None:
        if call.function is not None:
            output_by_head(call, module_run[0])

    with Cleanup() as undo, undo:
        following.watch(undo)
        example.forward(MINIMAL_CAPTURE, None, observe=check)
    return following.found


def _is_same(inputs: torch.Tensor, output: torch.Tensor) -> bool:
    return inputs.data_ptr() == output.data_ptr() or torch.equal(inputs.flatten(), output.flatten())
