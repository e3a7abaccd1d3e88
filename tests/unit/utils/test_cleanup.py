"""Temporary changes are undone completely and in order, even if something interrupts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from attnviz.utils.cleanup import Cleanup, SharedChange, fork_safe_lock


def interrupted_once(then: Callable[[], object]) -> Callable[[], object]:
    """Return a step that raises KeyboardInterrupt when it first runs."""
    interrupts = [KeyboardInterrupt("step")]

    def step() -> None:
        if interrupts:
            raise interrupts.pop()
        then()

    return step


def restored(*steps: Callable[[], object], error: BaseException | None = None) -> None:
    """Run a block with these cleanup steps. The block may raise an error."""
    with Cleanup() as undo, undo:
        for step in steps:
            undo.add(step)
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [None, ValueError("block"), KeyboardInterrupt("block")])
def test_steps_run_the_last_one_first(error: BaseException | None) -> None:
    calls: list[str] = []
    try:
        restored(partial(calls.append, "first"), partial(calls.append, "second"), error=error)
    except BaseException as raised:  # noqa: BLE001
        assert raised is error  # noqa: PT017
    assert list(dict.fromkeys(calls)) == ["second", "first"]


def test_an_interrupt_of_a_step_is_raised_when_all_are_done() -> None:
    calls: list[str] = []
    last = interrupted_once(partial(calls.append, "second"))
    with pytest.raises(KeyboardInterrupt, match="step"):
        restored(partial(calls.append, "first"), last)
    assert list(dict.fromkeys(calls)) == ["second", "first"]


def test_an_exit_that_is_interrupted_before_its_first_line_runs_again() -> None:
    """Python can interrupt there. The second exit runs the steps that the first one left."""
    calls: list[str] = []
    stopped = iter([True])

    class Stopped(Cleanup):
        def __exit__(self, *raised: Any) -> None:
            if next(stopped, False):
                raise KeyboardInterrupt
            super().__exit__(*raised)

    with pytest.raises(KeyboardInterrupt), Stopped() as undo, undo:
        undo.add(partial(calls.append, "done"))
    assert set(calls) == {"done"}


def test_an_error_of_a_step_does_not_stop_other_steps() -> None:
    calls: list[str] = []

    def fail() -> None:
        raise OSError("step")

    with pytest.raises(OSError, match="step"):
        restored(partial(calls.append, "done"), fail)
    assert set(calls) == {"done"}


class Switch:
    """A change of the whole process that an interrupt may stop."""

    def __init__(self) -> None:
        self.on = False
        self.stops = 0
        self.change = SharedChange(partial(self.turn, True), partial(self.turn, False))

    def turn(self, on: bool) -> None:
        if self.stops:
            self.stops -= 1
            raise KeyboardInterrupt
        self.on = on


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_last_holder_of_a_change_undoes_it(order: tuple[int, int]) -> None:
    switch = Switch()
    cleanups = [Cleanup(), Cleanup()]
    for cleanup in cleanups:
        switch.change.hold(cleanup)
    assert switch.on
    with cleanups[order[0]]:
        pass
    assert switch.on
    with cleanups[order[1]]:
        pass
    assert not switch.on


def test_an_interrupted_change_has_no_holder() -> None:
    switch = Switch()
    switch.stops = 1
    with pytest.raises(KeyboardInterrupt), Cleanup() as undo, undo:
        switch.change.hold(undo)
    assert (switch.on, switch.stops) == (False, 0)
    with Cleanup() as undo, undo:
        switch.change.hold(undo)
        assert switch.on
    assert not switch.on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_finds_no_lock_held() -> None:
    lock, locked = fork_safe_lock(), threading.Event()

    def hold() -> None:
        with lock:
            locked.set()
            # A fork waits for the thread that holds the lock, so no event can end this.
            time.sleep(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout=5) else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    assert lock.acquire(timeout=5)
    lock.release()
