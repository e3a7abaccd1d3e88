"""Long computations in steps, with progress, remaining time and cancellation.

A computation is a generator that yields a `Progress` after each step and returns its result. A
script runs the generator to its end, with a progress bar (`run_with_bar`) or without (`run_steps`).
When a view requests a result, the kernel runs the generator for a short time (`Work`). The view
repeats the request until the result is complete. `Pace` ends a step after a certain amount of
computation. The steps are therefore the same on every machine.
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

#: Number of computed weights after which `Pace` ends a step. This takes one core about 0.05 s. A
#: computation of fewer weights is a single step.
STEP = 1 << 22
# Additional cost of each call that computes weights, as a number of weights.
_CALL = 1 << 13

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Progress:
    """Progress of a computation, or of one of several parts that follow each other.

    Attributes
    ----------
    doing : str
        Name of the part.
    done, total : float
        Completed amount and total amount of this part, in units of `unit`.
    unit : str
        Name of the unit, in the singular.
    """

    doing: str
    done: float
    total: float
    unit: str = "weight"


Steps = Generator[Progress, None, _Result]


class Cancelled(Exception):  # noqa: N818 - not an error
    """Exception that `Work.cancel` raises in a generator, which must not cache partial results."""


class Pace:
    """Counter of computed weights that ends steps of about equal size.

    A generator calls ``yield from pace.advance(...)`` after each part of its computation.

    Parameters
    ----------
    doing : str
        Name of the computation, as in `Progress`.
    total : float
        Number of weights that the computation will compute.

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
        """Add a number of computed weights. Yield a `Progress` if this completes a step.

        `calls` is the number of calls that computed these weights. Each call adds a fixed cost.
        """
        self._done += weights
        self._since += weights + calls * _CALL
        if self._since >= STEP:
            self._since = 0.0
            yield Progress(self._doing, self._done, max(self._total, self._done))


def run_steps(steps: Steps[_Result]) -> _Result:
    """Run a generator of steps to its end and return its result.

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
    title: str,
    *,
    bar: Callable[..., Any] | None = None,
    after: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> _Result:
    """Run a generator of steps to its end with progress bars, and return its result.

    Each part of the computation (`Progress.doing`) has its own bar, whose text begins with `title`.
    A bar appears only after `after` seconds. Bars are avoided for short parts, because all bars of
    a process share a lock, and after an interrupt the lock may never be released.

    >>> def count():
    ...     yield Progress("counting", 1, 2)
    ...     return "done"
    >>> run_with_bar(count(), "numbers")
    'done'
    """
    current: Any = None
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
                if current is not None:
                    current.close()
                current, doing, began = None, progress.doing, clock()
            if current is not None:
                current.update(progress.done - current.n)
            elif clock() - began >= after:
                if bar is None:
                    # Import tqdm only if a bar is shown.
                    from attnviz.utils.bars import Bar

                    bar = Bar
                current = bar(
                    total=progress.total,
                    initial=progress.done,
                    desc=f"{title}: {doing}",
                    unit=progress.unit,
                    unit_scale=True,
                    leave=False,
                )
    finally:
        if current is not None:
            current.close()


def scale_progress(
    steps: Steps[_Result],
    doing: str,
    done: float,
    total: float,
    unit: str = "layer",
    *,
    size: float = 1.0,
) -> Steps[_Result]:
    """Run `steps` as a part of a larger computation. Yield the progress of the larger one.

    The larger computation has `total` units. `done` of them are complete before this part begins,
    and the part itself has `size` units. `doing` and `unit` are as in `Progress`.

    >>> def count():
    ...     yield Progress("counting", 1, 2)
    ...     return "done"
    >>> next(scale_progress(count(), "layers", 3, 12)).done
    3.5
    """
    fraction = 0.0
    while True:
        try:
            progress = next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        # If `steps` has several parts, its progress begins again at 0 with each part. The progress
        # of the larger computation must not decrease.
        fraction = max(fraction, min(1.0, progress.done / max(1.0, progress.total)))
        yield Progress(doing, done + fraction * size, total, unit)


class Work(Generic[_Result]):
    """Computation that runs for a limited time per call.

    Parameters
    ----------
    steps : generator
        The computation, which yields a `Progress` after each step.
    clock : callable
        Function that returns the time in seconds.

    Attributes
    ----------
    progress : Progress or None
        Progress after the last step, or None before the first step.
    result
        Return value of the generator. The attribute exists when `run_for` has returned True.

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
        """Run at least one step, and further steps until `seconds` have passed.

        Return whether the computation is complete.
        """
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
                # Measure the time of each part separately, because parts differ in speed.
                self._spent, self._began = 0.0, progress.done
            self.progress, before = progress, now
            if now >= end:
                return False

    def cancel(self) -> None:
        """Raise `Cancelled` in the generator and close it, which releases its memory."""
        with suppress(Cancelled, StopIteration):
            self._steps.throw(Cancelled())
        self._steps.close()

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining time of the current part in seconds.

        None until two steps of the part have been measured.
        """
        if self.progress is None or self.progress.done <= self._began:
            return None
        remaining = self.progress.total - self.progress.done
        return self._spent * remaining / (self.progress.done - self._began)
