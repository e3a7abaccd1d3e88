"""Layouts that are computed in a process of their own, so that the kernel stays free meanwhile."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.embedding.projection import (
    Frame,
    ProjectionSettings,
    as_points,
    missing_package,
    project,
    space_of,
)
from attnviz.embedding.projection_process import ProjectionFolder

__all__ = ["Job", "Projector", "State"]

State = Literal["running", "done", "failed", "cancelled"]

_PROCESS = "attnviz.embedding.projection_process"
# A process that is killed is gone at once, unless its disk does not answer.
_PATIENCE_S = 10.0


class Job:
    """A layout that was asked for, made by `Projector.start`; for use from any thread."""

    def __init__(self, settings: ProjectionSettings) -> None:
        self.settings = settings
        #: Why it failed, for readers; None as long as it did not.
        self.problem: str | None = None
        self._state: State = "running"
        self._frame: Frame | None = None
        self._folder: ProjectionFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def state(self) -> State:
        """``"running"``, ``"done"``, ``"failed"`` or ``"cancelled"``."""
        return self._state

    def latest(self) -> Frame | None:
        """The newest frame: the result where the job is done; None where there is none yet."""
        with self._lock:
            if self._state == "running" and self._folder is not None:
                self._frame = self._folder.read_frame() or self._frame
            return self._frame

    def wait(self, seconds: float | None = None) -> State:
        """Wait, not longer than `seconds`, until nothing is left of it but the result."""
        self._ended.wait(seconds)
        return self._state

    def cancel(self) -> None:
        """End it at once, if it still runs; its last frame stays."""
        with self._lock:
            # Of a process that was forked off this one the job is not.
            if self._state != "running" or self._process is None or os.getpid() != self._owner:
                return
            self._state = "cancelled"
            self._process.kill()
        self._ended.wait(_PATIENCE_S)

    def _finish(self, frame: Frame) -> None:
        self._frame, self._state = frame, "done"
        self._ended.set()

    def _run(self, folder: ProjectionFolder) -> None:
        """Start the process, and a thread that waits for its end."""
        with folder.errors.open("wb") as errors:
            process = subprocess.Popen(  # noqa: S603 - this Python, with a module of this package
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "attnviz.embedding.projection_process",
                    str(folder.path),
                ],
                # Nothing is written to it: that it ends tells the process that this one is gone.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(_paths()),
                    # Threads that spin while they wait for each other take what others need: beside
                    # other work a layout is sooner there without, and the kernel too.
                    "OMP_WAIT_POLICY": "PASSIVE",
                },
                # An interrupt of a notebook's cell means the cell.
                start_new_session=True,
            )
        self._process, self._folder = process, folder
        _RUNNING.add(self)

        def attend() -> None:
            with process:
                self._end(process.wait(), folder)

        threading.Thread(target=attend, name="attnviz-projection", daemon=True).start()

    def _end(self, code: int, folder: ProjectionFolder) -> None:
        frame = folder.read_frame()
        done = code == 0 and frame is not None and frame.final
        with self._lock:
            self._frame = frame or self._frame
            if self._state == "running":
                self._state = "done" if done else "failed"
                self.problem = None if done else _why(code, folder)
        shutil.rmtree(folder.path, ignore_errors=True)
        _RUNNING.discard(self)
        self._ended.set()


class Projector:
    """Runs one layout at a time in a separate process."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._key: str | None = None

    def start(self, points: NDArray[Any], settings: ProjectionSettings) -> Job:
        """Lay points out, float32, (points, dimensions); principal components here and now.

        Returns the running job if it has the same points and settings, and cancels any other job
        of this projector. Raises as `project` does, and OSError if no process can be started or no
        folder can be made.
        """
        if not isinstance(settings, ProjectionSettings):
            raise TypeError(f"settings must be ProjectionSettings; got {type(settings).__name__}")
        missing = missing_package(settings.method)
        if missing:
            raise ImportError(missing)
        rows = as_points(points)
        space_of(rows, settings.metric)
        key = hashlib.sha256(repr(settings).encode() + rows.tobytes()).hexdigest()
        if self._job is not None and self._key == key and self._job.state == "running":
            return self._job
        self.close()
        self._job, self._key = self._started(rows, settings), key
        return self._job

    def close(self) -> None:
        """Cancel what runs."""
        if self._job is not None:
            self._job.cancel()

    def _started(self, points: NDArray[np.float32], settings: ProjectionSettings) -> Job:
        job = Job(settings)
        if settings.method == "pca":
            project(points, settings, frame=job._finish)
            return job
        folder = ProjectionFolder(Path(tempfile.mkdtemp(prefix="attnviz-projection-")))
        try:
            folder.write_request(points, settings)
            job._run(folder)
        except BaseException:
            # Only this one: whatever is in the way of removing it, the error is to be told.
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        return job


_RUNNING: set[Job] = set()


@atexit.register
def _end_all() -> None:
    for job in list(_RUNNING):
        job.cancel()


def _paths() -> list[str]:
    """Where the process finds its modules: where this one does, relative names excepted."""
    own = str(Path(__file__).parents[2])
    paths = [path for path in sys.path if Path(path).is_absolute()]
    return paths if own in paths else [*paths, own]


def _why(code: int, folder: ProjectionFolder) -> str:
    with suppress(OSError, ValueError):
        problem = folder.read_problem()
        if problem:
            return problem
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        why = f"it was ended by the signal {name}"
        if name == "SIGKILL":
            why += ", as happens where memory runs out: take fewer points"
    else:
        why = f"it ended with code {code}"
        last = folder.last_error()
        if last:
            why += f" ({last})"
    return f"the process that lays the points out stopped: {why}"
