"""An interrupt during an extraction leaves the state of models, torch and files as it was."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from models.interrupts import Subject, faults_at, positions, spool_faults, state_of, subjects

# Source files that change and restore state, by the ends of their paths.
CHANGING = (
    *("cleanup.py", "models.py", "dispatch.py", "forward.py", "trace.py", "spool.py"),
    *("generate.py", "corpus/batches.py", "corpus/reading.py", "extraction/__init__.py"),
)


@pytest.fixture(scope="module")
def extractions() -> dict[str, Subject]:
    return subjects()


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[[], Path]:
    """Return a function that makes a new empty folder at each call."""
    return lambda: Path(tempfile.mkdtemp(dir=tmp_path))


@pytest.mark.parametrize(
    "kind", ["dispatched", "traced", "generated", "spooled", "spooled list", "corpus"]
)
def test_an_interrupt_at_any_line_leaves_everything_as_it_was(
    kind: str, extractions: dict[str, Subject], make_folder: Callable[[], Path]
) -> None:
    """Interrupt at six random lines of the files in `CHANGING`.

    Also interrupt at the last six lines of cleanup.py that the extraction runs.
    """
    subject = extractions[kind]
    lines = positions(subject, make_folder(), CHANGING)
    assert len(lines) > 100
    rng = np.random.default_rng([*kind.encode()])
    restoration = positions(subject, make_folder(), ("cleanup.py",))
    for position in [*rng.choice(lines, 6, replace=False), *restoration[-6:]]:
        assert faults_at(subject, make_folder(), position) == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timer signals")
# Python prints and drops an exception that is raised while a generator is closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signals_at_random_moments_leave_everything_as_it_was(
    extractions: dict[str, Subject], make_folder: Callable[[], Path]
) -> None:
    running, interrupts = False, 0

    def stop(*_: object) -> None:
        if running:
            raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, stop)
    rng = np.random.default_rng(3)
    for kind, subject in extractions.items():
        # The first run also compiles, imports and fills caches, so time the second run.
        subject.run(make_folder())
        start = time.perf_counter()
        subject.run(make_folder())
        duration = time.perf_counter() - start
        before = state_of(subject.models)
        for _ in range(40):
            folder = make_folder()
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.01, 1.1) * duration)
            try:
                running = True
                subject.run(folder)
                running = False
            except KeyboardInterrupt:
                running = False
                interrupts += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert state_of(subject.models) == before, kind
            assert spool_faults(folder) == [], kind
    signal.signal(signal.SIGALRM, previous)
    assert interrupts > 100


@pytest.mark.parametrize("method", ["__init__", "__exit__"])
def test_a_mode_that_torch_popped_temporarily_is_not_pushed_again(
    extractions: dict[str, Subject], tmp_path: Path, method: str
) -> None:
    """An interrupt in `_pop_mode_temporarily` of torch must leave the stack of modes unchanged.

    In `__init__`, the context manager has no generator yet.
    """
    code = getattr(contextlib._GeneratorContextManager, method).__code__
    subject, caught = extractions["traced"], []

    def trace(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code:
            name = (frame.f_locals.get("func") or frame.f_locals["self"].gen).__name__
            if name == "_pop_mode_temporarily":
                caught.append(name)
                raise KeyboardInterrupt

    before = state_of(subject.models)
    try:
        sys.settrace(trace)
        subject.run(tmp_path)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    gc.collect()
    assert caught
    assert state_of(subject.models) == before


class StoppedError(Exception):
    """Exception that the test raises in the thread of an extraction."""


def test_an_exception_from_another_thread_leaves_everything_as_it_was(
    extractions: dict[str, Subject], tmp_path: Path
) -> None:
    """Raise an asynchronous exception in the thread of an extraction, as some time limits do."""
    subject = extractions["spooled"]
    results: list[object] = []

    def send(*_: object) -> None:
        ident = ctypes.c_ulong(threading.get_ident())
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(StoppedError))

    def work() -> None:
        linear = (module for module in subject.models[0].modules() if isinstance(module, nn.Linear))
        for module in linear:
            # Some of the state belongs to a thread, so read it in the thread that extracts.
            before = state_of(subject.models)
            handle = module.register_forward_hook(send)
            try:
                subject.run(tmp_path)
            except StoppedError:
                results.append(None)
            handle.remove()
            if state_of(subject.models) != before or list(tmp_path.iterdir()):
                results.append(type(module))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(results) > 5
    assert set(results) == {None}
