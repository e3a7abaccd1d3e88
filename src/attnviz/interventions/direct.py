"""Direct logit attribution: the contribution of heads to the answer without later layers.

The answer is a number in the model's output, such as the logit of one token minus that of another.
In a pre-norm model, the residual stream is the sum of the embeddings and of the outputs of all
layers. If the scale of the last norm is treated as a constant, the difference of two logits is a
linear function of this sum. So each head has a separate contribution. This module checks these
properties while the model runs, and raises NotImplementedError for models that do not have them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.layer_change import ModuleRun, output_by_head
from attnviz.extraction.hooks import Hooks
from attnviz.interventions.attributed import HeadVectors
from attnviz.interventions.gradients import vectors_of
from attnviz.interventions.output_projection import projections_of
from attnviz.interventions.runner import Copy, Runner
from attnviz.utils.cleanup import Cleanup

# Maximum relative difference between the output of a norm and the result of the norm's formula, and
# between the gradients at the outputs of different output projections.
_SAME = 1e-3


def direct_gradients(
    runner: Runner, requested: Collection[ModuleRun]
) -> dict[ModuleRun, HeadVectors]:
    """Return the direct gradient of the answer with respect to the outputs of attention modules.

    This gradient passes only through the output projection, the residual stream, the last norm, and
    the modules after this norm. The result has the runs of attention modules in `requested`, except
    those without a known output projection. Raise NotImplementedError if none remains, if the heads
    do not add their outputs to one residual stream, or if the last norm of the stream is missing or
    unknown.
    """
    model = runner.model
    projections = {
        module_run: projection
        for module_run, projection in projections_of(runner.example).items()
        if module_run in requested
    }
    if not projections:
        raise NotImplementedError(
            'method="direct": the model has no known output projection after its attention'
        )
    leaves = [
        module
        for module in model.modules()
        if not any(module.children()) and next(module.parameters(), None) is not None
    ]
    norm, after_norm = _last_norm(runner, leaves)
    # Gradients must pass only through the output projections and through the modules after the last
    # norm, which compute the logits. The outputs of all other modules in `leaves` are detached.
    # A projection with an adapter of PEFT has submodules, through which gradients pass, too.
    parts = [part for projection in projections.values() for part in projection.modules()]
    kept = {id(module) for module in (*after_norm, *parts)}
    calls: dict[ModuleRun, AttentionCall] = {}
    added: dict[ModuleRun, torch.Tensor] = {}
    by_module = {id(module): module_run for module_run, module in projections.items()}

    def take(call: AttentionCall, module_run: ModuleRun) -> None:
        if call.function is None:
            return
        torch.set_grad_enabled(True)
        if module_run in projections:
            output = output_by_head(call, module_run[0])
            if output.requires_grad:
                raise NotImplementedError(
                    f'method="direct": the inputs of {module_run[0]} are not computed by separate '
                    "modules, so that gradients through its inputs and its outputs cannot be "
                    "separated. Use another method."
                )
            output.requires_grad_()
            calls[module_run] = call

    def after(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if module is norm:
            return _with_constant_scale(module, inputs[0], output)
        if id(module) in by_module:
            added[by_module[id(module)]] = output
            return None
        return None if id(module) in kept else _detached(output)

    with Cleanup() as undo, undo:
        for module in dict.fromkeys([*leaves, *projections.values()]):
            Hooks(undo).add(module.register_forward_hook, after)
        outputs = runner.run([Copy()], take)
    module_runs = [module_run for module_run in calls if module_run in added]
    tensors = [calls[module_run].output for module_run in module_runs] + [
        added[module_run] for module_run in module_runs
    ]
    with torch.enable_grad():
        value = runner.answer.with_gradient(outputs)
        # The answer has no gradient if the parameters of the model are frozen, and the answer does
        # not depend on any attention output. `torch.autograd.grad` would then fail.
        if not all(tensor.requires_grad for tensor in (value, *tensors)):
            raise NotImplementedError(_not_direct(model))
        gradients: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            value, tensors, allow_unused=True
        )
    slopes, through = gradients[: len(module_runs)], gradients[len(module_runs) :]
    if not _are_equal(through):
        raise NotImplementedError(_not_direct(model))
    return {
        module_run: vectors_of(calls[module_run], slope)
        for module_run, slope in zip(module_runs, slopes, strict=True)
    }


def _last_norm(runner: Runner, leaves: list[nn.Module]) -> tuple[nn.Module, list[nn.Module]]:
    """Return the last norm that runs, and the modules in `leaves` that run after it.

    `leaves` are the modules with parameters and without submodules. Raise NotImplementedError if no
    norm runs.
    """
    order: list[nn.Module] = []

    def note(module: nn.Module, *_: Any) -> None:
        order.append(module)

    with Cleanup() as undo, undo:
        for leaf in leaves:
            Hooks(undo).add(leaf.register_forward_hook, note)
        runner.run([Copy()])
    norms = [index for index, module in enumerate(order) if _is_norm(module)]
    if not norms:
        raise NotImplementedError(
            f'method="direct": {type(runner.model).__name__} has no norm whose scale could be '
            "constant"
        )
    return order[norms[-1]], order[norms[-1] + 1 :]


def _is_norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return "norm" in type(module).__name__.lower() and getattr(weight, "dim", lambda: 0)() == 1


def _with_constant_scale(
    norm: nn.Module, stream: torch.Tensor, output: torch.Tensor
) -> torch.Tensor:
    """Return the output of a norm, computed with a scale that has no gradient.

    The result is a linear function of `stream`, the input of the norm, plus the bias. The formulas
    of LayerNorm and RMSNorm are tried. Raise NotImplementedError if none of them gives `output`.
    """
    weight: Any = norm.weight
    bias: Any = getattr(norm, "bias", None)
    offset = 0.0 if bias is None else bias
    for centre in (stream.mean(dim=-1, keepdim=True), torch.zeros_like(stream[..., :1])):
        for gain in (weight, 1 + weight):
            spread = stream - centre
            eps = getattr(norm, "eps", getattr(norm, "variance_epsilon", 1e-6))
            scale = (spread.pow(2).mean(dim=-1, keepdim=True) + eps).sqrt().detach()
            made: torch.Tensor = gain * spread / scale + offset
            limit = _SAME * float(output.detach().abs().max())
            if float((made - output).detach().abs().max()) <= limit:
                return made
    raise NotImplementedError(
        f'method="direct": the last norm ({type(norm).__name__}) is neither a LayerNorm nor an '
        "RMSNorm, so that its scale cannot be constant"
    )


def _detached(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.detach()
    if type(output) is tuple:
        return tuple(map(_detached, output))
    return output


def _not_direct(model: nn.Module) -> str:
    return (
        f'method="direct": in {type(model).__name__}, other modules lie between attention and the '
        "stream that determines the answer (norms after the layers, gates), so that no head adds "
        'to the answer directly. Use method="integrated gradients", or head_effects.'
    )


def _are_equal(gradients: tuple[torch.Tensor | None, ...]) -> bool:
    """Return whether the gradients at the outputs of all projections are equal, and not 0.

    If so, all projections add their outputs to the same residual stream. None is a gradient of 0.
    """
    first = gradients[0]
    if first is None or not (largest := float(first.abs().max())):
        return False
    # The layers of a model may be on different devices.
    return all(
        gradient is not None
        and gradient.shape == first.shape
        and torch.allclose(gradient.to(first.device), first, rtol=0, atol=_SAME * largest)
        for gradient in gradients
    )
