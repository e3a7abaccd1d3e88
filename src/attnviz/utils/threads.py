"""How many threads torch takes, and work that is divided among threads by attnviz itself.

Where torch divides an operation among threads, all wait until the last has been given time. That is
longer than a short operation takes as soon as the machine has anything else to do: a second of work
has been seen to take a minute, and a matrix product on two processors ten times as long as on one.
Threads that each have an operation of their own do not wait for each other.

torch keeps a number for each thread. A thread that has not computed yet takes the number that was
set last, in any thread. So a number that attnviz sets for a while must not be the last one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import TypeVar

import torch

from attnviz.utils.cleanup import fork_safe_lock

__all__ = ["map_ahead", "map_threads", "torch_threads"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Side by side, where each may hold copies of a head's points.
_MOST_THREADS = 4
# Ahead: more threads wait for memory, and for the one that takes their results in.
_MOST_AHEAD = 8
# Results that wait to be taken in, for each thread.
_WAITING = 2


@contextmanager
def torch_threads(count: int | None = None) -> Iterator[None]:
    """Set how many threads torch takes for this thread, and set the former number at the end.

    None sets no number. Other libraries may change it: numba's layer of OpenMP threads sets it for
    all libraries that use OpenMP.
    """
    before = torch.get_num_threads()
    try:
        if count is not None:
            _set_own_threads(count)
        yield
    finally:
        _set_own_threads(before)


_setting = fork_safe_lock()


def _set_own_threads(count: int) -> None:
    """Set torch's number of threads for this thread, and for no thread that starts later."""
    if torch.get_num_threads() == count:
        return
    known, changed = threading.Event(), threading.Event()

    def keep() -> None:
        usual = torch.get_num_threads()
        known.set()
        changed.wait()
        torch.set_num_threads(usual)

    with _setting:
        # A new thread knows the number of threads that start later, and can set it again without
        # changing that of this thread.
        keeper = threading.Thread(target=keep, name="attnviz", daemon=True)
        keeper.start()
        try:
            known.wait()
            torch.set_num_threads(count)
        finally:
            changed.set()
            keeper.join()


def map_threads(make: Callable[[int], _Result], count: int) -> list[_Result]:
    """``[make(0), make(1), ...]``, `count` of them, several at once, each in one thread."""
    workers = min(torch.get_num_threads(), count, _MOST_THREADS)
    if workers <= 1:
        with torch_threads(1):
            return [make(number) for number in range(count)]
    with ThreadPoolExecutor(workers, initializer=_set_own_threads, initargs=(1,)) as pool:
        return list(pool.map(make, range(count)))


def map_ahead(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """A function's results of some items, in their order, a few of them computed ahead.

    In as many threads as torch takes for itself. What one of them raises is raised here.

    >>> list(map_ahead(lambda number: number**2, range(4)))
    [0, 1, 4, 9]
    """
    left = iter(items)
    first = list(islice(left, 2))
    workers = min(_MOST_AHEAD, torch.get_num_threads())
    # Of a short text there is one tile, and to start a thread takes longer.
    if workers == 1 or len(first) < 2:
        yield from map(function, chain(first, left))
        return
    waiting: deque[Future[_Result]] = deque()
    pool = _started_pool(workers)
    try:
        for item in chain(first, left):
            waiting.append(pool.submit(function, item))
            if len(waiting) >= _WAITING * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _started_pool(workers: int) -> ThreadPoolExecutor:
    """A pool whose threads have all started, each set to compute in one thread.

    A pool would start them as items come, between two results too. A number of threads that the
    caller of `map_ahead` sets there could then be undone by a thread that starts at that moment.
    """
    started = threading.Barrier(workers)
    pool = ThreadPoolExecutor(workers, "attnviz", initializer=_set_own_threads, initargs=(1,))
    try:
        for start in [pool.submit(started.wait) for _ in range(workers)]:
            start.result()
    except BaseException:
        started.abort()
        pool.shutdown(cancel_futures=True)
        raise
    return pool
