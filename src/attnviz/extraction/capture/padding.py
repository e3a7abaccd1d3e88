"""Notes on padding that some models process like tokens.

Some models divide a row into groups from its first position on (summaries of tokens, pooled tokens,
hash buckets), or carry a state over the padding.
"""

from __future__ import annotations

from typing import Any

import torch

from attnviz.extraction.adapters import base_of
from attnviz.extraction.capture.forward import arguments_of, run_uncompiled
from attnviz.extraction.capture.missing_layers import mixes
from attnviz.extraction.capture.positions import num_padding
from attnviz.extraction.families import families_in, sparse_kind
from attnviz.extraction.inputs.batch import Batch, split_examples
from attnviz.extraction.models import Loaded, attend_fully, evaluate
from attnviz.extraction.modules import scan_modules
from attnviz.utils.cleanup import Cleanup


def notes_on_padding(
    loaded: Loaded, batch: Batch, outputs: Any, *, in_groups: bool
) -> list[list[str]]:
    """Return the notes of each example on padding that changes the outputs of a model.

    `outputs` are those of the forward of `batch`, and `in_groups` is whether the forward had
    summaries of tokens. A text that begins with padding runs again without padding.
    """
    model: Any = loaded.model
    notes: list[list[str]] = [[] for _ in range(batch.size)]
    sequence = batch.sequences.get("input")
    if sequence is None or not any(map(num_padding, sequence.unpadded)):
        return notes
    output = _first_tensor(outputs)
    if output is None or output.dim() > 3 or output.shape[0] != batch.size:
        return notes
    ids = batch.arguments["input_ids"]
    tensors = {name: one for name, one in batch.arguments.items() if isinstance(one, torch.Tensor)}
    if "position_ids" in tensors or any(one.shape != ids.shape for one in tensors.values()):
        return notes
    scan = scan_modules(model)
    modules = scan.modules
    in_groups |= any(family.pools_queries for family in families_in(base_of(model).config))
    if not in_groups and not scan.once(
        "depends on padding", lambda: any(sparse_kind(part) or mixes(part) for part in modules)
    ):
        return notes
    for number, single in enumerate(split_examples(batch)):
        unpadded = sequence.unpadded[number]
        if unpadded is None or not num_padding(unpadded):
            continue
        with Cleanup() as undo, undo:
            evaluate(model, undo)
            run_uncompiled(modules, undo)
            attend_fully(model, single.arguments["input_ids"].shape[1], undo)
            alone = _first_tensor(model(**arguments_of(model, single)))
        if alone is None:
            continue
        own, alone = output[number], alone[0]
        if output.dim() == 3:
            # Models compute the logits of the last positions only.
            length = len(unpadded) if output.shape[1] == ids.shape[1] else 1
            own = own[unpadded.to(own.device)] if length > 1 else own[-1:]
            alone = alone[-length:]
        if own.shape != alone.shape:
            continue
        difference = (own - alone).abs().max()
        if float(difference) > torch.finfo(alone.dtype).eps ** 0.5 * float(alone.abs().max()):
            notes[number].append(
                "The padding before the text changes its weights, as in the model's own call, "
                f"because {type(base_of(model)).__name__} processes it like tokens. Pass the text "
                "without padding."
            )
    return notes


def _first_tensor(outputs: Any) -> torch.Tensor | None:
    """Return the logits or hidden states of a model, which come after the loss, or None."""
    values = outputs.values() if hasattr(outputs, "values") else outputs
    tensors = (one for one in values if isinstance(one, torch.Tensor))
    return next((tensor for tensor in tensors if tensor.dim() > 1), None)
