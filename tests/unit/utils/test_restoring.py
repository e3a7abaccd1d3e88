"""What is changed for a while is taken back: all of it, in turn, whatever comes in between."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from attnviz.utils.restoring import Restoring, SharedChange


class SentError(Exception):
    """What another thread raises in this one."""


def failing(error: BaseException, times: int, then: Callable[[], object]) -> Callable[[], object]:
    """A step that raises before it does what it is to do, so many times."""
    raised: Iterator[BaseException] = iter([error] * times)

    def step() -> None:
        for each in raised:
            raise each
        then()

    return step


def restored(*steps: Callable[[], object], error: BaseException | None = None) -> None:
    """A block that has these steps, and may raise an error."""
    with Restoring() as undo, undo, undo:
        for step in steps:
            undo.add(step)
        if error is not None:
            raise error


def test_steps_run_the_last_one_first_and_each_is_done() -> None:
    done: list[str] = []
    restored(partial(done.append, "first"), partial(done.append, "second"))
    assert done == ["second", "first"]


@pytest.mark.parametrize("times", [1, 2, 30])
@pytest.mark.parametrize("of_block", [None, ValueError("block"), KeyboardInterrupt("block")])
def test_interrupts_while_steps_run_are_raised_when_all_are_done(
    times: int, of_block: BaseException | None
) -> None:
    done: list[str] = []
    last = failing(KeyboardInterrupt("step"), times, partial(done.append, "second"))
    with pytest.raises(KeyboardInterrupt, match="step"):
        restored(partial(done.append, "first"), last, error=of_block)
    assert done == ["second", "first"]


def test_exits_that_are_stopped_before_their_first_line() -> None:
    """Python may do that: what the first and the second exit leave, the third one does."""
    done: list[str] = []
    stopped = iter([True, True])

    class Stopped(Restoring):
        def __exit__(self, *raised: object) -> None:
            if next(stopped, False):
                raise KeyboardInterrupt
            super().__exit__(*raised)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt), Stopped() as undo, undo, undo:
        undo.add(partial(done.append, "done"))
    assert done == ["done"]


def test_an_error_of_a_step_stops_no_other_and_hides_no_error_of_the_block() -> None:
    done: list[str] = []
    never = failing(OSError("step"), 9, partial(done.append, "never"))
    with pytest.raises(OSError, match="step"):
        restored(partial(done.append, "done"), never)
    with pytest.raises(ValueError, match="block"):
        restored(partial(done.append, "again"), never, error=ValueError("block"))
    assert done == ["done", "again"]


def test_what_another_thread_sends_while_steps_run() -> None:
    done: list[str] = []

    def sent() -> None:
        ident = ctypes.c_ulong(threading.get_ident())
        if len(done) < 2:
            done.append("sent")
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SentError))
            [None for _ in range(10)]
        done.append("whole")

    with pytest.raises(SentError):
        restored(partial(done.append, "first"), sent)
    assert done == ["sent", "sent", "whole", "first"]


class Switch:
    """A change of the whole process, which may be stopped on its way."""

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
    held = [Restoring(), Restoring()]
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
    for stops in (1, 2, 5):
        switch.stops = stops
        with pytest.raises(KeyboardInterrupt), Restoring() as undo, undo, undo:
            switch.change.hold(undo)
        assert (switch.on, switch.stops) == (False, 0)
    with Restoring() as undo, undo, undo:
        switch.change.hold(undo)
        assert switch.on
    assert not switch.on
