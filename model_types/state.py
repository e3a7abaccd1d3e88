"""Check that a model returns the same outputs during an extraction as without it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from model_types.reference import run


class Calls:
    """Recorder of the arguments and outputs of the forwards during an extraction."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.implementation = model.config._attn_implementation
        self.calls: list[tuple[dict[str, Any], Any]] = []
        self._handle = model.register_forward_hook(self._hook, with_kwargs=True)

    def _hook(self, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        # Skip forwards for which the extraction switched to eager attention, because their outputs
        # may differ. Also skip forwards with positional arguments, because `changes` cannot repeat
        # them.
        if module.config._attn_implementation == self.implementation and not args:
            self.calls.append((kwargs, output))

    def stop(self) -> None:
        self._handle.remove()

    def changes(self, model: PreTrainedModel) -> list[str]:
        """Repeat the recorded forwards without an extraction, and compare their outputs.

        Return a list with one error message if an output differs, otherwise [].
        """
        if all(same(output, run(model, kwargs)) for kwargs, output in self.calls):
            return []
        return ["the output during capture differs from a plain forward"]


def same(one: Any, other: Any) -> bool:
    """Return whether the tensors and floats in two outputs are exactly equal.

    NaN is equal to NaN, and in tensors also to 0. Values of other types, such as integers, are not
    compared.
    """
    if isinstance(one, torch.Tensor):
        return torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
    if isinstance(one, Mapping):
        return set(one) == set(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return True


def pairs_of_tensors(one: Any, other: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield pairs of floating-point tensors with the same keys and indices in two outputs.

    Empty tensors and tensors of different shapes are skipped.
    """
    if isinstance(one, torch.Tensor):
        if one.is_floating_point() and one.numel() and one.shape == other.shape:
            yield one, other
    elif isinstance(one, Mapping):
        for name in one.keys() & other.keys():
            yield from pairs_of_tensors(one[name], other[name])
    elif isinstance(one, tuple | list):
        for first, second in zip(one, other, strict=False):
            yield from pairs_of_tensors(first, second)
