"""Attention that is changed while a model runs.

The model's own attention function computes as always. Then the output of some heads at some queries
is written over by what other weights give. What is not changed keeps the model's own bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.calls import Captured
from attnviz.extraction.capture.check import uses_sink_as_gate
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import Positions
from attnviz.record.attention import GivenWeights, LayerAttention, QueryKeyAttention
from attnviz.record.inserted import Insertion
from attnviz.record.softmax import tiles

__all__ = [
    "Block",
    "ForwardChange",
    "LayerChange",
    "apply_change",
    "check_changeable",
    "edit_weights",
    "laid_out",
    "replace_outputs",
]


@dataclass(frozen=True)
class LayerChange:
    """What is changed in one layer; heads by the model's numbers, queries without padding.

    Attributes
    ----------
    attend : callable
        Takes the layer's attention, and gives what it attends with instead.
    rows : mapping of int to ndarray
        For each head that attends otherwise its queries that do, int64, ascending.
    factors : mapping of int to float
        For each head what its output is multiplied with, at every query.
    shape : tuple of int
        How many queries and keys the layer has.
    outputs : mapping of int to Tensor
        For each head whose output is replaced what stands there instead at every query, before
        `factors`; (value_dim,).
    """

    attend: Callable[[LayerAttention], LayerAttention]
    rows: Mapping[int, NDArray[np.int64]]
    factors: Mapping[int, float]
    shape: tuple[int, int]
    outputs: Mapping[int, torch.Tensor] = field(default_factory=dict)

    @property
    def heads(self) -> tuple[int, ...]:
        """Heads that are changed, ascending."""
        return tuple(sorted({*self.rows, *self.factors, *self.outputs}))


#: What is changed in a forward: by a module's path, and by which of its runs it is.
ForwardChange = Mapping[tuple[str, int], LayerChange]


@dataclass(frozen=True)
class Block:
    """Where the queries and keys of one call stand among those of the whole text so far.

    Attributes
    ----------
    first_query, first_key : int
        The tokens that the call's first query and first key are.
    num_queries, num_keys : int
        How many of them the text has by then.
    """

    first_query: int
    first_key: int
    num_queries: int
    num_keys: int

    def whole(self, attention: Captured) -> LayerAttention:
        """A call's attention among all queries and keys; what is not in the call is hidden."""
        attention = _without_unfilled(attention, self.num_keys)
        rows, columns = attention.num_queries, attention.num_keys
        if (rows, columns) == (self.num_queries, self.num_keys):
            return attention
        queries = np.arange(self.first_query, self.first_query + rows)
        keys = np.arange(self.first_key, self.first_key + columns)
        return Insertion(queries, keys, self.num_queries, self.num_keys).into(attention)


def _without_unfilled(attention: Captured, num_keys: int) -> Captured:
    """Without the keys of a static cache in which nothing stands yet."""
    if attention.num_keys <= num_keys:
        return attention
    if isinstance(attention, GivenWeights):
        return GivenWeights(attention.values[..., :num_keys])
    return replace(attention, keys=attention.keys[:, :num_keys])


def check_changeable(
    call: AttentionCall, name: str, windows: int, *, several: bool = False
) -> None:
    """Raise NotImplementedError where a module's attention cannot be changed.

    `name` is its path in the model. With `several`, one call may be of several continuations of the
    same text (beams).
    """
    kind = type(call.module).__name__
    reason = None
    if call.weights is not None:
        reason = "computes its attention in one function, or in a way that cannot be followed"
    elif windows > 1:
        reason = "attends in windows"
    elif call.num_examples > 1 and not several:
        reason = f"attends for {call.num_examples} examples at once"
    elif uses_sink_as_gate(call.module):
        reason = "multiplies its output with a gate that depends on the sink"
    elif call.value is None or not _is_laid_out(call):
        reason = "gives an output that is not (batch, queries, heads, value_dim)"
    if reason is not None:
        raise NotImplementedError(
            f"changes: {name} ({kind}) {reason}, where nothing can be changed yet; give layers= or "
            "stack= without it"
        )


def _is_laid_out(call: AttentionCall) -> bool:
    value, output = call.value, call.output
    return (
        isinstance(output, torch.Tensor)
        and value is not None
        and tuple(output.shape)
        == (call.num_examples, call.num_queries, call.num_heads, value.shape[-1])
    )


def _check_whole(attention: LayerAttention, change: LayerChange, name: str) -> None:
    """Refuse an attention that is one of several of its layer."""
    shape = attention.num_queries, attention.num_keys
    if shape != change.shape:
        raise NotImplementedError(
            f"changes: {name} attends in parts, here {shape[0]} x {shape[1]} of "
            f"{change.shape[0]} x {change.shape[1]} tokens, where nothing can be changed yet; give "
            "layers= or stack= without it"
        )


def apply_change(
    call: AttentionCall,
    attention: QueryKeyAttention,
    positions: Positions,
    change: LayerChange,
    name: str,
    *,
    example: int = 0,
    block: Block | None = None,
) -> None:
    """Write over the output of one attention of one example what a change makes of it.

    `attention` is the model's own, all of its heads, and `name` its module's path. With `block` it
    is a step of a longer text. Some rows at a time: nothing as large as queries times keys is held.
    """
    output, value = call.output[example], call.value
    if value is None:
        raise TypeError("an attention without values cannot be changed")
    if block is None:
        _check_whole(attention, change, name)
        block = Block(0, 0, attention.num_queries, attention.num_keys)
    value = value[example if len(value) > 1 else 0]
    last = block.first_query + attention.num_queries
    columns = slice(block.first_key, min(block.num_keys, block.first_key + attention.num_keys))
    attending = change.attend(block.whole(attention))
    with torch.no_grad(), torch.autocast(output.device.type, enabled=False):
        for heads, wanted in _heads_by_rows(change.rows):
            rows = wanted[(wanted >= block.first_query) & (wanted < last)]
            own = value[[attention.key_head(head) for head in heads]]
            if positions.keys is not None:
                own = own[:, positions.keys.to(own.device)]
            values = own[:, : columns.stop - columns.start].float()
            placed = torch.from_numpy(rows - block.first_query)
            if positions.queries is not None:
                placed = positions.queries.cpu()[placed]
            chosen = torch.tensor(heads, device=output.device)
            for tile in tiles(slice(0, len(rows)), attending.num_keys * len(heads)):
                weights = _weights_of(attending, heads, rows[tile])[:, :, columns]
                found = torch.from_numpy(weights).to(values.device) @ values
                at = placed[tile].to(output.device)[:, None]
                output[at, chosen] = found.transpose(0, 1).to(output.dtype)
        for head, given in change.outputs.items():
            output[:, head] = given.to(output)
        for head, factor in change.factors.items():
            if factor == 0:
                # Also where an output is infinite.
                output[:, head] = 0
            else:
                output[:, head] *= factor


def _heads_by_rows(
    rows: Mapping[int, NDArray[np.int64]],
) -> list[tuple[list[int], NDArray[np.int64]]]:
    """Heads that attend otherwise at the same queries, together."""
    found: dict[bytes, tuple[list[int], NDArray[np.int64]]] = {}
    for head, wanted in rows.items():
        found.setdefault(wanted.tobytes(), ([], wanted))[0].append(head)
    return list(found.values())


def _weights_of(
    attention: LayerAttention, heads: list[int], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Weights of some heads and queries, (heads, rows, keys)."""
    if len(rows) == rows[-1] - rows[0] + 1:
        return attention.weights_of_heads(heads, slice(int(rows[0]), int(rows[-1]) + 1))
    return np.stack([attention.weights_of_rows(head, rows)[0] for head in heads])


def edit_weights(
    weights: torch.Tensor,
    positions: Positions,
    change: LayerChange,
    name: str,
    *,
    examples: int = 1,
    block: Block | None = None,
) -> None:
    """Write over the weights of one example as they come out of a module's softmax.

    (1, heads, queries, keys) or (heads, queries, keys); with more `examples`, of as many
    continuations of one text. For modules that compute their attention without the dispatcher: what
    the softmax gives is all that the model goes on with.
    """
    whole = weights
    if weights.dim() == 3 and len(weights) % examples == 0:
        whole = weights.view(examples, -1, *weights.shape[1:])
    if whole.dim() != 4 or len(whole) != examples:
        raise NotImplementedError(
            f"changes: {name} attends with weights of the shape {tuple(weights.shape)}, windows or "
            "groups of heads, where nothing can be changed yet; give layers= or stack= without it"
        )
    for heads in whole:
        _edit_example(heads, positions, change, name, block)


def _edit_example(
    heads: torch.Tensor,
    positions: Positions,
    change: LayerChange,
    name: str,
    block: Block | None,
) -> None:
    wrong = [head for head in change.heads if head >= len(heads)]
    if wrong:
        raise NotImplementedError(
            f"changes: {name} has {len(heads)} matrices of weights, and not one for head {wrong[0]}"
        )
    queries, keys = (
        torch.arange(size) if each is None else each.cpu()
        for size, each in zip(heads.shape[1:], (positions.queries, positions.keys), strict=True)
    )
    with torch.no_grad():
        own = GivenWeights(heads.detach().cpu()[:, queries][:, :, keys].float())
        if block is None:
            _check_whole(own, change, name)
            block = Block(0, 0, own.num_queries, own.num_keys)
        last = block.first_query + own.num_queries
        columns = slice(block.first_key, min(block.num_keys, block.first_key + own.num_keys))
        keys = keys[: columns.stop - columns.start]
        attending = change.attend(block.whole(own))
        for head, wanted in change.rows.items():
            rows = wanted[(wanted >= block.first_query) & (wanted < last)]
            for tile in tiles(slice(0, len(rows)), attending.num_keys):
                found, _ = attending.weights_of_rows(head, rows[tile])
                placed = queries[torch.from_numpy(rows[tile] - block.first_query)]
                part = torch.from_numpy(found[:, columns]).to(heads)
                heads[head, placed[:, None].to(heads.device), keys.to(heads.device)] = part
        for head, factor in change.factors.items():
            # What stands in place of an output is multiplied there.
            if head not in change.outputs:
                heads[head] *= factor


def replace_outputs(call: AttentionCall, change: LayerChange, name: str, examples: int) -> None:
    """Put what stands in place of outputs where a module computed them without the dispatcher.

    The weights of its other heads are those that `edit_weights` left.
    """
    if change.outputs:
        output = laid_out(call, name, examples)
        with torch.no_grad():
            for head, given in change.outputs.items():
                output[:, :, head] = given.to(output) * change.factors.get(head, 1.0)


def laid_out(call: AttentionCall, name: str, examples: int = 1) -> torch.Tensor:
    """A call's output as (examples, queries, heads, value_dim), in the memory that it has.

    `examples` need be said only for modules that do not use the dispatcher. Raises
    NotImplementedError where it is not known.
    """
    output, known = call.output, call.value is not None
    if isinstance(output, torch.Tensor) and call.weights is not None:
        # Batch and heads may be one axis, or heads two.
        own = output.data_ptr()
        output = output.reshape(examples, -1, *output.shape[-2:]).transpose(1, 2)
        known = output.data_ptr() == own
    if not isinstance(output, torch.Tensor) or output.dim() != 4 or not known:
        raise NotImplementedError(
            f"model: {name} ({type(call.module).__name__}) gives an output that is not (batch, "
            "queries, heads, value_dim), where nothing can be changed yet"
        )
    return output
