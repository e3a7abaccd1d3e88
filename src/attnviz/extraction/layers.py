"""From the runs of a forward to stacks of layers, under the model's own numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import transformers

from attnviz.extraction.captured import Captured
from attnviz.extraction.collect import Collector, Run
from attnviz.extraction.modules import layer_numbers

__all__ = ["StackLayers", "stacks_of"]

_ORDER = ["self", "encoder", "decoder", "cross", "vision", "audio", "connector", "pooling"]


@dataclass
class StackLayers:
    """A stack's layers of every example.

    Attributes
    ----------
    stack : str
        The kind of stack: ``"self"``, ``"vision"``, ...; several may be of one kind.
    names : list of str
        The modules' paths, layer by layer.
    examples : list of dict
        For each example the attention of each layer, under the model's number.
    in_call_order : bool
        Whether layers had to be numbered in the order in which they ran.
    whole : bool
        Whether queries and keys account for all of the logits.
    windows : list of tuple of int
        For each layer how many tokens each window has; empty where attention was not in windows.
    """

    stack: str
    names: list[str]
    examples: list[dict[int, Captured]]
    in_call_order: bool = False
    whole: bool = True
    windows: list[tuple[int, ...]] = field(default_factory=list)

    def shape(self, index: int = 0) -> tuple[int, int]:
        """Number of queries and of keys of an example."""
        first = next(iter(self.examples[index].values()))
        return first.num_queries, first.num_keys


def stacks_of(collector: Collector) -> dict[str, StackLayers]:
    """Put what was collected in order, after the forward.

    Parameters
    ----------
    collector : Collector
        What received the forward's attention.

    Returns
    -------
    dict of str to StackLayers
        The stacks that ran, the model's input first. Layers of a stack that attend over different
        numbers of tokens are split into its stages, in the order in which they ran.

    Raises
    ------
    ValueError
        If the model has no attention.
    NotImplementedError
        If attention ran that could not be captured.
    """
    _refuse_missing(collector)
    runs = [run for run in collector.runs if run.calls]
    for run in runs:
        _refuse_parts(run)
    by_shape: dict[tuple[str, tuple[int, int]], list[tuple[Run, list[Captured]]]] = {}
    for run in runs:
        examples = run.examples
        first = examples[0]
        shape = (first.num_queries, first.num_keys)
        by_shape.setdefault((run.stack, shape), []).append((run, examples))
    stages: dict[str, list[StackLayers]] = {}
    for (stack, (num_queries, num_keys)), entries in by_shape.items():
        # Queries of one kind that read keys of another (a resampler's, say).
        kind = "cross" if stack == "self" and num_queries != num_keys else stack
        stages.setdefault(kind, []).append(_numbered(kind, entries))
    made = {}
    for kind in sorted(stages, key=_place):
        several = len(stages[kind]) > 1
        for number, layers in enumerate(stages[kind], 1):
            made[f"{kind} stage {number}" if several else kind] = layers
    return made


def _place(stack: str) -> int:
    return _ORDER.index(stack) if stack in _ORDER else len(_ORDER)


def _refuse_missing(collector: Collector) -> None:
    kind = type(collector.model).__name__
    missing = collector.missing()
    captured = any(run.calls for run in collector.runs)
    # A module beside the layers (a pooling head) hides no layer: a note says that it is there.
    layers = [module for module in missing if any(map(str.isdigit, module.name.split(".")))]
    if layers or (missing and not captured):
        first = (layers or missing)[0]
        raise NotImplementedError(
            f"model: the attention of {kind} cannot be seen in transformers "
            f"{transformers.__version__} ({len(missing)} modules, such as {first.name}, a "
            f"{type(first.module).__name__}). Draw the model's own weights instead: "
            "AttentionRecord.from_weights(outputs.attentions, tokens) with "
            "attn_implementation='eager' and output_attentions=True"
        )
    if not captured:
        raise ValueError(
            f"model: {kind} has no attention to show (no module of it computes a softmax over "
            "keys); give a transformer, or a hybrid that has attention layers"
        )


def _refuse_parts(run: Run) -> None:
    """Refuse several attentions of one run that are no windows: they must cover its input once."""
    if (run.num_calls == 1 and run.dispatched) or not run.num_tokens:
        return
    total = sum(call[0].num_queries for call in run.calls)
    if total not in run.num_tokens:
        raise NotImplementedError(
            f"model: {run.name} attends {run.num_calls} times in one forward, to parts of its "
            "input that overlap or are not all of it, which cannot be shown yet; draw the model's "
            "own weights with AttentionRecord.from_weights"
        )


def _numbered(stack: str, entries: Sequence[tuple[Run, list[Captured]]]) -> StackLayers:
    names = [run.name for run, _ in entries]
    once = max(Counter(names).values()) == 1
    numbers = layer_numbers(names) if once else None
    in_call_order = numbers is None and len(entries) > 1
    numbers = list(range(len(entries))) if numbers is None else numbers
    ordered = sorted(zip(numbers, entries, strict=True), key=lambda pair: pair[0])
    parts = [
        tuple(call[0].num_queries for call in run.calls) if len(run.calls) > 1 else ()
        for _, (run, _) in ordered
    ]
    return StackLayers(
        stack,
        [run.name for _, (run, _) in ordered],
        [
            {number: examples[index] for number, (_, examples) in ordered}
            for index in range(len(entries[0][1]))
        ],
        in_call_order,
        all(run.whole for run, _ in entries),
        parts,
    )
