"""Check whether the attention of a model can be changed, and whether a change is exact.

A stack is the attention of one kind, such as "self" or "cross", in all layers. An output projection
is the matrix that multiplies the outputs of the heads of a layer.

attnviz ablates the last head of each layer of a stack: it sets the head's output to 0. The check
also runs the model with zeros in the columns of the output projections that multiply the outputs of
these heads. Both runs must give the same output, bit for bit. The check finds the output
projections without attnviz: they are the matrices whose inputs have more columns of zeros with the
ablation than without it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

import attnviz as av
from attnviz.extraction.capture.forward import Forward
from attnviz.extraction.capture.layer_change import ForwardChange, ModuleRun
from attnviz.extraction.options import CaptureOptions
from attnviz.interventions.changes import Change, identity_of, plan_of
from attnviz.interventions.example import Example
from attnviz.interventions.output_projection import head_norms, projections_of
from attnviz.interventions.runner import module_runs_of
from attnviz.record.record import AttentionRecord
from model_types.reference import draw_the_same
from model_types.rows import StackChange
from model_types.state import pairs_of_tensors, same


def changes_of(model: PreTrainedModel, inputs: Mapping[str, Any]) -> dict[str, StackChange]:
    """Change each stack of a model separately, and return the results by stack.

    Raise TypeError or ValueError if the inputs are not exactly one example.
    """
    tried = _Tried(model, inputs)
    stacks = tried.record.stacks.items()
    # The ranks of an indexer are not weights, so `intervene` leaves them out.
    return {name: tried.stack(name) for name, stack in stacks if not stack.ranks}


class _Tried:
    """A model and its inputs, for repeated runs with and without changes of the attention."""

    def __init__(self, model: PreTrainedModel, inputs: Mapping[str, Any]) -> None:
        self._model = model
        self._runs = Example.one(model, copy.deepcopy(dict(inputs)), None, {})
        with _inputs_of(self._matrices()) as self._plain:
            forward = self._forward(None)
        self._before = forward.outputs
        self._places = module_runs_of(forward)
        self._whole = {
            (run.name, run.turn) for run in forward.collector.runs if run.positions is not None
        }
        self.record: AttentionRecord = self._runs.record(forward, CaptureOptions())
        self._projections = self._unless_unsupported(projections_of)
        self._linear = self._unless_unsupported(head_norms)

    def _matrices(self) -> dict[str, nn.Module]:
        kinds = (nn.Linear, Conv1D)
        return {
            name: module
            for name, module in self._model.named_modules()
            if isinstance(module, kinds)
        }

    def _forward(self, change: Any) -> Forward:
        draw_the_same(self._model)
        return self._runs.forward(CaptureOptions(), change)

    def _unless_unsupported(
        self, find: Callable[[Example], Mapping[ModuleRun, Any]]
    ) -> Mapping[ModuleRun, Any]:
        draw_the_same(self._model)
        try:
            return find(self._runs)
        except NotImplementedError:
            return {}

    def stack(self, name: str) -> StackChange:
        """Return the result of changing one stack."""
        keys = {key for (stack, _), key in self._places.items() if stack == name}
        projected = all(key in self._linear and key in self._whole for key in keys)
        result = StackChange("", projection=projected)
        try:
            result.identity = same(self._before, self._changed(av.Ablate(factor=1.0, stack=name)))
            with _inputs_of(self._matrices()) as inputs:
                ablated = self._changed(av.Ablate(heads=-1, stack=name))
            try:
                result.noise = self._noise(name)
            except NotImplementedError as error:
                result.refused_weights = " ".join(str(error).split())
        except NotImplementedError as error:
            result.gate, result.reason = "refused", " ".join(str(error).split())
            return result
        except RuntimeError as error:
            result.gate, result.reason = "wrong", " ".join(str(error).split())
            return result
        columns = {
            name: lost
            for name, zeros in inputs.items()
            if (lost := _lost(self._plain[name], zeros))
        }
        wrong = self._other_projections(keys, columns)
        with _at_zero(self._matrices(), columns):
            expected = self._forward(None).outputs
        if wrong:
            result.gate, result.reason = "wrong", wrong
        elif same(self._before, ablated):
            result.gate = "without effect"
        elif same(expected, ablated):
            result.gate = "exact"
        elif not all(key in self._projections for key in keys):
            # For example, attnviz does not find a projection that follows a norm. The output with
            # the ablation may then differ from `expected`.
            result.gate = "changed"
        else:
            result.gate = "wrong"
            result.reason = f"{_apart(expected, ablated):.1e} from {sorted(columns)} at 0"
        return result

    def _changed(self, change: Change) -> Any:
        return self._forward(self._plan(change)).outputs

    def _plan(self, change: Change) -> ForwardChange:
        return plan_of([change], self.record, self._places)

    def _noise(self, name: str) -> float:
        # Measure how much the model's output changes if attnviz computes the outputs of attention
        # again from unchanged weights. `plan` removes key 0 for all queries and heads. Therefore
        # `identity_of(plan)` computes the outputs of all queries and heads. It keeps their weights.
        plan = self._plan(av.Knockout(keys=0, stack=name))
        return _apart(self._before, self._forward(identity_of(plan)).outputs)

    def _other_projections(self, keys: set[ModuleRun], columns: Mapping[str, Any]) -> str:
        """Return an error message if attnviz found output projections that are not in `columns`.

        `keys` are the attention modules of one stack. `columns` has the output projections that
        were found without attnviz, by name. Return "" without an error.
        """
        names = {id(module): name for name, module in self._matrices().items()}
        others = {names.get(id(self._projections[p]), "") for p in keys if p in self._projections}
        return ", ".join(f"{name} does not project it" for name in sorted(others - set(columns)))


def _apart(one: Any, other: Any) -> float:
    """Return the largest relative difference between the tensors of two outputs.

    The difference of two tensors is divided by the largest absolute value of the tensor in `one`.
    Return 0 if `pairs_of_tensors` finds nothing to compare.
    """
    return max(
        (
            float((a - b).abs().nan_to_num(0).max() / a.abs().nan_to_num(0).max().clamp_min(1e-30))
            for a, b in pairs_of_tensors(one, other)
        ),
        default=0.0,
    )


# Columns of zeros in the inputs of matrices, by the name of the matrix. The list has one tensor for
# each call of the matrix. The tensor has one boolean for each column of the input. It is True if
# the whole column is 0.
_Zeros = dict[str, list[torch.Tensor]]


@contextmanager
def _inputs_of(matrices: Mapping[str, nn.Module]) -> Iterator[_Zeros]:
    """Within the context, note which columns are 0 in the inputs of `matrices`.

    Yield the dict that is filled with these columns (see `_Zeros`).
    """
    zeros_of: _Zeros = {name: [] for name in matrices}

    def look(zeros: list[torch.Tensor], module: nn.Module, args: tuple[Any, ...]) -> None:
        del module
        if args and isinstance(args[0], torch.Tensor):
            rows = args[0].detach().reshape(-1, args[0].shape[-1])
            zeros.append((rows == 0).all(dim=0))

    with ExitStack() as stack:
        for name, module in matrices.items():
            handle = module.register_forward_pre_hook(partial(look, zeros_of[name]))
            stack.callback(handle.remove)
        yield zeros_of


def _lost(plain: list[torch.Tensor], now: list[torch.Tensor]) -> slice | None:
    """Return the columns in the input of a matrix that are 0 only with the ablation.

    `plain` and `now` say which columns are 0 without and with the ablation (see `_Zeros`). Return
    None if the columns cannot be those of the last head. The columns of the last head are the last
    columns, are the same in every call, and their number divides the number of all columns.
    """
    if len(plain) != len(now) or not now:
        return None
    ranges = set()
    for before, after in zip(plain, now, strict=True):
        if before.shape != after.shape:
            return None
        lost = after & ~before
        count = int(lost.sum())
        last = slice(len(lost) - count, len(lost))
        if not count or len(lost) % count or not bool(lost[last].all()):
            return None
        ranges.add((last.start, last.stop))
    return slice(*ranges.pop()) if len(ranges) == 1 else None


@contextmanager
def _at_zero(matrices: Mapping[str, nn.Module], columns: Mapping[str, slice]) -> Iterator[None]:
    """Within the context, set the entries of matrices that multiply `columns` of their inputs to 0.

    The keys of both arguments are the names of the matrices.
    """
    with ExitStack() as stack, torch.no_grad():
        for name, zeroed in columns.items():
            module: Any = matrices[name]
            # Replace the parameter, because another layer may share it.
            stack.callback(setattr, module, "weight", module.weight)
            module.weight = nn.Parameter(module.weight.clone())
            # The weight of Conv1D has the shape (inputs, outputs).
            (module.weight if isinstance(module, Conv1D) else module.weight.T)[zeroed] = 0
        yield
