"""Tiles of a long text computed in several threads, each by itself.

Threads that share one matrix product wait for each other at its end: on a busy machine of two
processors two of them took ten times as long as one. Threads that take a tile each do not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

import torch

__all__ = ["ahead"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# More threads wait for memory, and for the one that takes their results in.
_MOST_WORKERS = 8
# Results that wait to be taken in, for each thread.
_WAITING = 2


def ahead(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """A function's results of some items, in their order, a few of them computed ahead.

    In as many threads as torch takes for itself. What one of them raises is raised here.

    >>> list(ahead(lambda number: number**2, range(4)))
    [0, 1, 4, 9]
    """
    threads = torch.get_num_threads()
    left = iter(items)
    first = list(islice(left, 2))
    workers = min(_MOST_WORKERS, threads)
    # Of a short text there is one tile, and to start a thread takes longer.
    if workers == 1 or len(first) < 2:
        yield from map(function, chain(first, left))
        return
    waiting: deque[Future[_Result]] = deque()
    pool = ThreadPoolExecutor(workers, "attnviz", initializer=torch.set_num_threads, initargs=(1,))
    try:
        for item in chain(first, left):
            waiting.append(pool.submit(function, item))
            if len(waiting) >= _WAITING * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        # For threads that begin later; this one's own number did not change.
        torch.set_num_threads(threads)
