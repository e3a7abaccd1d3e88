"""Cache with a limit in bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

__all__ = ["ByteCache"]

_Value = TypeVar("_Value")


class ByteCache(Generic[_Value]):
    """Thread-safe cache that drops the least recently used values above `most_bytes`.

    The newest value is kept even if it alone exceeds the limit.

    Examples
    --------
    >>> cache = ByteCache(10, len)
    >>> cache["a"], cache["b"] = "12345678", "1234"
    >>> cache.get("a"), cache.get("b")
    (None, '1234')
    """

    def __init__(self, max_bytes: int, size: Callable[[_Value], int]) -> None:
        self._lock = threading.Lock()
        # cachetools refuses a value larger than the cache, so such a value counts as the limit.
        self._values: LRUCache[Hashable, _Value] = LRUCache(
            max_bytes, lambda value: min(max_bytes, size(value))
        )

    @property
    def num_bytes(self) -> int:
        """Size of the cached values in bytes."""
        return int(self._values.currsize)

    def get(self, key: Hashable) -> _Value | None:
        """Return the value of `key`, or None if it is not cached."""
        with self._lock:
            return self._values.get(key)

    def __setitem__(self, key: Hashable, value: _Value) -> None:
        with self._lock:
            self._values[key] = value
