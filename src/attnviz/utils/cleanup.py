"""Taking back what was changed for a while, also where an interrupt comes while that is done."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

__all__ = ["Cleanup", "SharedChange", "fork_safe_lock"]


class Cleanup(ExitStack):
    """Runs steps when its block ends, the last one first, also where one interrupt comes anywhere.

    Add a step before the change that it takes back. A step has to be right where nothing was
    changed yet, and where it has run in part or wholly: each runs twice, so that an interrupt in
    the first run does no harm. The block is entered twice, because Python may interrupt the first
    exit before it has begun.

    Examples
    --------
    >>> values = [1]
    >>> with Cleanup() as undo, undo:
    ...     undo.add(partial(values.__setitem__, 0, values[0]))
    ...     values[0] = 2
    >>> values
    [1]
    """

    def add(self, step: Callable[[], object]) -> None:
        """Have a step run when the block ends."""
        self.callback(step)
        self.callback(step)


def fork_safe_lock() -> threading.RLock:
    """Make a lock that other threads don't hold while a process forks.

    In the forked process there is no thread that could release it.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


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
        self._lock = fork_safe_lock()
        self._holders: set[object] = set()

    def hold(self, undo: Cleanup) -> None:
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
