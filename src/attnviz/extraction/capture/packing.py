"""Notes on rows in which the caller has packed several texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.inputs.batch import Batch
from attnviz.record.tokens import Tokens, quote

_TEXT_STACKS = ("self", "encoder", "linear")
# Maximum number of borders that a note names.
_MAX_NAMED = 4


def packing_notes(batch: Batch, stacks: Mapping[str, StackLayers], index: int) -> list[str]:
    """Return notes on the borders between packed texts in the row of an example.

    A text begins where positions restart. Whether attention crosses a border follows from the
    captured weights.
    """
    borders = _restarts(batch, index) if "input" in batch.tokens else []
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


def _restarts(batch: Batch, index: int) -> list[int]:
    """Return the tokens of an example, without padding, at which positions restart."""
    positions, sequence = batch.arguments.get("position_ids"), batch.sequences["input"]
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
