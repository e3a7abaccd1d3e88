"""Tests of progress bars, of jobs that can be paused, and of the estimated remaining time."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from attnviz.utils.progress import Cancelled, Job, part_of, report, show_progress


def count(parts: dict[str, int]) -> str:
    for doing, total in parts.items():
        for done in range(total + 1):
            report(doing, done, total)
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
def fake_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    Bar.instances = []
    monkeypatch.setattr("attnviz.utils.bars.Bar", Bar)
    monkeypatch.setattr("attnviz.utils.progress._SECONDS_WITHOUT_BAR", 0)


def test_each_part_that_takes_long_has_a_bar_that_closes_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = {"first": 8, "short": 1, "last": 9}
    # Each step takes one second of the clock, so "short" ends before a bar appears.
    monkeypatch.setattr("attnviz.utils.progress._SECONDS_WITHOUT_BAR", 3)
    monkeypatch.setattr("attnviz.utils.progress.time", SimpleNamespace(perf_counter=Clock()))
    with show_progress("page"):
        count(parts)
    assert [(bar.desc, bar.n, bar.total, bar.closed) for bar in Bar.instances] == [
        ("page: first", 8, 8, True),
        ("page: last", 9, 9, True),
    ]


def test_an_interrupt_closes_the_bar() -> None:
    def interrupted() -> None:
        with show_progress("page"):
            report("first", 1, 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert Bar.instances[0].closed


def test_only_the_outer_block_shows_bars() -> None:
    with show_progress("page"), show_progress("table"):
        report("first", 1, 2)
    assert [bar.desc for bar in Bar.instances] == ["page: first"]


def test_a_part_reports_the_progress_of_the_whole() -> None:
    job = Job(lambda: count_layers(2))
    seen = []
    while not job.run_for(0):
        assert job.progress is not None
        seen.append((job.progress.doing, job.progress.done, job.progress.total))
    # Each layer reports three times in each of two parts. From one part to the next, the progress
    # does not decrease.
    assert seen == [("layers", done, 2) for done in (0, 0.5, 1, 1, 1, 1, 1, 1.5, 2, 2, 2, 2)]


def count_layers(layers: int) -> None:
    for layer in range(layers):
        with part_of("layers", layer, layers):
            count({"first": 2, "second": 2})


def test_the_remaining_time_is_estimated_from_the_reports_so_far() -> None:
    job = Job(lambda: count({"first": 10}), Clock())
    job.run_for(0)
    assert job.seconds_left is None
    while not job.run_for(0):
        progress = job.progress
        assert progress is not None
        # Each step takes one second of the fake clock.
        assert job.seconds_left == 10 - progress.done
    assert job.result == "done"


def test_a_job_runs_only_while_the_caller_waits() -> None:
    steps: list[int] = []

    def work() -> None:
        for step in range(3):
            steps.append(step)
            report("steps", step, 3)

    job = Job(work)
    assert not job.run_for(0)
    # Other threads may run during this pause, but the job must not.
    time.sleep(0.05)
    assert steps == [0]
    assert not job.run_for(0)
    assert steps == [0, 1]


def test_a_job_sees_the_context_of_its_caller() -> None:
    name = ContextVar("name", default="")
    name.set("caller")
    job = Job(name.get)
    assert job.run_for(0)
    assert job.result == "caller"


def test_a_cancelled_job_cleans_up_and_ends() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            report("first", 1, 2)
        except Cancelled as error:
            caught.append(error)
            raise

    before = threading.active_count()
    job = Job(work)
    job.run_for(0)
    assert threading.active_count() == before + 1
    job.cancel()
    assert len(caught) == 1
    assert threading.active_count() == before


def test_an_exception_of_a_job_is_raised_in_the_caller() -> None:
    def work() -> None:
        report("first", 1, 2)
        raise ValueError("wrong")

    job = Job(work)
    assert not job.run_for(0)
    with pytest.raises(ValueError, match="wrong"):
        job.run_for(0)


def test_an_interrupt_of_the_caller_interrupts_the_job() -> None:
    # Set Python's own handler, because another test in this process may have changed it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)


def assert_interrupted() -> None:
    ended: list[BaseException] = []
    main_thread = threading.get_ident()

    def work() -> None:
        # Interrupt the main thread, which waits for this job.
        signal.pthread_kill(main_thread, signal.SIGINT)
        try:
            while True:
                time.sleep(0.001)
        except KeyboardInterrupt as error:
            ended.append(error)
            raise

    with pytest.raises(KeyboardInterrupt):
        Job(work).run_for(0)
    assert len(ended) == 1


def test_python_exits_although_a_job_is_paused() -> None:
    code = """
from attnviz.utils.progress import Job, report
job = Job(lambda: report("first", 1, 2))
assert not job.run_for(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
