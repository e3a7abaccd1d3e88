"""Work of many short operations, in which torch's own threads only wait for one another.

Where torch parts an operation among threads, all wait until the last has been given time. That is
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
    """Let torch part no operation among threads meanwhile.

    Examples
    --------
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def side_by_side(make: Callable[[int], _Made], count: int) -> list[_Made]:
    """Make something for each of the first numbers, each in one thread.

    Parameters
    ----------
    make : callable
        Is given 0, 1, ... and may be called in several threads at once.
    count : int
        How many.

    Returns
    -------
    list
        What it made, in order.

    Examples
    --------
    >>> side_by_side(lambda number: number**2, 4)
    [0, 1, 4, 9]
    """
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
        # What was said in the pool is also what threads that come later go by.
        torch.set_num_threads(threads)
