"""Copies of one example in one batch, each with a different change of its attention.

Layers before the changed layer return the same output for every copy. So the output of each layer
is stored once, and these layers do not run again. A trial run checks that the model allows this.
Layers that share data outside of their outputs, such as the keys and values of Gemma 4, do not
allow this, and neither do layers whose outputs do not have the batch as first axis, as in Gemma 3n.
In such models, all layers run for all copies.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.forward import arguments_of
from attnviz.extraction.capture.running import RunningModules
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.models import evaluate
from attnviz.extraction.modules import attention_modules
from attnviz.utils.cleanup import Cleanup

__all__ = ["Copies", "ModuleRun", "expanded", "rounding_of", "watch"]

# Maximum difference between the output for a copy in a batch and the output for the example alone,
# relative to the largest absolute value, for each dtype of the model.
_SAME = {torch.float32: 1e-3, torch.float64: 1e-6}
_SAME_HALF = 0.05

#: Name of a module in the model, and the index of its call within one forward: 0 is the first call.
ModuleRun = tuple[str, int]


#: Function that is called after each attention computation, and may change its output in place.
At = Callable[[AttentionCall, ModuleRun], None]


def rounding_of(model: Any, largest: float) -> float:
    """Return how much a value may differ between a copy in a batch and the example alone.

    `largest` is the largest absolute value of the compared output.
    """
    return _SAME.get(model.dtype, _SAME_HALF) * max(1.0, abs(largest))


class Copies:
    """Runs of a model on several copies of one example in one batch.

    Creating an instance runs the model once on the unchanged example.

    Parameters
    ----------
    model : Module
        The model.
    batch : Batch
        The example.
    logits : int
        Number of tokens, counted from the last, for which the model must return logits.
    trace_all : bool, optional
        As for `RunningModules`. If None, only attention modules that use the dispatcher of
        transformers are observed.
    shorten : bool, default False
        Whether the language head computes only the last `logits` tokens in models without the
        argument ``logits_to_keep``. The caller must check that the logits are equal to those of the
        unmodified model.
    """

    def __init__(
        self,
        model: Any,
        batch: Batch,
        logits: int,
        *,
        trace_all: bool | None = None,
        shorten: bool = False,
    ) -> None:
        self._model, self._batch, self._logits = model, batch, logits
        self._trace_all = trace_all
        self._shorten = shorten
        self._blocks = _Blocks(model)
        #: Outputs of the model for the unchanged example.
        self.outputs = self.run(1, self._blocks.note, keep=True)

    def run(
        self,
        count: int,
        at: At,
        *,
        before: ModuleRun | None = None,
        keep: bool = False,
    ) -> Any:
        """Run the model on `count` copies, and return its outputs.

        `at` is called after each attention computation, and may change the output in place.
        Gradients are disabled until `at` enables them. Layers before the attention module `before`
        return their stored outputs if the model allows it. With `keep`, the outputs of all layers
        are stored.
        """
        numbers = self._blocks.number_of
        until = 0 if before is None else numbers.get(before, 0)
        return self._run(count, at, until=until if until and self.reuses else 0, keep=keep)

    @cached_property
    def reuses(self) -> bool:
        """Whether layers can return stored outputs without a difference in the model's outputs.

        The test runs two unchanged copies, with stored outputs for all layers before the last
        attention module.
        """
        until = max(self._blocks.number_of.values(), default=0)
        try:
            outputs = self._run(2, lambda *_: None, until=until)
        except Exception:  # noqa: BLE001 - a layer raises anything when it is given too little
            outputs = None
        reuses = outputs is not None and self._is_same(outputs)
        if not reuses:
            self._blocks.drop()
        return reuses

    def _is_same(self, outputs: Any) -> bool:
        """Return whether both copies have the outputs of the example alone, up to rounding."""
        own = self.outputs
        names = own if isinstance(own, Mapping) else range(len(own))
        for name in names:
            one = own[name]
            if not isinstance(one, torch.Tensor) or one.dim() == 0 or one.shape[0] != 1:
                continue
            if not one.is_floating_point():
                continue
            other = outputs[name]
            if other.shape != (2, *one.shape[1:]):
                return False
            most = rounding_of(self._model, float(one.abs().max()))
            if not torch.allclose(other.float(), one.float(), rtol=0, atol=most, equal_nan=True):
                return False
        return True

    def _run(self, count: int, at: At, *, until: int = 0, keep: bool = False) -> Any:
        """Run the model on `count` copies. The first `until` blocks return their stored outputs."""
        arguments = {
            name: expanded(value, count)
            for name, value in arguments_of(self._model, self._batch, self._logits).items()
        }
        numbers = self._blocks.number_of
        # A module can run several times in one forward. The index of a run must also count the runs
        # that are skipped.
        turns = Counter(name for (name, _), number in numbers.items() if number < until)
        with Cleanup() as undo, undo:
            evaluate(self._model, undo)
            self._blocks.hold(undo, keep=keep, until=until, copies=count)
            if self._shorten and "logits_to_keep" not in arguments:
                _shorten_head(self._model, self._logits, undo)
            watch(self._model, at, undo, trace_all=self._trace_all, turns=turns)
            return self._model(**arguments)


def watch(
    model: nn.Module,
    at: At,
    undo: Cleanup,
    *,
    trace_all: bool | None,
    turns: Counter[str] | None = None,
) -> None:
    """Call `at` after each attention computation in this thread.

    The calls end with the ``with`` block of `undo`. See `Copies` for `trace_all`. `turns` has the
    index of the next run of each module, if it is not 0.
    """
    names = {id(module): name for name, module in model.named_modules()}
    turns = Counter() if turns is None else turns

    def count_run(call: AttentionCall) -> None:
        name = names.get(id(call.module), "")
        turns[name] += 1
        at(call, (name, turns[name] - 1))

    modules = [] if trace_all is None else attention_modules(model)
    RunningModules(modules, trace_all=bool(trace_all)).watch(count_run, undo, outputs=True)


def _shorten_head(model: Any, logits: int, undo: Cleanup) -> None:
    """Pass only the last `logits` tokens to the language head.

    The original ``forward`` is restored at the end of the ``with`` block of `undo`. The language
    head is the direct child of the model that contains the output embeddings. Nothing changes if
    this child also contains attention modules.
    """
    outputs = model.get_output_embeddings()
    own = next(
        (
            child
            for child in model.children()
            if outputs is not None and any(module is outputs for module in child.modules())
        ),
        None,
    )
    if own is None or attention_modules(own):
        return
    thread, run = threading.get_ident(), own.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        is_head_input = (
            threading.get_ident() == thread and args and isinstance(args[0], torch.Tensor)
        )
        if is_head_input and args[0].dim() == 3:
            args = (args[0][:, -logits:], *args[1:])
        return run(*args, **kwargs)

    undo.add(partial(_put_back, own, own.__dict__.get("forward")))
    own.forward = forward


def expanded(value: Any, copies: int) -> Any:
    """Repeat an input or output of a module along the batch axis, for `copies` copies.

    Tensors whose first axis does not have the size 1 are returned unchanged.
    """
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.shape[0] != 1 or copies == 1:
            return value
        # Some models change their inputs in place, so each copy needs separate memory.
        return value.expand(copies, *value.shape[1:]).contiguous()
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(expanded(item, copies) for item in value)
    if isinstance(value, list):
        return [expanded(item, copies) for item in value]
    return value


class _Blocks:
    """Layers of a model, with their stored outputs.

    Each entry of a ``ModuleList`` that is not inside another ``ModuleList`` is one layer, called
    block here.
    """

    def __init__(self, model: nn.Module) -> None:
        lists = [
            name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)
        ]
        outermost = [
            name for name in lists if not any(name.startswith(f"{other}.") for other in lists)
        ]
        self._blocks = [
            block for name in outermost for block in model.get_submodule(name).children()
        ]
        self._kept: list[Any] = []
        self._begun = 0
        self._inside = False
        #: For each attention module, the number of blocks that are complete when it runs.
        self.number_of: dict[ModuleRun, int] = {}

    def drop(self) -> None:
        self._kept.clear()

    def note(self, call: AttentionCall, module_run: ModuleRun) -> None:
        """Store how many blocks are complete when an attention module runs."""
        del call
        self.number_of[module_run] = self._begun - self._inside

    def hold(self, undo: Cleanup, *, keep: bool, until: int, copies: int) -> None:
        """Replace the ``forward`` of all blocks until the ``with`` block of `undo` ends.

        The first `until` blocks return their stored outputs, for `copies` copies. With `keep`, the
        outputs of the blocks that run are stored.
        """
        self._begun, self._inside = 0, False
        if not keep and not until:
            return
        thread = threading.get_ident()
        for block in self._blocks:
            own = block.forward

            def forward(*args: Any, _own: Any = own, **kwargs: Any) -> Any:
                # A block that another block calls is part of that block.
                if threading.get_ident() != thread or self._inside:
                    return _own(*args, **kwargs)
                number = self._begun
                self._begun += 1
                if number < until:
                    return expanded(self._kept[number], copies)
                self._inside = True
                try:
                    output = _own(*args, **kwargs)
                finally:
                    self._inside = False
                if keep:
                    self._kept.append(output)
                return output

            undo.add(partial(_put_back, block, block.__dict__.get("forward")))
            block.forward = forward


def _put_back(module: nn.Module, forward: Any) -> None:
    if forward is None:
        module.__dict__.pop("forward", None)
    else:
        module.forward = forward
