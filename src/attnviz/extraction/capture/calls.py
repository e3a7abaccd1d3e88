"""From one attention call to what a record keeps of it, one entry an example."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import torch

from attnviz.extraction.capture.check import SelfCheck, sinks_of, uses_sink_as_gate
from attnviz.extraction.capture.copies import Copier
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import MaskReader, Positions
from attnviz.record.attention import GivenWeights, QueryKeyAttention

__all__ = ["Captured", "capture", "read_attention", "with_four_axes"]

Captured = QueryKeyAttention | GivenWeights


def with_four_axes(
    call: AttentionCall, batch_size: int, num_tokens: Collection[int] = ()
) -> AttentionCall:
    """Give every tensor of a call the axes (batch, heads, queries or keys, ...).

    Batch and heads may be one axis, or heads two (groups and the heads of each). `num_tokens`, how
    many tokens an example may have, tells windows from groups of heads.
    """
    if call.weights is None:
        return call
    leading = call.weights.shape[:-2]
    if len(leading) == 3 and leading[2] * call.weights.shape[-1] in num_tokens:
        # (batch, heads, windows, queries, keys), as Hiera has it: windows become examples.
        return _each(call, lambda tensor: tensor.transpose(1, 2).flatten(0, 1))

    def with_four(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 5:
            shape = leading if len(leading) == 3 else tensor.shape[:3]
            return tensor.expand(*shape, *tensor.shape[-2:]).flatten(1, 2)
        if tensor.dim() == 3:
            examples = 1 if len(tensor) == 1 else batch_size
            return tensor.reshape(examples, -1, *tensor.shape[1:])
        return tensor

    return _each(call, with_four)


def _each(call: AttentionCall, change: Callable[[torch.Tensor], torch.Tensor]) -> AttentionCall:
    def changed(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else change(tensor)

    return replace(
        call,
        query=changed(call.query),
        key=changed(call.key),
        mask=changed(call.mask),
        weights=changed(call.weights),
        added=tuple(map(change, call.added)),
    )


def capture(
    call: AttentionCall,
    unpadded: Sequence[Positions],
    masks: MaskReader,
    copier: Copier,
    check: SelfCheck,
    *,
    name: str,
    turn: int,
    windows: bool = False,
) -> tuple[list[Captured], float | None]:
    """Copy what an attention's weights need, example by example, and measure what rounding does.

    `unpadded` has an entry for each example (or, with `windows`, for each window), `name` is the
    module's path, for errors, and `turn` the number of the call: it decides on which window
    rounding is measured.

    Returns the copies, one an entry, and how far weights are off because copies are rounded (see
    `Copier.error`). Raises NotImplementedError if the weights are not what the model used,
    ValueError if numbers are too large for the dtype or not finite, and OSError if a spool cannot
    be written.
    """
    heads = range(call.num_heads)
    read = read_attention(call, unpadded, masks, check, heads=heads, name=name)
    if not all(map(_is_finite, read)):
        raise ValueError(
            f"model: the queries or keys of {name} ({type(call.module).__name__}) hold NaN or "
            "infinite numbers; look at its weights, and at the precision that it runs in"
        )
    # Of hundreds of windows, one a layer is enough to measure rounding.
    measured = [read[turn % len(read)]] if windows else read
    errors = [error for each in measured if (error := copier.error(each)) is not None]
    # Windows are put together before they are written.
    slots = [None if windows else (index, name) for index in range(len(read))]
    copies = [copier.copy(each, slot) for each, slot in zip(read, slots, strict=True)]
    return copies, max(errors, default=None)


def read_attention(
    call: AttentionCall,
    unpadded: Sequence[Positions],
    masks: MaskReader,
    check: SelfCheck,
    *,
    heads: Sequence[int],
    name: str,
) -> Sequence[Captured]:
    """What an attention's weights need, example by example, as the model has it.

    Nothing is copied. Arguments and errors are those of `capture`; `heads` are those to be compared
    with the model's output.
    """
    if call.query is None or call.key is None:
        return [_given(call, index, each) for index, each in enumerate(unpadded)]
    try:
        read = masks.read(call, unpadded)
    except NotImplementedError:
        if call.weights is None:
            raise
        return [_given(call, index, each) for index, each in enumerate(unpadded)]
    found = [
        QueryKeyAttention(
            queries=_part(call.query, index, positions.queries),
            keys=_part(call.key, index, positions.keys),
            scale=_scale(call),
            mask=mask,
            bias=bias,
            softcap=_softcap(call),
            sinks=None if uses_sink_as_gate(call.module) else sinks_of(call),
        )
        for index, (positions, (mask, bias)) in enumerate(zip(unpadded, read, strict=True))
    ]
    if call.weights is None:
        if heads:
            check.check_output(call, found, unpadded, heads, name)
    elif not check.agrees_with_weights(call, found, unpadded, heads):
        # What was traced doesn't account for the weights: these are known all the same.
        return [_given(call, index, each) for index, each in enumerate(unpadded)]
    return found


def _is_finite(attention: Captured) -> bool:
    # A sum is finite where all are, unless it grows too large: it takes no memory, and less time.
    return all(
        math.isfinite(float(tensor.sum(dtype=_wide(tensor.dtype))))
        or bool(torch.isfinite(tensor).all())
        for tensor in attention.tensors
    )


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _part(tensor: torch.Tensor, index: int, positions: torch.Tensor | None) -> torch.Tensor:
    block = tensor.detach()[index if tensor.shape[0] > 1 else 0]
    if positions is None:
        return block
    if int(positions[-1]) == len(positions) - 1:
        # All padding is behind: a view, without a copy.
        return block[:, : len(positions)]
    return block[:, positions.to(block.device)]


def _given(call: AttentionCall, index: int, positions: Positions) -> GivenWeights:
    weights = call.weights
    if weights is None:
        raise TypeError("a call without queries and keys must have weights")
    block = _part(weights, index, positions.queries)
    if positions.keys is not None:
        block = block[..., positions.keys.to(block.device)]
    return GivenWeights(block.float())


def _scale(call: AttentionCall) -> float:
    scaling = call.options.get("scaling")
    if scaling is None:
        return 1.0 if call.query is None else float(call.query.shape[-1] ** -0.5)
    return float(scaling)


def _softcap(call: AttentionCall) -> float | None:
    # Torch's own function knows no cap: versions that are asked for both leave it out.
    softcap = None if call.implementation == "sdpa" else call.options.get("softcap")
    return None if softcap is None else float(softcap)
