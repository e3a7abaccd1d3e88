"""Mean output of each head over the tokens of several texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attnviz.extraction.capture.change import output_by_head
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.forward import arguments_of
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.models import evaluate
from attnviz.interventions.copies import Place, watch
from attnviz.utils.cleanup import Cleanup

__all__ = ["Sums", "means_of", "sums_of"]

#: By module and run: sum of each head's outputs over all tokens, float64 (heads, value_dim), and
#: the number of tokens.
Sums = Mapping[Place, tuple[torch.Tensor, int]]


def sums_of(model: Any, batch: Batch, *, trace_all: bool) -> Sums:
    """Return sums over one example without padding. Modules with unknown outputs are missing."""
    found: dict[Place, tuple[torch.Tensor, int]] = {}

    def take(call: AttentionCall, place: Place) -> None:
        try:
            output = output_by_head(call, place[0], 1)
        except NotImplementedError:
            return
        found[place] = output.detach().double().sum(dim=(0, 1)), output.shape[1]

    with Cleanup() as undo, undo:
        evaluate(model, undo)
        watch(model, take, undo, trace_all=trace_all)
        model(**arguments_of(model, batch))
    return found


def means_of(sums: Sequence[Sums]) -> dict[Place, torch.Tensor]:
    """Return means over the tokens of all texts, (heads, value_dim), for modules of all texts."""
    means: dict[Place, torch.Tensor] = {}
    for place in sums[0]:
        if all(place in each for each in sums):
            total = torch.stack([each[place][0] for each in sums]).sum(dim=0)
            means[place] = total / sum(each[place][1] for each in sums)
    return means
