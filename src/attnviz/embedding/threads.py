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

__all__ = ["one_thread", "side_by_side"]

_Made = TypeVar("_Made")

# Each may hold copies of a head's points.
_MOST_THREADS = 4


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch run every operation in one thread meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def side_by_side(make: Callable[[int], _Made], count: int) -> list[_Made]:
    """``[make(0), make(1), ...]``, `count` of them, several at once, each in one thread."""
    threads = torch.get_num_threads()
    if min(threads, count) <= 1:
        with one_thread():
            return [make(number) for number in range(count)]
    pool = ThreadPoolExecutor(
        min(threads, count, _MOST_THREADS), initializer=torch.set_num_threads, initargs=(1,)
    )
    try:
        with pool:
            return list(pool.map(make, range(count)))
    finally:
        # The number that was set in the pool also holds for threads that start later.
        torch.set_num_threads(threads)
