"""Copies of one example in one batch, each changed in its own way.

Layers before the changed layer return the same output for every copy. So their outputs are stored
once, and these layers do not run again. A trial run checks that this works. Some models pass more
between layers than a layer returns (Gemma 4 shares keys and values), and in some the first axis of
a layer's output is not the batch (Gemma 3n). For these models all layers run for all copies.
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

# Largest difference between a copy in a batch and the input alone, relative to the largest value.
_SAME = {torch.float32: 1e-3, torch.float64: 1e-6}
_SAME_HALF = 0.05

#: Path of a module, and the index of its run in a forward.
ModuleRun = tuple[str, int]


#: Called with every attention, and may change its output in place.
At = Callable[[AttentionCall, ModuleRun], None]


def rounding_of(model: Any, largest: float) -> float:
    """Return the allowed rounding error of a copy in a batch. `largest` is the largest value."""
    return _SAME.get(model.dtype, _SAME_HALF) * max(1.0, abs(largest))


class Copies:
    """One example, of which a model can run several copies in one batch.

    Parameters
    ----------
    model : Module
        The model.
    batch : Batch
        The example.
    logits : int
        Number of positions, from the last, that need logits.
    trace_all : bool, optional
        As for `RunningModules`. None ignores attention that does not use the dispatcher.
    shorten : bool, default False
        Whether the language head only gets the positions that need logits, if the model would
        compute all. The caller must compare the logits with those of the model.
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
        """Run `count` copies. `at` is called with every attention, and may change its output.

        Gradients are off until `at` enables them. Layers before the attention `before` do not run
        again if the model allows it.
        """
        numbers = self._blocks.number_of
        until = 0 if before is None else numbers.get(before, 0)
        return self._run(count, at, until=until if until and self.reuses else 0, keep=keep)

    @cached_property
    def reuses(self) -> bool:
        """Whether stored outputs can replace runs of layers.

        This is tested on two unchanged copies, up to the last layer with attention.
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
        """Return whether each copy has the outputs of the single input, except for rounding."""
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
        """Run copies. The first `until` blocks return their stored outputs."""
        arguments = {
            name: expanded(value, count)
            for name, value in arguments_of(self._model, self._batch, self._logits).items()
        }
        numbers = self._blocks.number_of
        # Count the skipped runs of modules that run several times.
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
    """Call `at` with every attention of this thread until the block of `undo` ends.

    `trace_all` is as for `Copies`. `turns` counts the earlier runs of each module.
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
    """Pass only the last `logits` positions to the language head, until the block of `undo` ends.

    The head is the outermost module that contains the output embeddings and no attention.
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
    """Return an input or output of a module for `copies` copies of one example."""
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.shape[0] != 1 or copies == 1:
            return value
        # The copy needs separate memory, because models change their inputs in place.
        return value.expand(copies, *value.shape[1:]).contiguous()
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(expanded(item, copies) for item in value)
    if isinstance(value, list):
        return [expanded(item, copies) for item in value]
    return value


class _Blocks:
    """Layers of a model whose outputs are stored, and returned instead of running them again.

    A block is an entry of an outermost list of modules.
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
        #: Index of the block that contains each attention, or the number of blocks before it.
        self.number_of: dict[ModuleRun, int] = {}

    def drop(self) -> None:
        """Drop the stored outputs."""
        self._kept.clear()

    def note(self, call: AttentionCall, module_run: ModuleRun) -> None:
        """Store the number of blocks that are complete when an attention runs."""
        del call
        self.number_of[module_run] = self._begun - self._inside

    def hold(self, undo: Cleanup, *, keep: bool, until: int, copies: int) -> None:
        """Store outputs, or replace the first `until` blocks by them, until `undo` ends."""
        self._begun, self._inside = 0, False
        if not keep and not until:
            return
        thread = threading.get_ident()
        for block in self._blocks:
            own = block.forward

            def forward(*args: Any, _own: Any = own, **kwargs: Any) -> Any:
                # Modules inside a block belong to it.
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
