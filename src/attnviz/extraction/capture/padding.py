"""Notes on padding that changes the weights of a text.

Some models count the padding before a text as positions, divide a row into groups from its first
position on (summaries of tokens, pooled tokens, hash buckets), or carry a state over the padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from attnviz.extraction.adapters import base_of
from attnviz.extraction.capture.forward import arguments_of, run_uncompiled
from attnviz.extraction.inputs.batch import Batch, split_examples
from attnviz.extraction.models import Loaded, attend_fully, evaluate
from attnviz.extraction.modules import modules_of
from attnviz.utils.cleanup import Cleanup


def notes_on_padding(loaded: Loaded, batch: Batch, outputs: Any) -> list[list[str]]:
    """Return the notes of each example on padding that changes the outputs of a model.

    `outputs` are those of the forward of `batch`. A text with padding before one of its tokens runs
    again without padding, unless the caller passed positions.
    """
    model: Any = loaded.model
    notes: list[list[str]] = [[] for _ in range(batch.size)]
    sequence, output = batch.sequences.get("input"), _output_of_text(outputs)
    padded = {
        number: unpadded
        for number, unpadded in enumerate(sequence.unpadded if sequence else [])
        if unpadded is not None and int(unpadded[-1]) >= len(unpadded)
    }
    if not padded or sequence is None or output is None or "position_ids" in batch.arguments:
        return notes
    try:
        singles = split_examples(batch)
    except ValueError:
        return notes
    for number, unpadded in padded.items():
        with Cleanup() as undo, undo:
            modules = modules_of(model)
            evaluate(modules, undo)
            run_uncompiled(modules, undo)
            attend_fully(model, len(unpadded), undo)
            alone = _output_of_text(model(**arguments_of(loaded, singles[number])))
        if alone is None or alone.dim() != output.dim() or len(output) != batch.size:
            continue
        own, alone = output[number], alone[0]
        if own.dim() > 1:
            # Models may compute the logits of the last positions only.
            kept = unpadded.to(own.device) - (sequence.length - len(own))
            kept = kept[kept >= 0][-len(alone) :]
            own, alone = own[kept], alone[len(alone) - len(kept) :]
        if own.shape != alone.shape or not own.numel():
            continue
        difference = (own - alone).abs().max()
        if float(difference) > torch.finfo(alone.dtype).eps ** 0.5 * float(alone.abs().max()):
            notes[number].append(
                "Padding before tokens of the text changes their weights, as in the model's own "
                f"call, because {type(base_of(model)).__name__} counts it as positions or "
                "processes it like tokens. Pass the text without padding, or padding on the right."
            )
    return notes


def _output_of_text(outputs: Any) -> torch.Tensor | None:
    """Return the states of an encoder, or the logits or states of another model, or None."""
    values = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    if isinstance(outputs, Mapping):
        # The logits or states come after the loss.
        values = [outputs.get("encoder_last_hidden_state"), *outputs.values()]
    return next((one for one in values if isinstance(one, torch.Tensor) and one.dim() > 1), None)
