"""Taking back what was changed for a while, also where an interrupt comes while that is done."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType

__all__ = ["Restoring", "RestoringLock", "SharedChange"]

# An error that a step raises may be one that another thread sent to this one.
_TRIES = 3


class Restoring:
    """Runs steps when its block ends, the last one first, each until it is done.

    Add a step before the change that it takes back. It then has to be right where nothing was
    changed yet, and where it has run in part or wholly: an interrupt may come anywhere, and a step
    that was interrupted runs again.

    What is guaranteed: after an interrupt in the block all steps run. Interrupts (and errors) that
    come while they run are raised when all are done, however many there are. Python can interrupt
    `__exit__` also before its first line, and between its lines; the block is entered three times
    for that, and each exit goes on where the one before it was stopped. So two interrupts in these
    few instructions do no harm. This holds in each thread, for signals and for exceptions that
    other threads send (``PyThreadState_SetAsyncExc``).

    An error of a step is raised only where the block itself raised none.

    Examples
    --------
    >>> values = [1]
    >>> with Restoring() as undo, undo, undo:
    ...     undo.add(partial(values.__setitem__, 0, values[0]))
    ...     values[0] = 2
    >>> values
    [1]
    """

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def add(self, step: Callable[[], object]) -> None:
        """Have a step run when the block ends."""
        self._steps.append(step)

    def __enter__(self) -> Restoring:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        interrupt = failure = None
        tries = 0
        while self._steps:
            try:
                while self._steps:
                    self._steps[-1]()
                    # Only now: one that was interrupted runs again.
                    self._steps.pop()
                    tries = 0
            except Exception as raised:  # noqa: BLE001
                failure, tries = raised, tries + 1
                if tries == _TRIES:
                    self._steps.pop()
                    tries = 0
            except BaseException as raised:  # noqa: BLE001
                interrupt = raised
        if interrupt is not None:
            raise interrupt
        if failure is not None and error is None:
            raise failure


class SharedChange:
    """A change of the whole process: made by the first that holds it, taken back by the last.

    Parameters
    ----------
    make, take_back : callable
        Both have to be right where they have run before, in part or wholly.
    """

    def __init__(self, make: Callable[[], object], take_back: Callable[[], object]) -> None:
        self._make = make
        self._take_back = take_back
        self._lock = RestoringLock()
        self._holders: set[object] = set()

    def hold(self, undo: Restoring) -> None:
        """Hold the change until the block of `undo` ends; any thread may."""
        holder = object()
        undo.add(partial(self._release, holder))
        with self._lock:
            self._holders.add(holder)
            self._make()

    def _release(self, holder: object) -> None:
        with self._lock:
            self._holders.discard(holder)
            if not self._holders:
                self._take_back()


class RestoringLock:
    """A lock for steps that are restored: no interrupt leaves it held for good, and no fork does.

    An interrupt may come between a block and its end, which leaves the lock held. The thread takes
    it again when the step runs again, and then lets go of it wholly. It cannot be taken twice.
    """

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            # The thread that held it is not in the forked process.
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        # RuntimeError: it is not held any more.
        with suppress(RuntimeError):
            while True:
                self._lock.release()
