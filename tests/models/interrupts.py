"""Interrupts at any line of an extraction, and checks of the state afterwards.

As a script it sends real signals to itself: ``python interrupts.py 300``. It prints the state that
was not restored, and the number of interrupts of each extraction.
"""

from __future__ import annotations

import linecache
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.modeling_utils import AttentionInterface

import attnviz
from attnviz import extract, extract_corpus, load
from attnviz.extraction.capture import dispatch
from attnviz.record.storage.spool import INDEX

__all__ = ["Subject", "Tracer", "by_signals", "faults_at", "positions", "state_of", "subjects"]

IDS = torch.tensor([[5, 17, 42, 17, 99, 8]])

_PACKAGE = f"{Path(attnviz.__file__).parent}{os.sep}"
_HOOKS = [
    name for name in vars(torch.nn.Module()) if name.endswith(("hooks", "_kwargs", "_called"))
]
_LOGGERS = [f"transformers.generation.{name}" for name in ("utils", "configuration_utils")]


@dataclass
class Subject:
    """An extraction to interrupt, and the models whose state it must restore."""

    run: Callable[[Path], Any]
    models: list[Any] = field(default_factory=list)


def state_of(models: list[Any]) -> dict[str, Any]:
    """Return all state that an extraction changes while it runs, as this thread sees it."""
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
    """Describe files below `outside` that belong to no complete record."""
    faults = []
    for folder in [outside, *outside.rglob("*")]:
        if not folder.is_dir():
            continue
        names = {path.name for path in folder.iterdir()}
        files = {name for name in names if (folder / name).is_file()}
        if INDEX in names:
            try:
                load(folder)
            except ValueError as error:
                faults.append(f"record left behind: {error}")
        elif files:
            faults.append(f"left: {', '.join(_kinds_of(files))}")
        elif folder != outside and not names:
            faults.append("an empty folder is left")
    return faults


def _kinds_of(names: set[str]) -> list[str]:
    """Return names of files without the numbers of layers."""
    return sorted({"layers" if name[:1].isdigit() else name for name in names})


def _config(kind: str, **options: Any) -> Any:
    size = {"vocab_size": 200, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.CONFIG_MAPPING[kind](**size, **options)


def subjects() -> dict[str, Subject]:
    """Return extractions by name. Together they use all ways to capture and change all state."""
    torch.manual_seed(0)
    width = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    llama = transformers.LlamaForCausalLM(
        _config("llama", **width, intermediate_size=32, num_key_value_heads=2)
    )
    bloom = transformers.BloomForCausalLM(_config("bloom", hidden_size=32, n_layer=2, n_head=4))
    bert = transformers.BertModel(_config("bert", **width, intermediate_size=32))
    t5 = transformers.T5ForConditionalGeneration(
        _config(
            "t5", d_model=32, num_layers=1, num_heads=4, d_kv=8, d_ff=32, decoder_start_token_id=0
        )
    )
    inside: Any = transformers.LlamaForCausalLM(llama.config)
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
    """Context that raises an interrupt at a chosen line of attnviz.

    Parameters
    ----------
    at : int, optional
        Number of the line or call of attnviz, counted from 1. None raises no interrupt.
    """

    def __init__(self, at: int | None = None) -> None:
        self.seen: list[tuple[str, int]] = []
        self.raised: list[tuple[str, int]] = []
        # Python drops an exception that is raised while it closes a generator.
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
        # Python handles no signal at a line that is only `try:`, nor between the end of a block and
        # the release of its lock.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event in ("line", "call") and line != "try:" and not line.endswith("lock:"):
            position = frame.f_code.co_filename.removeprefix(_PACKAGE), frame.f_lineno
            self.seen.append(position)
            if len(self.seen) == self._at:
                self.raised.append(position)
                raise KeyboardInterrupt
        return self._trace


def positions(subject: Subject, folder: Path, files: tuple[str, ...] = ()) -> list[int]:
    """Return the sorted positions at which a `Tracer` first and last meets each line."""
    with Tracer() as tracer:
        subject.run(folder)
    of_line: dict[tuple[str, int], list[int]] = {}
    for number, line in enumerate(tracer.seen, start=1):
        if not files or line[0].endswith(files):
            of_line.setdefault(line, []).append(number)
    return sorted({number for numbers in of_line.values() for number in (numbers[0], numbers[-1])})


def faults_at(subject: Subject, folder: Path, at: int) -> list[str]:
    """Interrupt an extraction as `Tracer(at)` does, and describe what is not restored."""
    before = state_of(subject.models)
    error: BaseException | None = None
    tracer = Tracer(at)
    try:
        with tracer:
            subject.run(folder)
    except BaseException as caught:  # noqa: BLE001
        error = caught
    faults = _differences(before, state_of(subject.models)) + spool_faults(folder)
    if len(tracer.raised) > tracer.lost and not isinstance(error, KeyboardInterrupt):
        faults.append(f"raised as {error!r}")
    _reset(before, subject.models)
    return [f"{tracer.raised}: {fault}" for fault in faults]


class _Stop:
    """A signal handler that raises an interrupt only while an extraction runs."""

    def __init__(self) -> None:
        self.running = False
        self.raised = 0

    def __call__(self, *_: Any) -> None:
        if self.running:
            self.raised += 1
            raise KeyboardInterrupt


def _duration(subject: Subject, outside: Path) -> float:
    times = []
    for number in range(4):
        started = time.perf_counter()
        subject.run(_make_folder(outside / f"warm {number}"))
        times.append(time.perf_counter() - started)
    return min(times)


def _make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [name for name, value in before.items() if after[name] != value]


def by_signals(count: int, seed: int) -> int:
    """Send real signals at random moments, one per extraction, and print what is not restored."""
    rng = np.random.default_rng(seed)
    stop = _Stop()
    signal.signal(signal.SIGINT, stop)
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        outside = Path(name)
        for kind, subject in subjects().items():
            before = state_of(subject.models)
            duration = _duration(subject, _make_folder(outside / f"{kind} before"))
            for turn in range(count // len(subjects())):
                folder = _make_folder(outside / f"{kind} {turn}")
                delay = rng.uniform(0, 1.1 * duration)
                raised = stop.raised
                error = _interrupted(subject, folder, delay, stop)
                counts[kind] += stop.raised > raised
                differences = _differences(before, state_of(subject.models)) + spool_faults(folder)
                if error is not None and not isinstance(error, KeyboardInterrupt):
                    differences.append(f"raised as {type(error).__name__}: {str(error)[:90]}")
                if differences:
                    faults[f"{kind}: {'; '.join(differences)}"] += 1
                    _reset(before, subject.models)
                shutil.rmtree(folder)
    for fault, times in faults.most_common():
        print(f"{times} times {fault}")  # noqa: T201
    print(f"faults {sum(faults.values())} of {sum(counts.values())} met, {dict(counts)}")  # noqa: T201
    return sum(faults.values())


def _interrupted(subject: Subject, folder: Path, delay: float, stop: _Stop) -> BaseException | None:
    def fire() -> None:
        end = time.perf_counter() + delay
        while time.perf_counter() < end:
            time.sleep(1e-5)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=fire)
    error = None
    # `Thread.start` of Python waits in a `Condition`, which is not part of the extraction. An
    # interrupt at the end of this wait becomes "RuntimeError: release unlocked lock".
    thread.start()
    try:
        stop.running = True
        subject.run(folder)
        stop.running = False
    except BaseException as caught:  # noqa: BLE001
        stop.running = False
        error = caught
    thread.join()
    return error


def _reset(before: Mapping[str, Any], models: list[Any]) -> None:
    """Restore the state, so that each fault counts once."""
    modules = [module for model in models for module in model.modules()]
    for module, training, hooks in zip(modules, before["mode"], before["hooks"], strict=True):
        module.training = training
        for name, saved in hooks.items():
            vars(module)[name].clear()
            vars(module)[name].update(saved)
    AttentionInterface.get_interface = before["dispatcher"]
    dispatch._sink.set(before["sink"])
    dispatch._dispatching.set(before["dispatching"])
    while torch.overrides._get_current_function_mode_stack():
        torch.overrides._pop_mode()
    torch.set_grad_enabled(before["gradients"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(by_signals(int(sys.argv[1]), seed=int(sys.argv[2]) if sys.argv[2:] else 0) > 0)
