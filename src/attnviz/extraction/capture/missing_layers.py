"""Functions that write notes on attention and layers that a record does not contain.

A record contains softmax attention, and linear attention whose rule is known. Hybrid models also
have layers with other token mixers, such as convolutions and other state-space layers, which
exchange information between tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.modules import (
    AttentionModule,
    ModuleScan,
    attention_modules,
    layer_numbers,
)
from attnviz.utils.arguments import format_named

_TEXT_STACKS = ("self", "encoder", "decoder")
# Pattern in names or class names of modules that mix tokens without a softmax.
_MIXER = re.compile(
    r"(?i)mamba|ssm|state_?space|delta_?(net|rule|att)|lightning|linear_?att|retention|kda|"
    r"rg_?lru|rwkv|short_?conv|hyena"
)
_BESIDE = "In {layers}, {names} mixes tokens beside the attention and is not shown."
_NOT_RUN = "{layers} did not run on this input ({names}) and {are} not shown."
_WITHOUT = "{layers} {have} no attention ({names}) and {are} not shown."


def notes_on_layers(
    model: PreTrainedModel,
    scan: ModuleScan,
    stacks: Mapping[str, StackLayers],
    missing: Sequence[AttentionModule],
) -> Sequence[str]:
    """Return sentences on the layers that a record does not show or shows only in part.

    `scan` is the result of `scan_modules` for the model. `stacks` has all captured layers, and
    `missing` the modules whose attention could not be read. Modules in `missing` count as shown,
    because `notes_on_modules` describes them. Only layers in a ``ModuleList`` that contains
    captured attention over text are examined.
    """
    captured = tuple((name, tuple(layers.names)) for name, layers in stacks.items())
    key = ("notes on layers", captured, tuple(entry.name for entry in missing))
    return scan.once(key, partial(_notes_on_layers, model, stacks, missing))


def _notes_on_layers(
    model: PreTrainedModel, stacks: Mapping[str, StackLayers], missing: Sequence[AttentionModule]
) -> list[str]:
    captured = {name for layers in stacks.values() for name in layers.names}
    read = {id(model.get_submodule(name)) for name in captured}
    read |= {id(entry.module) for entry in missing}
    softmax = {id(entry.module) for entry in attention_modules(model) if entry.softmax}
    sentences = []
    for path, scope in _layer_lists(model, stacks).items():
        layers = list(model.get_submodule(path).children())
        shown = [any(id(part) in read for part in layer.modules()) for layer in layers]
        usual = {
            type(part)
            for layer, is_shown in zip(layers, shown, strict=True)
            for part in layer.children()
            if is_shown
        }
        numbers: dict[tuple[str, str], list[int]] = {}
        for number, (layer, is_shown) in enumerate(zip(layers, shown, strict=True)):
            idle = [type(part).__name__ for part in layer.modules() if id(part) in softmax]
            names = list(_mixers(layer, softmax | read))
            if is_shown:
                sentence = _BESIDE
            elif idle:
                sentence, names = _NOT_RUN, idle
            elif next(layer.parameters(), None) is not None:
                sentence = _WITHOUT
                parts = [part for part in layer.children() if type(part) not in usual]
                names = names or [type(part).__name__ for part in parts or [layer]]
            if names:
                listed = ", ".join(dict.fromkeys(names))
                numbers.setdefault((sentence, listed), []).append(number)
        for (sentence, listed), of_layers in numbers.items():
            several = len(of_layers) > 1
            subject = format_named("layer" if sentence is _BESIDE else "Layer", of_layers)
            sentences.append(
                sentence.format(
                    layers=f"{subject}{scope}",
                    names=listed,
                    have="have" if several else "has",
                    are="are" if several else "is",
                )
            )
    return sentences


def _layer_lists(model: nn.Module, stacks: Mapping[str, StackLayers]) -> dict[str, str]:
    """Find each outermost ``ModuleList`` that contains captured attention over text.

    The keys of the result are the paths of the lists. A value is the end of a phrase such as
    "layers 0 to 3 of stack self" in a note: " of stack self", or "" if the record has only one
    stack. It is " of the model" if the layers of the stack are numbered in the order in which they
    ran, because the numbers in the note are then not those of the stack.
    """
    lists: dict[str, str] = {}
    for name, layers in stacks.items():
        if layers.stack not in _TEXT_STACKS:
            continue
        scope = f" of stack {name}" if len(stacks) > 1 else ""
        for path in layers.names:
            parts = path.split(".")
            first = next((index for index, part in enumerate(parts) if part.isdigit()), 0)
            prefix = ".".join(parts[:first])
            if first and isinstance(model.get_submodule(prefix), nn.ModuleList):
                lists.setdefault(prefix, " of the model" if layers.in_call_order else scope)
    return lists


def _mixers(layer: nn.Module, skipped: set[int]) -> Iterator[str]:
    """Yield the class names of the outermost token mixers in a layer that are not shown.

    `skipped` has the ids of the modules that are shown or have softmax attention.
    """
    for name, module in layer.named_children():
        kind = type(module).__name__
        if id(module) in skipped:
            continue
        # If a class is called a layer, such as HybridLayer, the modules inside of it have more
        # specific names, so yield those.
        if _MIXER.search(f"{name} {kind}") and not kind.endswith("Layer"):
            yield kind
        else:
            yield from _mixers(module, skipped)


def notes_on_modules(missing: Sequence[AttentionModule]) -> list[str]:
    """Return sentences on modules whose attention could not be read, one per class and path.

    Paths that differ only in their numbers count as the same path.
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for entry in missing:
        path = ".".join("*" if part.isdigit() else part for part in entry.name.split("."))
        kinds.setdefault((path, type(entry.module).__name__), []).append(entry.name)
    sentences = []
    for (path, kind), names in kinds.items():
        numbers = layer_numbers(names)
        if len(names) == 1:
            subject = f"{names[0]} ({kind}) also attends"
        elif numbers is None:
            subject = f"{len(names)} modules {path} ({kind}) also attend"
        else:
            subject = f"{path} ({kind}) also attend in {format_named('layer', sorted(numbers))}"
        sentences.append(f"{subject}. The weights cannot be read and are not shown.")
    return sentences
