"""Cleanup of temporary changes that is completed even if it is interrupted."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Cleanup(ExitStack):
    """Stack of cleanup steps that run when its ``with`` block ends, in reverse order.

    All steps are completed even if a KeyboardInterrupt arrives at any line. Each step runs twice:
    if the first run is interrupted, the second completes it. Add a step before the change that it
    reverts. Therefore a step must also be correct if the change has not been made, or if the step
    has already run, partly or completely. Enter the stack twice, as in the example: if an interrupt
    prevents the first exit from running all steps, the second exit runs the remaining steps.

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
        """Register a step that runs twice when the block ends."""
        self.callback(step)
        self.callback(step)


def fork_safe_lock() -> threading.RLock:
    """Return a lock that is never held by another thread when the process forks.

    If another thread held the lock, the lock could never be released in the forked process, because
    this thread does not exist there.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


class SharedChange:
    """Change of the whole process that several blocks of code may need at the same time.

    Each of these blocks holds the change. The change is reverted when the last block has ended.

    Parameters
    ----------
    apply, revert : callable
        Functions that make and revert the change. `apply` is called for each block, and `revert`
        after the last block. Both must be correct if they have already run, partly or completely.
    """

    def __init__(self, apply: Callable[[], object], revert: Callable[[], object]) -> None:
        self._apply = apply
        self._revert = revert
        self._lock = fork_safe_lock()
        self._holders: set[object] = set()

    def hold(self, undo: Cleanup) -> None:
        """Make the change and hold it until the block of `undo` ends. Any thread may call this."""
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


class SharedReplacement(SharedChange, Generic[_Value]):
    """Replacement of one value of the process, such as a method of a class.

    Parameters
    ----------
    read, write : callable
        Functions that return the value and set it.
    replace : callable
        Function that takes the value and returns the value to set.
    """

    def __init__(
        self,
        read: Callable[[], _Value],
        write: Callable[[_Value], object],
        replace: Callable[[_Value], _Value],
    ) -> None:
        super().__init__(self._set, self._restore)
        self._read, self._write, self._replace = read, write, replace
        # The value before the replacement, and the value that replaces it.
        self._values: tuple[_Value, _Value] | None = None

    def _set(self) -> None:
        value = self._read()
        if self._values is None or value is not self._values[1]:
            self._values = value, self._replace(value)
            self._write(self._values[1])

    def _restore(self) -> None:
        if self._values is not None:
            # Other code may have replaced the value in the meantime. Its value then stays.
            if self._read() is self._values[1]:
                self._write(self._values[0])
            self._values = None
