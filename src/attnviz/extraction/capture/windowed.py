"""Attention that ran window by window, put together into one over all tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from attnviz.extraction.capture.captured import Captured
from attnviz.record.attention import GivenWeights, QueryKeyAttention
from attnviz.record.masks import Bias, Mask, PackedMask, WindowBias, WindowMask

__all__ = ["joined"]

# Windows of which only weights are known are put into one matrix of at most this many entries.
_MOST_ENTRIES = 1 << 28


def joined(parts: Sequence[Captured], name: str) -> Captured:
    """Put windows into one attention over all of their tokens.

    Parameters
    ----------
    parts : sequence of QueryKeyAttention or GivenWeights
        One a window, in order; all of a kind.
    name : str
        The module's path, for errors.

    Returns
    -------
    QueryKeyAttention or GivenWeights
        Tokens in the order of the windows; pairs of different windows are not allowed.
    """
    if len(parts) == 1:
        return parts[0]
    vectors = [part.vectors for part in parts if part.vectors is not None]
    if len(vectors) < len(parts):
        return _joined_weights(
            [part.given_weights for part in parts if part.given_weights is not None], name
        )
    first = vectors[0]
    query_windows, query_places = _numbered([part.num_queries for part in vectors])
    key_windows, key_places = _numbered([part.num_keys for part in vectors])
    windows = (query_windows, key_windows)
    return replace(
        first,
        queries=torch.cat([part.queries for part in vectors], dim=1),
        keys=torch.cat([part.keys for part in vectors], dim=1),
        mask=_joined_mask([part.mask for part in vectors], WindowMask(*windows), vectors),
        bias=_joined_bias([part.bias for part in vectors], windows, (query_places, key_places)),
    )


def _numbered(lengths: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """For each token its window's number and its place in it."""
    windows = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return windows, torch.cat([torch.arange(length) for length in lengths])


def _joined_mask(
    masks: Sequence[Mask | None], windows: WindowMask, parts: Sequence[QueryKeyAttention]
) -> Mask:
    if all(mask is None for mask in masks):
        return windows
    rows, columns = slice(0, len(windows.query_windows)), slice(0, len(windows.key_windows))
    heads = [1 if mask is None else mask.num_heads for mask in masks]
    flags = windows.allowed(0, rows, columns).expand(max(heads), -1, -1).clone()
    start = first_key = 0
    for mask, part in zip(masks, parts, strict=True):
        stop, last_key = start + part.num_queries, first_key + part.num_keys
        if mask is not None:
            inside = slice(0, part.num_queries), slice(0, part.num_keys)
            for head, block in enumerate(flags):
                block[start:stop, first_key:last_key] &= mask.allowed(head, *inside)
        start, first_key = stop, last_key
    return PackedMask.pack(flags)


def _joined_bias(
    biases: Sequence[Bias | None],
    windows: tuple[torch.Tensor, torch.Tensor],
    places: tuple[torch.Tensor, torch.Tensor],
) -> WindowBias | None:
    if all(bias is None for bias in biases):
        return None
    size = [int(each.max()) + 1 for each in places]
    inside = slice(0, size[0]), slice(0, size[1])
    distinct = biases[:1] if all(bias is biases[0] for bias in biases) else biases
    values = []
    for bias in distinct:
        heads = 1 if bias is None else bias.num_heads
        values.append(
            torch.stack(
                [
                    torch.zeros(*size) if bias is None else bias.added(head, *inside).expand(*size)
                    for head in range(heads)
                ]
            )
        )
    most = max(map(len, values))
    return WindowBias(
        torch.stack([each.expand(most, -1, -1) for each in values]), *windows, *places
    )


def _joined_weights(parts: Sequence[torch.Tensor], name: str) -> GivenWeights:
    heads, rows, columns = len(parts[0]), *(sum(p.shape[axis] for p in parts) for axis in (1, 2))
    if heads * rows * columns > _MOST_ENTRIES:
        raise NotImplementedError(
            f"model: {name} attends in {len(parts)} windows of which only the weights are known, "
            f"{rows} x {columns} in all, too many to keep; give a smaller image"
        )
    values = torch.zeros(heads, rows, columns)
    start = first_key = 0
    for part in parts:
        stop, last_key = start + part.shape[1], first_key + part.shape[2]
        values[:, start:stop, first_key:last_key] = part
        start, first_key = stop, last_key
    return GivenWeights(values)
