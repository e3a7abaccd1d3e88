"""Progress of long computations: progress bars, and jobs that the kernel can pause.

A function with a long computation calls `report` from time to time. By default, the call does
nothing. In a ``with show_progress(...)`` block, progress bars appear. In a `Job`, the call may
pause the computation, so that the kernel can answer other requests, or end it.

A function must not call `report` while it holds a lock or while a model is changed temporarily,
because other code may run during a pause.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

#: Number of computed weights after which `Pace` reports its progress. One core computes them in
#: about 0.05 s.
STEP = 1 << 22
# Fixed cost of each call that computes weights, as the number of weights that are computed in the
# same time.
_CALL = 1 << 13
# Duration in seconds of a part of a computation before the progress bar of the part appears.
_SECONDS_WITHOUT_BAR = 1.0

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


_listener: ContextVar[Callable[[Progress], object] | None] = ContextVar("listener", default=None)


@contextmanager
def _listen(listener: Callable[[Progress], object]) -> Iterator[None]:
    """Pass all reports of the block to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report(doing: str, done: float, total: float, unit: str = "weight") -> None:
    """Report the progress of a computation. The parameters are those of `Progress`.

    In a `Job`, the call may pause the computation, or end it with the exception `Cancelled`.

    >>> report("counting", 1, 2)
    """
    listener = _listener.get()
    if listener is not None:
        listener(Progress(doing, done, total, unit))


class Cancelled(Exception):  # noqa: N818 - not an error
    """Exception that `report` raises in a cancelled job, to end the computation of the job."""


class Pace:
    """Counter of computed weights that reports progress after about equal amounts of computation.

    The number of reports depends only on the amount of computation, not on the machine.

    Parameters
    ----------
    doing : str
        Name of the computation, as in `Progress`.
    total : float
        Number of weights that the computation will compute.

    Examples
    --------
    >>> pace = Pace("counting", 3 * STEP)
    >>> pace.advance(STEP)
    """

    def __init__(self, doing: str, total: float) -> None:
        self._doing = doing
        self._total = total
        self._done = 0.0
        self._since = 0.0

    def advance(self, weights: float, calls: int = 1) -> None:
        """Add a number of computed weights.

        `calls` is the number of calls that computed these weights. Each call adds a fixed cost.
        """
        self._done += weights
        self._since += weights + calls * _CALL
        if self._since >= STEP:
            self._since = 0.0
            report(self._doing, self._done, max(self._total, self._done))


@contextmanager
def show_progress(title: str, *, shown: bool = True) -> Iterator[None]:
    """Show the progress that the block reports as progress bars.

    Each part of the computation (`Progress.doing`) has its own bar, whose text begins with `title`.
    A bar appears if the part takes longer than a second. Bars are avoided for short parts, because
    a bar takes a lock that all bars of the process share. If a KeyboardInterrupt arrives while the
    bar takes the lock, the lock may never be released. The block shows no bars if `shown` is False.
    It also shows no bars in a job or in another ``with show_progress`` block, because the job or
    the outer block already receives the reports.

    >>> with show_progress("numbers"):
    ...     report("counting", 1, 2)
    """
    if not shown or _listener.get() is not None:
        yield
        return
    bars = _Bars(title)
    try:
        with _listen(bars.show):
            yield
    finally:
        bars.close()


class _Bars:
    """Progress bars of the parts of a computation, one at a time."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._current: Any = None
        self._doing = ""
        self._began = 0.0

    def show(self, progress: Progress) -> None:
        if progress.doing != self._doing:
            self.close()
            self._doing, self._began = progress.doing, time.perf_counter()
        if self._current is not None:
            self._current.update(progress.done - self._current.n)
        elif time.perf_counter() - self._began >= _SECONDS_WITHOUT_BAR:
            # Import tqdm only if a bar is shown.
            from attnviz.utils.bars import Bar

            self._current = Bar(
                total=progress.total,
                initial=progress.done,
                desc=f"{self._title}: {progress.doing}",
                unit=progress.unit,
                unit_scale=True,
                leave=False,
            )

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None


@contextmanager
def part_of(
    doing: str, done: float, total: float, unit: str = "layer", *, size: float = 1.0
) -> Iterator[None]:
    """Convert the progress that the ``with`` block reports to that of a larger computation.

    The block is a part of a computation with `total` units of work. Before the block begins, `done`
    units are complete. The block itself has `size` units. `doing` and `unit` describe the larger
    computation, as in `Progress`.

    >>> with part_of("layers", 3, 12):
    ...     report("counting", 1, 2)  # reports 3.5 of 12 layers
    """
    outer = _listener.get()
    if outer is None:
        yield
        return
    fraction = 0.0

    def scale(progress: Progress) -> None:
        nonlocal fraction
        # If the block reports several parts, each part begins at 0 again. The progress of the
        # larger computation must not decrease.
        fraction = max(fraction, min(1.0, progress.done / max(1.0, progress.total)))
        outer(Progress(doing, done + fraction * size, total, unit))

    with _listen(scale):
        yield


class Job(Generic[_Result]):
    """Computation in its own thread that runs for a limited time per call of `run_for`.

    The thread runs only while `run_for` waits for it. Between two calls of `run_for`, the
    computation is paused in a call of `report`. Therefore the caller can do other work between
    these calls, without competing for the processor.

    Parameters
    ----------
    function : callable
        The computation, which calls `report` between its parts.
    clock : callable
        Function that returns the time in seconds.

    Attributes
    ----------
    progress : Progress or None
        Last reported progress, or None before the first report.
    result
        Return value of the function. The attribute exists when `run_for` has returned True.

    Examples
    --------
    >>> def count():
    ...     report("counting", 1, 2)
    ...     return "done"
    >>> job = Job(count)
    >>> job.run_for(0), job.progress.done, job.run_for(0), job.result
    (False, 1, True, 'done')
    """

    result: _Result

    def __init__(
        self, function: Callable[[], _Result], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._function = function
        self._clock = clock
        self._context = copy_context()
        self._thread = threading.Thread(target=self._run, name="attnviz job", daemon=True)
        self._may_run, self._has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self._is_complete = self._is_cancelled = False
        self._end = self._before = self._spent = self._began = 0.0
        self.progress: Progress | None = None

    def run_for(self, seconds: float) -> bool:
        """Run until the first report after `seconds` have passed, or until the computation ends.

        Return whether the computation has ended. If it raised an exception, raise this exception.
        If a KeyboardInterrupt arrives, interrupt the computation, too, and wait until it has ended.
        """
        self._before = self._clock()
        self._end = self._before + seconds
        try:
            if self._thread.ident is None:
                self._thread.start()
            else:
                self._may_run.release()
            # Wait with a timeout. Otherwise, an interrupt that arrives just before the wait begins
            # would not end it.
            while not self._has_stopped.acquire(timeout=0.5):
                pass
        except KeyboardInterrupt:
            self._interrupt()
            raise
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._is_complete

    def _run(self) -> None:
        try:
            self._context.run(_listener.set, self._pause_if_due)
            self.result = self._context.run(self._function)
        # Catch every exception, because `run_for` raises it in the thread of the caller.
        except BaseException as error:  # noqa: BLE001
            self._error = error
        finally:
            # Release the arguments of the function, which may be large.
            del self._function, self._context
            self._is_complete = True
            self._has_stopped.release()

    def _pause_if_due(self, progress: Progress) -> None:
        now = self._clock()
        if self.progress is not None and progress.doing == self.progress.doing:
            self._spent += now - self._before
        else:
            # A new part begins. Measure its speed separately, because parts differ in speed.
            self._spent, self._began = 0.0, progress.done
        self.progress, self._before = progress, now
        if now >= self._end and not self._is_cancelled:
            self._has_stopped.release()
            self._may_run.acquire()
        if self._is_cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """End the computation at its current or next report, and wait for its end.

        Any thread may call this method, except that of the job.
        """
        self._is_cancelled = True
        if self._thread.ident is not None:
            self._may_run.release()
            self._thread.join()

    def _interrupt(self) -> None:
        """Raise KeyboardInterrupt in the computation, which is running, and wait for its end."""
        self._is_cancelled = True
        if self._thread.ident is not None:
            interrupt = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident), interrupt
            )
            self._thread.join()

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining time of the current part in seconds.

        None until the part has progressed since its first report.
        """
        if self.progress is None or self.progress.done <= self._began:
            return None
        remaining = self.progress.total - self.progress.done
        return self._spent * remaining / (self.progress.done - self._began)
