"""Tracker of the attention modules that run, and of the attention that they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import Sink, dispatching, report
from attnviz.extraction.capture.trace import FunctionWatch
from attnviz.extraction.models import hook, in_this_thread
from attnviz.extraction.modules import AttentionModule
from attnviz.utils.cleanup import Cleanup

__all__ = ["RunningModules"]


class RunningModules:
    """Tracker of the attention modules that run in this thread, and of their attention calls.

    Parameters
    ----------
    modules : sequence of AttentionModule
        The modules to track.
    trace_all : bool
        Whether to trace (observe) the torch functions of all modules with a softmax. If False,
        modules that call transformers' attention dispatcher are not traced, although some of them
        compute a part of their attention in their own code.
    """

    def __init__(self, modules: Sequence[AttentionModule], *, trace_all: bool) -> None:
        self._modules = modules
        self._trace_all = trace_all
        self._running: list[tuple[AttentionModule, int]] = []
        self._started = 0

    @property
    def innermost(self) -> AttentionModule | None:
        """The innermost attention module that runs, or None."""
        return self._running[-1][0] if self._running else None

    def watch(
        self,
        sink: Sink,
        undo: Cleanup,
        *,
        edit: Callable[[torch.Tensor], bool] | None = None,
        outputs: bool = False,
        begun: Callable[[AttentionModule, Sequence[Any]], None] | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        """Pass attention calls of this thread to `sink` until the ``with`` block of `undo` ends.

        `edit` and `outputs` are as for `FunctionWatch`. `begun` is called when an attention module
        starts, with the module and the list of its arguments. `ended` is called without arguments
        when the innermost running module ends.
        """
        self._running.clear()
        hook(self._hooks(begun, ended), undo)
        if any(map(self.is_traced, self._modules)):
            FunctionWatch(self._bypassing, sink, edit, outputs=outputs).watch(undo)
        report(sink, undo)

    def is_traced(self, entry: AttentionModule) -> bool:
        """Whether a module's torch functions are traced."""
        return entry.softmax and (self._trace_all or not entry.dispatches)

    def _hooks(
        self,
        begun: Callable[[AttentionModule, Sequence[Any]], None] | None,
        ended: Callable[[], None] | None,
    ) -> Iterator[Any]:
        """Register hooks that track running modules of this thread. Yield each hook's handle."""

        def before(entry: AttentionModule) -> Any:
            def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                del module
                self._started += 1
                if begun is not None:
                    begun(entry, [*args, *kwargs.values()])
                self._running.append((entry, self._started))

            return hook

        def after(entry: AttentionModule) -> Any:
            def hook(*_: Any) -> None:
                if self._running and self._running[-1][0] is entry:
                    self._running.pop()
                    if ended is not None:
                        ended()

            return hook

        for entry in self._modules:
            begin, end = in_this_thread(before(entry)), in_this_thread(after(entry))
            yield entry.module.register_forward_pre_hook(begin, with_kwargs=True)
            yield entry.module.register_forward_hook(end, always_call=True)

    def _bypassing(self) -> tuple[nn.Module, int] | None:
        """Return the innermost running module and the number of its run, if the module is traced.

        Return None if no attention module runs, if the module is not traced, or if an
        attention function of the dispatcher runs. The number counts the runs of all modules.
        """
        if not self._running or dispatching():
            return None
        entry, number = self._running[-1]
        return (entry.module, number) if self.is_traced(entry) else None
