"""Gradients of the answer with respect to the outputs of attention heads.

The answer is a number in the model's output, such as the logit of one token minus that of another.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.layer_change import ModuleRun, output_by_head
from attnviz.extraction.hooks import Hooks
from attnviz.interventions.attributed import HeadVectors
from attnviz.interventions.changes import Ablate, StackLayer
from attnviz.interventions.runner import Copy, Runner
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.progress import report

# The attributions of a layer by "integrated gradients" should sum to the decrease of the answer
# without the attention of the layer. This is checked only if the decrease is larger than the noise
# and than `_MIN_LOSS` times max(1, |answer|). The relative deviation from a smaller decrease would
# be mostly rounding error.
_MIN_LOSS = 1e-4


def followed(model: nn.Module, run: Callable[[], Any]) -> Any:
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
                Hooks(undo).add(module.register_forward_hook, partial(check, name))
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


def gradients(runner: Runner, requested: Collection[ModuleRun]) -> dict[ModuleRun, HeadVectors]:
    """Return the `HeadVectors` of the requested attention modules, from one backward pass.

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

    outputs = followed(runner.model, partial(runner.run, [Copy()], take))
    outputs_by_head = [call.output for call in calls.values()]
    if not outputs_by_head:
        return {}
    with torch.enable_grad():
        gradients = torch.autograd.grad(
            runner.answer.with_gradient(outputs), outputs_by_head, allow_unused=True
        )
    return {
        module_run: vectors_of(call, gradient)
        for (module_run, call), gradient in zip(calls.items(), gradients, strict=True)
    }


def vectors_of(call: AttentionCall, gradient: torch.Tensor | None) -> HeadVectors:
    """Return copies of the values and outputs of a call. A missing gradient is 0."""
    if call.value is None:
        raise TypeError("attention without values cannot be attributed")
    output = call.output[0].detach().transpose(0, 1)
    slope = torch.zeros_like(output) if gradient is None else gradient[0].transpose(0, 1)
    return HeadVectors(*(tensor.detach().cpu() for tensor in (call.value[0], output, slope)))


def mean_gradients(
    runner: Runner, layers: Mapping[StackLayer, ModuleRun], steps: int
) -> tuple[dict[ModuleRun, HeadVectors], float]:
    """Compute the `HeadVectors` for integrated gradients, one layer after the other.

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
    vectors: dict[ModuleRun, HeadVectors] = {}
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
        outputs = followed(runner.model, partial(runner.run, copies, follow))
        with torch.enable_grad():
            results = [runner.answer.with_gradient(outputs, copy) for copy in range(steps + 1)]
            total = torch.stack(results[:-1]).sum()
            [slopes] = torch.autograd.grad(total, scaled[:1], allow_unused=True)
        own = vectors_of(calls[module_run], None)
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
