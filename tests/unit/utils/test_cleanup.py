"""Tests of `Cleanup` and of shared changes and replacements, and of `fork_safe_lock`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from attnviz.utils.cleanup import Cleanup, SharedChange, SharedReplacement, fork_safe_lock


def restored(*steps: Callable[[], object], error: BaseException | None = None) -> None:
    """Run a `Cleanup` block that adds `steps` and raises `error`, if an error is given."""
    with Cleanup() as undo, undo:
        for step in steps:
            undo.add(step)
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [None, ValueError("block"), KeyboardInterrupt("block")])
def test_steps_run_the_last_one_first(error: BaseException | None) -> None:
    calls: list[str] = []
    with pytest.raises(type(error)) if error else nullcontext():
        restored(partial(calls.append, "first"), partial(calls.append, "second"), error=error)
    assert list(dict.fromkeys(calls)) == ["second", "first"]


@pytest.mark.parametrize("error", [OSError("step"), KeyboardInterrupt("step")])
def test_an_error_of_a_step_is_raised_when_all_steps_are_done(error: BaseException) -> None:
    calls: list[str] = []
    errors = [error]

    def fail_once() -> None:
        if errors:
            raise errors.pop()
        calls.append("second")

    with pytest.raises(type(error), match="step"):
        restored(partial(calls.append, "first"), fail_once)
    # "second" shows that `fail_once` ran again after its error.
    assert list(dict.fromkeys(calls)) == ["second", "first"]


def test_steps_run_if_an_interrupt_stops_the_exit_before_its_first_line() -> None:
    calls: list[str] = []
    interrupts = [KeyboardInterrupt()]

    class Stopped(Cleanup):
        def __exit__(self, *raised: Any) -> None:
            if interrupts:
                raise interrupts.pop()
            super().__exit__(*raised)

    # The block enters `undo` twice, so `__exit__` runs twice. The first call is interrupted, and
    # the second runs the steps.
    with pytest.raises(KeyboardInterrupt), Stopped() as undo, undo:
        undo.add(partial(calls.append, "done"))
    assert set(calls) == {"done"}


class Switch:
    """A flag that a `SharedChange` turns on and off.

    The first `interrupts` calls of `turn` raise KeyboardInterrupt.
    """

    def __init__(self, interrupts: int = 0) -> None:
        self.on = False
        self.interrupts = interrupts
        self.change = SharedChange(partial(self.turn, True), partial(self.turn, False))

    def turn(self, on: bool) -> None:
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        self.on = on


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_last_holder_of_a_change_undoes_it(order: tuple[int, int]) -> None:
    switch = Switch()
    cleanups = [Cleanup(), Cleanup()]
    for cleanup in cleanups:
        switch.change.hold(cleanup)
    for index, stays in zip(order, (True, False), strict=True):
        assert switch.on
        with cleanups[index]:
            pass
        assert switch.on is stays


def test_an_interrupted_change_has_no_holder() -> None:
    switch = Switch(interrupts=1)
    with pytest.raises(KeyboardInterrupt), Cleanup() as undo, undo:
        switch.change.hold(undo)
    assert (switch.on, switch.interrupts) == (False, 0)
    with Cleanup() as undo, undo:
        switch.change.hold(undo)
        assert switch.on
    assert not switch.on


@pytest.mark.parametrize("error", [None, KeyboardInterrupt("block")])
def test_a_value_is_replaced_once_and_restored_by_the_last_holder(
    error: BaseException | None,
) -> None:
    values: dict[str, Any] = {"name": "own"}
    write = partial(values.__setitem__, "name")
    replacement = SharedReplacement(partial(values.get, "name"), write, "replaced {}".format)
    with Cleanup() as first, first:
        replacement.hold(first)
        with pytest.raises(type(error)) if error else nullcontext(), Cleanup() as undo, undo:
            replacement.hold(undo)
            assert values == {"name": "replaced own"}
            if error is not None:
                raise error
        assert values == {"name": "replaced own"}
        # Someone else sets the value. The next holder replaces the new value.
        values["name"] = "new"
        with Cleanup() as undo, undo:
            replacement.hold(undo)
            assert values == {"name": "replaced new"}
    assert values == {"name": "new"}
    with Cleanup() as undo, undo:
        replacement.hold(undo)
        values["name"] = "newest"
    assert values == {"name": "newest"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_finds_no_lock_held() -> None:
    lock, locked = fork_safe_lock(), threading.Event()

    def hold() -> None:
        with lock:
            locked.set()
            # `os.fork` below waits until this thread releases the lock.
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
