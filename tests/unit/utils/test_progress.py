"""Work in steps: progress bars, limited time, and the estimated remaining time."""

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
    """A progress bar that records its calls."""

    instances: list[Bar]

    def __init__(self, **options: Any) -> None:
        self.total, self.desc, self.n = options["total"], options["desc"], options["initial"]
        self.closed = False
        Bar.instances.append(self)

    def update(self, more: float) -> None:
        self.n += more

    def close(self) -> None:
        self.closed = True


def test_each_part_has_a_bar_that_closes_with_it() -> None:
    Bar.instances = []
    assert run_with_bar(counting({"first": 3, "second": 5}), "page", bar=Bar, after=0) == "done"
    assert [(bar.desc, bar.n, bar.total) for bar in Bar.instances] == [
        ("page: first", 3, 3),
        ("page: second", 5, 5),
    ]
    assert all(bar.closed for bar in Bar.instances)


def test_a_short_part_has_no_bar() -> None:
    Bar.instances = []
    parts = {"short": 1, "long": 9}
    assert run_with_bar(counting(parts), "page", bar=Bar, after=3, clock=Clock()) == "done"
    # Each call of the clock advances it, so the long part gets its bar at the fourth step.
    [bar] = Bar.instances
    assert (bar.desc, bar.n, bar.total, bar.closed) == ("page: long", 9, 9, True)


def test_an_interrupt_closes_the_bar() -> None:
    def interrupted() -> Steps[None]:
        yield Progress("first", 1, 2)
        raise KeyboardInterrupt

    Bar.instances = []
    with pytest.raises(KeyboardInterrupt):
        run_with_bar(interrupted(), "page", bar=Bar, after=0)
    assert Bar.instances[0].closed


def test_the_time_left_is_measured() -> None:
    clock = Clock()
    work = Work(counting({"first": 10}), clock)
    assert work.seconds_left is None
    work.run_for(0)
    assert work.seconds_left is None
    while not work.run_for(0):
        progress = work.progress
        assert progress is not None
        done, remaining = progress.done, work.seconds_left
        # One second for the clock's call after each step, and none between two requests.
        assert remaining == 10 - done
    assert work.result == "done"
