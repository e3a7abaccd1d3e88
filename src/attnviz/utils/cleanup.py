"""Cleanup of temporary changes, which is complete even if it is interrupted."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

__all__ = ["Cleanup", "SharedChange", "fork_safe_lock"]


class Cleanup(ExitStack):
    """Stack of cleanup steps that run when its block ends, the last one first.

    The steps run even if one interrupt (KeyboardInterrupt) arrives at any line. Add a step before
    the change that it reverts. Each step runs twice, so that an interrupt in the first run does no
    harm. A step must therefore be correct if nothing has changed yet, and if it has run before,
    partly or completely. Enter the block twice, because Python may interrupt the first exit before
    it begins.

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
        """Register a step that runs when the block ends."""
        self.callback(step)
        self.callback(step)


def fork_safe_lock() -> threading.RLock:
    """Return a lock that no other thread holds while the process forks.

    The forked process has no thread that could release the lock.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


class SharedChange:
    """Change of the whole process: the first holder makes it, the last one reverts it.

    Parameters
    ----------
    apply, revert : callable
        Both must be correct if they have run before, partly or completely.
    """

    def __init__(self, apply: Callable[[], object], revert: Callable[[], object]) -> None:
        self._apply = apply
        self._revert = revert
        self._lock = fork_safe_lock()
        self._holders: set[object] = set()

    def hold(self, undo: Cleanup) -> None:
        """Hold the change until the block of `undo` ends. Any thread may call this."""
        holder = object()
        undo.add(partial(self._release, holder))
        with self._lock:
            self._holders.add(holder)
            self._apply()

    def _release(self, holder: object) -> None:
        with self._lock:
            self._holders.discard(holder)
            if not self._holders:
                self._revert()
