"""A cache with a bound in bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

__all__ = ["ByteCache"]

_Value = TypeVar("_Value")


class ByteCache(Generic[_Value]):
    """Values by key, of which the least recently used are dropped; for several threads at once.

    The newest value stays even where it alone takes more than `most_bytes`.

    Examples
    --------
    >>> cache = ByteCache(10, len)
    >>> cache["a"], cache["b"] = "12345678", "1234"
    >>> cache.get("a"), cache.get("b")
    (None, '1234')
    """

    def __init__(self, most_bytes: int, size: Callable[[_Value], int]) -> None:
        self._lock = threading.Lock()
        # What is larger than the cache counts as all of it, which cachetools would refuse.
        self._values: LRUCache[Hashable, _Value] = LRUCache(
            most_bytes, lambda value: min(most_bytes, size(value))
        )

    @property
    def num_bytes(self) -> int:
        """Bytes that are cached."""
        return int(self._values.currsize)

    def get(self, key: Hashable) -> _Value | None:
        """What is cached under a key; None where nothing is."""
        with self._lock:
            return self._values.get(key)

    def __setitem__(self, key: Hashable, value: _Value) -> None:
        with self._lock:
            self._values[key] = value
