"""Notes on rows of tokens in which padding changes the weights, or in which texts are packed.

Some models count the padding before a text as positions, divide a row into groups from its first
position on (summaries of tokens, pooled tokens, hash buckets), or carry a state over the padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from attnviz.extraction.adapters import base_of
from attnviz.extraction.capture.forward import arguments_of, run_uncompiled
from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.hooks import attend_fully, evaluate
from attnviz.extraction.inputs.batch import Batch, split_examples
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.modules import modules_of
from attnviz.record.tokens import Tokens, quote
from attnviz.utils.cleanup import Cleanup

_TEXT_STACKS = ("self", "encoder", "linear")
# Maximum number of borders that a note names.
_MAX_NAMED = 4


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


def packing_notes(batch: Batch, stacks: Mapping[str, StackLayers], index: int) -> list[str]:
    """Return notes on the borders between packed texts in the row of an example.

    A text begins where positions restart. Whether attention crosses a border follows from the
    captured weights.
    """
    borders = restarts(batch, index) if "input" in batch.tokens else []
    if not borders:
        return []
    tokens = batch.tokens["input"][index]
    attentions = [
        attention
        for layers in stacks.values()
        if layers.stack in _TEXT_STACKS
        for attention in layers.examples[index].values()
        if attention.num_heads and attention.num_queries == attention.num_keys == len(tokens)
    ]
    if not attentions:
        return []
    notes, crossed = [], []
    for border in borders:
        row, before = slice(border, border + 1), slice(0, border)
        if any(
            bool(attention.block(range(attention.num_heads), row, before).any())
            for attention in attentions
        ):
            crossed.append(border)
    separate = [border for border in borders if border not in crossed]
    if crossed:
        notes.append(
            f"position_ids restart at {_named(crossed, tokens)}, where other texts may begin. "
            "Attention crosses from there to earlier texts, as in the model's own call. Many "
            "models separate texts only if they get no attention_mask and use_cache=False."
        )
    if separate:
        notes.append(
            f"The row has {len(separate) + 1} texts, which do not attend to each other. They begin "
            f"at {_named([0, *separate], tokens)}."
        )
    return notes


def _named(positions: Sequence[int], tokens: Tokens) -> str:
    named = [f"token {position} ({quote(tokens[position])})" for position in positions[:_MAX_NAMED]]
    if len(positions) > _MAX_NAMED:
        named.append("…")
    return ", ".join(named)


def restarts(batch: Batch, index: int) -> list[int]:
    """Return the tokens of an example, without padding, at which packed texts begin.

    Positions restart there. The first token is left out.
    """
    positions, sequence = batch.arguments.get("position_ids"), batch.sequences["input"]
    lengths = batch.arguments.get("cu_seq_lens_q")
    if lengths is not None and batch.size == 1:
        return [int(token) for token in lengths.flatten().tolist()[1:-1]]
    if positions is None or positions.shape[-1] != sequence.length:
        return []
    # Positions of images have an axis of time, height and width before the examples.
    rows = positions.reshape(-1, *torch.atleast_2d(positions).shape[-2:])[0]
    row, unpadded = rows[index % len(rows)].cpu(), sequence.unpadded[index]
    numbers = (row if unpadded is None else row[unpadded]).tolist()
    return [
        token
        for token, (before, after) in enumerate(pairwise(numbers), 1)
        if after < before or before == after == 0
    ]
