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
    done: list[str] = []
    try:
        restored(partial(done.append, "first"), partial(done.append, "second"), error=error)
    except BaseException as raised:  # noqa: BLE001
        assert raised is error  # noqa: PT017
    assert list(dict.fromkeys(done)) == ["second", "first"]


def test_an_interrupt_of_a_step_is_raised_when_all_are_done() -> None:
    done: list[str] = []
    last = interrupted_once(partial(done.append, "second"))
    with pytest.raises(KeyboardInterrupt, match="step"):
        restored(partial(done.append, "first"), last)
    assert list(dict.fromkeys(done)) == ["second", "first"]


def test_an_exit_that_is_stopped_before_its_first_line() -> None:
    """Python can interrupt there. The second exit runs the steps that the first one left."""
    done: list[str] = []
    stopped = iter([True])

    class Stopped(Cleanup):
        def __exit__(self, *raised: Any) -> None:
            if next(stopped, False):
                raise KeyboardInterrupt
            super().__exit__(*raised)

    with pytest.raises(KeyboardInterrupt), Stopped() as undo, undo:
        undo.add(partial(done.append, "done"))
    assert set(done) == {"done"}


def test_an_error_of_a_step_stops_no_other() -> None:
    done: list[str] = []

    def fail() -> None:
        raise OSError("step")

    with pytest.raises(OSError, match="step"):
        restored(partial(done.append, "done"), fail)
    assert set(done) == {"done"}


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
def test_the_last_that_holds_a_change_takes_it_back(order: tuple[int, int]) -> None:
    switch = Switch()
    held = [Cleanup(), Cleanup()]
    for each in held:
        switch.change.hold(each)
    assert switch.on
    with held[order[0]]:
        pass
    assert switch.on
    with held[order[1]]:
        pass
    assert not switch.on


def test_a_change_that_was_stopped_is_held_by_nobody() -> None:
    switch = Switch()
    switch.stops = 1
    with pytest.raises(KeyboardInterrupt), Cleanup() as undo, undo:
        switch.change.hold(undo)
    assert (switch.on, switch.stops) == (False, 0)
    with Cleanup() as undo, undo:
        switch.change.hold(undo)
        assert switch.on
    assert not switch.on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_finds_no_lock_held() -> None:
    lock, held = fork_safe_lock(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            # A fork waits for the thread that holds the lock, so no event can end this.
            time.sleep(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout=5) else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    assert lock.acquire(timeout=5)
    lock.release()
