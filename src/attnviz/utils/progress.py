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

#: Number of weights that a step computes, about 0.05 s on one core. A step computes between one and
#: two times this number, except the last one, so that small work is one step.
STEP = 1 << 22
# Fixed cost of one call for a head or a block, in weights.
_CALL = 1 << 13

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Progress:
    """Progress within one part of the work.

    Attributes
    ----------
    doing : str
        Name of the part.
    done, total : float
        Amount done and total amount of this part, in `unit`.
    """

    doing: str
    done: float
    total: float
    unit: str = "weight"


Steps = Generator[Progress, None, _Result]


class Cancelled(Exception):  # noqa: N818 - not an error
    """Raised inside cancelled work, which then does not cache its partial results."""


class Pace:
    """Counter of computed weights that ends steps of about equal size, for ``yield from``.

    Parameters
    ----------
    doing : str
        Name of the part of the work.
    total : float
        Number of weights that are computed in total.

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
        """Count computed weights. Yield a `Progress` if the step is complete."""
        self._done += weights
        self._since += weights + calls * _CALL
        if self._since >= STEP:
            self._since = 0.0
            yield Progress(self._doing, self._done, max(self._total, self._done))


def run_steps(steps: Steps[_Result]) -> _Result:
    """Run all steps and return the result.

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
    """Run all steps with a progress bar for each part of the work, and return the result.

    A part that ends within `after` seconds shows no bar, because all bars of a process share a
    lock, which an interrupt can leave held. The remaining time is estimated from the completed
    steps.

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
                    # Imported late: silent work does not need tqdm.
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
    """Run `steps` as a part of larger work, and yield the progress of the larger work.

    `done` of `total` units are complete before the part begins. The part counts as `size` units.

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
        # Work with several parts starts again at 0 with each part.
        fraction = max(fraction, min(1.0, progress.done / max(1.0, progress.total)))
        yield Progress(doing, done + fraction * size, total, unit)


class Work(Generic[_Result]):
    """Work that runs for a limited time per call.

    Parameters
    ----------
    steps : generator
        The work.
    clock : callable
        Returns the time in seconds.

    Attributes
    ----------
    progress : Progress or None
        Progress after the last step, or None before the first step.
    result
        Return value of the generator. It exists once the work is done.

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
        """Run steps for about `seconds`, at least one. Return whether the work is done."""
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
                # The speed of earlier parts does not predict that of this part.
                self._spent, self._began = 0.0, progress.done
            self.progress, before = progress, now
            if now >= end:
                return False

    def cancel(self) -> None:
        """Stop the work and release its memory."""
        with suppress(Cancelled, StopIteration):
            self._steps.throw(Cancelled())
        self._steps.close()

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining seconds of this part, or None before the first measurement."""
        if self.progress is None or self.progress.done <= self._began:
            return None
        remaining = self.progress.total - self.progress.done
        return self._spent * remaining / (self.progress.done - self._began)
