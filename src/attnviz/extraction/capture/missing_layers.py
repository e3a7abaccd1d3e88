"""Functions that write notes on attention and layers that a record does not contain.

A record contains softmax attention, and linear attention whose rule is known. Hybrid models also
have layers with other token mixers, such as convolutions and other state-space layers, which
exchange information between tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.families import LIGHTNING_RATES, LINEAR_RULES, NORM_CLASS
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.modules import (
    AttentionModule,
    ModuleScan,
    attention_modules,
    attention_outside,
    layer_numbers,
    names_in_code,
    scan_modules,
)
from attnviz.record.notes import Note
from attnviz.utils.arguments import format_named

_TEXT_STACKS = ("self", "encoder", "decoder")
# Modules of torch that compute each output from several positions, unless their window has size 1.
_WINDOWED = (nn.modules.conv._ConvNd, nn.modules.pooling._AvgPoolNd, nn.modules.pooling._MaxPoolNd)
# Functions that compute each output from several positions.
_OVER_POSITIONS = re.compile(r"causal_conv1d|scan$|scan_fn|linear_attention|^[ir]*fft[2n]?$|^roll$")
# Sums over earlier positions. A router that counts the tokens of each expert also has them. It
# chooses experts with one of `_CHOICES`.
_CUMULATIVE = frozenset({"cumsum", "cumprod", "logcumsumexp"})
_CHOICES = frozenset({"argmax", "topk", "one_hot"})


def notes_on_layers(
    loaded: Loaded,
    stacks: Mapping[str, StackLayers],
    missing: Sequence[AttentionModule],
    scan: ModuleScan,
) -> Sequence[str]:
    """Return sentences on the attention and layers that a record does not show, or only in part.

    `stacks` has all captured layers, `missing` the modules whose attention could not be read, and
    `scan` the modules of the model. Modules in `missing` count as shown, because
    `notes_on_modules` describes them. Only layers in a ``ModuleList`` that contains captured
    attention over text are examined, and modules of the caller that attend (see
    `attention_outside`).
    """
    model = loaded.model
    root = loaded.wrapper if isinstance(loaded.wrapper, nn.Module) else model
    scan = scan if root is model else scan_modules(root)
    captured = tuple((name, tuple(layers.names)) for name, layers in stacks.items())
    return scan.once(
        ("notes on layers", captured, tuple(entry.name for entry in missing)),
        lambda: [
            *_notes_on_layers(model, stacks, missing),
            *_notes_outside(root, model, stacks, missing),
        ],
    )


def _notes_outside(
    root: nn.Module,
    model: PreTrainedModel,
    stacks: Mapping[str, StackLayers],
    missing: Sequence[AttentionModule],
) -> list[str]:
    """Return notes on attention in `root` that is not in the record of `model`."""
    lists = map(model.get_submodule, _layer_lists(model, stacks))
    shown = {id(module) for layers in lists for module in layers.modules()}
    shown |= {id(model.get_submodule(path)) for each in stacks.values() for path in each.names}
    shown |= {id(entry.module) for entry in missing}
    return notes_on_modules(attention_outside(root, model, shown))


def _notes_on_layers(
    model: PreTrainedModel, stacks: Mapping[str, StackLayers], missing: Sequence[AttentionModule]
) -> list[str]:
    captured = {name for layers in stacks.values() for name in layers.names}
    read = {id(model.get_submodule(name)) for name in captured}
    read |= {id(entry.module) for entry in missing}
    softmax = {id(entry.module) for entry in attention_modules(model) if entry.softmax}
    sentences: list[str] = []
    for path, scope in _layer_lists(model, stacks).items():
        layers = list(model.get_submodule(path).children())
        shown = [any(id(part) in read for part in layer.modules()) for layer in layers]
        numbers: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        for number, (layer, is_shown) in enumerate(zip(layers, shown, strict=True)):
            idle = [type(part).__name__ for part in layer.modules() if id(part) in softmax]
            names = list(_mixers(layer, softmax | read))
            reason = "mixes tokens beside the attention" if is_shown else "no attention"
            if idle and not is_shown:
                reason, names = "did not run on this input", idle
            elif not is_shown and next(layer.parameters(), None) is not None:
                kinds = [type(part).__name__ for part in layer.children()]
                parts = [kind for kind in kinds if not NORM_CLASS.search(kind)]
                names = names or parts or [type(layer).__name__]
            if names:
                numbers.setdefault((reason, tuple(dict.fromkeys(names))), []).append(number)
        for (reason, distinct), of_layers in numbers.items():
            where = f"{format_named('layer', of_layers)}{scope}"
            sentences.append(f"Not shown in {where}: {', '.join(distinct)} ({reason}).")
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
    for module in layer.children():
        if id(module) in skipped:
            continue
        parts = [part for part in module.children() if id(part) not in skipped]
        if any(map(mixes, (module, *parts))):
            yield type(module).__name__
        else:
            yield from _mixers(module, skipped)


def mixes(module: nn.Module) -> bool:
    """Whether the output of a module at a position depends on its input at other positions.

    The modules inside of it are ignored.
    """
    if isinstance(module, nn.RNNBase) or hasattr(module, LIGHTNING_RATES):
        return True
    if isinstance(module, _WINDOWED):
        size: Any = module.kernel_size
        return any(length > 1 for length in (size if isinstance(size, tuple) else (size,)))
    if type(module).__module__.startswith("torch.nn."):
        return False
    names = names_in_code(type(module))
    return (
        any(map(_OVER_POSITIONS.search, names))
        or not names.isdisjoint(LINEAR_RULES)
        or (not names.isdisjoint(_CUMULATIVE) and names.isdisjoint(_CHOICES))
    )


def notes_on_modules(modules: Iterable[tuple[str, nn.Module]]) -> list[str]:
    """Return sentences on modules whose attention could not be read, one per class and path.

    `modules` has the paths and the modules. Paths that differ only in their numbers count as the
    same path.
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, module in modules:
        path = ".".join("*" if part.isdigit() else part for part in name.split("."))
        kinds.setdefault((path, type(module).__name__), []).append(name)
    sentences: list[str] = []
    for (path, kind), names in kinds.items():
        numbers = layer_numbers(names)
        if len(names) == 1:
            subject = f"{names[0] or 'The code of the model'} ({kind}) also attends"
        elif numbers is None:
            subject = f"{len(names)} modules {path} ({kind}) also attend"
        else:
            subject = f"{path} ({kind}) also attend in {format_named('layer', sorted(numbers))}"
        note = f"{subject}. The weights cannot be read and are not shown."
        sentences.append(Note(note, "not shown"))
    return sentences
