"""The function `attribute`: a record with attributions in place of attention weights.

An attribution is one number for each query-key pair that estimates the pair's effect on the answer.
The answer is a number in the model's output, such as the logit of one token minus that of another.
The methods "value norm" and "rollout" do not use an answer. "value norm" measures how much a key
contributes to the output at a query. "rollout" estimates which share of a token's hidden state
after a layer comes from each input token.

A record stores the attention of one example, which is one input of the model. It has one stack for
each kind of attention, such as self-attention, with all layers of this kind.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Unpack, get_args

import numpy as np
import torch
from torch import nn

from attnviz.extraction.capture.change import ModuleRun, output_by_head
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import Positions, without_padding
from attnviz.extraction.hooks import hook
from attnviz.extraction.options import RecordOptions, check_options, read_capture_options
from attnviz.interventions.answer import FUNCTION_INSTEAD
from attnviz.interventions.attributed import (
    GradientAttribution,
    MixedLayers,
    NormAttribution,
    ValueNorms,
    uniform_share_of_first,
)
from attnviz.interventions.changes import Ablate, StackLayer
from attnviz.interventions.direct import direct_gradients
from attnviz.interventions.example import Example
from attnviz.interventions.projection import head_norms
from attnviz.interventions.runner import Copy, Runner
from attnviz.record.attention import LayerAttention
from attnviz.record.record import AttentionRecord, derive_record
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import quote
from attnviz.utils.arguments import format_named, short_repr, whole_number
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.numbers import format_small
from attnviz.utils.progress import report, with_progress
from attnviz.utils.refusals import short_refusals

Method = Literal[
    "gradient",
    "knockout gradient",
    "integrated gradients",
    "value norm",
    "direct",
    "relevance",
    "rollout",
]

_MAX_STEPS = 256
# Minimum number of vectors, each with the size of a hidden state, that a layer stores per token for
# the backward pass. The memory check before the runs uses this number.
_NUM_SAVED = 6
# The attributions of a layer by "integrated gradients" should sum to the decrease of the answer
# without the attention of the layer. This is checked only if the decrease is larger than the noise
# and than `_MIN_LOSS` times max(1, |answer|). The relative deviation from a smaller decrease would
# be mostly rounding error.
_MIN_LOSS = 1e-4
# Names of attributions in captions and in `AttentionStack.measure`, by method. The attributions of
# all other methods have the name of the method.
_MEASURES = {"gradient": "gradient x attention", "direct": "direct attribution"}
# Methods whose attributions of query-key pairs can be negative. "relevance" first computes such
# attributions, but then multiplies only the positive ones of all layers, so that its result has no
# negative numbers.
_SIGNED = ("gradient", "knockout gradient", "integrated gradients", "direct", "relevance")
# Methods that multiply the matrices of successive layers. Their results have one head per layer.
_MIXED = ("relevance", "rollout")
_NOTES: Mapping[str, str] = {
    "gradient": (
        "A gradient, not an effect: the loss of the answer, to first order, if the weight were "
        "cut after the softmax. Use intervene to measure the effect."
    ),
    "knockout gradient": (
        "A gradient, not an effect: the loss of the answer, to first order, if the pair were cut "
        "before the softmax. Use intervene to measure the effect."
    ),
    "integrated gradients": (
        "The loss of the answer while all weights of a layer shrink to 0, divided among the "
        "weights (Hao et al. 2021)."
    ),
    "value norm": (
        "The weight times the norm of what the key's value adds (Kobayashi et al. 2020). It "
        "contains nothing about the answer."
    ),
    "direct": (
        "What the pair adds to the answer without passing later layers, with a constant scale of "
        "the last norm. Later layers also read it, so that its total effect differs. Ablate the "
        "head to measure the total effect."
    ),
    "relevance": (
        "Support for the answer, multiplied through the layers and averaged over heads (Chefer et "
        "al. 2021): each layer is mixed with all earlier layers. It ignores values, feed-forward "
        "layers and evidence against the answer."
    ),
    "rollout": (
        "Attention multiplied through the layers and averaged over heads (Abnar and Zuidema "
        "2020): each layer is mixed with all earlier layers. It ignores values, feed-forward "
        "layers and signs, and contains nothing about the answer."
    ),
}


@short_refusals
@with_progress
def attribute(
    model: Any,
    inputs: Any,
    *,
    method: Method = "gradient",
    answer: Any = None,
    position: int | str | None = None,
    target: str | None = None,
    steps: int = 16,
    progress: bool = True,  # noqa: ARG001 - read by with_progress
    **options: Unpack[RecordOptions],
) -> AttentionRecord:
    """Compute one attribution for each query-key pair, such as its estimated effect on the answer.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    method : {"gradient", "knockout gradient", "integrated gradients", "value norm", "direct", \
"relevance", "rollout"}
        - ``"gradient"``: the weight times the gradient of the answer with respect to the weight.
          This is a first-order estimate of the decrease of the answer if the weight is set to 0
          after the softmax.
        - ``"knockout gradient"``: a first-order estimate of the decrease of the answer if the pair
          is removed before the softmax, so that the other keys of the query get its weight.
        - ``"integrated gradients"``: the weight times the mean gradient while all weights of a
          layer are scaled from 0 to their values (Hao et al. 2021, arXiv 2004.11207, section 3).
        - ``"value norm"``: the weight times the norm of the key's value after the output projection
          (Kobayashi et al. 2020, arXiv 2004.10102). It does not depend on an answer.
        - ``"direct"``: direct logit attribution, the contribution to the answer through the
          residual stream, without later layers. Models with norms after their layers raise
          NotImplementedError.
        - ``"relevance"``: the share of each input token in the hidden state of each token after a
          layer, computed from the positive parts of ``"gradient"`` in all layers up to this one
          (Chefer et al. 2021, arXiv 2103.15679). Each layer has one matrix for all heads.
        - ``"rollout"``: the share of each input token in the hidden state of each token after a
          layer, computed from the weights of all layers up to this one (Abnar and Zuidema 2020,
          arXiv 2005.00928). It does not depend on an answer. Each layer has one matrix for all
          heads.
    answer : int, str, pair of these, or callable, optional
        As for `attnviz.intervene`. A function must return a tensor. By default the logit of the
        most likely token minus that of the second. Do not use a probability as the answer, because
        the gradient of a probability near 1 is almost 0.
    position : int or str, optional
        Token after which the answer is read, by position or text. The last token by default.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    steps : int, default 16
        Number of Gauss-Legendre points of ``"integrated gradients"``, from 1 to 256.
    progress : bool
        Whether to show a progress bar if the call takes longer than a second.
    **options
        `tokenizer`, `processor`, `truncation`, `name`, `layers`, `dtype` and `device` of
        `attnviz.extract`.

    Returns
    -------
    AttentionRecord
        Record with attributions in place of weights. `AttentionStack.measure` names them: it is
        "gradient x attention" for ``"gradient"``, "direct attribution" for ``"direct"``, and
        otherwise the name of the method. Attributions by ``"value norm"``, ``"relevance"`` and
        ``"rollout"`` are not negative. Those by the other methods are signed: positive numbers
        support the answer. The record does not store the attributions: they are computed each time
        they are read. Layers that cannot be attributed, for example because they do not use the
        attention dispatcher of transformers, are missing. A note of the record names these layers.

    Raises
    ------
    TypeError, ValueError, IndexError
        If an argument does not fit the model or the text, or if ``torch.inference_mode`` is active.
    MemoryError
        If the record or the backward pass needs more than the free memory. The error is raised
        before the model runs.
    NotImplementedError
        If gradients do not pass through a module of the model, or if the method can be computed for
        none of its stacks.

    Notes
    -----
    For ``"integrated gradients"``, the numbers of a layer should sum to the decrease of the answer
    without the attention of this layer (completeness). A note of the record contains the largest
    relative deviation over the layers.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                               # doctest: +SKIP
    >>> record = av.attribute(model, "a b c a b", tokenizer=tokenizer)            # doctest: +SKIP
    >>> av.HeadView(record)                                                       # doctest: +SKIP
    """
    if method not in get_args(Method):
        valid = ", ".join(map(repr, get_args(Method)))
        raise ValueError(f"method={short_repr(method)} must be one of {valid}")
    steps = whole_number("steps", steps, 1, _MAX_STEPS, hint="of steps, 16 or so")
    check_options(options, refused=["generate"])
    if torch.is_inference_mode_enabled():
        raise ValueError(
            "attribute needs gradients, which torch.inference_mode() disables. Call it outside, "
            "or use torch.no_grad()."
        )
    capture = read_capture_options(**options)
    if method in _MIXED and capture.layers is not None:
        raise ValueError(f"method={method!r} multiplies all layers. Do not pass layers.")
    example = Example.one(model, inputs, target, options)
    if method not in ("value norm", "rollout"):
        # The model runs on `copies` copies of the example. For each token, a layer stores at least
        # `_NUM_SAVED` vectors per copy for the backward pass, and three vectors in all for the
        # attribution: value, output and gradient.
        copies = steps + 1 if method == "integrated gradients" else 1
        example.check_runs(
            f"method={method!r}",
            copies=copies,
            kept=lambda _: 3 + _NUM_SAVED * copies,
        )
    runner = Runner(example, capture)
    if method not in ("value norm", "rollout"):
        runner.ask(answer, position)
        return _by_gradients(runner, method, steps)
    if answer is not None or position is not None:
        raise ValueError(f"method={method!r} has no answer. Do not pass answer and position.")
    if method == "rollout":
        return _mixed(runner, runner.record, method)

    def attributed(layer: LayerAttention, norms: ValueNorms, at: Positions) -> LayerAttention:
        return NormAttribution(layer, norms.select(at.queries, at.keys))

    return _record(runner, head_norms(example), attributed, method, [])


@dataclass(frozen=True)
class _Vectors:
    """Values and outputs of the heads of one attention module, and gradients of the answer.

    `gradients` are the gradients of the answer with respect to `outputs`. `values` has the shape
    (key_heads, keys, value_dim). `outputs` and `gradients` have the shape (heads, queries,
    value_dim).
    """

    values: torch.Tensor
    outputs: torch.Tensor
    gradients: torch.Tensor


def _by_gradients(runner: Runner, method: Method, steps: int) -> AttentionRecord:
    if runner.answer.of_hidden_states:
        raise ValueError(
            f"answer: {type(runner.model).__name__} has no logits, and the similarity of its "
            "hidden states to themselves has the gradient 0. Load the model with its head, or "
            f"{FUNCTION_INSTEAD}."
        )
    layers = {
        (name, number): module_run
        for (name, number), module_run in runner.module_runs.items()
        if name in runner.record.stacks and number in runner.record.stacks[name].layers
    }
    notes = [f"Attributed number: the {runner.answer.measure}."]
    if method == "integrated gradients":
        vectors, off = _integrated(runner, layers, steps)
        notes.append(
            "The sum of a layer's numbers differs from the loss of the answer without the layer "
            f"by at most {format_small(off)} of the loss ({steps} steps)."
        )
    elif method == "direct":
        direct = _followed(runner.model, partial(direct_gradients, runner, layers.values()))
        vectors = {
            module_run: _vectors(call, gradient) for module_run, (call, gradient) in direct.items()
        }
    else:
        vectors = _gradients(runner, layers.values())
    by: Literal["weights", "logits"] = "logits" if method == "knockout gradient" else "weights"

    def attributed(layer: LayerAttention, own: _Vectors, at: Positions) -> LayerAttention:
        outputs, gradients = (
            without_padding(tensor[None], 0, at.queries) for tensor in (own.outputs, own.gradients)
        )
        values = without_padding(own.values[None], 0, at.keys)
        return GradientAttribution(layer, values, outputs, gradients, by)

    record = _record(runner, vectors, attributed, method, notes)
    return _mixed(runner, record, method) if method == "relevance" else record


def _mixed(runner: Runner, record: AttentionRecord, method: Method) -> AttentionRecord:
    """Return the record of the method ``"relevance"`` or ``"rollout"``.

    Its attributions are products of one matrix per layer (see `MixedLayers`). For "rollout",
    `record` has the attention weights. For "relevance", it has attributions by gradients. Stacks
    whose queries and keys are different tokens, stacks whose layers have different numbers of
    tokens, and stacks of linear layers or indexers are left out. Raise NotImplementedError if no
    stack remains.
    """
    stacks: dict[str, AttentionStack] = {}
    rollout = method == "rollout"
    notes = [_NOTES[method]] if rollout else []
    for name, stack in record.stacks.items():
        if stack.key_tokens is not stack.query_tokens or stack.linear or stack.ranks:
            continue
        layers = [stack.attention(number) for number in stack.layers]
        if any(layer.num_queries != layers[0].num_queries for layer in layers):
            continue
        mixed = {
            number: MixedLayers(
                tuple(layers[: index + 1]), own=0.5 if rollout else 1.0, positive=not rollout
            )
            for index, number in enumerate(stack.layers)
        }
        stacks[name] = stack.derive(
            mixed,
            normalized=rollout and stack.normalized,
            signed=False,
            measure=_MEASURES.get(method, method),
        )
        if rollout and stack.causal:
            share = uniform_share_of_first(len(stack.query_tokens), len(layers))
            notes.append(
                f"In stack {quote(name)} the first token gets {share:.0%} of the last one for "
                "uniform attention, so that a large number means nothing."
            )
    if not stacks:
        raise NotImplementedError(
            f"method={method!r} needs self-attention, which the model does not have"
        )
    if any(stack.linear for stack in runner.record.stacks.values()):
        notes.append(
            "Linear layers also mix tokens, but they are not in the product of the layers. So a "
            "token of a later layer may contain other tokens of the input."
        )
    return derive_record(record, stacks, notes=[*record.notes, *notes])


def _followed(model: nn.Module, run: Callable[[], Any]) -> Any:
    """Call `run`, which runs the model, and return its result.

    Raise NotImplementedError if gradients do not pass through one of the linear or convolutional
    modules. Some quantised modules return outputs that are detached from the graph. Without this
    check, the gradient of the answer would be incomplete, and no error would show it.
    """

    def check(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        differentiable = [
            tensor for tensor in inputs if isinstance(tensor, torch.Tensor) and tensor.requires_grad
        ]
        if (
            differentiable
            and torch.is_grad_enabled()
            and isinstance(output, torch.Tensor)
            and output.is_floating_point()
            and not _passes(module, differentiable[0], output)
        ):
            raise NotImplementedError(
                f"model: gradients do not pass {name} ({type(module).__name__}), which is usual "
                "for quantised modules. Load the model without quantisation, pass "
                'method="value norm", or measure effects with head_effects and intervene.'
            )

    with Cleanup() as undo, undo:
        for name, module in model.named_modules():
            if any(word in type(module).__name__ for word in ("Linear", "Conv")):
                hook(undo, module.register_forward_hook, partial(check, name))
        return run()


def _passes(module: nn.Module, input_tensor: torch.Tensor, output: torch.Tensor) -> bool:
    """Return whether gradients pass from the output of a module to its input."""
    weight = getattr(module, "weight", None)
    if isinstance(weight, torch.Tensor) and weight.is_floating_point():
        return output.requires_grad
    if not output.requires_grad:
        return False
    # Compute a gradient to find out, because ``requires_grad`` is not enough: torch's quantised
    # modules set it for their outputs, although gradients do not pass through these modules.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        [gradient] = torch.autograd.grad(
            output.sum(), [input_tensor], retain_graph=True, allow_unused=True
        )
    return gradient is not None


def _gradients(runner: Runner, requested: Collection[ModuleRun]) -> dict[ModuleRun, _Vectors]:
    """Return the `_Vectors` of the requested attention modules, from one backward pass.

    Modules that do not use the attention dispatcher of transformers are left out.
    """
    calls: dict[ModuleRun, AttentionCall] = {}

    def take(call: AttentionCall, module_run: ModuleRun) -> None:
        if call.function is None:
            return
        torch.set_grad_enabled(True)
        if module_run not in requested:
            return
        output = output_by_head(call, module_run[0])
        if not output.requires_grad:
            output.requires_grad_()
        calls[module_run] = call

    outputs = _followed(runner.model, partial(runner.run, [Copy()], take))
    outputs_by_head = [call.output for call in calls.values()]
    if not outputs_by_head:
        return {}
    with torch.enable_grad():
        gradients = torch.autograd.grad(
            runner.answer.with_gradient(outputs), outputs_by_head, allow_unused=True
        )
    return {
        module_run: _vectors(call, gradient)
        for (module_run, call), gradient in zip(calls.items(), gradients, strict=True)
    }


def _vectors(call: AttentionCall, gradient: torch.Tensor | None) -> _Vectors:
    if call.value is None:
        raise TypeError("attention without values cannot be attributed")
    output = call.output[0].detach().transpose(0, 1)
    slope = torch.zeros_like(output) if gradient is None else gradient[0].transpose(0, 1)
    return _Vectors(*(tensor.detach().cpu() for tensor in (call.value[0], output, slope)))


def _integrated(
    runner: Runner, layers: Mapping[StackLayer, ModuleRun], steps: int
) -> tuple[dict[ModuleRun, _Vectors], float]:
    """Compute the `_Vectors` for integrated gradients, one layer after the other.

    For each layer, the model runs on a batch of copies of the example. In each copy, the outputs of
    the layer's heads are multiplied by a different factor from 0 to 1. The returned gradients are
    weighted means over the factors other than 0.

    The attributions of a layer should sum to the decrease of the answer at the factor 0. The second
    result is the largest relative deviation of a layer's sum from this decrease. Layers with a very
    small decrease are ignored (see `_MIN_LOSS`).
    """
    nodes, shares = np.polynomial.legendre.leggauss(steps)
    # The factors are the nodes of the quadrature, mapped from [-1, 1] to [0, 1]. The additional
    # factor 0 measures the answer without the layer's attention.
    factors = [*((nodes + 1) / 2).tolist(), 0.0]
    weights = torch.tensor(shares / 2)
    calls: dict[ModuleRun, AttentionCall] = {}

    def take(call: AttentionCall, module_run: ModuleRun) -> None:
        if call.function is not None and module_run in layers.values():
            output_by_head(call, module_run[0])
            calls[module_run] = call

    runner.run([Copy()], take)
    runner.measure_noise()
    vectors: dict[ModuleRun, _Vectors] = {}
    worst = 0.0
    for number, ((stack, layer), module_run) in enumerate(sorted(layers.items()), 1):
        if module_run not in calls:
            continue
        scaled: list[torch.Tensor] = []

        def follow(
            call: AttentionCall,
            current: ModuleRun,
            module_run: ModuleRun = module_run,
            scaled: list[torch.Tensor] = scaled,
        ) -> None:
            if current == module_run:
                scaled.append(call.output.requires_grad_())
                torch.set_grad_enabled(True)

        copies = [
            Copy(runner.change(Ablate(layer, factor=factor, stack=stack))) for factor in factors
        ]
        outputs = _followed(runner.model, partial(runner.run, copies, follow))
        with torch.enable_grad():
            results = [runner.answer.with_gradient(outputs, copy) for copy in range(steps + 1)]
            total = torch.stack(results[:-1]).sum()
            [slopes] = torch.autograd.grad(total, scaled[:1], allow_unused=True)
        own = _vectors(calls[module_run], None)
        mean = torch.zeros_like(own.outputs)
        if slopes is not None:
            weighted = slopes[:-1] * weights.to(slopes)[:, None, None, None]
            mean = weighted.sum(dim=0).transpose(0, 1).cpu()
        lost = runner.before - float(results[-1].detach())
        added = float((mean.double() * own.outputs.double()).sum())
        if abs(lost) > max(runner.noise, _MIN_LOSS * max(1.0, abs(runner.before))):
            worst = max(worst, abs(added - lost) / abs(lost))
        vectors[module_run] = replace(own, gradients=mean)
        report("layers", number, len(layers), "layer")
    return vectors, worst


def _record(
    runner: Runner,
    vectors: Mapping[ModuleRun, Any],
    attributed: Callable[[LayerAttention, Any, Positions], LayerAttention],
    method: Method,
    notes: list[str],
) -> AttentionRecord:
    """Return the record of `runner` with attributions in place of the weights.

    `vectors` maps each `ModuleRun` whose attributions can be computed to its `_Vectors`. For "value
    norm", it is the result of `head_norms`. `attributed` computes the attributions of a layer from
    the layer's attention, the entry of its `ModuleRun` in `vectors`, and the positions of the
    tokens that are not padding. Layers without attributions are left out, and a note names them.
    Raise NotImplementedError if no layer remains.
    """
    record = runner.record
    positions = {(run.name, run.turn): run.positions for run in runner.unchanged.collector.runs}
    stacks: dict[str, AttentionStack] = {}
    left: list[str] = []
    for name, stack in record.stacks.items():
        if stack.ranks:
            continue
        layers = {}
        for number in stack.layers:
            attention, module_run = stack.attention(number), runner.module_runs[name, number]
            unpadded = positions[module_run]
            # If `unpadded` is None, the module computes separate attentions of parts of the input,
            # such as windows. Their vectors cannot be assigned to the tokens of the layer.
            if module_run in vectors and unpadded is not None and attention.vectors is not None:
                layers[number] = attributed(attention, vectors[module_run], unpadded[0])
        if not layers:
            left.append(f"stack {quote(name)}")
            continue
        rest = [number for number in stack.layers if number not in layers]
        if rest:
            left.append(f"{format_named('layer', rest)} of stack {quote(name)}")
        stacks[name] = stack.derive(
            layers,
            normalized=False,
            signed=method in _SIGNED,
            measure=_MEASURES.get(method, method),
        )
    if not stacks:
        raise NotImplementedError(
            f"model: {' and '.join(left)} cannot be attributed. The attention has no softmax, does "
            "not use the dispatcher of transformers, attends in windows, or has no known output "
            "projection. Use head_effects."
        )
    if left:
        notes = [*notes, f"Not attributed: {', '.join(left)}."]
    return derive_record(record, stacks, notes=[*record.notes, _NOTES[method], *notes])
