"""Output projections of a model's attention modules, and norms of values after this projection.

Both are found during one forward of the model on one example. The results have one entry for each
`ModuleRun`, which is one run of an attention module in this forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.layer_change import ModuleRun, output_by_head
from attnviz.extraction.capture.outputs import FollowedOutputs, projection_rows
from attnviz.interventions.attributed import ValueNorms
from attnviz.interventions.example import MINIMAL_CAPTURE, Example
from attnviz.utils.cleanup import Cleanup


@dataclass(frozen=True, eq=False)
class ProjectedValues:
    """Values of one run of an attention module, and the module's output projection.

    Attributes
    ----------
    values : Tensor
        Values, (key_heads, keys, value_dim).
    output : Tensor
        Outputs of all heads at the first query, (heads, value_dim).
    projection : Module
        Module that takes the concatenated outputs of all heads.
    gates : Tensor or None
        Gates that multiply the outputs before the projection, (heads, queries, value_dim). None if
        the heads have no gate.
    """

    values: torch.Tensor
    output: torch.Tensor
    projection: nn.Module
    gates: torch.Tensor | None = None

    @classmethod
    def of_call(
        cls, call: AttentionCall, projection: nn.Module, gate: torch.Tensor | None
    ) -> Self | None:
        """Create an instance with copies of a call's values, and of its output at the first query.

        `projection` is the output projection of the module, and `gate` the gate of its outputs.
        Return None if the call does not have exactly one example.
        """
        value: Any = call.value
        if len(value) != 1:
            return None
        # Clone the two slices, because a view would keep the whole tensor in memory.
        gates = None if gate is None else gate[0].transpose(0, 1)
        return cls(value[0].detach().clone(), call.output[0, 0].detach().clone(), projection, gates)

    def norms(self) -> ValueNorms | None:
        """Return the norms of the values after the output projection.

        Return None if the projection is not linear.
        """
        rows = projection_rows(self.projection, self.output)
        if rows is None:
            return None
        values = self.values.float().repeat_interleave(len(rows) // len(self.values), dim=0)
        if self.gates is None:
            return ValueNorms(norms=(values @ rows).norm(dim=-1).cpu())
        return ValueNorms(values.cpu(), rows.cpu(), self.gates.cpu())


def head_norms(example: Example) -> dict[ModuleRun, ValueNorms]:
    """Run the model, and return `ProjectedValues.norms` for each run of an attention module.

    Attention modules are left out if their output projection is not found or not linear.
    """
    norms = {module_run: projected.norms() for module_run, projected in _followed(example).items()}
    return {module_run: known for module_run, known in norms.items() if known is not None}


def projections_of(example: Example) -> dict[ModuleRun, nn.Module]:
    """Run the model, and return the output projection for each run of an attention module.

    Attention modules are left out if their output projection is not found.
    """
    return {
        module_run: projected.projection for module_run, projected in _followed(example).items()
    }


def _followed(example: Example) -> dict[ModuleRun, ProjectedValues]:
    following = FollowedOutputs(example.loaded.model, ProjectedValues.of_call)

    def observe(call: AttentionCall, module_run: ModuleRun) -> None:
        if call.function is not None:
            output_by_head(call, module_run[0])
        following.observe(call, module_run)

    with Cleanup() as undo, undo:
        following.watch(undo)
        example.forward(MINIMAL_CAPTURE, None, observe=observe)
    return following.found
