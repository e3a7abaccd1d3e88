"""Work in several threads keeps the order of items and restores torch's number of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from attnviz.utils import threads
from attnviz.utils.threads import map_ahead, map_threads, torch_threads


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def number_of_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def test_items_are_computed_in_one_thread_each_and_in_order() -> None:
    together = threading.Barrier(2, timeout=100)

    def make(number: int) -> tuple[int, int]:
        if number < 2:
            # The barrier opens only if two threads run at the same time.
            together.wait()
        return number, torch.get_num_threads()

    assert map_threads(make, 7) == [(number, 1) for number in range(7)]
    assert torch.get_num_threads() == 3
    # A new thread starts with the number of torch threads that was last set in any thread.
    assert number_of_a_new_thread() == 3


def test_other_threads_keep_the_usual_number_of_threads() -> None:
    with torch_threads(1):
        assert (torch.get_num_threads(), number_of_a_new_thread()) == (1, 3)
    with ThreadPoolExecutor(1) as pool:
        second = torch_threads(2)
        with torch_threads(1):
            pool.submit(second.__enter__).result()
        # `second` starts and ends last. Its end restores 3, the number before both contexts.
        pool.submit(second.__exit__, None, None, None).result()
        assert pool.submit(torch.get_num_threads).result() == 3
    assert (torch.get_num_threads(), number_of_a_new_thread()) == (3, 3)


def test_a_number_that_is_set_between_two_results_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    set_for_a_thread = threads._set_own_threads

    def set_late(count: int) -> None:
        # Delay the start of each thread. A thread that starts on demand would then start after the
        # first result.
        time.sleep(0.02)
        set_for_a_thread(count)

    monkeypatch.setattr(threads, "_set_own_threads", set_late)
    results = map_ahead(str, range(100))
    next(results)
    assert number_of_a_new_thread() == 3
    torch.set_num_threads(2)
    assert len(list(results)) == 99
    assert (torch.get_num_threads(), number_of_a_new_thread()) == (2, 2)


@pytest.mark.parametrize("count", [1, 5])
def test_an_error_is_raised_and_the_number_of_threads_restored(count: int) -> None:
    def fail(number: int) -> int:
        raise ValueError(f"number {number}")

    with pytest.raises(ValueError, match="number 0"):
        map_threads(fail, count)
    assert torch.get_num_threads() == 3
    with pytest.raises(KeyError), torch_threads(1):
        raise KeyError
    assert torch.get_num_threads() == 3


def test_items_are_consumed_on_demand() -> None:
    consumed: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            consumed.append(number)
            yield number

    results = map_ahead(str, items())
    assert next(results) == "0"
    assert len(consumed) < 10
    results.close()  # type: ignore[attr-defined]
    assert torch.get_num_threads() == 3
