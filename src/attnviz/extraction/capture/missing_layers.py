"""Functions that write notes on layers that a record of a model does not contain.

A record contains only softmax attention. In most layers of a hybrid model, softmax attention is
replaced by linear attention, a state-space layer, a recurrence or a convolution. Attention and
its replacements are called token mixers here, because they exchange information between tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.families import class_prefixes
from attnviz.extraction.modules import (
    AttentionModule,
    ModuleScan,
    attention_modules,
    layer_numbers,
)
from attnviz.utils.arguments import format_named

_TEXT_STACKS = ("self", "encoder", "decoder")


@dataclass(frozen=True)
class _Kind:
    """Kind of token mixer without a softmax.

    `one` and `several` are the names of the kind in a note on one layer and on several layers. A
    module is of this kind if `pattern` matches the module's name or class name.
    """

    one: str
    several: str
    pattern: re.Pattern[str]


_LINEAR = "linear attention"
_KINDS = (
    _Kind(
        _LINEAR,
        _LINEAR,
        re.compile(
            r"(?i:delta_?(net|rule|att)|lightning|linear_?att|retention)|KDA|KimiDelta|\bkda\b"
        ),
    ),
    _Kind("a state-space layer", "state-space layers", re.compile(r"(?i)mamba|ssm|state_?space")),
    _Kind("a recurrent layer", "recurrent layers", re.compile(r"(?i)recurrent|rg_?lru|rwkv|lstm")),
    _Kind("a convolution", "convolutions", re.compile(r"(?i)short_?conv|hyena")),
)
# Class names of modules that process each token separately.
_TOKENWISE = re.compile(
    r"(?i)norm|mlp|moe|expert|feed_?forward|ffn|dropout|droppath|identity|linear|embedding|router|"
    r"activation|relu|gelu|silu|scale|adapter"
)
# Class names of layers that wrap other modules. Notes name the modules inside, not the wrapper.
_LAYER = re.compile("(Decoder|Hybrid)Layer$")


@dataclass
class _Layers:
    """List of layers in a model, at least one of which has softmax attention.

    `path` is the path of the list in the model, and `stack` the name of its stack in the record.
    `in_call_order` is whether the record numbers layers in the order in which they ran. `notes`
    maps each reason for a note to the numbers of the layers to which the reason applies.
    """

    path: str
    stack: str
    in_call_order: bool
    notes: dict[tuple[str, ...], list[int]] = field(default_factory=dict)


def notes_on_layers(
    model: PreTrainedModel,
    scan: ModuleScan,
    stacks: Mapping[str, StackLayers],
    missing: Sequence[AttentionModule],
) -> Sequence[str]:
    """Return sentences on the layers that a record does not show or shows only in part.

    Each sentence states a reason and the numbers of all layers to which the reason applies. `scan`
    is the result of `scan_modules` for the model. `stacks` has all captured layers, and `missing`
    the modules whose attention could not be read. A list of layers is searched only if attention
    over text was captured from one of its layers.
    """
    layers = tuple(
        (name, layers.stack, tuple(layers.names), layers.in_call_order)
        for name, layers in stacks.items()
    )
    key = ("notes on layers", layers, tuple(entry.name for entry in missing))
    return scan.once(key, partial(_notes_on_layers, model, stacks, missing))


def _notes_on_layers(
    model: PreTrainedModel, stacks: Mapping[str, StackLayers], missing: Sequence[AttentionModule]
) -> list[str]:
    captured = {
        id(model.get_submodule(name)) for layers in stacks.values() for name in layers.names
    }
    unread = {id(entry.module) for entry in missing}
    softmax = {id(entry.module) for entry in attention_modules(model) if entry.softmax}
    families = tuple(class_prefixes(model.config))
    sentences = []
    for layers in _layer_lists(model, stacks).values():
        container = model.get_submodule(layers.path)
        attending = [
            child for child in container.children() if _contains_any(child, captured | unread)
        ]
        usual = {type(part) for child in attending for part in child.children()}
        for number, child in enumerate(container.children()):
            if child in attending:
                reason = _beside_attention(child, families)
            elif _contains_any(child, softmax):
                names = [
                    type(module).__name__ for module in child.modules() if id(module) in softmax
                ]
                reason = ("did not run", *dict.fromkeys(names))
            else:
                reason = _without_attention(child, usual, families)
            if reason:
                layers.notes.setdefault(reason, []).append(number)
        for reason, numbers in layers.notes.items():
            subject = _subject(numbers, layers, several=len(stacks) > 1)
            sentences.append(_sentence(reason, subject, several=len(numbers) > 1))
    return sentences


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


def _layer_lists(model: nn.Module, stacks: Mapping[str, StackLayers]) -> dict[str, _Layers]:
    """Return the outermost module lists that contain captured attention over text, by path."""
    lists: dict[str, _Layers] = {}
    for name, layers in stacks.items():
        if layers.stack not in _TEXT_STACKS:
            continue
        for path in layers.names:
            parts = path.split(".")
            first = next((index for index, part in enumerate(parts) if part.isdigit()), 0)
            prefix = ".".join(parts[:first])
            if first and isinstance(model.get_submodule(prefix), nn.ModuleList):
                lists.setdefault(prefix, _Layers(prefix, name, layers.in_call_order))
    return lists


def _contains_any(layer: nn.Module, modules: set[int]) -> bool:
    return any(id(module) in modules for module in layer.modules())


def _mixers(layer: nn.Module, families: tuple[str, ...]) -> Iterator[tuple[_Kind, str]]:
    """Yield the kind and the class name of each token mixer without a softmax in a layer.

    Modules inside of a token mixer are not searched.
    """
    for name, module in layer.named_children():
        class_name = type(module).__name__
        # Search without the prefix of the model family: a class of RecurrentGemma need not be
        # recurrent.
        family = next((prefix for prefix in families if class_name.startswith(prefix)), "")
        text = f"{name} {class_name.removeprefix(family)}"
        kind = next((kind for kind in _KINDS if kind.pattern.search(text)), None)
        if kind is None or _LAYER.search(class_name):
            yield from _mixers(module, families)
        else:
            yield kind, class_name


def _beside_attention(layer: nn.Module, families: tuple[str, ...]) -> tuple[str, ...]:
    """Return the reason for a note on token mixers beside the attention of a layer.

    Return an empty tuple if the layer has no other token mixers.
    """
    mixers = dict.fromkeys(_mixers(layer, families))
    if not mixers:
        return ()
    return ("beside", next(iter(mixers))[0].one, *(name for _, name in mixers))


def _without_attention(
    layer: nn.Module, usual: set[type[nn.Module]], families: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the reason for a note on a layer without softmax attention.

    `usual` are the classes of the modules in layers with attention. Modules of other classes may
    replace the attention, and the reason names them. Return an empty tuple if the layer has no
    parameters.
    """
    if next(layer.parameters(), None) is None:
        return ()
    mixers = dict.fromkeys(_mixers(layer, families))
    if mixers:
        kind = next(iter(mixers))[0]
        return ("instead", kind.one, kind.several, *(name for _, name in mixers))
    parts = dict.fromkeys(
        type(part) for part in layer.children() if next(part.parameters(), None) is not None
    )
    names = [part.__name__ for part in parts if part not in usual]
    others = [name for name in names if not _TOKENWISE.search(name)]
    if others:
        return ("unknown", *others)
    return ("tokenwise", *(names or [type(layer).__name__]))


def _subject(numbers: Sequence[int], layers: _Layers, *, several: bool) -> str:
    """Return the subject of a sentence on layers, such as "Layers 0 and 2"."""
    scope = f" of stack {layers.stack}" if several else ""
    if layers.in_call_order:
        scope = " of the model"
    return f"{format_named('Layer', numbers)}{scope}"


def _sentence(reason: tuple[str, ...], subject: str, *, several: bool) -> str:
    case, *arguments = reason
    are = "are" if several else "is"
    if case == "beside":
        one, *names = arguments
        holds = "each hold" if several else "holds"
        return f"{subject} {holds} {one} beside attention ({_listed(names)}), which is not shown."
    if case == "instead":
        one, many, *names = arguments
        return f"{subject} {are} {many if several else one} ({_listed(names)}) and {are} not shown."
    if case == "did not run":
        return f"{subject} did not run on this input ({_listed(arguments)}) and {are} not shown."
    have = "have" if several else "has"
    if case == "unknown":
        return f"{subject} {have} no softmax attention ({_listed(arguments)}) and {are} not shown."
    mixes = "mix" if several else "mixes"
    return f"{subject} {mixes} no tokens ({_listed(arguments)}) and {are} not shown."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
