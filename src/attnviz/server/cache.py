"""Cache with a limit in bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

_Value = TypeVar("_Value")


class ByteCache(Generic[_Value]):
    """Thread-safe cache with a maximum total size of its values, `max_bytes`.

    If the size is exceeded, the least recently used values are dropped. A value that alone exceeds
    the maximum is kept as the only value. `size` is a function that returns the size of a value in
    bytes.

    Examples
    --------
    >>> cache = ByteCache(10, len)
    >>> cache["a"], cache["b"] = "12345678", "1234"
    >>> cache.get("a"), cache.get("b")
    (None, '1234')
    """

    def __init__(self, max_bytes: int, size: Callable[[_Value], int]) -> None:
        self._lock = threading.Lock()
        # Count at most `max_bytes` for a value, because cachetools rejects larger values.
        self._values: LRUCache[Hashable, _Value] = LRUCache(
            max_bytes, lambda value: min(max_bytes, size(value))
        )

    @property
    def num_bytes(self) -> int:
        """Total size of the cached values in bytes, at most `max_bytes`.

        If a single value is larger than `max_bytes`, its size counts as `max_bytes`.
        """
        return int(self._values.currsize)

    def get(self, key: Hashable) -> _Value | None:
        """Return the value of `key`, or None if it is not cached."""
        with self._lock:
            return self._values.get(key)

    def __setitem__(self, key: Hashable, value: _Value) -> None:
        with self._lock:
            self._values[key] = value
