"""Functions that change attention while a model runs.

The model's attention function computes as usual. Then its output is overwritten for the changed
heads and queries. If a module computes attention in its own code, its weights are overwritten right
after the softmax. The output for all other heads and queries stays bit-identical.
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
from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.inserted import Insertion
from attnviz.record.softmax import row_tiles

__all__ = [
    "Block",
    "ForwardChange",
    "LayerChange",
    "apply_change",
    "check_changeable",
    "edit_weights",
    "output_by_head",
    "replace_outputs",
]


@dataclass(frozen=True)
class LayerChange:
    """Change of the attention in one layer.

    Heads have the model's numbers. Query indices do not count padding.

    Attributes
    ----------
    attend : callable
        Function that takes the layer's attention and returns the changed attention.
    rows : mapping of int to ndarray
        For each head with changed attention, the indices of the changed queries: int64, ascending.
    factors : mapping of int to float
        For each scaled head, the factor that multiplies its output at every query.
    shape : tuple of int
        Number of queries and number of keys of the layer.
    outputs : mapping of int to Tensor
        For each head with replaced output, the vector that replaces its output at every query:
        (value_dim,). The head's factor is applied afterwards.
    """

    attend: Callable[[LayerAttention], LayerAttention]
    rows: Mapping[int, NDArray[np.int64]]
    factors: Mapping[int, float]
    shape: tuple[int, int]
    outputs: Mapping[int, torch.Tensor] = field(default_factory=dict)

    @property
    def heads(self) -> tuple[int, ...]:
        """Numbers of the changed heads, ascending."""
        return tuple(sorted({*self.rows, *self.factors, *self.outputs}))


#: Changes of one forward. A key is the path of a module and the number of its run, from 0.
ForwardChange = Mapping[tuple[str, int], LayerChange]


@dataclass(frozen=True)
class Block:
    """Rows and columns of a call in the attention matrix of a text (the prompt and new tokens).

    Attributes
    ----------
    first_query, first_key : int
        Index of the call's first query, and index of its first key, both in the text.
    num_queries, num_keys : int
        Number of queries and number of keys of the whole text so far.
    """

    first_query: int
    first_key: int
    num_queries: int
    num_keys: int

    def in_text(self, attention: Captured) -> LayerAttention:
        """Extend the attention of a call to all queries and keys of the text so far.

        Queries and keys that are not part of the call are masked.
        """
        attention = _filled_keys(attention, self.num_keys)
        rows, columns = attention.num_queries, attention.num_keys
        if (rows, columns) == (self.num_queries, self.num_keys):
            return attention
        queries = np.arange(self.first_query, self.first_query + rows)
        keys = np.arange(self.first_key, self.first_key + columns)
        return Insertion(queries, keys, self.num_queries, self.num_keys).into(attention)


def _filled_keys(attention: Captured, num_keys: int) -> Captured:
    """Drop keys after the first `num_keys`: entries of a static cache that are not filled yet."""
    if attention.num_keys <= num_keys:
        return attention
    if isinstance(attention, StoredWeights):
        return StoredWeights(attention.values[..., :num_keys])
    return replace(attention, keys=attention.keys[:, :num_keys])


def check_changeable(
    call: AttentionCall, name: str, windows: int, *, several: bool = False
) -> None:
    """Raise NotImplementedError if the attention of a call cannot be changed.

    `name` is the path of the module, and `windows` the number of windows of an example. If
    `several` is True, a call may contain several continuations of one text (beams).
    """
    kind = type(call.module).__name__
    reason = None
    if call.weights is not None:
        reason = "computes its attention in one function, or in a way that cannot be traced"
    elif windows > 1:
        reason = "attends in windows"
    elif call.num_examples > 1 and not several:
        reason = f"attends for {call.num_examples} examples at once"
    elif uses_sink_as_gate(call.module):
        reason = "multiplies its output by a gate that depends on the sink"
    elif call.value is None or not _has_head_axis(call):
        reason = "returns an output that is not (batch, queries, heads, value_dim)"
    if reason is not None:
        raise NotImplementedError(
            f"changes: {name} ({kind}) {reason}, which cannot be changed yet. Pass layers= or "
            "stack= without it."
        )


def _has_head_axis(call: AttentionCall) -> bool:
    value, output = call.value, call.output
    return (
        isinstance(output, torch.Tensor)
        and value is not None
        and tuple(output.shape)
        == (call.num_examples, call.num_queries, call.num_heads, value.shape[-1])
    )


def _check_whole(attention: LayerAttention, change: LayerChange, name: str) -> None:
    """Raise NotImplementedError if a call has only a part of the queries or keys of its layer."""
    shape = attention.num_queries, attention.num_keys
    if shape != change.shape:
        raise NotImplementedError(
            f"changes: {name} attends in parts, here {shape[0]} x {shape[1]} of "
            f"{change.shape[0]} x {change.shape[1]} tokens, which cannot be changed yet. Pass "
            "layers= or stack= without it."
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
    """Overwrite the output of a call for one example, as `change` specifies.

    `attention` is the model's own attention of this example, with all heads. `positions` has the
    queries and keys of the example that are not padding. `name` is the path of the module. In a
    step of a generation, `block` has the indices of the call's queries and keys in the text.
    Changed weights are computed for a few rows at a time, because the matrix of all queries and
    keys may not fit in memory.
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
    attending = change.attend(block.in_text(attention))
    with torch.no_grad(), torch.autocast(output.device.type, enabled=False):
        for heads, changed_rows in _heads_by_rows(change.rows):
            rows = changed_rows[(changed_rows >= block.first_query) & (changed_rows < last)]
            head_values = value[[attention.key_head(head) for head in heads]]
            if positions.keys is not None:
                head_values = head_values[:, positions.keys.to(head_values.device)]
            values = head_values[:, : columns.stop - columns.start].float()
            query_positions = torch.from_numpy(rows - block.first_query)
            if positions.queries is not None:
                query_positions = positions.queries.cpu()[query_positions]
            head_indices = torch.tensor(heads, device=output.device)
            for tile in row_tiles(slice(0, len(rows)), attending.num_keys * len(heads)):
                weights = _weights_of(attending, heads, rows[tile])[:, :, columns]
                replacement = torch.from_numpy(weights).to(values.device) @ values
                query_indices = query_positions[tile].to(output.device)[:, None]
                output[query_indices, head_indices] = replacement.transpose(0, 1).to(output.dtype)
        for head, vector in change.outputs.items():
            output[:, head] = vector.to(output)
        for head, factor in change.factors.items():
            if factor == 0:
                # Assign 0 instead of multiplying by 0, because infinite outputs would become NaN.
                output[:, head] = 0
            else:
                output[:, head] *= factor


def _heads_by_rows(
    rows: Mapping[int, NDArray[np.int64]],
) -> list[tuple[list[int], NDArray[np.int64]]]:
    """Group heads with the same queries in `rows`. Return the heads and queries of each group."""
    groups: dict[bytes, tuple[list[int], NDArray[np.int64]]] = {}
    for head, queries in rows.items():
        groups.setdefault(queries.tobytes(), ([], queries))[0].append(head)
    return list(groups.values())


def _weights_of(
    attention: LayerAttention, heads: list[int], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the weights of `heads` in the rows `rows` (ascending): (heads, rows, keys)."""
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
    """Overwrite the weights of a module right after its softmax.

    The module computes attention in its own code, and then multiplies the changed weights by the
    values. `weights` are (examples, heads, queries, keys) or (examples * heads, queries, keys). If
    `examples` is more than 1, the examples are continuations of one text, and all of them are
    changed. `name` is used in errors. `positions` and `block` are as for `apply_change`.
    """
    by_example = weights
    if weights.dim() == 3 and len(weights) % examples == 0:
        by_example = weights.view(examples, -1, *weights.shape[1:])
    if by_example.dim() != 4 or len(by_example) != examples:
        raise NotImplementedError(
            f"changes: the weights of {name} have the shape {tuple(weights.shape)} (windows or "
            "groups of heads), which cannot be changed yet. Pass layers= or stack= without it."
        )
    for heads in by_example:
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
            f"changes: {name} has {len(heads)} matrices of weights, and none for head {wrong[0]}"
        )
    queries, keys = (
        torch.arange(size) if indices is None else indices.cpu()
        for size, indices in zip(heads.shape[1:], (positions.queries, positions.keys), strict=True)
    )
    with torch.no_grad():
        attention = StoredWeights(heads.detach().cpu()[:, queries][:, :, keys].float())
        if block is None:
            _check_whole(attention, change, name)
            block = Block(0, 0, attention.num_queries, attention.num_keys)
        last = block.first_query + attention.num_queries
        columns = slice(block.first_key, min(block.num_keys, block.first_key + attention.num_keys))
        keys = keys[: columns.stop - columns.start]
        attending = change.attend(block.in_text(attention))
        for head, changed_rows in change.rows.items():
            rows = changed_rows[(changed_rows >= block.first_query) & (changed_rows < last)]
            for tile in row_tiles(slice(0, len(rows)), attending.num_keys):
                replacement, _ = attending.weights_of_rows(head, rows[tile])
                query_positions = queries[torch.from_numpy(rows[tile] - block.first_query)]
                part = torch.from_numpy(replacement[:, columns]).to(heads)
                heads[head, query_positions[:, None].to(heads.device), keys.to(heads.device)] = part
        for head, factor in change.factors.items():
            # `replace_outputs` applies the factor of a head with replaced output.
            if head not in change.outputs:
                heads[head] *= factor


def replace_outputs(call: AttentionCall, change: LayerChange, name: str, examples: int) -> None:
    """Write ``change.outputs`` into the output of a module that computes attention in its own code.

    Each vector is multiplied by the factor of its head. Other heads need no change here, because
    the module computed their outputs from the weights that `edit_weights` wrote.
    """
    if change.outputs:
        output = output_by_head(call, name, examples)
        with torch.no_grad():
            for head, vector in change.outputs.items():
                output[:, :, head] = vector.to(output) * change.factors.get(head, 1.0)


def output_by_head(call: AttentionCall, name: str, examples: int = 1) -> torch.Tensor:
    """Return a view of a call's output as (examples, queries, heads, value_dim).

    `examples` is the number of examples, needed only for a call with weights. Raise
    NotImplementedError if the axes of the output are not known.
    """
    output, has_known_axes = call.output, call.value is not None
    if isinstance(output, torch.Tensor) and call.weights is not None:
        # The output may have batch and heads as one axis, or two axes for the heads. If the reshape
        # had to copy the output, the address changes, and the result is not a view.
        address = output.data_ptr()
        output = output.reshape(examples, -1, *output.shape[-2:]).transpose(1, 2)
        has_known_axes = output.data_ptr() == address
    if not isinstance(output, torch.Tensor) or output.dim() != 4 or not has_known_axes:
        raise NotImplementedError(
            f"model: {name} ({type(call.module).__name__}) returns an output that is not "
            "(batch, queries, heads, value_dim), which cannot be changed yet"
        )
    return output
