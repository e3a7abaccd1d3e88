"""Computation in several threads, and the number of threads that torch uses.

When torch divides an operation among several threads, all of them wait for the slowest. On a busy
machine, this can take much longer than a short operation itself: one second of computation took up
to a minute, and a matrix product took ten times as long on two processors as on one. attnviz
therefore runs separate operations in separate threads, which do not wait for each other. In each of
these threads, torch uses a single thread.

`torch.set_num_threads` sets the number of threads for the calling thread. Each thread that later
calls torch for the first time gets the same number. If attnviz changes the number temporarily,
other threads must not get the temporary number.
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

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Maximum number of threads in `map_threads`, because each thread may need much memory.
_MAX_THREADS = 4
# Maximum number of threads in `map_ahead`. More threads would not be faster, because the memory
# bandwidth or the caller that processes the results limits the speed.
_MAX_AHEAD = 8
# Maximum number of results per thread that `map_ahead` computes before the caller requests them.
_MAX_WAITING = 2


@contextmanager
def torch_threads(count: int | None = None) -> Iterator[None]:
    """Set torch's number of threads for the current thread, and restore it when the block ends.

    If `count` is None, the number is only restored at the end of the block. This is necessary if
    another library changes the number in the block: numba's OpenMP layer sets the number for all
    libraries that use OpenMP.
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
        # `torch.set_num_threads` also sets the number that later threads inherit. A helper thread
        # inherits the former number before this call, and sets it again after the call. Later
        # threads then inherit the former number, and the current thread keeps the new one.
        helper = threading.Thread(target=restore, name="attnviz", daemon=True)
        helper.start()
        try:
            inherited.wait()
            torch.set_num_threads(count)
        finally:
            changed.set()
            helper.join()


def map_threads(make: Callable[[int], _Result], count: int) -> list[_Result]:
    """Return ``[make(0), ..., make(count - 1)]``, computed in at most four threads.

    During each call of `make`, torch uses a single thread.
    """
    workers = min(torch.get_num_threads(), count, _MAX_THREADS)
    if workers <= 1:
        with torch_threads(1):
            return [make(number) for number in range(count)]
    with ThreadPoolExecutor(workers, initializer=_set_own_threads, initargs=(1,)) as pool:
        return list(pool.map(make, range(count)))


def map_ahead(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield ``function(item)`` for each item, in order, computed in several threads.

    A few results are computed before the caller requests them. The number of threads is that of
    torch, but at most 8. An exception in a thread is raised in the caller.

    >>> list(map_ahead(lambda number: number**2, range(4)))
    [0, 1, 4, 9]
    """
    remaining = iter(items)
    first = list(islice(remaining, 2))
    workers = min(_MAX_AHEAD, torch.get_num_threads())
    # One thread, or one item, gains nothing from a pool. Starting threads would only take time.
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
    """Return a pool whose threads have all started. In each of them, torch uses a single thread.

    Normally, a pool starts each thread only when it gets an item. Each thread calls
    `torch.set_num_threads` at its start. If a thread started between two results of `map_ahead`,
    the caller could be changing torch's number of threads at the same time, and the two changes
    could interfere.
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
