"""Mean output of each head over all tokens of several texts, for mean ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.layer_change import ModuleRun, output_by_head
from attnviz.extraction.capture.linear import RuleCall
from attnviz.extraction.capture.outputs import FollowedOutputs
from attnviz.interventions.changes import MeanOutputs, ModuleRuns, StackLayer
from attnviz.interventions.example import MINIMAL_CAPTURE, Example
from attnviz.utils.cleanup import Cleanup


class OutputSum(NamedTuple):
    """Sum of the outputs of each head of an attention module over all tokens of an example.

    Attributes
    ----------
    total : Tensor
        One sum per head, (heads, value_dim), float64.
    num_tokens : int
        Number of tokens.
    projection : Module or None
        As in `MeanOutputs`.
    """

    total: torch.Tensor
    num_tokens: int
    projection: nn.Module | None


#: Sum of outputs for each run of an attention module within a forward.
Sums = Mapping[ModuleRun, OutputSum]
#: Mean outputs for each run of an attention module.
Means = Mapping[ModuleRun, MeanOutputs]


def sums_of(example: Example) -> Sums:
    """Run the model on one example, and return its `Sums`.

    The example must have no padding, because padding tokens would be counted. Attention modules are
    left out if the axes of their outputs are not known.
    """
    sums: dict[ModuleRun, OutputSum] = {}

    def after_gate(
        call: AttentionCall, projection: nn.Module, gate: torch.Tensor | None
    ) -> OutputSum | None:
        if gate is None:
            return None
        gated = call.output.detach().double() * gate.double()
        return OutputSum(gated.sum(dim=(0, 1)), gated.shape[1], projection)

    def add(call: AttentionCall, module_run: ModuleRun) -> None:
        following.observe(call, module_run)
        # A module may call the attention function several times in one run. Use only the first
        # call, so that each token is counted once. If a linear layer calls its rule several times,
        # as in Zamba, each call has other heads. Therefore use all of these calls.
        if module_run in sums and not isinstance(call, RuleCall):
            return
        try:
            output = output_by_head(call, module_run[0])
        except NotImplementedError:
            return
        total = output.detach().double().sum(dim=(0, 1))
        if module_run in sums:
            total = torch.cat([sums[module_run].total, total])
        sums[module_run] = OutputSum(total, output.shape[1], None)

    following = FollowedOutputs(example.loaded.model, after_gate)
    with Cleanup() as undo, undo:
        following.watch(undo)
        example.forward(MINIMAL_CAPTURE, None, observe=add)
    return {**sums, **{run: following.found[run] for run in sums if run in following.found}}


def means_of(sums: Sequence[Sums]) -> Means:
    """Return the mean output of each head over all tokens of all texts.

    `sums` has one entry per text. Runs of modules that are not in the sums of every text are left
    out.
    """
    means: dict[ModuleRun, MeanOutputs] = {}
    for module_run, first in sums[0].items():
        if all(module_run in text_sums for text_sums in sums):
            of_texts = [text_sums[module_run] for text_sums in sums]
            total = torch.stack([one.total for one in of_texts]).sum(dim=0)
            mean = total / sum(one.num_tokens for one in of_texts)
            means[module_run] = MeanOutputs(mean, first.projection)
    return means


def means_by_layer(means: Means, module_runs: ModuleRuns) -> dict[StackLayer, MeanOutputs]:
    """Return the mean outputs of the heads of each layer of each stack.

    Layers without means are left out.
    """
    return {
        layer: means[module_run] for layer, module_run in module_runs.items() if module_run in means
    }
