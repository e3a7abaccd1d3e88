"""Layouts in a separate process: results, frames, cancelling, crashes and cleanup."""

from __future__ import annotations

import os
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

# A limit for tests that hang. Every test waits for its result, even on a busy machine.
pytestmark = pytest.mark.timeout(900)

MAX_SECONDS = 600

POINTS, _ = clusters(25)
TSNE = ProjectionSettings("tsne", perplexity=10)
# Takes minutes unless it is ended.
MANY = clusters(2000)[0]
LONG = ProjectionSettings("tsne", dimensions=3)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Set a folder for temporary files, and assert that it is empty after the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    # The end of a process is awaited, so that a test sees it.
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
    """Wait until the function returns a true value, and return this value."""
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
    # Cancelling removes everything at once, long before the layout is complete.
    assert list(temporary.iterdir()) == []
    assert is_gone(process)
    assert job.state == job.wait(0) == "cancelled"
    assert job.problem is None
    frame = job.frame
    assert frame is not None
    assert not frame.final
    job.cancel()
    assert job.state == "cancelled"


@pytest.mark.slow
def test_a_killed_process_is_reported() -> None:
    job, process = running()
    process.kill()
    assert job.wait() == "failed"
    assert job.problem is not None
    assert "ended by the signal SIGKILL, as happens when memory runs out" in job.problem


def test_an_error_in_the_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken" / "openTSNE"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text('raise RuntimeError("broken by hand")', encoding="utf-8")
    monkeypatch.syspath_prepend(str(broken.parent))
    job = Job(POINTS, TSNE)
    assert job.wait() == "failed"
    assert job.problem == "RuntimeError: broken by hand"


def test_a_process_that_fails_to_start_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "numpy.py").write_text('raise RuntimeError("no numpy")', encoding="utf-8")
    monkeypatch.syspath_prepend(str(broken))
    job = Job(POINTS, TSNE)
    assert job.wait() == "failed"
    assert job.problem is not None
    assert "ended with code 1 (RuntimeError: no numpy)" in job.problem
    # The process started but did not find what it needs.
    assert "projection process stopped" in job.problem


def test_a_process_that_cannot_be_started_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        Job(POINTS, TSNE)


# This process forks once for each way to end, so that the libraries are loaded once. It reads the
# folder for temporary files and the way to end, one per line. It prints the id of the process that
# started a layout, and later its exit code. It sets the handler of SIGINT, because a background
# process inherits an ignored one.
PARENTS = """
import os, signal, sys, tempfile, time
import numpy as np
from attnviz.embedding.projection import ProjectionSettings
from attnviz.embedding.projection_process import Job

signal.signal(signal.SIGINT, signal.default_int_handler)
for folder in sys.stdin:
    end = sys.stdin.readline()
    if not os.fork():
        break
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
else:
    os._exit(0)
tempfile.tempdir = folder.rstrip()
points = np.random.default_rng(0).normal(size=(8000, 16))
job = Job(points, ProjectionSettings("tsne", dimensions=3))
while job.frame is None:
    assert job.state == "running", job.problem
    time.sleep(0.02)
print(os.getpid(), flush=True)
exec(end)
"""


@pytest.fixture(scope="module")
def parents() -> Iterator[subprocess.Popen[str]]:
    """Yield the process that forks the parents of layouts."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENTS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "line", "code"),
    [
        ("killed", "time.sleep(600)", -signal.SIGKILL),
        ("returns", "pass", 0),
        ("raises", "raise SystemExit(3)", 3),
        ("interrupted", "time.sleep(600)", -signal.SIGINT),
    ],
    ids=["killed", "returns", "raises", "interrupted"],
)
def test_nothing_is_left_when_the_parent_ends(
    end: str, line: str, code: int, parents: subprocess.Popen[str], temporary: Path
) -> None:
    assert parents.stdin is not None
    assert parents.stdout is not None
    parents.stdin.write(f"{temporary}\n{line}\n")
    parents.stdin.flush()
    parent = int(parents.stdout.readline())
    # A parent that exits normally may be gone already.
    children = processes(parent) if end in ("killed", "interrupted") else []
    if end == "killed":
        os.kill(parent, signal.SIGKILL)
    elif end == "interrupted":
        os.kill(parent, signal.SIGINT)
    assert len(children) == (1 if end in ("killed", "interrupted") else 0)
    assert int(parents.stdout.readline()) == code
    until(lambda: all(map(is_gone, children)))
    until(lambda: not list(temporary.iterdir()))
