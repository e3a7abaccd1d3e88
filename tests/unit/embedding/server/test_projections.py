"""Test projections that threads request, wait for or cancel, and one that cannot start."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from attnviz.embedding.projection import ProjectionSettings, project
from attnviz.embedding.projection_process import Job
from attnviz.embedding.server.projections import ProjectionJobs

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("openTSNE") is None, reason="openTSNE is not installed"
    ),
    # Even on a busy machine, only a test that hangs reaches this limit.
    pytest.mark.timeout(900),
]

SETTINGS = ProjectionSettings("tsne", perplexity=20)
Points = Callable[[], NDArray[np.float32]]


def head(seed: int, count: int = 200) -> Points:
    return lambda: np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)


@pytest.fixture
def running() -> Any:
    jobs = ProjectionJobs()
    yield jobs
    jobs.close()


class Waiter(threading.Thread):
    """A thread that waits for a projection and stores its result or error."""

    def __init__(self, running: ProjectionJobs, key: str, points: Points) -> None:
        super().__init__(daemon=True)
        self.job: Job | None = None
        self.error: RuntimeError | None = None
        self._asked = (running, key, points)
        self.start()
        while running.under_way(key) is None and self.is_alive():
            time.sleep(0.01)
        assert running.ask(key, points, SETTINGS).state == "running"

    def run(self) -> None:
        running, key, points = self._asked
        try:
            self.job = running.wait(key, points, SETTINGS)
        except RuntimeError as error:
            self.error = error


@pytest.mark.slow
def test_a_projection_continues_while_another_is_requested(
    running: ProjectionJobs,
) -> None:
    waiter = Waiter(running, "saved", head(1))
    while waiter.is_alive():
        other = running.ask("shown", head(2), SETTINGS)
        assert other.state in {"running", "done"}
        time.sleep(0.05)
    assert waiter.error is None
    assert waiter.job is not None
    assert waiter.job.state == "done"
    assert waiter.job.frame is not None
    # The result is the projection of the points of "saved", not of the points of "shown".
    assert_array_equal(waiter.job.frame.coordinates, project(head(1)(), SETTINGS))


def test_requests_of_one_projection_share_it(running: ProjectionJobs) -> None:
    def once() -> NDArray[np.float32]:
        raise AssertionError("the projection started twice")

    waiter = Waiter(running, "saved", head(1, 800))
    running.ask("shown", head(2, 800), SETTINGS)
    # Only one projection runs at a time: "shown" replaced "saved", and then the thread that waits
    # for "saved" requested "saved" again, which cancelled "shown".
    assert running.ask("saved", once, SETTINGS).state == "running"
    assert running.under_way("shown") is None
    running.cancel("saved")
    waiter.join()
    assert isinstance(waiter.error, RuntimeError)
    assert "method='tsne' was cancelled. Request it again" in str(waiter.error)


def test_a_projection_that_could_not_start_starts_on_the_next_request(
    running: ProjectionJobs,
) -> None:
    def full() -> NDArray[np.float32]:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        running.ask("head", full, SETTINGS)
    assert running.ask("head", head(1), SETTINGS).state == "running"
