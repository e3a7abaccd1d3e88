"""An interrupt at any line of an extraction leaves all state as it was."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from models import interrupts
from models.interrupts import Subject, faults_at, positions, state_of, subjects

# Modules that change state and restore it.
CHANGING = (
    *("cleanup.py", "models.py", "dispatch.py", "forward.py", "trace.py", "spool.py"),
    *("generate.py", "corpus/reading.py", "extraction/__init__.py"),
)


@pytest.fixture(scope="module")
def interrupted() -> dict[str, Subject]:
    extractions = subjects()
    # Importing Dynamo takes seconds, so a random signal would often hit the import.
    del extractions["compiled"]
    return extractions


@pytest.mark.parametrize(
    "kind", ["dispatched", "traced", "generated", "spooled", "spooled list", "corpus"]
)
def test_an_interrupt_at_any_line_leaves_everything_as_it_was(
    kind: str, interrupted: dict[str, Subject], tmp_path: Path
) -> None:
    """Each case interrupts six random lines."""
    subject = interrupted[kind]
    (tmp_path / "whole").mkdir()
    lines = positions(subject, tmp_path / "whole", CHANGING)
    assert len(lines) > 100
    rng = np.random.default_rng([*kind.encode()])
    for turn, position in enumerate(rng.choice(lines, 6, replace=False)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        assert faults_at(subject, folder, position) == []


@pytest.mark.parametrize("kind", ["traced", "spooled"])
def test_an_interrupt_during_the_restoration_leaves_everything_as_it_was(
    kind: str, interrupted: dict[str, Subject], tmp_path: Path
) -> None:
    subject = interrupted[kind]
    (tmp_path / "whole").mkdir()
    lines = positions(subject, tmp_path / "whole", ("cleanup.py",))
    for turn, position in enumerate(lines[-6:]):
        folder = tmp_path / str(turn)
        folder.mkdir()
        assert faults_at(subject, folder, position) == []


def test_a_mode_that_torch_popped_temporarily_is_not_pushed_again(
    interrupted: dict[str, Subject], tmp_path: Path
) -> None:
    """The generator of torch would push the mode again when it is closed after the interrupt."""
    subject, caught = interrupted["traced"], []

    def trace(frame: Any, event: str, _: object) -> None:
        if (
            event == "call"
            and frame.f_code is contextlib._GeneratorContextManager.__exit__.__code__
        ):
            name = frame.f_locals["self"].gen.__name__
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
    """Exception that the test raises in a running thread."""


def test_an_exception_from_another_thread_leaves_everything_as_it_was(
    interrupted: dict[str, Subject], tmp_path: Path
) -> None:
    """Time limits may work like this in threads other than the main one, which get no signals."""
    subject = interrupted["spooled"]
    results: list[object] = []

    def send(*_: object) -> None:
        ident = ctypes.c_ulong(threading.get_ident())
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(StoppedError))

    def work() -> None:
        linear = (module for module in subject.models[0].modules() if isinstance(module, nn.Linear))
        for module in linear:
            # Some of the state belongs to a thread, so this thread reads it.
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


@pytest.mark.slow
def test_hundreds_of_signals_leave_everything_as_it_was() -> None:
    answer = subprocess.run(
        [sys.executable, interrupts.__file__, "280", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr[-2000:]
    assert "faults 0 of" in answer.stdout
