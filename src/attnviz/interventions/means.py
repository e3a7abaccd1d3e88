"""Mean output of each head over all tokens of several texts, for mean ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attnviz.extraction.capture.change import output_by_head
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.forward import arguments_of
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.models import evaluate
from attnviz.interventions.copies import ModuleRun, watch
from attnviz.utils.cleanup import Cleanup

__all__ = ["Sums", "means_of", "sums_of"]

#: For each attention module, the sum of each head's outputs over all tokens, (heads, value_dim),
#: float64, and the number of tokens.
Sums = Mapping[ModuleRun, tuple[torch.Tensor, int]]


def sums_of(model: Any, batch: Batch, *, trace_all: bool) -> Sums:
    """Run a model on one example without padding, and return the sums of its heads' outputs.

    Attention modules whose outputs have unknown axes are missing. `trace_all` is as for `Copies`.
    """
    sums: dict[ModuleRun, tuple[torch.Tensor, int]] = {}

    def take(call: AttentionCall, module_run: ModuleRun) -> None:
        try:
            output = output_by_head(call, module_run[0], 1)
        except NotImplementedError:
            return
        sums[module_run] = output.detach().double().sum(dim=(0, 1)), output.shape[1]

    with Cleanup() as undo, undo:
        evaluate(model, undo)
        watch(model, take, undo, trace_all=trace_all)
        model(**arguments_of(model, batch))
    return sums


def means_of(sums: Sequence[Sums]) -> dict[ModuleRun, torch.Tensor]:
    """Return the mean outputs of heads over all tokens of all texts, (heads, value_dim).

    `sums` has one entry per text. Modules that did not run for every text are missing.
    """
    means: dict[ModuleRun, torch.Tensor] = {}
    for module_run in sums[0]:
        if all(module_run in text_sums for text_sums in sums):
            total = torch.stack([text_sums[module_run][0] for text_sums in sums]).sum(dim=0)
            means[module_run] = total / sum(text_sums[module_run][1] for text_sums in sums)
    return means
