"""Functions that interrupt an extraction at a given line, and find what it does not restore."""

from __future__ import annotations

import linecache
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers.modeling_utils import AttentionInterface

import attnviz
from attnviz import extract, extract_corpus, load
from attnviz.extraction.capture import dispatch
from attnviz.record.storage.spool import INDEX
from models.make_models import make_model

IDS = torch.tensor([[5, 17, 42, 17, 99, 8]])

_PACKAGE = f"{Path(attnviz.__file__).parent}{os.sep}"
_HOOKS = [
    name for name in vars(torch.nn.Module()) if name.endswith(("hooks", "_kwargs", "_called"))
]
_LOGGERS = [f"transformers.generation.{name}" for name in ("utils", "configuration_utils")]


@dataclass
class Subject:
    """An extraction and the models whose state it must restore. `run` gets a folder to write to."""

    run: Callable[[Path], Any]
    models: list[Any] = field(default_factory=list)


def state_of(models: list[Any]) -> dict[str, Any]:
    """Return the state of models, transformers and torch that a running extraction changes."""
    modules = [module for model in models for module in model.modules()]
    stance: Any = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    return {
        "mode": [module.training for module in modules],
        "hooks": [{name: dict(vars(module)[name]) for name in _HOOKS} for module in modules],
        "attributes": [sorted(vars(module)) for module in modules],
        "configuration": [model.config.to_dict() for model in models],
        "implementation": [model.config._attn_implementation for model in models],
        "generation": [str(getattr(model, "generation_config", None)) for model in models],
        "dispatcher": AttentionInterface.__dict__["get_interface"],
        "sink": dispatch._sink.get(),
        "dispatching": dispatch.dispatching(),
        "function modes": torch.overrides._get_current_function_mode_stack(),
        "gradients": torch.is_grad_enabled(),
        "stance": getattr(stance, "stance", "default"),
        "filters": [list(logging.getLogger(name).filters) for name in _LOGGERS],
    }


def spool_faults(outside: Path) -> list[str]:
    """Return descriptions of files and folders in `outside` that belong to no complete record."""
    faults = []
    for folder in [outside, *filter(Path.is_dir, outside.rglob("*"))]:
        names = {path.name for path in folder.iterdir()}
        if INDEX in names:
            try:
                load(folder)
            except ValueError as error:
                faults.append(f"incomplete record: {error}")
        elif not names and folder != outside:
            faults.append(f"empty folder: {folder}")
        elif files := [name for name in names if (folder / name).is_file()]:
            faults.append(f"files of no record: {files}")
    return faults


def subjects() -> dict[str, Subject]:
    """Return extractions by name. Together they change all state that `state_of` returns."""
    llama, bloom, bert, t5, inside = map(make_model, ("llama", "bloom", "bert", "t5", "llama"))
    inside.compile(backend="eager")
    for model in (llama, bloom, bert, t5, inside):
        model.train()
        next(model.children()).eval()
    rows = [IDS[0], IDS[0, :4]]
    encoder_decoder = {"input_ids": IDS, "decoder_input_ids": IDS[:, :3]}
    quiet: Mapping[str, Any] = {"progress": False}
    return {
        "dispatched": Subject(lambda _: extract(llama, IDS, **quiet), [llama]),
        "traced": Subject(lambda _: extract(bloom, IDS, **quiet), [bloom]),
        "compiled": Subject(lambda _: extract(inside, IDS, **quiet), [inside]),
        "generated": Subject(lambda _: extract(llama, IDS, generate=3, **quiet), [llama]),
        "spooled": Subject(lambda to: extract(t5, encoder_decoder, spool=to / "x", **quiet), [t5]),
        "spooled list": Subject(lambda to: extract(bert, rows, spool=to / "x", **quiet), [bert]),
        "corpus": Subject(lambda _: extract_corpus(bert, rows, max_points=30, **quiet), [bert]),
    }


class Tracer:
    """Context manager that raises KeyboardInterrupt at the `at`-th executed line of attnviz.

    Calls of functions count as lines, and counting starts at 1. If `at` is None, nothing is raised.
    `seen` lists the file and line number of each executed line. `raised` lists the file and line
    number at which the exception was raised. It is empty if nothing was raised.
    """

    def __init__(self, at: int | None = None) -> None:
        self.seen: list[tuple[str, int]] = []
        self.raised: list[tuple[str, int]] = []
        # Number of exceptions that Python printed and dropped, as in the cleanup of a generator.
        self.lost = 0
        self._at = at

    def __enter__(self) -> Tracer:
        sys.unraisablehook = self._note_lost
        sys.settrace(self._trace)
        return self

    def __exit__(self, *raised: object) -> None:
        sys.settrace(None)
        sys.unraisablehook = sys.__unraisablehook__

    def _note_lost(self, _: Any) -> None:
        self.lost += 1

    def _trace(self, frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        # Python raises no KeyboardInterrupt at a line `try:`, nor when a block `with ...lock:`
        # releases the lock. Therefore these lines do not count.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event in ("line", "call") and line != "try:" and not line.endswith("lock:"):
            position = frame.f_code.co_filename.removeprefix(_PACKAGE), frame.f_lineno
            self.seen.append(position)
            if len(self.seen) == self._at:
                self.raised.append(position)
                raise KeyboardInterrupt
        return self._trace


def positions(subject: Subject, folder: Path, files: tuple[str, ...] = ()) -> list[int]:
    """Return the values of `at` (see `Tracer`) for the first and the last execution of each line.

    With `files`, only lines of files count whose path ends with a string in `files`.
    """
    with Tracer() as tracer:
        subject.run(folder)
    of_line: dict[tuple[str, int], list[int]] = {}
    for number, line in enumerate(tracer.seen, start=1):
        if not files or line[0].endswith(files):
            of_line.setdefault(line, []).append(number)
    return sorted({number for numbers in of_line.values() for number in (numbers[0], numbers[-1])})


def faults_at(subject: Subject, folder: Path, at: int) -> list[str]:
    """Interrupt an extraction with `Tracer(at)`, and describe each fault found afterwards."""
    before = state_of(subject.models)
    error: BaseException | None = None
    tracer = Tracer(at)
    try:
        with tracer:
            subject.run(folder)
    except BaseException as caught:  # noqa: BLE001
        error = caught
    after = state_of(subject.models)
    faults = [name for name, value in before.items() if after[name] != value]
    faults += spool_faults(folder)
    if len(tracer.raised) > tracer.lost and not isinstance(error, KeyboardInterrupt):
        faults.append(f"raised as {error!r}")
    return [f"{tracer.raised}: {fault}" for fault in faults]
