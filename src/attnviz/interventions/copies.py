"""A model that reads several copies of one example at once, each changed in its own way.

Layers before the one that is changed give every copy the same, and are not run again: what they
gave is kept once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall, report
from attnviz.extraction.capture.forward import arguments_of
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.models import evaluate
from attnviz.utils.restoring import Restoring

__all__ = ["Copies", "Place", "expanded", "laid_out"]

#: A module's path, and which of its runs.
Place = tuple[str, int]


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
    """

    def __init__(self, model: Any, batch: Batch, logits: int) -> None:
        self._model, self._batch, self._logits = model, batch, logits
        self._blocks = _Blocks(model)
        #: What the model gives for the example as it is.
        self.outputs = self.run(1, self._blocks.note, keep=True)

    def run(
        self,
        count: int,
        at: Callable[[AttentionCall, Place], None],
        *,
        before: Place | None = None,
        keep: bool = False,
    ) -> Any:
        """Run some copies; `at` is called with every attention, and may write over its output.

        Gradients are off, and on from where `at` sets them on. What the layers in front of the
        attention `before` gave is not computed again.
        """
        arguments = {
            name: expanded(value, count)
            for name, value in arguments_of(self._model, self._batch, self._logits).items()
        }
        names = {id(module): name for name, module in self._model.named_modules()}
        numbers = self._blocks.number_of
        until = 0 if before is None else numbers.get(before, 0)
        # Of a module that runs several times, the runs that are left out count.
        turns = Counter(name for (name, _), number in numbers.items() if number < until)

        def each(call: AttentionCall) -> None:
            name = names.get(id(call.module), "")
            turns[name] += 1
            at(call, (name, turns[name] - 1))

        with Restoring() as undo, undo, undo:
            evaluate(self._model, undo)
            self._blocks.hold(undo, keep=keep, until=until, copies=count)
            report(each, undo)
            return self._model(**arguments)


def laid_out(call: AttentionCall, name: str) -> torch.Tensor:
    """The output as (copies, queries, heads, value_dim)."""
    output = call.output
    if not isinstance(output, torch.Tensor) or output.dim() != 4 or call.value is None:
        raise NotImplementedError(
            f"model: {name} ({type(call.module).__name__}) gives an output that is not (batch, "
            "queries, heads, value_dim), where nothing can be changed yet"
        )
    return output


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

    def note(self, call: AttentionCall, place: Place) -> None:
        """Note how many blocks are over when an attention runs."""
        del call
        self.number_of[place] = self._begun - self._inside

    def hold(self, undo: Restoring, *, keep: bool, until: int, copies: int) -> None:
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
