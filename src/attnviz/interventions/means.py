"""Mean output of each head over all tokens of several texts, for mean ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from attnviz.extraction.capture.change import ModuleRun, output_by_head
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.linear import RuleCall
from attnviz.interventions.changes import ModuleRuns, StackLayer
from attnviz.interventions.example import MINIMAL_CAPTURE, Example

#: For each run of an attention module within a forward, the sum of each head's outputs over all
#: tokens of an example, (heads, value_dim), float64, and the number of these tokens.
Sums = Mapping[ModuleRun, tuple[torch.Tensor, int]]
#: For each run of an attention module, the mean output of each head, (heads, value_dim).
Means = Mapping[ModuleRun, torch.Tensor]


def sums_of(example: Example) -> Sums:
    """Run the model on one example, and return its `Sums`.

    The example must have no padding, because padding tokens would be counted. Attention modules are
    left out if the axes of their outputs are not known.
    """
    sums: dict[ModuleRun, tuple[torch.Tensor, int]] = {}

    def add(call: AttentionCall, module_run: ModuleRun) -> None:
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
            total = torch.cat([sums[module_run][0], total])
        sums[module_run] = total, output.shape[1]

    example.forward(MINIMAL_CAPTURE, None, observe=add)
    return sums


def means_of(sums: Sequence[Sums]) -> Means:
    """Return the mean output of each head over all tokens of all texts.

    `sums` has one entry per text. Runs of modules that are not in the sums of every text are left
    out.
    """
    means: dict[ModuleRun, torch.Tensor] = {}
    for module_run in sums[0]:
        if all(module_run in text_sums for text_sums in sums):
            total = torch.stack([text_sums[module_run][0] for text_sums in sums]).sum(dim=0)
            means[module_run] = total / sum(text_sums[module_run][1] for text_sums in sums)
    return means


def means_by_layer(means: Means, module_runs: ModuleRuns) -> dict[StackLayer, torch.Tensor]:
    """Return the mean outputs of the heads of each layer of each stack.

    Layers without means are left out.
    """
    return {
        layer: means[module_run] for layer, module_run in module_runs.items() if module_run in means
    }
