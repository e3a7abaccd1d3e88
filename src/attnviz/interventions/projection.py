"""The output projection behind an attention, found by following the attention's output."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.models import hook
from attnviz.interventions.copies import Copies, Place, laid_out
from attnviz.interventions.runs import Runs
from attnviz.utils.restoring import Restoring

__all__ = ["head_norms", "projections_of"]

# Keys whose values go through the projection together.
_KEYS_AT_ONCE = 1024
# How far a projection may be from a linear map, as a share of the largest output.
_LINEAR = 1e-3


def head_norms(runs: Runs) -> dict[Place, torch.Tensor]:
    """For each attention whose projection is found |V W_O| of its heads and keys.

    float32, (heads, keys). The projection is called with the value of one head in its place and
    zeros for the others, less what it gives for zeros: so it may be of any kind that is linear.
    """
    calls, projections = _followed(runs)
    found = {}
    for place, module in projections.items():
        norms = _norms(calls[place], module)
        if norms is not None:
            found[place] = norms
    return found


def projections_of(runs: Runs) -> dict[Place, nn.Module]:
    """The output projection of each attention, where one is found.

    It is the first module with a matrix whose input is the attention's output.
    """
    return _followed(runs)[1]


def _followed(runs: Runs) -> tuple[dict[Place, AttentionCall], dict[Place, nn.Module]]:
    """Attentions, and the projections that their outputs go into."""
    calls: dict[Place, AttentionCall] = {}
    projections: dict[Place, nn.Module] = {}
    waiting: list[Place] = []

    def take(call: AttentionCall, place: Place) -> None:
        laid_out(call, place[0])
        calls[place] = call
        waiting[:] = [place]

    def look(module: nn.Module, given: tuple[Any, ...]) -> None:
        if not waiting or not given or not isinstance(given[0], torch.Tensor):
            return
        output = calls[waiting[0]].output
        if given[0].numel() == output.numel() and _is_same(given[0], output):
            projections[waiting[0]] = module
            waiting.clear()

    model = runs.loaded.model
    leaves = [
        module
        for module in model.modules()
        if not any(module.children()) and isinstance(getattr(module, "weight", None), torch.Tensor)
    ]
    matrices = [module for module in leaves if module.weight.dim() == 2]
    with Restoring() as undo, undo, undo:
        hook((each.register_forward_pre_hook(look) for each in matrices), undo)
        Copies(model, runs.batch, 1).run(1, take)
    return calls, projections


def _is_same(given: torch.Tensor, output: torch.Tensor) -> bool:
    return given.data_ptr() == output.data_ptr() or torch.equal(given.flatten(), output.flatten())


def _norms(call: AttentionCall, projection: nn.Module) -> torch.Tensor | None:
    """Lengths of the projected values, (heads, keys); None where the module is not linear."""
    output, value = call.output, call.value
    if value is None:
        return None
    heads, width = output.shape[2:]
    group = heads // value.shape[1]
    norms = torch.empty(heads, value.shape[2])
    with torch.no_grad():
        project = partial(_projected, projection, heads * width)
        for head in range(heads):
            for start in range(0, value.shape[2], _KEYS_AT_ONCE):
                some = slice(start, start + _KEYS_AT_ONCE)
                there = value[0, head // group, some].detach()
                norms[head, some] = project(there, head * width).float().norm(dim=-1).cpu()
        # All heads together must be the sum of each alone.
        row = output[0, :1].detach()
        parts: Sequence[torch.Tensor] = [
            project(row[:, head], head * width) for head in range(heads)
        ]
        whole = project(row.flatten(1), 0)
    off = (torch.stack(list(parts)).sum(dim=0) - whole).abs().max()
    return norms if float(off) <= _LINEAR * max(1.0, float(whole.abs().max())) else None


def _projected(projection: nn.Module, width: int, values: torch.Tensor, start: int) -> torch.Tensor:
    """What a projection makes of values that stand at a place among zeros, less its own bias."""
    given = values.new_zeros(1, len(values) + 1, width)
    given[0, :-1, start : start + values.shape[-1]] = values
    found: torch.Tensor = projection(given)[0]
    return found[:-1] - found[-1]
