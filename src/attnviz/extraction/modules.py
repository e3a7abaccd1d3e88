"""Functions that find the attention modules of a model, and the stack and layer of each module.

A stack is a sequence of attention layers with the same task, such as the encoder, the decoder or
cross-attention.

transformers has no list of attention modules. A module is recognised by its code or by the name of
its class. The code of most attention modules calls the attention dispatcher of transformers
(`AttentionInterface`), which runs the implementation of attention that was selected for the model.
The stack and layer number of a module are read from its path in the model.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType, FunctionType
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.families import (
    ATTENTION_CLASS,
    ATTENTION_FUNCTION,
    AUDIO_MODULE,
    CONNECTOR_MODULE,
    CROSS_MODULE,
    LANGUAGE_MODEL,
    LIGHTNING_RATES,
    LINEAR_RULES,
    OVER_LAYERS,
    POOLING_NAME,
    SOFTMAX_CODE,
    VISION_MODULE,
)

T = TypeVar("T")

#: Stacks over tokens of a text, and the token sequences of their queries and of their keys
#: (`Batch.sequences`). Other stacks have patches of an image, frames of a sound, or summaries of
#: these.
TEXTS_OF_STACKS = {
    "self": ("input", "input"),
    "linear": ("input", "input"),
    "encoder": ("input", "input"),
    "decoder": ("decoder", "decoder"),
    "cross": ("decoder", "input"),
}


@dataclass(frozen=True)
class AttentionModule:
    """Module that computes attention.

    Attributes
    ----------
    name : str
        Path of the module in the model.
    module : Module
        The module itself.
    dispatches : bool
        Whether the module's code calls transformers' attention dispatcher.
    softmax : bool
        Whether the module's code or the dispatcher computes a softmax.
    linear : bool
        Whether the module's code calls a rule of linear attention (`LINEAR_RULES`).
    """

    name: str
    module: nn.Module
    dispatches: bool
    softmax: bool
    linear: bool

    @property
    def computes(self) -> bool:
        """Whether the module computes attention, and does not only contain modules that do."""
        return self.softmax or self.linear


@dataclass
class ModuleScan:
    """Modules of a model, and cached results that depend only on the modules and their code.

    `modules` are in the order of `named_modules`, and `names` are their paths. `attending` has the
    attention modules among them. `facts` is the cache of the method `once`.
    """

    modules: list[nn.Module]
    names: list[str]
    attending: list[AttentionModule]
    facts: dict[Hashable, Any]

    @cached_property
    def paths(self) -> dict[int, str]:
        """Path of each module in the model, by the ``id`` of the module."""
        return dict(zip(map(id, self.modules), self.names, strict=True))

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the cached result for `key`. If there is none, compute it with `compute`.

        The result must not refer to modules, because the cache may exist longer than the model.
        """
        if key not in self.facts:
            self.facts[key] = compute()
        result: T = self.facts[key]
        return result


@dataclass(frozen=True)
class _Known:
    """Cached scan of a model, with weak references to its modules.

    `modules`, `names` and `facts` are as in `ModuleScan`. `code` has the code of the ``forward``
    method of each module class. `attending` has, for each attention module, its index in `modules`,
    `dispatches`, `softmax` and `linear`.
    """

    modules: list[weakref.ref[nn.Module]]
    names: list[str]
    code: dict[type[nn.Module], object]
    attending: list[tuple[int, bool, bool, bool]]
    facts: dict[Hashable, Any] = field(default_factory=dict)

    def is_of(self, modules: list[nn.Module]) -> bool:
        """Whether the scan is of exactly `modules`, and their code was not replaced since then."""
        scanned = [reference() for reference in self.modules]
        return modules == scanned and _code(modules) == self.code


def _code(modules: Iterable[nn.Module]) -> dict[type[nn.Module], object]:
    return {kind: kind.forward for kind in {type(part) for part in modules}}


# Cached scans by model. Keys and references are weak, so the cache keeps no model in memory.
_known: weakref.WeakKeyDictionary[nn.Module, _Known] = weakref.WeakKeyDictionary()


def modules_of(model: nn.Module) -> list[nn.Module]:
    """Return the modules of a model in the order of ``model.modules()``, but three times faster.

    An extraction needs them several times.
    """
    modules: dict[nn.Module, None] = {}
    waiting: list[nn.Module | None] = [model]
    while waiting:
        module = waiting.pop()
        if module is not None and module not in modules:
            modules[module] = None
            waiting += reversed(module._modules.values())
    return list(modules)


def scan_modules(model: nn.Module) -> ModuleScan:
    """Find the modules of a model and its attention modules.

    The result is cached until modules or their code are replaced.
    """
    modules = modules_of(model)
    known = _known.get(model)
    if known is None or not known.is_of(modules):
        named = list(model.named_modules())
        names = [name for name, _ in named]
        attending = [
            (names.index(entry.name), entry.dispatches, entry.softmax, entry.linear)
            for entry in _find_attention_modules(named)
        ]
        known = _Known([weakref.ref(part) for part in modules], names, _code(modules), attending)
        _known[model] = known
    return ModuleScan(
        modules,
        known.names,
        [
            AttentionModule(known.names[index], modules[index], *properties)
            for index, *properties in known.attending
        ],
        known.facts,
    )


def attention_modules(model: nn.Module) -> list[AttentionModule]:
    """Return the attention modules of a model, in the order of `named_modules`.

    There are three kinds of attention modules:

    - modules whose code calls the attention dispatcher of transformers;
    - modules whose code calls a rule of linear attention (`LINEAR_RULES`), or that have the
      attribute of lightning attention (`LIGHTNING_RATES`);
    - other modules that are ``nn.MultiheadAttention`` of torch, or that have parameters and
      "attention" or "attn" in the name of their class. Such a module does not count if it is inside
      of a module of the first kind, or if it contains another attention module. One exception: a
      module whose own code has a softmax counts if the attention modules in it have neither a
      softmax nor a rule, such as the projections of CvT.
    """
    return scan_modules(model).attending


def attention_outside(
    root: nn.Module, model: nn.Module, shown: Collection[int]
) -> list[tuple[str, nn.Module]]:
    """Return the paths and modules in `root` that attend and are not in the record of `model`.

    `root` is `model` itself, or a module that contains it. `shown` has the ids of the modules whose
    attention is in the record or in other notes. Parts of a transformers model with such modules
    are left out, because the model runs them as its class defines. Other models beside `model`,
    such as one for queries, are left out, too, because they do not run.
    """
    skipped, of_model = set(shown), set(map(id, modules_of(model)))
    for module in modules_of(root):
        if isinstance(module, PreTrainedModel) and _is_of_library(module):
            inside = set(map(id, module.modules()))
            if id(module) not in of_model or not inside.isdisjoint({*shown, id(model)}):
                skipped |= inside
    entries = {id(entry.module) for entry in attention_modules(root) if entry.softmax}
    return [
        (path, module)
        for path, module in root.named_modules()
        if id(module) not in skipped and (id(module) in entries or _pools(path, module))
    ]


def _is_of_library(module: nn.Module) -> bool:
    package = type(module).__module__.partition(".")[0]
    return package in ("transformers", "timm", "peft", "sentence_transformers")


def _pools(path: str, module: nn.Module) -> bool:
    """Whether a module of the caller, at `path`, has attention in its own code.

    Its code calls an attention function of torch, or it has a softmax and a parameter or projection
    with a name such as ``query`` or ``attention``.
    """
    if isinstance(module, nn.Sequential):
        has_softmax = any(isinstance(child, nn.Softmax) for child in module)
        return has_softmax and bool(POOLING_NAME.search(path.rpartition(".")[2]))
    if type(module).__module__.startswith("torch.") or _is_of_library(module):
        return False
    code = names_in_code(type(module))
    parts = [name for name, _ in module.named_parameters(recurse=False)]
    parts += [name for name, child in module.named_children() if isinstance(child, nn.Linear)]
    return any(map(ATTENTION_FUNCTION.search, code)) or (
        any(map(SOFTMAX_CODE.search, code)) and any(map(POOLING_NAME.search, parts))
    )


def _find_attention_modules(modules: Iterable[tuple[str, nn.Module]]) -> list[AttentionModule]:
    entries: list[AttentionModule] = []
    names_of_kinds: dict[type[nn.Module], frozenset[str]] = {}
    for name, module in modules:
        kind = type(module)
        if OVER_LAYERS.search(kind.__name__):
            continue
        # Read the code of each class only once, because a model has many modules of the same class.
        if kind not in names_of_kinds:
            names_of_kinds[kind] = names_in_code(kind)
        names = names_of_kinds[kind]
        dispatches, is_torch = "get_interface" in names, isinstance(module, nn.MultiheadAttention)
        is_named = ATTENTION_CLASS.search(kind.__name__) and any(True for _ in module.parameters())
        is_rule = bool(names & LINEAR_RULES.keys()) or hasattr(module, LIGHTNING_RATES)
        linear = is_rule and not dispatches
        if dispatches or linear or is_torch or is_named:
            calls_softmax = any(map(SOFTMAX_CODE.search, names)) or any(
                isinstance(child, nn.Softmax) for child in module.children()
            )
            softmax = not linear and (dispatches or is_torch or calls_softmax)
            entries.append(AttentionModule(name, module, dispatches, softmax, linear))
    return [
        entry
        for entry in entries
        if entry.dispatches
        or not any(
            (other.name.startswith(f"{entry.name}.") and (other.computes or not entry.softmax))
            or (other.dispatches and entry.name.startswith(f"{other.name}."))
            for other in entries
        )
    ]


def names_in_code(kind: type[nn.Module]) -> frozenset[str]:
    """Return the names that a class uses in its methods and in functions that the methods call.

    The methods include those of base classes, except classes of torch. Only functions that are
    defined in the same file as the method are read.
    """
    names: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.startswith("torch.nn."):
            continue
        for attribute in vars(base).values():
            function = inspect.unwrap(getattr(attribute, "__func__", attribute))
            code = getattr(function, "__code__", None)
            if isinstance(code, CodeType):
                names.update(_names_of(code))
                names.update(_names_of_helpers(code, getattr(function, "__globals__", {})))
    return frozenset(names)


def _names_of_helpers(code: CodeType, namespace: Mapping[str, object]) -> Iterator[str]:
    """Yield the names that are used in the functions that a method calls.

    Only functions from the same file as the method are read. `code` is the code of the method, and
    `namespace` has the global names of its file.
    """
    for name in code.co_names:
        helper = namespace.get(name)
        if isinstance(helper, FunctionType) and helper.__module__ == namespace.get("__name__"):
            yield from _names_of(helper.__code__)


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


@lru_cache(maxsize=4096)
def stack_of(
    name: str, *, encoder_decoder: bool, vision: bool, beside_text: str | None = None
) -> str:
    """Return the stack of an attention module from its path in the model.

    The result is ``"cross"``, ``"encoder"``, ``"decoder"``, ``"vision"``, ``"audio"``,
    ``"connector"`` (turns patches or frames into tokens of a text), ``"pooling"`` (in an image or
    sound encoder, but not in one of its layers) or ``"self"`` (other modules, such as those of a
    language model without an encoder).

    `encoder_decoder` is whether the model has an encoder and a decoder, and `vision` whether its
    main input is an image. Some models contain a language model and other parts, such as an image
    encoder. `beside_text` is the stack of modules in these parts whose paths do not name a stack.
    It is None for other models.

    Examples
    --------
    >>> stack_of("decoder.block.2.layer.1.EncDecAttention", encoder_decoder=True, vision=False)
    'cross'
    """
    parts = name.split(".")
    number = next((index for index, part in enumerate(parts) if part.isdigit()), None)
    # Names in the path before the layer number, or all names if the path has no number.
    before = parts[:number]
    if any(CONNECTOR_MODULE.search(part) for part in before):
        return "connector"
    # If the path has a layer number, search only after it. Only a name after the number
    # distinguishes the cross-attention of a layer from its self-attention.
    if any(CROSS_MODULE.search(part) for part in parts[number:]):
        return "cross"
    is_tower = any(VISION_MODULE.search(part) for part in before)
    if encoder_decoder and not is_tower:
        for part in parts:
            if part.endswith("decoder"):
                return "decoder"
            if part.endswith("encoder"):
                return "encoder"
    tower = "self"
    if vision or any(VISION_MODULE.search(part) for part in parts):
        tower = "vision"
    elif any(AUDIO_MODULE.search(part) for part in parts):
        tower = "audio"
    elif beside_text is not None and LANGUAGE_MODEL not in parts:
        tower = beside_text
    return "pooling" if tower != "self" and number is None else tower


def layer_numbers(names: Iterable[str]) -> list[int] | None:
    """Return the layer number of each module of a stack, from the paths of the modules.

    The layer number is the leftmost number in the paths that is different for every module. Return
    None if no such number exists.

    Examples
    --------
    >>> layer_numbers(["encoder.block.0.layer.0.q", "encoder.block.2.layer.0.q"])
    [0, 2]
    """
    numbers = ([int(part) for part in name.split(".") if part.isdigit()] for name in names)
    columns = map(list, zip(*numbers, strict=False))
    return next((column for column in columns if len(set(column)) == len(column)), None)


def plain_numbers(tensor: object) -> torch.Tensor | None:
    """Return a tensor of a model as a plain tensor without gradient, or None if it has no values.

    Quantised weights of torchao and quanto are subclasses of Tensor with few operations, one of
    which is ``dequantize``. Return None for a tensor on the meta device, and for objects that are
    not tensors.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta":
        return None
    plain: torch.Tensor = tensor.detach()
    if type(plain).dequantize is torch.Tensor.dequantize:
        return plain
    try:
        plain = plain.dequantize()
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    return plain
