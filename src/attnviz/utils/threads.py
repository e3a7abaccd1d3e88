"""Threads of torch, and work that attnviz divides among threads itself.

When torch divides an operation among threads, all of them wait for the last one. On a busy machine
this wait is longer than a short operation: one second of work took up to a minute, and a matrix
product took ten times as long on two processors as on one. Threads that run separate operations do
not wait for each other.

torch stores the number of threads per thread. A thread that has not computed yet uses the number
that any thread set last. A number that attnviz sets temporarily must therefore not be the last one.
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

# Maximum number of threads in `map_threads`. Each may hold copies of a head's points.
_MAX_THREADS = 4
# Maximum number of threads in `map_ahead`. More threads wait for memory or for the consumer.
_MAX_AHEAD = 8
# Results per thread that wait for the consumer in `map_ahead`.
_MAX_WAITING = 2


@contextmanager
def torch_threads(count: int | None = None) -> Iterator[None]:
    """Set torch's number of threads for this thread, and restore the former number at the end.

    None sets no number. The former number is restored even then, because other libraries change it:
    numba's OpenMP layer sets it for all libraries that use OpenMP.
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
    """Set torch's number of threads for this thread, but not for threads that start later."""
    if torch.get_num_threads() == count:
        return
    inherited, changed = threading.Event(), threading.Event()

    def restore() -> None:
        inherited_count = torch.get_num_threads()
        inherited.set()
        changed.wait()
        torch.set_num_threads(inherited_count)

    with _setting:
        # `torch.set_num_threads` also sets the number that later threads inherit. The helper thread
        # inherits this number before the change, and sets it again after the change. This does not
        # affect the number of the current thread.
        helper = threading.Thread(target=restore, name="attnviz", daemon=True)
        helper.start()
        try:
            inherited.wait()
            torch.set_num_threads(count)
        finally:
            changed.set()
            helper.join()


def map_threads(make: Callable[[int], _Result], count: int) -> list[_Result]:
    """Return ``[make(0), ..., make(count - 1)]``, computed in several threads.

    torch computes with one thread in each of them.
    """
    workers = min(torch.get_num_threads(), count, _MAX_THREADS)
    if workers <= 1:
        with torch_threads(1):
            return [make(number) for number in range(count)]
    with ThreadPoolExecutor(workers, initializer=_set_own_threads, initargs=(1,)) as pool:
        return list(pool.map(make, range(count)))


def map_ahead(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield the function's result for each item in order, and compute a few results ahead.

    As many threads run as torch uses. An exception in a thread is raised in the caller.

    >>> list(map_ahead(lambda number: number**2, range(4)))
    [0, 1, 4, 9]
    """
    remaining = iter(items)
    first = list(islice(remaining, 2))
    workers = min(_MAX_AHEAD, torch.get_num_threads())
    # A short text has one tile, which takes less time than starting a thread.
    if workers == 1 or len(first) < 2:
        yield from map(function, chain(first, remaining))
        return
    waiting: deque[Future[_Result]] = deque()
    pool = _started_pool(workers)
    try:
        for item in chain(first, remaining):
            waiting.append(pool.submit(function, item))
            if len(waiting) >= _MAX_WAITING * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _started_pool(workers: int) -> ThreadPoolExecutor:
    """Return a pool whose threads have all started, with one torch thread each.

    A pool usually starts threads when items arrive, possibly between two results. Such a start
    could undo a number of threads that the caller of `map_ahead` sets in the meantime.
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
