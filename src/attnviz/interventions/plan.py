"""Application of changes to a model: the change of each run of its attention modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from attnviz.extraction.capture.change import ForwardChange, ModuleRun
from attnviz.extraction.capture.forward import Forward
from attnviz.interventions.changes import Change, layer_change
from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack

#: Name of a stack, and number of a layer in it.
StackLayer = tuple[str, int]
#: For each layer of each stack, the run of its attention module.
ModuleRuns = Mapping[StackLayer, ModuleRun]


def module_runs_of(forward: Forward) -> ModuleRuns:
    """Return the run of the attention module of each layer of each stack."""
    return {
        (name, number): (run.name, run.turn)
        for name, layers in forward.stacks.items()
        for number, run in zip(layers.examples[0], layers.runs, strict=True)
    }


def plan_of(
    changes: Sequence[Change], outline: AttentionRecord, module_runs: ModuleRuns
) -> ForwardChange:
    """Return what `changes` change in each run of an attention module.

    `outline` has all layers of the model, as from `outline_of`. Raise TypeError, ValueError or
    IndexError if a change cannot be applied.
    """
    by_stack = changes_by_stack(changes, outline)
    plan = {}
    for (name, number), module_run in module_runs.items():
        change_of_layer = layer_change(by_stack.get(name, ()), outline.stack(name), number)
        if change_of_layer is not None:
            plan[module_run] = change_of_layer
    return plan


def changes_by_stack(
    changes: Sequence[Change], outline: AttentionRecord
) -> dict[str, list[Change]]:
    """Group changes by the stack to which they apply. Raise ValueError if a stack is missing."""
    by_stack: dict[str, list[Change]] = {}
    for change in changes:
        if change.stack is None and len(outline.stacks) > 1:
            raise ValueError(
                f"{type(change).__name__}: stack is required. Pass one of "
                f"{', '.join(map(repr, outline.stacks))}."
            )
        by_stack.setdefault(outline.stack(change.stack).name, []).append(change)
    return by_stack


def identity_of(change: ForwardChange) -> ForwardChange:
    """Return changes that overwrite the same outputs with values from the unchanged weights.

    A run with these changes differs from the unchanged run only by rounding errors, which are the
    noise of the effect.
    """
    return {module_run: layer_change.identity for module_run, layer_change in change.items()}


def outline_of(record: AttentionRecord, forward: Forward) -> AttentionRecord:
    """Return a record with the layers, heads and tokens of a forward, but without its attention.

    Changes are checked and described with this record, which takes almost no memory.
    """
    made = {}
    for name, layers in forward.stacks.items():
        if name not in record.stacks:
            continue
        tokens = record.stack(name)
        kept = {
            number: outline_of_layer(
                run.num_heads,
                len(tokens.query_tokens),
                len(tokens.key_tokens),
                vectors=run.dtype is not None,
            )
            for number, run in zip(layers.examples[0], layers.runs, strict=True)
        }
        made[name] = AttentionStack(name, kept, tokens.query_tokens, tokens.key_tokens)
    return AttentionRecord(made, model=record.model, images=record.images)


def outline_of_layer(heads: int, queries: int, keys: int, *, vectors: bool) -> LayerAttention:
    """Return an attention layer in which only the shape matters. Its arrays take almost no memory.

    `vectors` is whether the layer has queries and keys, or only weights.
    """
    one = torch.zeros(1, 1, 1)
    if not vectors:
        return StoredWeights(one.expand(heads, queries, keys))
    return QueryKeyAttention(one.expand(heads, queries, 1), one.expand(heads, keys, 1), scale=1.0)
