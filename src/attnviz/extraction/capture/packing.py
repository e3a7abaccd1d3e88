"""Notes on rows in which the caller has packed several texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.inputs.batch import Batch
from attnviz.record.attention import StoredAttention
from attnviz.record.tokens import Tokens, quote

_TEXT_STACKS = ("self", "encoder", "linear")
# Arguments with the number of the text of each token, and arguments with the first token of each
# text, followed by the number of all tokens.
_TEXT_NUMBERS = ("seq_idx", "document_ids")
_STARTS = re.compile(r"^cu_seq_?lens")
# Maximum number of borders that a note names.
_MAX_NAMED = 4


def packing_notes(batch: Batch, stacks: Mapping[str, StackLayers], index: int) -> list[str]:
    """Return notes on the borders between packed texts in the row of an example.

    The borders follow from the arguments of the forward: positions that restart, numbers of texts,
    or a mask of pairs of tokens. Whether attention crosses a border follows from the captured
    weights.
    """
    if "input" not in batch.tokens:
        return []
    borders_by_name = _borders(batch, index)
    if not any(borders_by_name.values()):
        return []
    tokens = batch.tokens["input"][index]
    attentions = [
        attention
        for layers in stacks.values()
        if layers.stack in _TEXT_STACKS
        for attention in layers.examples[index].values()
        if attention.num_heads and attention.num_queries == attention.num_keys == len(tokens)
    ]
    notes = []
    separate: dict[int, None] = {}
    for name, borders in borders_by_name.items():
        crossed = [border for border in borders if _crosses(attentions, border)]
        separate |= dict.fromkeys(border for border in borders if border not in crossed)
        # A gap in the positions may have other reasons than another text.
        starts = [border for border in crossed if borders[border]]
        if starts and attentions:
            text = "Another text" if len(starts) == 1 else "Other texts"
            begins = "restart" if name == "position_ids" else "begins another text"
            notes.append(
                f"{name} {begins} at {_named(starts, tokens)}. {text} may begin there, but "
                f"attention crosses {'this border' if len(starts) == 1 else 'these borders'}, as "
                "in the model's own call. Many models separate texts only if they get no "
                "attention_mask and use_cache=False."
            )
    if separate and attentions:
        notes.append(
            f"The row has {len(separate) + 1} texts, which do not attend to each other. They begin "
            f"at {_named([0, *sorted(separate)], tokens)}."
        )
    return notes


def _named(positions: Sequence[int], tokens: Tokens) -> str:
    named = [f"{position} ({quote(tokens[position])})" for position in positions[:_MAX_NAMED]]
    more = len(positions) - len(named)
    rest = f" and {more} more" if more else ""
    return f"{'token' if len(positions) == 1 else 'tokens'} {', '.join(named)}{rest}"


def _borders(batch: Batch, index: int) -> dict[str, dict[int, bool]]:
    """Return the borders in the row of an example, by the name of an argument.

    A border is the position of the first token of a text, without padding. Its value is whether
    another text certainly begins there, and not only a gap in the positions.
    """
    sequence = batch.sequences["input"]
    unpadded = sequence.unpadded[index]
    borders: dict[str, dict[int, bool]] = {}
    for name, value in batch.arguments.items():
        if not isinstance(value, torch.Tensor) or not value.dim():
            continue
        if _STARTS.match(name) and value.dim() == 1 and batch.size == 1 and unpadded is None:
            starts = [start for start in value.tolist() if 0 < start < sequence.length]
            borders[name] = dict.fromkeys(starts, True)
        elif name == "attention_mask" and value.dim() == 4:
            borders[name] = dict.fromkeys(_separated(value[index % len(value)]), True)
        elif name in (*_TEXT_NUMBERS, "position_ids") and value.shape[-1] == sequence.length:
            # Positions of images have an axis of time, height and width before the examples.
            rows = value.reshape(-1, *value.shape[-2:])[0] if value.dim() > 1 else value[None]
            row = rows[index % len(rows)].cpu()
            numbers = (row if unpadded is None else row[unpadded]).tolist()
            borders[name] = {
                position: name != "position_ids" or after < before or before == after == 0
                for position, (before, after) in enumerate(pairwise(numbers), 1)
                if (after != before + 1 if name == "position_ids" else after != before)
            }
    return borders


def _separated(mask: torch.Tensor) -> list[int]:
    """Return the first tokens of texts that a mask separates: (heads or 1, queries, keys).

    Tokens that attend only to themselves, or to none, are padding and no texts.
    """
    allowed = mask > torch.finfo(mask.dtype).min / 2 if mask.is_floating_point() else mask != 0
    flags = allowed.any(dim=0).cpu()
    num_queries, num_keys = flags.shape
    if num_queries != num_keys:
        return []
    keys = torch.arange(num_keys)
    first = torch.where(flags, keys, num_keys).amin(dim=1)
    last = torch.where(flags, keys, -1).amax(dim=1)
    is_text = first < last
    # A border is before a token if no later query attends to an earlier key, and the reverse.
    earliest = first.flip(0).cummin(0).values.flip(0)
    latest = last.cummax(0).values
    borders = [b for b in range(1, num_keys) if earliest[b] >= b and latest[b - 1] < b]
    ends = [0, *borders, num_keys]
    texts = [start for start, end in pairwise(ends) if bool(is_text[start:end].any())]
    return texts[1:]


def _crosses(attentions: Sequence[StoredAttention], border: int) -> bool:
    """Whether a query at or after a border attends to a key before it, or the reverse.

    Some queries are examined: those beside the border, and some later ones.
    """
    for attention in attentions:
        heads = range(attention.num_heads)
        count = attention.num_queries
        for row in {border, (border + count) // 2, count - 1}:
            if bool(attention.block(heads, slice(row, row + 1), slice(0, border)).any()):
                return True
        before = slice(border - 1, border)
        if bool(attention.block(heads, before, slice(border, count)).any()):
            return True
    return False
