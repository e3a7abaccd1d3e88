"""What was computed for somebody and may be asked for again, as far as there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["KeptAnswers"]

_Value = TypeVar("_Value")


class KeptAnswers(Generic[_Value]):
    """Values by key, of which those that were not asked for lately are forgotten.

    Several threads may use it at once: a page is made while the browser asks.

    Parameters
    ----------
    most_bytes : int
        What all may take together. The newest is kept even where it alone takes more.
    size : callable
        Bytes that a value takes.

    Examples
    --------
    >>> kept = KeptAnswers(10, len)
    >>> kept["a"], kept["b"] = "12345678", "1234"
    >>> kept.get("a"), kept.get("b")
    (None, '1234')
    """

    def __init__(self, most_bytes: int, size: Callable[[_Value], int]) -> None:
        self._most = most_bytes
        self._size = size
        self._bytes = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """Bytes that are kept."""
        return self._bytes

    def get(self, key: Hashable) -> _Value | None:
        """What is kept under a key.

        Parameters
        ----------
        key : hashable
            Any.

        Returns
        -------
        object or None
            None where nothing is.
        """
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def __setitem__(self, key: Hashable, value: _Value) -> None:
        with self._lock:
            if key in self._values:
                self._bytes -= self._size(self._values.pop(key))
            self._values[key] = value
            self._bytes += self._size(value)
            while self._bytes > self._most and len(self._values) > 1:
                _, oldest = self._values.popitem(last=False)
                self._bytes -= self._size(oldest)
