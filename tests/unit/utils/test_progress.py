"""Tests of the progress bars and of the estimated remaining time of work in steps."""

from __future__ import annotations

from typing import Any

import pytest

from attnviz.utils.progress import Progress, Steps, Work, run_with_bar


def counting(parts: dict[str, int]) -> Steps[str]:
    for doing, total in parts.items():
        for done in range(total + 1):
            yield Progress(doing, done, total)
    return "done"


class Clock:
    """A clock that advances by one second with each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class Bar:
    """A fake progress bar that adds the numbers passed to `update`."""

    instances: list[Bar]

    def __init__(self, **options: Any) -> None:
        self.total, self.desc, self.n = options["total"], options["desc"], options["initial"]
        self.closed = False
        Bar.instances.append(self)

    def update(self, more: float) -> None:
        self.n += more

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def no_bars() -> None:
    Bar.instances = []


def test_each_part_that_takes_long_has_a_bar_that_closes_with_it() -> None:
    parts = {"first": 8, "short": 1, "last": 9}
    # Each step takes one second of the clock, so "short" ends before a bar appears.
    assert run_with_bar(counting(parts), "page", bar=Bar, after=3, clock=Clock()) == "done"
    assert [(bar.desc, bar.n, bar.total, bar.closed) for bar in Bar.instances] == [
        ("page: first", 8, 8, True),
        ("page: last", 9, 9, True),
    ]


def test_an_interrupt_closes_the_bar() -> None:
    def interrupted() -> Steps[None]:
        yield Progress("first", 1, 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_with_bar(interrupted(), "page", bar=Bar, after=0)
    assert Bar.instances[0].closed


def test_the_remaining_time_is_estimated_from_the_steps_so_far() -> None:
    work = Work(counting({"first": 10}), Clock())
    work.run_for(0)
    assert work.seconds_left is None
    while not work.run_for(0):
        progress = work.progress
        assert progress is not None
        # Each step takes one second of the clock.
        assert work.seconds_left == 10 - progress.done
    assert work.result == "done"
