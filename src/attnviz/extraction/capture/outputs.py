"""Outputs of heads, and the output projections that add them to the residual stream.

The output projection is a module that maps the concatenated outputs of all heads to the residual
stream. It is recognised while the model runs, because its input is the output of the attention, or
the output multiplied by a gate: one positive factor for each query and dimension of a head, such as
the sigmoid of another projection (Qiu et al. 2025, arXiv 2505.06708). The gate is the quotient of
both.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn

from attnviz.extraction.capture.collector import Run
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.layer_change import ModuleRun
from attnviz.extraction.capture.masks import without_padding
from attnviz.extraction.families import NORM_CLASS
from attnviz.extraction.hooks import Hooks
from attnviz.extraction.modules import plain_numbers
from attnviz.utils.cleanup import Cleanup

# A projection counts as linear if its result, without its bias, differs from the product of its
# input and its matrix by at most this share of the largest number in the result. The share is
# larger for dtypes that round more coarsely.
_LINEAR = 1e-3
# Limit for modules that round their inputs to 8 bits, as a share of the norm of the result. A
# float8 number with 3 bits of mantissa has a relative error of up to 1/16, and so have the unit
# vectors with which the matrix is read.
_ROUNDED = 2**-3

# Attribute of modules of PEFT that add an adapter, such as LoRA, to a projection: the projection
# without the adapter.
_ADAPTED = "base_layer"

# Models whose heads have no gates, as an earlier forward has shown.
_ungated: weakref.WeakSet[nn.Module] = weakref.WeakSet()

_Kept = TypeVar("_Kept")


class FollowedOutputs(Generic[_Kept]):
    """Observer that finds the output projections of attention modules while a model runs.

    Call `watch` before the forward, and pass the method `observe` to `run_forward`. The output
    projection is the first module that has a two-dimensional weight and gets the output of the
    attention as input, multiplied by a gate or not. No projection is found if a norm gets this
    input first. `found` has the result of `keep` for each run of an attention module in the last
    forward. Runs for which the result is None are omitted, and so are runs without an output
    projection.

    Parameters
    ----------
    model : Module
        The model.
    keep : callable
        Function that gets an attention call, with `output` and `value`, its output projection, and
        its gate, (batch, queries, heads, value_dim), or None without one. The function returns the
        object to keep in `found`, or None. It must copy the tensors of the call that it keeps,
        because the model may overwrite them.
    """

    def __init__(
        self,
        model: nn.Module,
        keep: Callable[[AttentionCall, nn.Module, torch.Tensor | None], _Kept | None],
    ) -> None:
        self.found: dict[ModuleRun, _Kept] = {}
        self._model: Any = model
        self._keep = keep
        self._waiting: tuple[ModuleRun, AttentionCall] | None = None
        self._is_watching = False
        # Whether the projections of all calls so far got the output of the attention without a
        # gate.
        self._all_plain = True

    def watch(self, undo: Cleanup) -> None:
        """Observe the inputs of modules until the ``with`` block of `undo` ends."""
        projections_and_norms = [
            module
            for module in self._model.modules()
            if (_is_leaf(module) or hasattr(module, _ADAPTED))
            and (_dimensions(module) in (1, 2) or _is_norm(module))
        ]
        self._is_watching = True
        undo.add(self._stop)
        Hooks(undo).add(self._model.register_forward_pre_hook, self._begin)
        for module in projections_and_norms:
            Hooks(undo).add(module.register_forward_pre_hook, self._look)

    def _stop(self) -> None:
        # Do not keep the tensors of a call in memory.
        self._waiting, self._is_watching = None, False

    def _begin(self, *_: Any) -> None:
        self.found.clear()
        self._waiting, self._all_plain = None, True

    def observe(self, call: AttentionCall, module_run: ModuleRun) -> None:
        """Look for the output projection of a call in the modules that run next.

        A call that did not use transformers' attention dispatcher is ignored.
        """
        if self._is_watching and call.function is not None:
            self._all_plain &= self._waiting is None
            self._waiting = module_run, call

    def _look(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self._waiting is None or not inputs or not isinstance(inputs[0], torch.Tensor):
            return
        module_run, call = self._waiting
        output = call.output
        if not isinstance(output, torch.Tensor) or inputs[0].numel() != output.numel():
            return
        if inputs[0].device != output.device:
            return
        if _dimensions(module) != 2:
            if _is_same(inputs[0], output) or _gate(inputs[0], output) is not None:
                self._waiting, self._all_plain = None, False
            return
        # The last axis of the input must have the concatenated outputs of all heads. Modules that
        # attend between channels instead of tokens have another size there.
        if inputs[0].shape[-1:] != (output.shape[2:].numel(),):
            return
        gate = None
        if not _is_same(inputs[0], output):
            gate = _gate(inputs[0], output)
            if gate is None:
                return
            self._all_plain = False
        self._waiting = None
        kept = None
        if call.value is not None and output.dim() == 4:
            kept = self._keep(call, module, gate)
        if kept is not None:
            self.found[module_run] = kept


def _is_leaf(module: nn.Module) -> bool:
    """Whether no submodule has parameters. Some quantised modules keep their numbers in one."""
    return not any(True for child in module.children() for _ in child.parameters())


def _dimensions(module: nn.Module) -> int | None:
    """Return the number of axes of a module's weight, or None if it has no weight.

    Some quantised modules have no such weight, but several tensors with other names. They are
    recognised by the name of their class, such as ``HQQLinear``.
    """
    weight = getattr(module, "weight", None)
    if isinstance(weight, torch.Tensor):
        return weight.dim()
    return 2 if "Linear" in type(module).__name__ else None


def _is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm without parameters, by the name of its class."""
    return _dimensions(module) is None and NORM_CLASS.search(type(module).__name__) is not None


def _is_same(inputs: torch.Tensor, output: torch.Tensor) -> bool:
    return inputs.data_ptr() == output.data_ptr() or torch.equal(inputs.flatten(), output.flatten())


def _gate(inputs: torch.Tensor, output: torch.Tensor) -> torch.Tensor | None:
    """Return the gate that turns the output of the attention into the input of a projection.

    The result has the shape of `output`, and is 0 where the output is 0. Return None if the two
    tensors are unrelated: then nearly half of the quotients are negative.
    """
    with torch.no_grad():
        gated, plain = inputs.detach().reshape(output.shape).float(), output.detach().float()
        gate = torch.where(plain == 0, 0.0, gated / plain)
        is_gate = (gate >= 0) & torch.isfinite(gate)
        return gate if bool(is_gate.all()) and bool((gate > 0).any()) else None


class _KeptOutputs(NamedTuple):
    """Copies of what one run of an attention module computed after the attention.

    Attributes
    ----------
    projection : Module
        Output projection of the module.
    output : Tensor or None
        Input of the projection, (batch, queries, heads, value_dim). None if it was not requested.
    gates : Tensor or None
        Mean gates, (batch, queries, heads). None if the heads have no gate.
    """

    projection: nn.Module
    output: torch.Tensor | None
    gates: torch.Tensor | None


class HeadOutputs(FollowedOutputs[_KeptOutputs]):
    """Observer that reads the gates of heads and what each head adds to the residual stream.

    The gates are always read. What a head adds is large, and is read only if `vectors` is True.

    A head with weights A and values V adds the vectors A V W, one per query, where W are the rows
    of the output projection that belong to the head. If the head has a gate, A V is multiplied by
    it first. The observer returns the coordinates of these vectors in an orthonormal basis of the
    space that the rows of W span. So norms of the returned vectors, and inner products of two
    vectors of the same head, are those of A V W.
    """

    def __init__(self, model: nn.Module, *, vectors: bool) -> None:
        super().__init__(model, self._copy)
        self._vectors = vectors
        self._rows: dict[int, torch.Tensor | None] = {}

    def watch(self, undo: Cleanup) -> None:
        """Observe the inputs of modules until the ``with`` block of `undo` ends.

        Observe nothing if only gates are requested, and an earlier forward has shown that the model
        has none, because hooks take time.
        """
        if self._vectors or self._model not in _ungated:
            super().watch(undo)
            Hooks(undo).add(self._model.register_forward_hook, self._end)

    def _end(self, *_: Any) -> None:
        if self._all_plain and self._waiting is None:
            _ungated.add(self._model)

    def of_run(self, run: Run) -> list[torch.Tensor] | None:
        """Return the outputs of the heads in one run of the last forward.

        The result has one tensor per example, (heads, queries, axes), without padding. Return None
        if the run made several calls, if it attends in windows, or if its output projection was not
        found or is not linear.
        """
        kept = self.found.get((run.name, run.turn))
        if kept is None or kept.output is None or run.positions is None:
            return None
        projection, output = kept.projection, kept.output
        if id(projection) not in self._rows:
            self._rows[id(projection)] = projection_rows(projection, output[0, 0])
        rows = self._rows[id(projection)]
        if rows is None:
            return None
        with torch.autocast(output.device.type, enabled=False):
            # One product per head of all examples is faster than one per example and head.
            by_head = output.flatten(0, 1).transpose(0, 1).float() @ rows
        return _by_example(by_head.unflatten(1, output.shape[:2]).transpose(0, 1), run)

    def gates_of_run(self, run: Run) -> list[torch.Tensor] | None:
        """Return the mean gates of the heads in one run of the last forward.

        The result has one tensor per example, (heads, queries), without padding. Each number is a
        mean over the dimensions of a head. Dimensions in which the output is 0 are left out,
        because their gate is not known. If this leaves no dimension, the number is NaN. Return None
        if no gate was found, or if the run made several calls or attends in windows.
        """
        kept = self.found.get((run.name, run.turn))
        if kept is None or kept.gates is None or run.positions is None:
            return None
        return _by_example(kept.gates.transpose(1, 2), run)

    def _copy(
        self, call: AttentionCall, projection: nn.Module, gate: torch.Tensor | None
    ) -> _KeptOutputs | None:
        output, gates = call.output.detach(), None
        if gate is not None:
            # `_gate` returns 0 where the gate is not known.
            gates = gate.sum(dim=-1) / (output != 0).sum(dim=-1)
        if self._vectors:
            gated = output.clone() if gate is None else (output * gate).to(output.dtype)
            return _KeptOutputs(projection, gated, gates)
        return None if gates is None else _KeptOutputs(projection, None, gates)


def _by_example(by_head: torch.Tensor, run: Run) -> list[torch.Tensor]:
    """Split (batch, heads, queries, ...) into one tensor per example, without padding."""
    on_cpu = by_head.cpu()
    return [
        without_padding(on_cpu, index, positions.queries)
        for index, positions in enumerate(run.positions or [])
    ]


def projection_rows(projection: nn.Module, example: torch.Tensor) -> torch.Tensor | None:
    """Return the rows of an output projection that belong to each head, (heads, value_dim, axes).

    The rows of a head are returned as coordinates in an orthonormal basis of the space that these
    rows span. The basis has at most `value_dim` axes. `example` is the output of each head for one
    query, (heads, value_dim), in the dtype that the projection takes. Return None if the projection
    is not the product with a matrix, plus a bias.
    """
    inputs = torch.zeros(1, 2, example.numel(), dtype=example.dtype, device=example.device)
    inputs[0, 1] = torch.linspace(-1, 1, example.numel())
    # Quantised modules can have a fixed scale for their inputs, so use inputs of the usual size. A
    # power of two rounds nothing.
    largest = float(example.abs().max())
    inputs *= 2.0 ** math.ceil(math.log2(largest)) if 0 < largest < math.inf else 1.0
    best: tuple[float, torch.Tensor] | None = None
    with torch.no_grad():
        bias, result = projection(inputs)[0].float()
        result -= bias
        limit = max(_LINEAR, 4 * torch.finfo(example.dtype).eps) * result.abs().max()
        for matrix in _possible_matrices(projection, inputs, bias):
            if matrix.shape != (example.numel(), len(result)):
                continue
            difference = inputs[0, 1].float() @ matrix - result
            off = float(difference.norm())
            if best is None or off < best[0]:
                best = off, matrix
            if bool(difference.abs().max() <= limit):
                break
        if best is None or not best[0] <= _ROUNDED * float(result.norm()):
            return None
        by_head = best[1].unflatten(0, example.shape)
        rows: torch.Tensor = torch.linalg.qr(by_head.mT, mode="r").R.mT
        return rows


def _possible_matrices(
    projection: nn.Module, inputs: torch.Tensor, bias: torch.Tensor
) -> Iterator[torch.Tensor]:
    """Yield candidates for the matrix of a projection, (inputs, outputs).

    If the projection is linear, one of the candidates is its matrix. `inputs` has the dtype, the
    device and the size of the inputs that the projection takes, (1, 2, inputs).
    """
    weight = plain_numbers(getattr(projection, "weight", None))
    if weight is not None and weight.device == inputs.device:
        # Linear stores its weight as (outputs, inputs), and Conv1D of transformers as
        # (inputs, outputs).
        yield weight.float().T
        yield weight.float()
    # The weight is stored in another form, or the module has an adapter. Project unit vectors: the
    # results, without the bias, are the rows of the matrix.
    size = float(inputs.abs().max())
    unit_vectors = torch.eye(inputs.shape[-1], dtype=inputs.dtype, device=inputs.device)
    yield (projection(size * unit_vectors[None])[0].float() - bias) / size
