"""Tracker of the attention modules that run, and of the attention that they compute.

A run is one forward of a module. A module may have several runs in a forward of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.dispatch import AttentionCall, Sink, dispatching, report
from attnviz.extraction.capture.layer_change import ModuleRun
from attnviz.extraction.capture.sparse import report_sparse
from attnviz.extraction.capture.trace import FunctionWatch
from attnviz.extraction.families import OVER_LAYERS, sparse_kind
from attnviz.extraction.hooks import Hooks
from attnviz.extraction.modules import AttentionModule, ModuleScan
from attnviz.utils.cleanup import Cleanup


class RunningModules:
    """Tracker of the attention modules that run in this thread, and of their attention calls.

    Parameters
    ----------
    scan : ModuleScan
        Modules of the model.
    trace_all : bool
        Whether to trace (observe) the torch functions of all modules with a softmax. If False,
        modules whose code calls transformers' attention dispatcher are not traced, although some of
        them compute a part of their attention in their own code.
    skipped : iterable of ModuleRun
        Runs of modules that the next forward leaves out. They are counted before the runs of the
        forward, so each run has the same number as in a complete forward.
    """

    def __init__(
        self, scan: ModuleScan, *, trace_all: bool, skipped: Iterable[ModuleRun] = ()
    ) -> None:
        self._modules = scan.attending
        self._paths = scan.paths
        self._trace_all = trace_all
        self._num_runs = Counter(name for name, _ in skipped)
        self._running: list[tuple[AttentionModule, ModuleRun]] = []

    @property
    def innermost(self) -> tuple[AttentionModule, ModuleRun] | None:
        """The innermost attention module that runs, and its run, or None."""
        return self._running[-1] if self._running else None

    def run_of(self, module: nn.Module) -> ModuleRun:
        """Return the run to which an attention call of `module` belongs.

        If the module is not the innermost running attention module, it has replaced another module
        during the forward. Then each of its calls counts as a new run.
        """
        path = self._paths.get(id(module), type(module).__name__)
        if self._running and self._running[-1][1][0] == path:
            return self._running[-1][1]
        return self._next_run(path)

    def restart(self) -> None:
        """Count the runs of all modules from 0 again, because a new forward begins."""
        self._num_runs.clear()

    def watch(
        self,
        sink: Sink,
        undo: Cleanup,
        *,
        edit: Callable[[torch.Tensor], bool] | None = None,
        outputs: bool = False,
        begun: Callable[[ModuleRun, Sequence[Any]], None] = lambda *_: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Pass attention calls of this thread to `sink` until the ``with`` block of `undo` ends.

        `edit` and `outputs` are as for `FunctionWatch`. `begun` is called when an attention module
        starts, with its run and the list of its arguments. `ended` is called when the innermost
        running module ends.
        """
        self._running.clear()
        hooks = Hooks(undo)
        for entry in self._modules:
            begin, end = partial(self._begin, entry, begun), partial(self._end, entry, ended)
            hooks.add(entry.module.register_forward_pre_hook, begin, with_kwargs=True)
            hooks.add(entry.module.register_forward_hook, end, always_call=True)
        if any(map(self.is_traced, self._modules)):
            FunctionWatch(self._bypassing, sink, edit, outputs=outputs).watch(undo)
        sparse = [
            entry.module
            for entry in self._modules
            if not entry.dispatches and sparse_kind(entry.module)
        ]
        report_sparse(sparse, sink, undo)

        def receive(call: AttentionCall) -> None:
            if not OVER_LAYERS.search(type(call.module).__name__):
                sink(call)

        report(receive, undo)

    def is_traced(self, entry: AttentionModule) -> bool:
        """Whether a module's torch functions are traced."""
        is_traced = entry.softmax and (self._trace_all or not entry.dispatches)
        return is_traced and not sparse_kind(entry.module)

    def _next_run(self, path: str) -> ModuleRun:
        self._num_runs[path] += 1
        return path, self._num_runs[path] - 1

    def _begin(
        self,
        entry: AttentionModule,
        begun: Callable[[ModuleRun, Sequence[Any]], None],
        _module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        run = self._next_run(entry.name)
        begun(run, [*args, *kwargs.values()])
        self._running.append((entry, run))

    def _end(self, entry: AttentionModule, ended: Callable[[], None], *_hooked: Any) -> None:
        if self._running and self._running[-1][0] is entry:
            self._running.pop()
            ended()

    def _bypassing(self) -> tuple[nn.Module, ModuleRun] | None:
        """Return the innermost running module and its run, if the module is traced.

        Return None if no attention module runs, if the module is not traced, or if an attention
        function of the dispatcher runs. `FunctionWatch` recognises a new run by its object: the run
        is always the same object during one run, and another object in other runs.
        """
        if not self._running or dispatching():
            return None
        entry, run = self._running[-1]
        return (entry.module, run) if self.is_traced(entry) else None
