"""A model that reads several copies of one example at once, each changed in its own way.

Layers before the one that is changed give the same output for every copy. Their outputs are kept
once, and these layers are not run again. This is tried first: some models pass more between layers
than a layer returns (Gemma 4 shares keys and values), and in some the first axis of what a layer
returns is not the batch (Gemma 3n). For these models all layers run for all copies.
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

__all__ = ["Copies", "Place", "expanded", "rounding_of", "watch"]

# Largest difference between a copy in a batch and the input alone, relative to the largest value.
_SAME = {torch.float32: 1e-3, torch.float64: 1e-6}
_SAME_HALF = 0.05

#: A module's path, and which of its runs.
Place = tuple[str, int]


#: Is called with every attention, and may write over its output.
At = Callable[[AttentionCall, Place], None]


def rounding_of(model: Any, largest: float) -> float:
    """How far rounding may move a number of a copy in a batch, where the largest has a size."""
    return _SAME.get(model.dtype, _SAME_HALF) * max(1.0, abs(largest))


class Copies:
    """One example, of which a model reads as many copies as are wanted.

    Parameters
    ----------
    model : Module
        The model.
    batch : Batch
        The example.
    logits : int
        How many positions, from the last, need logits.
    trace_all : bool, optional
        As for `RunningModules`; None leaves attention alone that does not use the dispatcher.
    shorten : bool, default False
        Whether a language head whose model computes logits of all positions is given only those
        that need them. What asks for it compares the logits with the model's own.
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
        #: What the model gives for the example as it is.
        self.outputs = self.run(1, self._blocks.note, keep=True)

    def run(
        self,
        count: int,
        at: At,
        *,
        before: Place | None = None,
        keep: bool = False,
    ) -> Any:
        """Run some copies; `at` is called with every attention, and may write over its output.

        Gradients are off, and on from where `at` sets them on. What the layers in front of the
        attention `before` gave is not computed again, if the model allows that.
        """
        numbers = self._blocks.number_of
        until = 0 if before is None else numbers.get(before, 0)
        return self._run(count, at, until=until if until and self.reuses else 0, keep=keep)

    @cached_property
    def reuses(self) -> bool:
        """Whether outputs of layers can be given back instead of a run.

        It is tried on two unchanged copies and the last layer that attends.
        """
        until = max(self._blocks.number_of.values(), default=0)
        try:
            found = self._run(2, lambda *_: None, until=until)
        except Exception:  # noqa: BLE001 - a layer raises anything when it is given too little
            found = None
        reuses = found is not None and self._is_same(found)
        if not reuses:
            self._blocks.drop()
        return reuses

    def _is_same(self, found: Any) -> bool:
        """Whether each copy has the outputs of the input alone, except for rounding."""
        own = self.outputs
        names = own if isinstance(own, Mapping) else range(len(own))
        for name in names:
            one = own[name]
            if not isinstance(one, torch.Tensor) or one.dim() == 0 or one.shape[0] != 1:
                continue
            if not one.is_floating_point():
                continue
            other = found[name]
            if other.shape != (2, *one.shape[1:]):
                return False
            most = rounding_of(self._model, float(one.abs().max()))
            if not torch.allclose(other.float(), one.float(), rtol=0, atol=most, equal_nan=True):
                return False
        return True

    def _run(self, count: int, at: At, *, until: int = 0, keep: bool = False) -> Any:
        """Run some copies, the first `until` blocks from what they gave."""
        arguments = {
            name: expanded(value, count)
            for name, value in arguments_of(self._model, self._batch, self._logits).items()
        }
        numbers = self._blocks.number_of
        # Of a module that runs several times, the runs that are left out count.
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

    `trace_all` is as for `Copies`, and `turns` how often each module is taken to have run.
    """
    names = {id(module): name for name, module in model.named_modules()}
    turns = Counter() if turns is None else turns

    def each(call: AttentionCall) -> None:
        name = names.get(id(call.module), "")
        turns[name] += 1
        at(call, (name, turns[name] - 1))

    modules = [] if trace_all is None else attention_modules(model)
    RunningModules(modules, trace_all=bool(trace_all)).watch(each, undo, outputs=True)


def _shorten_head(model: Any, logits: int, undo: Cleanup) -> None:
    """Give the language head so many last positions alone, until the block of `undo` ends.

    The head is the outermost module that holds the output embeddings and no attention.
    """
    outputs = model.get_output_embeddings()
    own = next(
        (
            child
            for child in model.children()
            if outputs is not None and any(each is outputs for each in child.modules())
        ),
        None,
    )
    if own is None or attention_modules(own):
        return
    thread, run = threading.get_ident(), own.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        here = threading.get_ident() == thread and args and isinstance(args[0], torch.Tensor)
        if here and args[0].dim() == 3:
            args = (args[0][:, -logits:], *args[1:])
        return run(*args, **kwargs)

    undo.add(partial(_put_back, own, own.__dict__.get("forward")))
    own.forward = forward


def expanded(value: Any, copies: int) -> Any:
    """Whatever a module gives or takes, for so many copies of one example."""
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.shape[0] != 1 or copies == 1:
            return value
        # Memory of its own: models add to what they are given.
        return value.expand(copies, *value.shape[1:]).contiguous()
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(expanded(each, copies) for each in value)
    if isinstance(value, list):
        return [expanded(each, copies) for each in value]
    return value


class _Blocks:
    """The layers of a model, whose outputs are kept once and given back instead of a run.

    A block is the outermost entry of a list of modules that holds attention.
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
        #: For each attention which block it lies in, or how many ran before it.
        self.number_of: dict[Place, int] = {}

    def drop(self) -> None:
        """Drop the outputs, which cannot be given back."""
        self._kept.clear()

    def note(self, call: AttentionCall, place: Place) -> None:
        """Note how many blocks are over when an attention runs."""
        del call
        self.number_of[place] = self._begun - self._inside

    def hold(self, undo: Cleanup, *, keep: bool, until: int, copies: int) -> None:
        """Keep outputs, or give back those of the first `until`, until the block of `undo` ends."""
        self._begun, self._inside = 0, False
        if not keep and not until:
            return
        thread = threading.get_ident()
        for block in self._blocks:
            own = block.forward

            def forward(*args: Any, _own: Any = own, **kwargs: Any) -> Any:
                # What runs inside of a block is a part of it.
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
