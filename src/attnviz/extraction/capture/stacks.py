"""Functions that group captured attention into stacks of numbered layers.

A stack is the attention of one kind ("self", "cross", "vision", ...) in all layers. A layer of a
stack is one run of an attention module. If a module runs several times in a forward, each run is a
separate layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
import transformers

from attnviz.extraction.capture.collector import Collector, Run
from attnviz.extraction.families import LINEAR_RULES
from attnviz.extraction.modules import layer_numbers
from attnviz.extraction.options import CaptureOptions, narrows
from attnviz.record.attention import StoredAttention
from attnviz.utils.arguments import format_numbers

_ORDER = [
    "self",
    "linear",
    "indexer",
    "encoder",
    "decoder",
    "cross",
    "vision",
    "audio",
    "connector",
    "pooling",
]
# Sections of a module path (the texts between its dots) that occur in many parts of a model, so
# they do not name a part. "*" stands for a number.
_GENERIC = {"*", "layer", "layers", "block", "blocks"}


@dataclass
class StackLayers:
    """Layers of a stack, for every example.

    Attributes
    ----------
    stack : str
        Kind of the stack: ``"self"``, ``"vision"``, ... A model may have several stacks of the same
        kind.
    runs : list of Run
        For each layer, the run of an attention module from which the layer was captured.
    examples : list of dict
        For each example, a dictionary from the model's layer number to the attention of the layer.
    in_call_order : bool
        Whether layers are numbered in the order in which they ran, because the paths of their
        modules do not give each layer a different number.
    outputs : list of dict
        For each example, a dictionary from the model's layer number to the outputs of the layer's
        heads, as in `HeadOutputs.of_run`. Empty if they were not requested.
    gates : list of dict
        For each example, a dictionary from the model's layer number to the mean gates of the
        layer's heads, as in `HeadOutputs.gates_of_run`. Layers without gates are omitted.
    """

    stack: str
    runs: list[Run]
    examples: list[dict[int, StoredAttention]]
    in_call_order: bool = False
    outputs: list[dict[int, torch.Tensor]] = field(default_factory=list)
    gates: list[dict[int, torch.Tensor]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Path of each layer's attention module."""
        return [run.name for run in self.runs]

    @property
    def rule(self) -> str | None:
        """Kind of the rule of linear layers (a value of `LINEAR_RULES`), or None."""
        rule = self.runs[0].rule
        return None if rule is None else LINEAR_RULES[rule]

    @property
    def windows(self) -> list[tuple[int, ...]]:
        """Numbers of queries in the windows of each layer, for the first example.

        The list has one tuple per layer, with one number per window. The tuple of a layer without
        windows is empty. A query attends only to the keys of its window. If a layer was captured in
        several attention calls, each call counts as a window, too.
        """
        return [
            tuple(call[0].num_queries for call in run.calls) if len(run.calls) > 1 else ()
            for run in self.runs
        ]

    def shape(self, index: int = 0) -> tuple[int, int]:
        """Return the numbers of queries and keys of the example with this index."""
        first = next(iter(self.examples[index].values()))
        return first.num_queries, first.num_keys

    def requested(self, options: CaptureOptions) -> dict[int, Run]:
        """Return the runs of the layers that `options` request, by the numbers of the layers."""
        numbers = list(self.examples[0])
        keeps = options.of_stack(numbers).keeps
        return {
            number: run for number, run in zip(numbers, self.runs, strict=True) if keeps(number)
        }


def stacks_of(collector: Collector) -> dict[str, StackLayers]:
    """Group the collected runs into stacks. Return the stacks by name, in the order of `_ORDER`.

    If the layers of a stack attend over different numbers of tokens, the stack is split into
    stages: groups of layers with the same numbers. Stages are numbered in the order in which they
    ran. Raise ValueError if the model has no attention. Raise NotImplementedError if none of its
    attention was captured, or if the calls of a module overlap or omit tokens of its input (see
    `_check_covers_input`).
    """
    _check_any_captured(collector)
    runs = [run for run in collector.runs if run.calls]
    for run in runs:
        _check_covers_input(run)
    by_name: dict[str, dict[tuple[int, int], list[tuple[Run, list[StoredAttention]]]]] = {}
    for kind, part, run in _with_parts(runs):
        examples = run.examples
        shape = (examples[0].num_queries, examples[0].num_keys)
        # If there are more or fewer keys than queries, the keys are those of other tokens (as in a
        # resampler), so the layer is cross-attention. Keys that an adapter adds do not count.
        is_cross = kind == "self" and shape[1] - shape[0] not in (0, collector.virtual_keys)
        stack = "cross" if is_cross else kind
        if kind == "self" and run.summaries is not None:
            # Use the same name for a short text, which has no summaries.
            stack = f"self with summaries every {run.summaries.size} tokens"
        name = f"{stack} {part}".strip()
        by_name.setdefault(name, {}).setdefault(shape, []).append((run, examples))
    stacks = {}
    for name in sorted(by_name, key=lambda name: _ORDER.index(name.partition(" ")[0])):
        stages = by_name[name].values()
        for number, entries in enumerate(stages, 1):
            stage = f"{name} stage {number}" if len(stages) > 1 else name
            stacks[stage] = _number_layers(name.partition(" ")[0], entries)
    return stacks


def _with_parts(runs: Sequence[Run]) -> list[tuple[str, str, Run]]:
    """Return (stack, part, run) for each run. The part is the name of a part of the model.

    Layers of the same stack may have the same number if they are in different parts of the model,
    such as an encoder and a predictor after it. Only in these stacks, the parts get names (see
    `_distinct_parts`). In all other stacks the name is an empty string. If linear layers have rules
    of different kinds, the name begins with the kind.
    """
    stacks: dict[str, dict[tuple[str, ...], set[str]]] = {}
    paths = [tuple("*" if part.isdigit() else part for part in run.name.split(".")) for run in runs]
    for run, path in zip(runs, paths, strict=True):
        stacks.setdefault(run.stack, {}).setdefault(path, set()).add(run.name)
    parts: dict[tuple[str, ...], str] = {}
    for families in stacks.values():
        numbers = [number for names in families.values() for number in layer_numbers(names) or ()]
        if len(set(numbers)) < len(numbers):
            parts |= _distinct_parts(list(families))
    rules = {LINEAR_RULES[run.rule] for run in runs if run.rule is not None}
    named = []
    for run, path in zip(runs, paths, strict=True):
        part = parts.get(path, "")
        if run.rule is not None and len(rules) > 1:
            part = f"{LINEAR_RULES[run.rule]} {part}".strip()
        named.append((run.stack, part, run))
    return named


def _distinct_parts(paths: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Return a different short name for each module path. A path is a tuple of its sections.

    The name of "predictor.layers.*.attn" next to "encoder.layers.*.attn" is "predictor". In
    general, a name has the sections in a range of positions, without those in `_GENERIC`. The range
    is the same for all paths: the shortest one whose names are all different and not empty. If no
    range is suitable, the names are "2", "3", ... The first path always gets an empty string as its
    name.
    """
    longest = max(map(len, paths))
    for length in range(1, longest + 1):
        for start in range(longest - length + 1):
            pieces = [
                ".".join(part for part in path[start : start + length] if part not in _GENERIC)
                for path in paths
            ]
            if len(set(pieces)) == len(paths) and "" not in pieces:
                return dict(zip(paths, ["", *pieces[1:]], strict=True))
    return {path: "" if number == 0 else str(number + 1) for number, path in enumerate(paths)}


def _check_any_captured(collector: Collector) -> None:
    if any(run.calls for run in collector.runs):
        return
    kind = type(collector.model).__name__
    missing = collector.missing
    if missing:
        raise NotImplementedError(
            f"model: the attention of {kind} cannot be captured in transformers "
            f"{transformers.__version__} ({len(missing)} modules, such as {missing[0].name}, a "
            f"{type(missing[0].module).__name__}). Show the model's own weights instead: "
            "AttentionRecord.from_weights(outputs.attentions, tokens) with "
            "attn_implementation='eager' and output_attentions=True"
        )
    raise ValueError(
        f"model: {kind} has no attention to show: no module computes a softmax over keys, or "
        "linear attention with a known rule. Pass a transformer, or a hybrid with attention layers."
    )


def _check_covers_input(run: Run) -> None:
    """Raise NotImplementedError if the calls of a run overlap, or omit tokens of its input.

    Consider the number of queries in all calls, the number of keys in all calls, and their
    difference. The error is raised if none of the three is a possible number of tokens of the
    input, or if the calls have different numbers of heads. Two kinds of runs are not checked: runs
    whose number of tokens is not known, and runs with a single call that used transformers'
    attention dispatcher or torch's `scaled_dot_product_attention`.
    """
    if (run.num_calls == 1 and run.dispatched) or not run.num_tokens:
        return
    # Queries may be pooled (one query for several tokens), so it is enough if the keys cover all
    # tokens. In a resampler, the keys are the tokens and also the queries, so the difference is the
    # number of tokens.
    num_queries, num_keys = run.total_shape
    covers = bool({num_queries, num_keys, num_keys - num_queries} & run.num_tokens)
    numbers_of_heads = {attention.num_heads for call in run.calls for attention in call}
    if not covers or len(numbers_of_heads) > 1:
        raise NotImplementedError(
            f"model: {run.name} attends to parts of its input that overlap or do not cover it "
            "(local, chunked or hashed attention), which cannot be shown yet. Show the "
            "model's own weights with AttentionRecord.from_weights."
        )


def _number_layers(stack: str, entries: Sequence[tuple[Run, list[StoredAttention]]]) -> StackLayers:
    numbers = layer_numbers(run.name for run, _ in entries)
    in_call_order = numbers is None and len(entries) > 1
    ordered = sorted(
        zip(numbers or range(len(entries)), entries, strict=True), key=lambda pair: pair[0]
    )
    return StackLayers(
        stack,
        [run for _, (run, _) in ordered],
        [
            {number: examples[index] for number, (_, examples) in ordered}
            for index in range(len(entries[0][1]))
        ],
        in_call_order,
    )


def is_copied(stacks: Mapping[str, StackLayers], options: CaptureOptions) -> bool:
    """Whether the forward copied the attention of every requested layer.

    Also True if no copies were requested (`options.outline`). During the forward, layer numbers are
    predicted from module paths. If the prediction for a requested layer was wrong, its attention
    was not copied.
    """
    return options.outline or all(
        run.is_copied for layers in stacks.values() for run in layers.requested(options).values()
    )


def select_layers(
    stacks: Mapping[str, StackLayers], options: CaptureOptions
) -> dict[str, StackLayers]:
    """Return the requested layers of each stack. Stacks without requested layers are omitted.

    Raise ValueError if a requested layer number exists in no stack.
    """
    if options.layers is None:
        return dict(stacks)
    _check_layers(stacks, options)
    selected = {}
    for name, layers in stacks.items():
        requested = layers.requested(options)
        if requested:
            examples = [
                {number: example[number] for number in requested} for example in layers.examples
            ]
            selected[name] = replace(layers, runs=list(requested.values()), examples=examples)
    return selected


def _check_layers(stacks: Mapping[str, StackLayers], options: CaptureOptions) -> None:
    valid_numbers = {number for layers in stacks.values() for number in layers.examples[0]}
    longest = max(len(layers.runs) for layers in stacks.values())
    missing = [
        number
        for number in options.layers or ()
        if number not in valid_numbers and number not in range(-longest, 0)
    ]
    if missing:
        valid = "; ".join(
            f"stack {name!r} has layers {format_numbers(list(layers.examples[0]))}"
            for name, layers in stacks.items()
        )
        raise ValueError(f"layers: layer {missing[0]} does not exist; {valid}")


def rounding_notes(stacks: Mapping[str, StackLayers], options: CaptureOptions) -> list[str]:
    """Return a list with one note if the dtype in `options` rounds queries, keys or weights.

    Otherwise, return an empty list.
    """
    dtypes = {run.dtype or torch.float32 for layers in stacks.values() for run in layers.runs}
    if options.dtype is None or not any(narrows(dtype, options.dtype) for dtype in dtypes):
        return []
    name = str(options.dtype).removeprefix("torch.")
    percent = 100 * torch.finfo(options.dtype).eps / 2
    return [
        f"Queries and keys were kept in {name}, which rounds each number by up to {percent:.1g}%: "
        "weights differ from the model's."
    ]
