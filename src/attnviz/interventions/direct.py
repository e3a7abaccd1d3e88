"""Direct logit attribution: the contribution of heads to the answer without later layers.

In a pre-norm model, the residual stream is the sum of the outputs of all layers. If the scale of
the last norm is treated as a constant, the answer is a linear function of this sum. So each head
has a separate contribution. This module checks these properties while the model runs, and raises
NotImplementedError for models that do not have them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.change import ModuleRun, output_by_head
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.models import hook, in_this_thread
from attnviz.interventions.projection import projections_of
from attnviz.interventions.runner import Copy, Runner
from attnviz.utils.cleanup import Cleanup

# Maximum relative difference between the output of a norm and its formula, and between the
# gradients at the outputs of different layers.
_SAME = 1e-3

#: For each attention module, its call (with values and outputs) and the direct gradient of the
#: answer with respect to its output.
DirectGradients = dict[ModuleRun, tuple[AttentionCall, torch.Tensor]]


def direct_gradients(runner: Runner, requested: Collection[ModuleRun]) -> DirectGradients:
    """Return the direct gradient of the answer with respect to the outputs of attention modules.

    This gradient passes only through the output projection, the residual stream, the last norm, and
    the modules after this norm. Raise NotImplementedError if heads do not add their outputs to one
    residual stream, or if its last norm is missing or unknown.
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
    norm = _last_norm(runner)
    kept = {id(norm), *(id(module) for module in projections.values())}
    leaves = list(_leaves(model))
    # Gradients pass the modules after the last norm, because these compute the logits. The outputs
    # of all other modules except the projections are detached.
    behind = _modules_after(norm, leaves, runner)
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
                    f'method="direct": the residual stream reaches {module_run[0]} without its '
                    "projections, so that its inputs and outputs cannot be separated"
                )
            output.requires_grad_()
            calls[module_run] = call

    def after(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if module is norm:
            return _with_constant_scale(module, inputs[0], output)
        if id(module) in by_module:
            added[by_module[id(module)]] = output
            return None
        return None if id(module) in kept | behind else _detached(output)

    with Cleanup() as undo, undo:
        hook((leaf.register_forward_hook(in_this_thread(after)) for leaf in leaves), undo)
        outputs = runner.run([Copy()], take)
    module_runs = [module_run for module_run in calls if module_run in added]
    tensors = [calls[module_run].output for module_run in module_runs] + [
        added[module_run] for module_run in module_runs
    ]
    with torch.enable_grad():
        value = runner.answer.with_gradient(outputs)
        # If the parameters of the model are frozen, a value that does not depend on any attention
        # output has no gradient, and `torch.autograd.grad` would fail.
        if not all(tensor.requires_grad for tensor in (value, *tensors)):
            raise NotImplementedError(_not_direct(model))
        gradients: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            value, tensors, allow_unused=True
        )
    slopes, through = gradients[: len(module_runs)], gradients[len(module_runs) :]
    _check_the_same(through, model)
    return {
        module_run: (
            calls[module_run],
            torch.zeros_like(calls[module_run].output) if slope is None else slope,
        )
        for module_run, slope in zip(module_runs, slopes, strict=True)
    }


def _leaves(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that have parameters and no submodules."""
    for module in model.modules():
        if not any(module.children()) and next(module.parameters(), None) is not None:
            yield module


def _is_norm(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return "norm" in type(module).__name__.lower() and getattr(weight, "dim", lambda: 0)() == 1


def _last_norm(runner: Runner) -> nn.Module:
    model = runner.model
    ran: list[nn.Module] = []

    def note(module: nn.Module, *_: Any) -> None:
        ran.append(module)

    with Cleanup() as undo, undo:
        hook(
            (
                leaf.register_forward_hook(in_this_thread(note))
                for leaf in _leaves(model)
                if _is_norm(leaf)
            ),
            undo,
        )
        runner.run([Copy()])
    if not ran:
        raise NotImplementedError(
            f'method="direct": {type(model).__name__} has no norm whose scale could be constant'
        )
    return ran[-1]


def _modules_after(norm: nn.Module, leaves: list[nn.Module], runner: Runner) -> set[int]:
    """Return the ids of the `leaves` that run after the last call of `norm`."""
    order: list[nn.Module] = []

    def note(module: nn.Module, *_: Any) -> None:
        order.append(module)

    with Cleanup() as undo, undo:
        hook((leaf.register_forward_hook(in_this_thread(note)) for leaf in leaves), undo)
        runner.run([Copy()])
    last = max(index for index, module in enumerate(order) if module is norm)
    return {id(module) for module in order[last + 1 :]}


def _with_constant_scale(
    norm: nn.Module, stream: torch.Tensor, output: torch.Tensor
) -> torch.Tensor:
    """Return the output of a norm, computed with a scale that has no gradient.

    The result is a linear function of `stream`, the input of the norm. Raise NotImplementedError if
    it differs from `output`, because the norm is neither a LayerNorm nor an RMSNorm.
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


def _check_the_same(through: tuple[torch.Tensor | None, ...], model: nn.Module) -> None:
    """Raise NotImplementedError unless all projections add their outputs to the same stream.

    This is the case if the gradient of the answer is the same at the outputs of all projections,
    and not 0. `through` has these gradients.
    """
    reason = _not_direct(model)
    if any(gradient is None or not bool(gradient.any()) for gradient in through):
        raise NotImplementedError(reason)
    first = next(gradient for gradient in through if gradient is not None)
    for gradient in through:
        if gradient is None or gradient.shape != first.shape:
            raise NotImplementedError(reason)
        if not torch.allclose(gradient, first, rtol=0, atol=_SAME * float(first.abs().max())):
            raise NotImplementedError(reason)
