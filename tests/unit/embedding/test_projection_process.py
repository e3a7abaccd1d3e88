"""A separate process computes a layout of points, and can be cancelled, fail or be killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from attnviz.embedding import projection_process
from attnviz.embedding.projection import ProjectionSettings, project
from attnviz.embedding.projection_process import Job
from unit.clusters import clusters

# Even on a busy machine, only a test that hangs reaches this limit.
pytestmark = pytest.mark.timeout(900)

MAX_SECONDS = 600

POINTS, _ = clusters(25)
TSNE = ProjectionSettings("tsne", perplexity=10)
# A layout of `MANY` with the settings `LONG` takes minutes.
MANY = clusters(2000)[0]
LONG = ProjectionSettings("tsne", dimensions=3)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Set a folder for temporary files. Assert that no file or process is left after the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    # With None, `Job.cancel` waits for the end of the process without a time limit.
    monkeypatch.setattr(projection_process, "_PATIENCE_S", None)
    yield folder
    assert list(folder.iterdir()) == []
    assert processes() == []


def processes(parent: int | None = None) -> list[psutil.Process]:
    matching = []
    for child in psutil.Process(parent).children():
        try:
            if "attnviz.embedding.projection_process" in child.cmdline():
                matching.append(child)
        except psutil.NoSuchProcess:
            continue
    return matching


def until(condition: Callable[[], Any]) -> Any:
    """Wait until `condition` returns a true value, and return that value."""
    end = time.monotonic() + MAX_SECONDS
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.02)
    return value


def is_gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def running() -> tuple[Job, psutil.Process]:
    job = Job(MANY, LONG)
    until(lambda: job.frame is not None or job.state != "running")
    assert job.state == "running", job.problem
    (process,) = processes()
    return job, process


@pytest.mark.slow
def test_the_process_returns_the_result_of_project() -> None:
    job = Job(POINTS, TSNE)
    assert job.wait() == "done", job.problem
    assert job.problem is None
    frame = job.frame
    assert frame is not None
    assert (frame.final, frame.done, frame.num_total, frame.words) == (True, 750, 750, "t-SNE")
    assert np.array_equal(frame.coordinates, project(POINTS, TSNE))


@pytest.mark.slow
def test_frames_arrive_until_the_job_is_cancelled(temporary: Path) -> None:
    job, process = running()
    first = job.frame
    assert first is not None
    assert first.coordinates.shape == (8000, 3)
    assert not first.final
    later = until(lambda: (frame := job.frame) and frame.done > first.done and frame)
    assert later.words == f"t-SNE, iteration {later.done} of 750"
    job.cancel()
    # Cancelling removes files and process at once, long before the layout is complete.
    assert list(temporary.iterdir()) == []
    assert is_gone(process)
    assert job.state == job.wait(0) == "cancelled"
    assert job.problem is None
    frame = job.frame
    assert frame is not None
    assert not frame.final


@pytest.mark.slow
def test_a_killed_process_is_reported() -> None:
    job, process = running()
    process.kill()
    assert job.wait() == "failed"
    assert job.problem is not None
    assert "ended by the signal SIGKILL, as happens when memory runs out" in job.problem


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("openTSNE", "RuntimeError: broken by hand"),
        # The process fails while it imports NumPy.
        ("numpy", "projection process stopped.*ended with code 1 .RuntimeError: broken by hand"),
    ],
)
def test_an_error_in_the_process_is_reported(
    module: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    code = 'raise RuntimeError("broken by hand")'
    (tmp_path / "broken" / f"{module}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "broken"))
    job = Job(POINTS, TSNE)
    assert job.wait() == "failed"
    assert re.search(problem, job.problem or "")


# Code of a process that starts a layout, prints "running" and waits for a signal. The code
# sets a handler of SIGINT, because a process in the background ignores SIGINT by default.
PARENT = """
import signal, sys, tempfile, time
import numpy as np
from attnviz.embedding.projection import ProjectionSettings
from attnviz.embedding.projection_process import Job

signal.signal(signal.SIGINT, signal.default_int_handler)
tempfile.tempdir = sys.argv[1]
points = np.random.default_rng(0).normal(size=(8000, 16)).astype(np.float32)
job = Job(points, ProjectionSettings("tsne", dimensions=3))
while job.frame is None:
    assert job.state == "running", job.problem
    time.sleep(0.02)
print("running", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_parent_ends(sent: signal.Signals, temporary: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, temporary],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "running\n"
        [child] = processes(parent.pid)
        parent.send_signal(sent)
        assert parent.wait() == -sent
    until(lambda: is_gone(child))
    until(lambda: not list(temporary.iterdir()))
