"""Perturbation of a model's rounding errors, to estimate the error of its answer.

A model rounds the outputs of its modules to its dtype. With another order of summation, another
batch size or another processor, it rounds them differently. In a perturbed run, each output of a
module is multiplied by a random factor close to 1 (Monte Carlo arithmetic, Parker 1997, UCLA
CSD-970002). The changes of the answer in a few such runs estimate its rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from attnviz.extraction.hooks import Hooks
from attnviz.utils.cleanup import Cleanup

# Multiple of the root mean square of the changes in perturbed runs that is the noise of an effect.
# Perturbations are about twice as large as rounding errors, and an effect has the errors of two
# answers. With this factor, more than 95 % of the errors do not exceed the noise
# (benchmarks/noise.py).
_FACTOR = 1.25
# Relative precision of matrix products in float32, by torch's setting. "high" is TF32 and "medium"
# is bfloat16 on processors that have them.
_EPS_OF_PRODUCTS = {"high": 2.0**-10, "medium": 2.0**-7}
# Largest relative perturbation, in units of the distance from 1 to the next number of the dtype. In
# half precision, products are summed in float32 and rounded once. In float32 and float64, each
# partial sum is rounded.
_PERTURBATION_HALF, _PERTURBATION = 1.0, 8.0


def noise_of(changes: Sequence[float]) -> float:
    """Return the noise of an effect, from the `changes` of the answer in perturbed runs.

    Return 0 if there are no changes.
    """
    return _FACTOR * math.sqrt(sum(change**2 for change in changes) / max(1, len(changes)))


def perturb(model: nn.Module, undo: Cleanup) -> None:
    """Perturb the outputs of all modules of `model` until the ``with`` block of `undo` ends.

    The random numbers are the same in each call, and do not depend on the random state of torch.
    """
    perturbation = _Perturbation()
    for module in model.modules():
        Hooks(undo).add(module.register_forward_hook, perturbation.of_module)


class _Perturbation:
    """Random perturbation of the outputs of modules, for use in forward hooks."""

    def __init__(self) -> None:
        self._generators: dict[torch.device, torch.Generator] = {}
        self._last: torch.Tensor | None = None

    def of_module(self, _: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        """Return the perturbed output. If it is a tuple, only its first entry is perturbed."""
        if type(output) is tuple and output:
            return (self._perturbed(inputs, output[0]), *output[1:])
        return self._perturbed(inputs, output)

    def _perturbed(self, inputs: tuple[Any, ...], output: Any) -> Any:
        if type(output) is not torch.Tensor or not output.is_floating_point():
            return output
        if output is self._last or any(output is given for given in inputs):
            # The module returns its input, or the output of the module inside it.
            return output
        device, dtype = output.device, torch.promote_types(output.dtype, torch.float32)
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(0)
        largest = _largest(output.dtype)
        factors = torch.empty(output.shape, device=device, dtype=dtype)
        factors.uniform_(1 - largest, 1 + largest, generator=self._generators[device])
        perturbed = factors.mul_(output).to(output.dtype)
        # Masks may have the lowest number of the dtype, which must not become infinite.
        self._last = torch.where(perturbed.isfinite(), perturbed, output)
        return self._last


def _largest(dtype: torch.dtype) -> float:
    """Return the largest relative perturbation of the outputs of modules."""
    eps = torch.finfo(dtype).eps
    if dtype not in (torch.float32, torch.float64):
        return _PERTURBATION_HALF * eps
    if dtype == torch.float32:
        eps = _EPS_OF_PRODUCTS.get(torch.get_float32_matmul_precision(), eps)
    return _PERTURBATION * eps
