"""Tiles computed in several threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import torch

from attnviz.pages.threads import ahead
from unit.torch_threads import torch_threads

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    with torch_threads(2):
        yield


def name_and(number: int) -> tuple[str, int]:
    return threading.current_thread().name, number


@pytest.mark.parametrize(("count", "own"), [(0, True), (1, True), (2, False), (9, False)])
def test_one_item_is_not_worth_a_thread(count: int, own: bool) -> None:
    found = list(ahead(name_and, iter(range(count))))
    assert [number for _, number in found] == list(range(count))
    assert all((name == threading.current_thread().name) == own for name, _ in found)
    assert torch.get_num_threads() == 2


def test_items_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = ahead(name_and, items())
    assert next(results)[1] == 0
    assert len(taken) < 10
    results.close()  # type: ignore[attr-defined]
    assert torch.get_num_threads() == 2
