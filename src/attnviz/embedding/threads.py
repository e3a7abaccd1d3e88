"""Work of many short operations, in which torch's own threads only wait for one another.

Where torch divides an operation among threads, all wait until the last has been given time. That is
longer than a short operation takes as soon as the machine has anything else to do: a second of work
has been seen to take a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

__all__ = ["one_thread", "same_threads", "side_by_side"]

_Made = TypeVar("_Made")

# Each may hold copies of a head's points.
_MOST_THREADS = 4


@contextmanager
def same_threads() -> Iterator[None]:
    """Leave torch as many threads as it has now, whatever other libraries do meanwhile.

    numba's layer of OpenMP threads sets the number for all libraries that use OpenMP.
    """
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch run every operation in one thread meanwhile."""
    with same_threads():
        torch.set_num_threads(1)
        yield


def side_by_side(make: Callable[[int], _Made], count: int) -> list[_Made]:
    """``[make(0), make(1), ...]``, `count` of them, several at once, each in one thread."""
    workers = min(torch.get_num_threads(), count, _MOST_THREADS)
    if workers <= 1:
        with one_thread():
            return [make(number) for number in range(count)]
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    # The number that is set in the pool also holds for threads that start later.
    with same_threads(), pool:
        return list(pool.map(make, range(count)))
