"""Long computations in steps, with progress, remaining time and cancellation.

A computation is a generator that yields a `Progress` after each step and returns its result. A
script runs it to the end, with a progress bar (`run_with_bar`) or without (`run_steps`). A kernel
runs it for a short time per request of a view (`Work`). A caller stops it by not requesting another
step. `Pace` ends steps by the amount of computation, so that steps do not depend on the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = [
    "STEP",
    "Cancelled",
    "Pace",
    "Progress",
    "Steps",
    "Work",
    "run_steps",
    "run_with_bar",
    "scale_progress",
]

#: Weights that a step computes, some 0.05 s of one core: no more than twice as many, and no less
#: but for the last step, so that small work is done in one.
STEP = 1 << 22
# What it costs to call on a head or a block at all, in weights.
_CALL = 1 << 13

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Progress:
    """How far a part of the work is.

    Attributes
    ----------
    doing : str
        What is being done.
    done, total : float
        Of this part, in what `unit` says.
    """

    doing: str
    done: float
    total: float
    unit: str = "weight"


Steps = Generator[Progress, None, _Result]


class Cancelled(Exception):  # noqa: N818 - nothing went wrong
    """Raised in work that is given up: what it would keep for a next time is not wanted."""


class Pace:
    """Ends a step after so much work, for `yield from`.

    Parameters
    ----------
    doing : str
        What is being done.
    total : float
        Weights that are computed in all.

    Examples
    --------
    >>> pace = Pace("counting", 3 * STEP)
    >>> [progress.done / STEP for _ in range(3) for progress in pace.advance(STEP - 8192)]
    [0.998046875, 1.99609375, 2.994140625]
    """

    def __init__(self, doing: str, total: float) -> None:
        self._doing = doing
        self._total = total
        self._done = 0.0
        self._since = 0.0

    def advance(self, weights: float, calls: int = 1) -> Iterator[Progress]:
        """Count weights that were computed; one `Progress` where a step is full."""
        self._done += weights
        self._since += weights + calls * _CALL
        if self._since >= STEP:
            self._since = 0.0
            yield Progress(self._doing, self._done, max(self._total, self._done))


def run_steps(steps: Steps[_Result]) -> _Result:
    """Make all steps at once.

    >>> def count():
    ...     yield Progress("counting", 1, 2)
    ...     return "done"
    >>> run_steps(count())
    'done'
    """
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


def run_with_bar(
    steps: Steps[_Result],
    of: str,
    *,
    bar: Callable[..., Any] | None = None,
    after: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> _Result:
    """Run all steps under a bar for each part of the work, silent for the first second.

    The time left is measured on the steps that are done. A part that is over within `after` seconds
    makes no bar: all bars of a process share a lock, which an interrupt can leave held.

    >>> def count():
    ...     yield Progress("counting", 1, 2)
    ...     return "done"
    >>> run_with_bar(count(), "numbers")
    'done'
    """
    shown: Any = None
    doing = ""
    began = 0.0
    try:
        while True:
            try:
                progress = next(steps)
            except StopIteration as end:
                result: _Result = end.value
                return result
            if progress.doing != doing:
                if shown is not None:
                    shown.close()
                shown, doing, began = None, progress.doing, clock()
            if shown is not None:
                shown.update(progress.done - shown.n)
            elif clock() - began >= after:
                if bar is None:
                    # Without a bar its packages are not needed.
                    from attnviz.utils.bars import Bar

                    bar = Bar
                shown = bar(
                    total=progress.total,
                    initial=progress.done,
                    desc=f"{of}: {doing}",
                    unit=progress.unit,
                    unit_scale=True,
                    leave=False,
                )
    finally:
        if shown is not None:
            shown.close()


def scale_progress(
    steps: Steps[_Result],
    doing: str,
    done: float,
    total: float,
    unit: str = "layer",
    *,
    size: float = 1.0,
) -> Steps[_Result]:
    """Steps of a part of some work, of so much of its total, told as how far all of it is.

    >>> def count():
    ...     yield Progress("counting", 1, 2)
    ...     return "done"
    >>> next(scale_progress(count(), "layers", 3, 12)).done
    3.5
    """
    most = 0.0
    while True:
        try:
            progress = next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        # What is done in several ways begins anew with each.
        most = max(most, min(1.0, progress.done / max(1.0, progress.total)))
        yield Progress(doing, done + most * size, total, unit)


class Work(Generic[_Result]):
    """Some steps, of which a few are made at a time.

    Parameters
    ----------
    steps : generator
        The work.
    clock : callable
        Tells the time in seconds.

    Attributes
    ----------
    progress : Progress or None
        How far the work is; None before the first step.
    result
        What the work gives, once it is done.

    Examples
    --------
    >>> def steps():
    ...     yield Progress("counting", 1, 2)
    ...     return "done"
    >>> work = Work(steps())
    >>> work.run_for(0), work.progress.done, work.run_for(0), work.result
    (False, 1, True, 'done')
    """

    result: _Result

    def __init__(
        self, steps: Steps[_Result], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._steps = steps
        self._clock = clock
        self._spent = 0.0
        self._began = 0.0
        self.progress: Progress | None = None

    def run_for(self, seconds: float) -> bool:
        """Make steps for some seconds, one at least; whether the work is done."""
        before = self._clock()
        end = before + seconds
        while True:
            try:
                progress = next(self._steps)
            except StopIteration as stop:
                self.result = stop.value
                return True
            now = self._clock()
            if self.progress is not None and progress.doing == self.progress.doing:
                self._spent += now - before
            else:
                # What came before says nothing about how long this part takes.
                self._spent, self._began = 0.0, progress.done
            self.progress, before = progress, now
            if now >= end:
                return False

    def cancel(self) -> None:
        """End work that is not wanted any more, and let go of what it holds."""
        with suppress(Cancelled, StopIteration):
            self._steps.throw(Cancelled())
        self._steps.close()

    @property
    def seconds_left(self) -> float | None:
        """What the rest of this part takes if it goes on as so far; None before that is known."""
        if self.progress is None or self.progress.done <= self._began:
            return None
        rest = self.progress.total - self.progress.done
        return self._spent * rest / (self.progress.done - self._began)
