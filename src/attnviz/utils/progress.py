"""Progress of long computations: a progress bar, and jobs that the kernel can pause.

A function with a long computation calls `report` from time to time. By default, the call does
nothing. In a ``with show_progress(...)`` block, a progress bar shows it. In a `PausableJob`, the
call may pause the computation, so that the kernel can answer other requests, or end it.

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
from functools import partial, wraps
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from attnviz.utils.cleanup import Cleanup

if TYPE_CHECKING:
    from attnviz.utils.bars import Output

#: Number of computed weights after which `Pace` reports its progress. One core computes them in
#: about 0.05 s.
STEP = 1 << 22
# Fixed cost of each call that computes weights, as the number of weights that are computed in the
# same time.
_CALL = 1 << 13

_P = ParamSpec("_P")
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
    with Cleanup() as undo, undo:
        undo.add(partial(_listener.set, _listener.get()))
        _listener.set(listener)
        yield


def report(doing: str, done: float, total: float, unit: str = "weight") -> None:
    """Report the progress of a computation. The parameters are those of `Progress`.

    In a `PausableJob`, the call may pause the computation, or end it with the exception
    `Cancelled`.

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
def show_progress(
    title: str, *, shown: bool = True, output: Output | None = None
) -> Iterator[None]:
    """Show the progress that the block reports as one progress bar, which begins with `title`.

    The bar appears if the block takes longer than a second, even if it reports nothing. A block in
    a job or in another ``with show_progress`` block has no bar, because the job or the outer block
    receives its reports. If `shown` is False, all reports of the block are dropped. In a notebook,
    the bar appears in `output`, which can show something else after the block.

    >>> with show_progress("numbers"):
    ...     report("counting", 1, 2)
    """
    if not shown:
        with _listen(lambda _progress: None):
            yield
        return
    if _listener.get() is not None:
        yield
        return
    # Import tqdm only if it may be needed.
    from attnviz.utils.bars import ProgressBar

    bar = ProgressBar(title, output)
    try:
        bar.open()
        with _listen(bar.show):
            yield
    finally:
        bar.close()


def with_progress(function: Callable[_P, _Result]) -> Callable[_P, _Result]:
    """Show the progress of each call of a function, unless its argument `progress` is False.

    >>> with_progress(len)([1, 2])
    2
    """

    @wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _Result:
        __tracebackhide__ = True
        with show_progress(function.__name__, shown=bool(kwargs.get("progress", True))):
            return function(*args, **kwargs)

    return called


@contextmanager
def part_of(
    doing: str, done: float, total: float, unit: str = "layer", *, size: float = 1.0
) -> Iterator[None]:
    """Convert the progress that the ``with`` block reports to that of a larger computation.

    The block is a part of a computation with `total` units of work. Before the block begins, `done`
    units are complete. The block itself has `size` units. `doing` and `unit` describe the larger
    computation, as in `Progress`. A block that is the whole computation reports for itself.

    >>> with part_of("layers", 3, 12):
    ...     report("counting", 1, 2)  # reports 3.5 of 12 layers
    """
    outer = _listener.get()
    if outer is None or size == total:
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


class PausableJob(Generic[_Result]):
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
    >>> job = PausableJob(count)
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
