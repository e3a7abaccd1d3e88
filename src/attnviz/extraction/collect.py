"""Collecting one forward's attention calls into layers, stack by stack, example by example."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn

from attnviz.extraction.batch import Side
from attnviz.extraction.dispatch import AttentionCall
from attnviz.extraction.masking import Kept, MaskReader
from attnviz.extraction.modules import (
    AttentionModule,
    attention_modules,
    layer_numbers,
    stack_of,
)
from attnviz.weights import QueryKeyAttention

__all__ = ["Collector", "StackLayers"]

# How far the model's own attention output may lie from weights @ values, relative to the largest
# value: rounding of the model's dtype, well under what any wrong formula gives.
_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass
class StackLayers:
    """A stack's layers of every example.

    Attributes
    ----------
    examples : list of dict
        For each example the attention of each layer, under the model's number.
    in_call_order : bool
        Whether layers had to be numbered in the order in which they ran.
    """

    examples: list[dict[int, QueryKeyAttention]]
    in_call_order: bool = False


@dataclass
class _Captured:
    name: str
    num_queries: int
    examples: list[QueryKeyAttention]


@dataclass
class Collector:
    """Receives the attention calls of one forward.

    Attributes
    ----------
    model : Module
        The model that runs.
    sides : mapping of str to Side
        ``"input"`` and, for an encoder-decoder model, ``"decoder"``.
    batch_size : int
        Number of examples.
    encoder_decoder : bool
        Whether the model has an encoder and a decoder.
    vision : bool
        Whether the model's main input is an image.
    device : device or None
        Where queries and keys go; None leaves them where they are.
    """

    model: nn.Module
    sides: Mapping[str, Side]
    batch_size: int
    encoder_decoder: bool
    vision: bool
    device: torch.device | None
    _modules: list[AttentionModule] = field(init=False)
    _names: dict[int, str] = field(init=False)
    _captured: dict[str, list[_Captured]] = field(init=False)
    _ran: set[str] = field(init=False, default_factory=set)
    _kept: dict[tuple[str | None, str | None], list[Kept]] = field(init=False, default_factory=dict)
    _masks: MaskReader = field(init=False, default_factory=MaskReader)

    def __post_init__(self) -> None:
        """Find the modules whose calls are expected."""
        self._modules = attention_modules(self.model)
        self._names = {id(module): name for name, module in self.model.named_modules()}
        self._captured = defaultdict(list)

    @property
    def expected(self) -> list[AttentionModule]:
        """Modules of the model that attend."""
        return self._modules

    def watch(self) -> list[Any]:
        """Note which attention modules run in this thread.

        Returns
        -------
        list
            Handles of the hooks; remove each of them.
        """
        thread = threading.get_ident()

        def hook_for(name: str) -> Any:
            def hook(module: nn.Module, arguments: Any) -> None:
                del module, arguments
                if threading.get_ident() == thread:
                    self._ran.add(name)

            return hook

        return [
            entry.module.register_forward_pre_hook(hook_for(entry.name)) for entry in self._modules
        ]

    def __call__(self, call: AttentionCall) -> None:
        """Copy what one call needs for its weights."""
        name = self._names.get(id(call.module), type(call.module).__name__)
        stack = stack_of(name, encoder_decoder=self.encoder_decoder, vision=self.vision)
        num_queries, num_keys = call.query.shape[2], call.key.shape[2]
        if {call.query.shape[0], call.key.shape[0]} - {1, self.batch_size}:
            raise NotImplementedError(
                f"model: {name} ({type(call.module).__name__}) attends in {call.query.shape[0]} "
                f"windows or groups for {self.batch_size} examples, which cannot be shown yet; "
                "draw the model's own weights with AttentionRecord.from_weights"
            )
        kept = self._positions(stack, num_queries, num_keys)
        masks = self._masks.read(call, kept)
        examples = []
        for index, (positions, (mask, bias)) in enumerate(zip(kept, masks, strict=True)):
            attention = QueryKeyAttention(
                queries=self._copy(call.query, index, positions.queries),
                keys=self._copy(call.key, index, positions.keys),
                scale=_scale(call),
                mask=mask,
                bias=bias,
                softcap=_softcap(call),
                sinks=self._sinks(call),
            )
            _check(call, attention, index, positions, name, turn=len(self._captured[stack]))
            examples.append(attention)
        self._captured[stack].append(_Captured(name, num_queries, examples))

    def layers(self) -> dict[str, StackLayers]:
        """Put the layers in order, after the forward.

        Returns
        -------
        dict of str to StackLayers
            The stacks that ran, the model's input first.

        Raises
        ------
        ValueError
            If the model has no attention.
        NotImplementedError
            If attention ran that could not be captured.
        """
        self._refuse_missing()
        order = ["self", "encoder", "decoder", "cross", "vision"]
        return {
            stack: self._numbered(stack, self._captured[stack])
            for stack in order
            if stack in self._captured
        }

    def uncaptured(self) -> list[AttentionModule]:
        """Modules with softmax attention that ran outside of the dispatcher."""
        captured = {entry.name for entries in self._captured.values() for entry in entries}
        # By name: what replaced a module is named in its place.
        modules = {entry.name: entry for entry in [*self._modules, *self._replaced()]}
        return [
            entry
            for name, entry in modules.items()
            if entry.softmax and name in self._ran and name not in captured
        ]

    def _replaced(self) -> list[AttentionModule]:
        """Modules that the forward put in the place of others (BigBird, for a short text)."""
        if all(id(module) in self._names for module in self.model.modules()):
            return []
        new = [
            entry for entry in attention_modules(self.model) if id(entry.module) not in self._names
        ]
        self._ran.update(entry.name for entry in new)
        return new

    def _refuse_missing(self) -> None:
        kind = type(self.model).__name__
        missing = self.uncaptured()
        # A module beside the layers (a pooling head) hides no layer: a note says that it is there.
        layers = [module for module in missing if any(map(str.isdigit, module.name.split(".")))]
        if layers or (missing and not self._captured):
            first = (layers or missing)[0]
            raise NotImplementedError(
                f"model: the attention of {kind} does not go through the dispatcher of "
                f"transformers {transformers.__version__} ({len(missing)} modules, such as "
                f"{first.name}, a {type(first.module).__name__}) and is not supported yet. Draw "
                "the model's own weights instead: "
                "AttentionRecord.from_weights(outputs.attentions, tokens) with "
                "attn_implementation='eager' and output_attentions=True"
            )
        if not self._captured:
            raise ValueError(
                f"model: {kind} has no attention to show (no module of it computes a softmax over "
                "keys); give a transformer, or a hybrid that has attention layers"
            )

    def _numbered(self, stack: str, captured: Sequence[_Captured]) -> StackLayers:
        calls = Counter(entry.name for entry in captured)
        numbers = layer_numbers(calls) if len(calls) == len(captured) else None
        if len(calls) < len(captured) and (
            len(set(calls.values())) > 1 or len({entry.num_queries for entry in captured}) > 1
        ):
            name, count = calls.most_common(1)[0]
            raise NotImplementedError(
                f"model: {name} of the {stack} stack attends {count} times in one forward, to "
                "parts of its input, which cannot be shown yet; draw the model's own weights with "
                "AttentionRecord.from_weights"
            )
        in_call_order = numbers is None
        numbers = list(range(len(captured))) if numbers is None else numbers
        pairs = sorted(zip(numbers, captured, strict=True), key=lambda pair: pair[0])
        return StackLayers(
            [
                {number: entry.examples[index] for number, entry in pairs}
                for index in range(self.batch_size)
            ],
            in_call_order,
        )

    def _positions(self, stack: str, num_queries: int, num_keys: int) -> list[Kept]:
        query_side = "decoder" if stack in ("decoder", "cross") else "input"
        key_side = "decoder" if stack == "decoder" else "input"
        sides = (self._fitting(query_side, num_queries), self._fitting(key_side, num_keys))
        # The same list for the same sides: its identity says that a mask was read before.
        if sides not in self._kept:
            queries, keys = (
                [None] * self.batch_size if side is None else self.sides[side].kept
                for side in sides
            )
            self._kept[sides] = [Kept(*pair) for pair in zip(queries, keys, strict=True)]
        return self._kept[sides]

    def _fitting(self, name: str, length: int) -> str | None:
        """The side's name where it has this many positions: patches and frames have no padding."""
        side = self.sides.get(name)
        return name if side is not None and side.length == length else None

    def _copy(
        self, tensor: torch.Tensor, index: int, positions: torch.Tensor | None
    ) -> torch.Tensor:
        # A copy, always: what the model hands over may be a view of a larger tensor, or a cache
        # that is written to later.
        block = tensor.detach()[index if tensor.shape[0] > 1 else 0]
        if positions is not None:
            block = block[:, positions.to(block.device)]
        device = block.device if self.device is None else self.device
        return block.to(device, copy=True, memory_format=torch.contiguous_format)

    def _sinks(self, call: AttentionCall) -> torch.Tensor | None:
        sinks = call.options.get("s_aux")
        if sinks is None:
            sinks = call.options.get("sinks", getattr(call.module, "sinks", None))
        if not isinstance(sinks, torch.Tensor):
            return None
        return sinks.detach().flatten().to(self.device or sinks.device, copy=True)


def _scale(call: AttentionCall) -> float:
    scaling = call.options.get("scaling")
    return float(call.query.shape[-1] ** -0.5 if scaling is None else scaling)


def _softcap(call: AttentionCall) -> float | None:
    softcap = call.options.get("softcap")
    return None if softcap is None else float(softcap)


def _check(
    call: AttentionCall,
    attention: QueryKeyAttention,
    index: int,
    kept: Kept,
    name: str,
    *,
    turn: int,
) -> None:
    """Hold a few rows of the weights against the output that the model's attention gave.

    Two rows of one head a layer cost next to nothing and notice a formula that is not the model's:
    a mask that is ignored, a gate, a term that came in by a keyword which isn't known here.
    """
    output = call.output
    expected_shape = (*call.query.shape[2:3], attention.num_heads, call.value.shape[-1])
    if not isinstance(output, torch.Tensor) or tuple(output.shape[1:]) != expected_shape:
        return
    head = turn % attention.num_heads
    value_head = head // (attention.num_heads // call.value.shape[1])
    values = call.value.detach()[index if call.value.shape[0] > 1 else 0, value_head]
    if kept.keys is not None:
        values = values[kept.keys.to(values.device)]
    values = values.float().cpu()
    tolerance = _TOLERANCE.get(call.query.dtype, 5e-2) * float(values.abs().max())
    for row in {attention.num_queries // 2, attention.num_queries - 1}:
        weights = attention.weights(head, slice(row, row + 1), slice(0, attention.num_keys))
        if not weights.any():
            continue
        place = row if kept.queries is None else int(kept.queries[row])
        given = output.detach()[index if output.shape[0] > 1 else 0, place, head].float().cpu()
        error = float((torch.from_numpy(weights)[0] @ values - given).abs().max())
        if not error <= tolerance:
            raise NotImplementedError(
                f"model: the attention of {name} ({type(call.module).__name__}, implementation "
                f"{call.implementation!r}) is not softmax(scale * q k^T + bias + mask): its output "
                f"differs by {error:.2g} (allowed {tolerance:.2g}). Its weights are not known; "
                "draw weights of your own with AttentionRecord.from_weights"
            )
