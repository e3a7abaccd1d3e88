"""Functions that change attention while a model runs.

The model's attention function computes as usual. Then the function's output is overwritten for the
changed heads and queries. If a module computes attention in its own code, the weights of the module
are overwritten right after the softmax. In this case, the output of the module is overwritten only
for heads whose output is replaced. The output for unchanged heads and queries stays bit-identical.
A row is the weights of one query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attnviz.extraction.capture.check import uses_sink_as_gate
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import Positions
from attnviz.extraction.capture.sparse import SparseCall
from attnviz.extraction.hooks import Hooks
from attnviz.record.attention import (
    LayerAttention,
    QueryKeyAttention,
    StoredAttention,
    StoredWeights,
)
from attnviz.record.softmax import as_rows, row_tiles
from attnviz.record.units import in_units
from attnviz.utils.cleanup import Cleanup


def _itself(attention: LayerAttention) -> LayerAttention:
    return attention


@dataclass(frozen=True)
class LayerChange:
    """Change of one example's attention in one layer. By default, nothing changes.

    Heads have the model's numbers. Indices and numbers of queries and keys do not count padding.

    Attributes
    ----------
    shape : tuple of int
        Number of queries and number of keys of the layer.
    attend : callable
        Function that takes the layer's attention and returns the changed attention.
    rows : mapping of int to ndarray
        For each head with changed attention, the indices of the changed queries: int64, ascending.
    factors : mapping of int to float
        For each scaled head, the factor that multiplies its output at every query.
    outputs : mapping of int to Tensor
        For each head with replaced output, the vector that replaces its output at every query,
        (value_dim,), or one vector per query, (queries, value_dim). The head's factor is applied
        afterwards.
    projection : Module or None
        Output projection of the module, if the module multiplies the outputs of heads by a gate.
        Then `outputs` replace the outputs after the gate, which are the input of the projection.
    """

    shape: tuple[int, int]
    attend: Callable[[LayerAttention], LayerAttention] = _itself
    rows: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    factors: Mapping[int, float] = field(default_factory=dict)
    outputs: Mapping[int, torch.Tensor] = field(default_factory=dict)
    projection: nn.Module | None = None

    @property
    def heads(self) -> tuple[int, ...]:
        """Numbers of the changed heads, ascending."""
        return tuple(sorted({*self.rows, *self.factors, *self.outputs}))

    @property
    def identity(self) -> LayerChange:
        """Change of the same rows that keeps their weights, and only computes their output again.

        Its effect shows how much rounding alone contributes to the effect of this change. It has
        neither the factors nor the replaced outputs of this change.
        """
        return LayerChange(self.shape, rows=self.rows)

    def of_heads(self, first: int, count: int) -> LayerChange:
        """Return the change of `count` heads from head `first`. Their numbers then begin at 0."""
        heads = range(first, first + count)
        return replace(
            self,
            rows={head - first: rows for head, rows in self.rows.items() if head in heads},
            factors={head - first: one for head, one in self.factors.items() if head in heads},
            outputs={head - first: one for head, one in self.outputs.items() if head in heads},
        )

    def then(self, later: LayerChange) -> LayerChange:
        """Return one change that applies this change, and then the change `later`."""
        rows = {**self.rows}
        for head, changed in later.rows.items():
            rows[head] = np.union1d(rows.get(head, changed), changed)
        # Drop the factor of a head whose output `later` replaces, because the new output does not
        # depend on earlier changes.
        factors = {head: one for head, one in self.factors.items() if head not in later.outputs}
        for head, factor in later.factors.items():
            factors[head] = factors.get(head, 1.0) * factor
        return LayerChange(
            self.shape,
            lambda attention: later.attend(self.attend(attention)),
            rows,
            factors,
            {**self.outputs, **later.outputs},
            self.projection or later.projection,
        )


#: Run of a module in a forward: the path of the module, and the number of its earlier runs in the
#: same forward. A module may run several times in a forward.
ModuleRun = tuple[str, int]

#: Changes of one example in a forward, by the run of the module whose attention changes.
ForwardChange = Mapping[ModuleRun, LayerChange]


@dataclass(frozen=True)
class Block:
    """Location of the weights of one attention call in the attention matrix of a text.

    The rows of the matrix are the queries of the text, and the columns are its keys. One call may
    compute only a part of the matrix. In a step of a generation, the text is the prompt and all
    tokens so far.

    Attributes
    ----------
    first_query, first_key : int
        Index of the call's first query among the queries of the text, and index of its first key
        among the keys of the text.
    num_queries, num_keys : int
        Number of queries and number of keys of the whole text so far.
    """

    first_query: int
    first_key: int
    num_queries: int
    num_keys: int

    def in_text(self, attention: StoredAttention) -> LayerAttention:
        """Extend the attention of a call to all queries and keys of the text so far.

        Queries and keys that are not in the call get weights of 0.
        """
        attention = _filled_keys(attention, self.num_keys)
        rows, columns = attention.num_queries, attention.num_keys
        return in_units(
            attention,
            np.clip(np.arange(self.num_queries) - self.first_query, 0, rows),
            np.clip(np.arange(self.num_keys) - self.first_key, 0, columns),
        )


def _filled_keys(attention: StoredAttention, num_keys: int) -> StoredAttention:
    """Keep the first `num_keys` keys. Later keys are entries of a static cache without a token."""
    if isinstance(attention, StoredWeights):
        return StoredWeights(attention.weights[..., :num_keys])
    if isinstance(attention, QueryKeyAttention) and attention.num_keys > num_keys:
        return replace(attention, keys=attention.keys[:, :num_keys])
    return attention


#: Change of each example, or None for an example that does not change.
Changes = Sequence[LayerChange | None]


class Changer:
    """Changes of the attention of modules while a model runs.

    Parameters
    ----------
    undo : Cleanup
        Hooks are removed when its ``with`` block ends.

    Attributes
    ----------
    changed : set of ModuleRun
        Runs of modules whose attention was changed.
    """

    def __init__(self, undo: Cleanup) -> None:
        self.changed: set[ModuleRun] = set()
        self._undo = undo
        # For each output projection that will run next, the call whose output it gets, and the
        # changes of this call for each example.
        self._waiting: dict[nn.Module, tuple[AttentionCall, Changes]] = {}
        self._hooked: set[nn.Module] = set()

    def change_outputs(
        self,
        module_run: ModuleRun,
        call: AttentionCall,
        changes: Changes,
        positions: Sequence[Positions],
        read: Callable[[], Sequence[StoredAttention]],
        *,
        block: Block | None = None,
    ) -> None:
        """Overwrite the output of a call.

        `read` returns the model's own attention of each example, and compares it with the output.
        `positions` has the queries and keys of each example that are not padding. If `edit_weights`
        has already changed the weights of this call, only heads with a replaced output are
        overwritten. `block` is the location of the call in the text. It is None outside of a
        generation, where a call has all queries and keys. Outputs after a gate are replaced when
        the output projection runs.

        Raise NotImplementedError if the output of the call cannot be changed.
        """
        name = module_run[0]
        edited = module_run in self.changed and call.weights is not None
        self.changed.add(module_run)
        made = [change for change in changes if change is not None and change.heads]
        if edited and not any(change.outputs for change in made):
            return
        has_rows = any(change.rows for change in made)
        if not edited:
            _check_changeable(call, len(changes), name, rows=has_rows)
        outputs = output_by_head(call, name, len(changes))
        if not edited and has_rows:
            for example, (change, attention) in enumerate(zip(changes, read(), strict=True)):
                if change is not None and change.rows:
                    changed = _changed_weights(attention, change, name, block)
                    _change_rows(call, example, attention, positions[example], changed)
        with torch.no_grad():
            for output, change in zip(outputs, changes, strict=True):
                if change is not None:
                    _replace_outputs(output, change, edited=edited)
        self._wait(call, changes)

    def edit_weights(
        self,
        module_run: ModuleRun,
        module: nn.Module,
        weights: torch.Tensor,
        changes: Changes,
        positions: Sequence[Positions],
        *,
        block: Block | None = None,
    ) -> None:
        """Overwrite the weights of a module right after its softmax.

        The module computes attention in its own code. Afterwards it multiplies the changed weights
        by the values. `weights` are (examples, heads, queries, keys) or
        (examples * heads, queries, keys). The other arguments are as for `change_outputs`.
        """
        name = f"{module_run[0]} ({type(module).__name__})"
        if module_run in self.changed:
            raise NotImplementedError(
                f"changes: {name} computes several softmaxes, and it is unclear which one is its "
                "attention. Pass layers= or stack= without it."
            )
        by_example = weights
        if weights.dim() == 3 and len(weights) % len(changes) == 0:
            by_example = weights.view(len(changes), -1, *weights.shape[1:])
        if by_example.dim() != 4 or len(by_example) != len(changes):
            raise NotImplementedError(
                f"changes: the weights of {name} have the shape {tuple(weights.shape)} (windows or "
                "groups of heads), which cannot be changed yet. Pass layers= or stack= without it."
            )
        with torch.no_grad():
            for heads, change, unpadded in zip(by_example, changes, positions, strict=True):
                if change is not None:
                    _edit_example(heads, unpadded, change, name, block)
        self.changed.add(module_run)

    def _wait(self, call: AttentionCall, changes: Changes) -> None:
        """Replace outputs when the projection of `call` runs. Nothing changes without gates."""
        for projection in {change.projection for change in changes if change is not None}:
            if projection is None:
                continue
            if projection not in self._hooked:
                self._hooked.add(projection)
                Hooks(self._undo).add(projection.register_forward_pre_hook, self._replace)
            self._waiting[projection] = call, changes

    def _replace(self, projection: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        waiting = self._waiting.pop(projection, None)
        if waiting is None:
            return None
        call, changes = waiting
        gated = inputs[0].reshape(call.output.shape).clone()
        for output, change in zip(gated, changes, strict=True):
            if change is not None and change.projection is projection:
                _replace_outputs(output, change, edited=True)
        return gated.reshape(inputs[0].shape), *inputs[1:]


def _replace_outputs(output: torch.Tensor, change: LayerChange, *, edited: bool) -> None:
    """Replace outputs of heads, and multiply outputs of heads by factors.

    `output` is (queries, heads, value_dim). If `edited` is True, only the factors of heads with a
    replaced output are applied, because `edit_weights` has already applied the factors of all other
    heads to their weights.
    """
    for head, vector in change.outputs.items():
        output[:, head] = vector.to(output)
    for head, factor in change.factors.items():
        if edited and head not in change.outputs:
            continue
        if factor == 0:
            # Assign 0 instead of multiplying by 0, because infinite outputs would become NaN.
            output[:, head] = 0
        else:
            output[:, head] *= factor


def _check_changeable(call: AttentionCall, num_examples: int, name: str, *, rows: bool) -> None:
    """Raise NotImplementedError if the output of a call cannot be changed.

    `num_examples` is the number of examples of the batch. `rows` is whether rows of the output will
    be computed again from changed weights.
    """
    kind = type(call.module).__name__
    reason = None
    if call.weights is not None:
        reason = "computes its attention in one function, or in a way that cannot be traced"
    elif call.num_examples != num_examples:
        reason = f"attends in windows or groups, {call.num_examples} in a batch of {num_examples}"
    elif rows and not call.multiplies_values:
        reason = "has one matrix of weights for each channel, not for each head"
    elif rows and uses_sink_as_gate(call.module):
        reason = "multiplies its output by a gate that depends on the sink"
    if reason is not None:
        raise NotImplementedError(
            f"changes: {name} ({kind}) {reason}, which cannot be changed yet. Pass layers= or "
            "stack= without it."
        )


#: Iterator of heads, rows and the changed weights of these heads and rows, (heads, rows, keys). A
#: row is an index into the queries of the attention call, not counting padding.
_ChangedWeights = Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]


def _change_rows(
    call: AttentionCall,
    example: int,
    attention: StoredAttention,
    unpadded: Positions,
    changed: _ChangedWeights,
) -> None:
    """Overwrite the outputs of the changed rows of one example.

    The new outputs are the products of the weights in `changed` and the values of the call.
    """
    output, value = call.output[example], call.value
    if value is None:
        raise TypeError("attention without values cannot be changed")
    global_value = flags = None
    if isinstance(call, SparseCall):
        global_value, flags = call.global_value, call.is_global

    def times_values(weights: torch.Tensor, heads: list[int], value: torch.Tensor) -> torch.Tensor:
        value = value[example if len(value) > 1 else 0]
        if unpadded.keys is not None:
            value = value[:, unpadded.keys.to(value.device)]
        heads_per_value = attention.num_heads // len(value)
        values = value[[head // heads_per_value for head in heads], : weights.shape[2]].float()
        return (weights.to(values.device) @ values).transpose(0, 1)

    with torch.no_grad(), torch.autocast(output.device.type, enabled=False):
        for heads, rows, weights in changed:
            positions = rows if unpadded.queries is None else unpadded.queries.cpu()[rows]
            replacement = times_values(weights, heads, value)
            if global_value is not None and flags is not None:
                is_global = flags[example, positions.to(output.device)]
                of_global = times_values(weights, heads, global_value)
                replacement = torch.where(is_global[:, None, None], of_global, replacement)
            indices = positions.to(output.device)[:, None], torch.tensor(heads).to(output.device)
            output[indices] = replacement.to(output.dtype)


def _changed_weights(
    attention: StoredAttention, change: LayerChange, name: str, block: Block | None
) -> _ChangedWeights:
    """Yield the changed weights of a call.

    The weights of a few rows are computed at a time, because the matrix of all queries and keys may
    not fit in memory. If `block` is None, raise NotImplementedError unless the call has all queries
    and keys of the layer.
    """
    if block is None:
        shape = attention.num_queries, attention.num_keys
        if shape != change.shape:
            raise NotImplementedError(
                f"changes: {name} attends in parts or to padding, here {shape[0]} x {shape[1]} of "
                f"{change.shape[0]} x {change.shape[1]} tokens, which cannot be changed yet. Pass "
                "layers= or stack= without it, and a text without padding."
            )
        block = Block(0, 0, *shape)
    first, last = block.first_query, block.first_query + attention.num_queries
    columns = slice(block.first_key, min(block.num_keys, block.first_key + attention.num_keys))
    attending = change.attend(block.in_text(attention))
    for heads, changed_rows in _heads_by_rows(change.rows):
        rows = changed_rows[(changed_rows >= first) & (changed_rows < last)]
        for tile in row_tiles(slice(0, len(rows)), attending.num_keys * len(heads)):
            weights = attending.block(heads, as_rows(rows[tile]), columns)
            yield heads, torch.from_numpy(rows[tile] - first), weights


def _heads_by_rows(
    rows: Mapping[int, NDArray[np.int64]],
) -> list[tuple[list[int], NDArray[np.int64]]]:
    """Group heads with the same queries in `rows`. Return the heads and queries of each group."""
    groups: dict[bytes, tuple[list[int], NDArray[np.int64]]] = {}
    for head, queries in rows.items():
        groups.setdefault(queries.tobytes(), ([], queries))[0].append(head)
    return list(groups.values())


def _edit_example(
    matrices: torch.Tensor,
    positions: Positions,
    change: LayerChange,
    name: str,
    block: Block | None,
) -> None:
    wrong = [head for head in change.heads if head >= len(matrices)]
    if wrong:
        raise NotImplementedError(
            f"changes: {name} has {len(matrices)} matrices of weights, and none for head {wrong[0]}"
        )
    if change.rows:
        queries, keys = (
            torch.arange(size) if indices is None else indices.cpu()
            for size, indices in zip(
                matrices.shape[1:], (positions.queries, positions.keys), strict=True
            )
        )
        attention = StoredWeights(matrices.detach().cpu()[:, queries][:, :, keys].float())
        for heads, rows, changed in _changed_weights(attention, change, name, block):
            index = (
                torch.tensor(heads)[:, None, None],
                queries[rows][:, None],
                keys[: changed.shape[2]],
            )
            on_device = tuple(indices.to(matrices.device) for indices in index)
            matrices[on_device] = changed.to(matrices)
    for head, factor in change.factors.items():
        # Do not apply the factor of a head whose output is replaced: `change_outputs` applies this
        # factor to the new output.
        if head not in change.outputs:
            matrices[head] *= factor


def output_by_head(call: AttentionCall, name: str, examples: int = 1) -> torch.Tensor:
    """Return a view of a call's output as (examples, queries, heads, value_dim).

    Assignments to the view change the output of the model. `examples` is the number of examples,
    needed only for a call with weights, whose output may have other axes. Raise NotImplementedError
    if the axes of the output are not known.
    """
    output = call.output
    has_known_axes = tuple(getattr(output, "shape", ())) == call.output_shape
    if isinstance(output, torch.Tensor) and call.weights is not None:
        # The output may have batch and heads as one axis, or two axes for the heads. If the reshape
        # had to copy the output, which changes the address, assignments would not reach the model.
        address = output.data_ptr()
        output = output.reshape(examples, -1, *output.shape[-2:]).transpose(1, 2)
        has_known_axes = output.data_ptr() == address
    if not isinstance(output, torch.Tensor) or not has_known_axes:
        raise NotImplementedError(
            f"model: {name} ({type(call.module).__name__}) returns an output that is not "
            "(batch, queries, heads, value_dim), which cannot be changed yet"
        )
    return output
