"""Compute a model's own attention weights, with which records of attnviz are compared.

The weights are computed by an eager copy: a copy of the model that uses eager attention, the only
implementation of transformers that returns weights. They are fields of the output of the copy, or
its attention modules return them.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from model_types.build import seed_of
from model_types.shapes import from_chunks, with_global_tokens

# Model types whose output has logits in the fields for attention weights.
_SCORES = {"prophetnet", "squeezebert"}

# Weights by the name of a field of the output, or by the name of a group of modules (see
# `by_pattern`). A list has a tensor for each layer, or None for a layer without weights.
Weights = dict[str, list[torch.Tensor | None]]


def run(model: nn.Module, inputs: Mapping[str, Any], **more: Any) -> Any:
    """Run a forward without gradients, with the same random numbers in each run.

    `use_cache` is False unless `inputs` or `more` sets it.
    """
    draw_the_same(model)
    if "use_cache" in inspect.signature(model.forward).parameters and "use_cache" not in inputs:
        more.setdefault("use_cache", False)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(**copy.deepcopy(dict(inputs)), **more)


def draw_the_same(model: nn.Module) -> None:
    """Seed torch, so that every forward of a model draws the same random numbers.

    Some models, such as VITS and ViLT, draw random numbers even in evaluation mode.
    """
    torch.manual_seed(seed_of(type(model).__name__))


_eager: WeakKeyDictionary[nn.Module, PreTrainedModel] = WeakKeyDictionary()


def eager_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return the eager copy of a model.

    The copy is a new model, because some models (SAM, Falcon) cannot change the implementation of
    attention after they were built. Later calls return the same copy, with the current parameters.
    """
    if model not in _eager:
        config = copy.deepcopy(model.config)
        copied = type(model)._from_config(config, attn_implementation="eager")
        _eager[model] = copied.eval()
    eager = _eager[model]
    eager.load_state_dict(model.state_dict())
    return eager


@contextmanager
def double_softmax() -> Iterator[None]:
    """Within the context, compute each softmax in the dtype of its input.

    Eager attention passes ``dtype=float32`` to softmax, even in a float64 model. In the context,
    softmax ignores this argument.
    """
    softmax = nn.functional.softmax

    def without_dtype(logits: torch.Tensor, dim: int | None = None, **options: Any) -> torch.Tensor:
        options.pop("dtype", None)
        return softmax(logits, dim=dim, **options)

    with mock.patch.object(nn.functional, "softmax", without_dtype):
        yield


@contextmanager
def double_weights() -> Iterator[None]:
    """Within the context, let records compute weights in float64 instead of float32."""
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield


def own_weights(eager: PreTrainedModel, inputs: Mapping[str, Any]) -> Weights:
    """Return all attention weights in the output of an eager copy, by the name of the field."""
    weights = dict(_weights_in(_with_attentions(eager, inputs), ""))
    for name in [name for name in weights if "global_attentions" in name]:
        bands = name.replace("global_attentions", "attentions")
        pairs = zip(weights[bands], weights.pop(name), strict=True)
        weights[bands] = [_with_global_tokens(*pair) for pair in pairs]
    if hasattr(eager.config, "num_random_blocks"):
        for name in weights.keys() & {"attentions", "encoder_attentions"}:
            count = inputs["input_ids"].shape[1]
            weights[name] = [_with_random_blocks(t, eager.config, count) for t in weights[name]]
    if eager.config.model_type == "reformer":
        weights = {"attentions": _without_chunks(eager, inputs)}
    return _scores_as_weights(weights, eager.config.model_type)


def _without_chunks(eager: PreTrainedModel, inputs: Mapping[str, Any]) -> list[torch.Tensor | None]:
    """Return the weights of each layer of Reformer, in a batch of one text, for one hash round."""
    weights: list[torch.Tensor | None] = []

    def read(module: Any, _: Any, output: Any) -> None:
        values, buckets = output.attention_probs[0], getattr(output, "buckets", None)
        if values.dim() == 3:
            weights.append(values[None])
            return
        heads, count = len(values), output.hidden_states.shape[1]
        order = torch.arange(count).expand(heads, -1)
        if buckets is not None:
            order = buckets[0, :, 0].argsort(dim=-1, stable=True)
        shares = torch.ones(heads, 1, count)
        weights.append(from_chunks(values, order, module.num_chunks_before, shares)[None])

    with ExitStack() as stack:
        for module in eager.modules():
            if hasattr(module, "num_chunks_before"):
                stack.callback(module.register_forward_hook(read).remove)
        run(eager, inputs, output_attentions=True)
    return weights


def _with_random_blocks(
    tensor: torch.Tensor | None, config: Any, count: int
) -> torch.Tensor | None:
    """Complete the weights of BigBird on the first block, in a batch of one text.

    Except in training, the random blocks are all the first block. Its keys occur once, and once per
    random block, in the softmax of each row outside of the first and the last block. The output has
    only one of these equal weights. `count` is the number of tokens without padding.
    """
    if tensor is None or bool((tensor.sum(dim=-1) > 1 - 1e-3).all()):
        return tensor
    size, complete = config.block_size, tensor.clone()
    complete[:, :, size:-size, :size] *= 1 + config.num_random_blocks
    return complete[:, :, :count, :count]


def _with_global_tokens(band: torch.Tensor | None, rows: torch.Tensor | None) -> torch.Tensor:
    """Join the two tensors that Longformer and LED return for a layer, in a batch of one example.

    Rows of global tokens are 0 in `band`.
    """
    if band is None or rows is None:
        raise ValueError("a layer lacks its weights")
    is_global = (band[0] == 0).all(dim=-1).all(dim=0)
    tokens = is_global.nonzero().flatten().tolist()
    return with_global_tokens(band[0], rows[0], tokens)[None]


def _with_attentions(eager: PreTrainedModel, inputs: Mapping[str, Any]) -> Any:
    """Run a forward that returns attention weights, and return its output.

    First request the weights with the argument `output_attentions`. If the model does not take this
    argument, returns no weights, or raises TypeError or ValueError, request them by the setting
    `output_attentions` of the configuration.
    """
    parameters = inspect.signature(eager.forward).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if "output_attentions" in parameters or takes_any:
        try:
            output = run(eager, inputs, output_attentions=True)
        except (TypeError, ValueError):
            output = None
        if any(True for _ in _weights_in(output, "")):
            return output
    configs = list(_configs(eager.config))
    before = [vars(config).get("output_attentions") for config in configs]
    try:
        for config in configs:
            config.output_attentions = True
        return run(eager, inputs)
    finally:
        for config, value in zip(configs, before, strict=True):
            config.output_attentions = value


def _configs(config: PretrainedConfig) -> Iterator[PretrainedConfig]:
    yield config
    for value in vars(config).values():
        if isinstance(value, PretrainedConfig):
            yield from _configs(value)


def _weights_in(output: Any, path: str) -> Iterator[tuple[str, list[torch.Tensor | None]]]:
    if isinstance(output, Mapping):
        for name, value in output.items():
            name_path = f"{path}.{name}" if path else str(name)
            if "attentions" in str(name):
                tensors = list(_flat(value))
                if any(tensor is not None for tensor in tensors):
                    yield name_path, tensors
            else:
                yield from _weights_in(value, name_path)
    elif isinstance(output, tuple | list) and not isinstance(output, torch.Size):
        for index, value in enumerate(output):
            if isinstance(value, Mapping):
                yield from _weights_in(value, f"{path}[{index}]")


def _flat(value: Any) -> Iterator[torch.Tensor | None]:
    if value is None:
        yield None
    elif isinstance(value, torch.Tensor):
        yield value if value.dim() >= 3 and value.is_floating_point() else None
    elif isinstance(value, Sequence):
        for entry in value:
            yield from _flat(entry)


def _scores_as_weights(by_path: Weights, kind: str) -> Weights:
    """Return the fields that have weights.

    Tensors that cannot be weights become None. Only for the model types in `_SCORES`, such tensors
    are logits, which are converted to weights. Also remove tensors of cross-attention from other
    fields (see `_without_cross`).
    """
    weights: Weights = {}
    for path, tensors in by_path.items():
        converted = [
            None if tensor is None else tensor if are_weights(tensor) else _softmax(tensor, kind)
            for tensor in tensors
        ]
        if any(tensor is not None for tensor in converted):
            weights[path] = converted
    return _without_cross(weights)


def _without_cross(by_path: Weights) -> Weights:
    """Drop those tensors of the field "attentions" that the field "cross_attentions" also has.

    For example, Q-Formers return the weights of cross-attention in both fields. If no tensor would
    remain in "attentions", keep all of its tensors.
    """
    without_cross = dict(by_path)
    for path, tensors in by_path.items():
        cross = by_path.get(re.sub(r"(^|\.)attentions$", r"\1cross_attentions", path), ())
        if path.endswith("cross_attentions") or not cross:
            continue
        remaining = [
            tensor
            for tensor in tensors
            if tensor is None
            or not any(other is not None and torch.equal(tensor, other) for other in cross)
        ]
        without_cross[path] = remaining or tensors
    return without_cross


def are_weights(tensor: torch.Tensor) -> bool:
    """Return whether a tensor can contain weights.

    Such a tensor has no negative numbers. Its sums over the keys (the last axis) are at most 1, and
    not all of them are near 0.
    """
    values = tensor.detach().float()
    sums = values.sum(-1)
    return bool((values >= 0).all()) and bool((sums <= 1 + 1e-3).all()) and bool(sums.max() > 0.01)


def _softmax(tensor: torch.Tensor, kind: str) -> torch.Tensor | None:
    return torch.softmax(tensor.detach().float(), dim=-1) if kind in _SCORES else None


def linear_matrices(model: nn.Module, inputs: Mapping[str, Any]) -> list[torch.Tensor | None]:
    """Return the matrix of each linear layer that has one per head, (examples, heads, n, n).

    A linear layer multiplies its values by a matrix. The layer's own rule returns the matrix if the
    values are one-hot vectors. The rules are global variables of the file that defines the layer.
    """
    with noted_rules(model, _VALUES_OF_RULES) as calls:
        run(model, inputs)
    matrices: list[torch.Tensor | None] = []
    for rule, arguments, _ in calls:
        values = next(name for name in _VALUES_OF_RULES.values() if name in arguments)
        examples, count, heads = arguments[values].shape[:3]
        one_hot = torch.eye(count, dtype=arguments[values].dtype)[:, None]
        one_hot = one_hot.expand(examples, count, heads, count)
        with torch.no_grad():
            result = rule(**{**arguments, values: one_hot})
        output = result[0] if isinstance(result, tuple) else result
        matrices.append(output.transpose(1, 2))
    return matrices


# Names of the rules in transformers, and of their argument with the values.
_VALUES_OF_RULES = {
    "torch_chunk_gated_delta_rule": "value",
    "chunk_kimi_delta_attention": "value",
    "mamba2_chunk_scan": "hidden_states",
}


# The function, the arguments by name, and the output of a call of a rule.
RuleCall = tuple[Any, dict[str, Any], torch.Tensor]


@contextmanager
def noted_rules(model: nn.Module, names: Iterable[str]) -> Iterator[list[RuleCall]]:
    """Within the context, add each call of the rules `names` to the yielded list."""
    calls: list[RuleCall] = []

    def noting(rule: Any) -> Any:
        parameters = list(inspect.signature(rule).parameters)

        @functools.wraps(rule)
        def noted(*args: Any, **options: Any) -> Any:
            result = rule(*args, **options)
            output = result[0] if isinstance(result, tuple) else result
            calls.append((rule, dict(zip(parameters, args, strict=False)) | options, output))
            return result

        return noted

    with ExitStack() as stack:
        for source in {type(module).__module__ for module in model.modules()}:
            for name in names:
                rule = getattr(sys.modules[source], name, None)
                if rule is not None:
                    patch = mock.patch.object(sys.modules[source], name, noting(rule))
                    stack.enter_context(patch)
        yield calls


def by_pattern(calls: Mapping[str, list[torch.Tensor]]) -> Weights:
    """Group the weights of modules whose names differ only in numbers.

    `calls` has the weights of each call of a module, by the name of the module. The groups keep the
    order of `calls`. In the name of a group, each number is replaced by "#".

    If a module was called several times, each call is assumed to be one window of tokens. Then the
    weights of all calls become one block-diagonal tensor, or None if their shapes do not fit
    together.
    """
    grouped: Weights = {}
    for name, tensors in calls.items():
        grouped.setdefault(re.sub(r"\d+", "#", name), []).append(_diagonal(tensors))
    return grouped


def module_calls(
    eager: PreTrainedModel, inputs: Mapping[str, Any]
) -> dict[str, list[torch.Tensor]]:
    """Return the weights that the attention modules of an eager copy compute, by module name.

    Some of these weights are not in the output of the model. For example, the output of a model of
    text and images may lack the weights of the image encoder. The output of an image model with
    stages may have only the weights of the last layer of each stage.
    """
    recorder = _WeightsRecorder(eager)
    with ExitStack() as stack:
        for source in {type(module).__module__ for module in eager.modules()}:
            if hasattr(sys.modules[source], "eager_attention_forward"):
                stack.enter_context(_noting(sys.modules[source], recorder.note))
        run(eager, inputs)
    by_function, recorder.calls = recorder.calls, {}
    with ExitStack() as stack:
        # `_with_attentions` may run several forwards. Keep only the weights of the last forward.
        stack.callback(eager.register_forward_pre_hook(recorder.begin).remove)
        for name, module in eager.named_modules():
            is_covered = any(other == name or other.startswith(f"{name}.") for other in by_function)
            if re.search("atten|attn", type(module).__name__, re.IGNORECASE) and not is_covered:
                stack.callback(module.register_forward_hook(recorder.hook).remove)
        try:
            # Request the weights, because some modules return them only on request.
            _with_attentions(eager, inputs)
        except (IndexError, TypeError, ValueError):
            run(eager, inputs)
    return by_function | recorder.calls


class _WeightsRecorder:
    """Recorder of the weights that the modules of a model return, by the name of the module."""

    def __init__(self, model: nn.Module) -> None:
        self.calls: dict[str, list[torch.Tensor]] = {}
        self._names = {id(module): name for name, module in model.named_modules()}

    def note(self, module: nn.Module, beside: Any) -> None:
        """Store weights that a module returned.

        `beside` has the values that the module returned after its output. The first tensor among
        them that has floating-point numbers and at least three axes is stored, if it can be weights
        (see `are_weights`).
        """
        for entry in beside:
            if isinstance(entry, torch.Tensor) and entry.dim() >= 3 and entry.is_floating_point():
                if are_weights(entry):
                    name = self._names.get(id(module), "")
                    self.calls.setdefault(name, []).append(entry.detach())
                return

    def hook(self, module: nn.Module, arguments: Any, output: Any) -> None:
        """Forward hook that stores the weights among the values that a module returned."""
        del arguments
        self.note(module, output[1:] if isinstance(output, tuple | list) else ())

    def begin(self, module: nn.Module, arguments: Any) -> None:
        """Forward pre-hook of the model that drops the weights of an earlier forward."""
        del module, arguments
        self.calls.clear()


@contextmanager
def _noting(source: Any, note: Any) -> Iterator[None]:
    """Within the context, call `note` after each call of eager attention in a modeling file.

    A modeling file, ``modeling_*.py`` of transformers, defines `eager_attention_forward`, which its
    attention modules call. `source` is the imported file. The arguments of `note` are the attention
    module, and the values that eager attention returned after its output.
    """
    original = source.eager_attention_forward

    @functools.wraps(original)
    def recorded(module: nn.Module, *args: Any, **options: Any) -> Any:
        output = original(module, *args, **options)
        note(module, output[1:])
        return output

    source.eager_attention_forward = recorded
    try:
        yield
    finally:
        source.eager_attention_forward = original


def _diagonal(tensors: list[torch.Tensor]) -> torch.Tensor | None:
    if len(tensors) == 1:
        return tensors[0]
    if any(t.dim() != 4 or t.shape[0] != 1 or t.shape[1] != tensors[0].shape[1] for t in tensors):
        return None
    heads = [
        torch.block_diag(*(t[0, head] for t in tensors)) for head in range(tensors[0].shape[1])
    ]
    return torch.stack(heads)[None]
