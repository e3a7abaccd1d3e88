"""Projections that take seconds, and their progress."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.embedding.projection import ProjectionSettings, missing_package

if TYPE_CHECKING:
    from attnviz.embedding.projection_process import Job

__all__ = ["ProjectionJobs", "Work"]

# Seconds between checks for an interrupt during a wait.
_LOOK_EVERY = 0.5
# Before the first frame, the plot shows the principal components.
_NO_FRAME_YET = "PCA, until the first frame arrives"
_CANCELLED = "Cancelled."

State = Literal["running", "failed", "cancelled", "done"]


@dataclass(frozen=True)
class Work:
    """State and progress of a projection.

    Attributes
    ----------
    state : {"running", "failed", "cancelled", "done"}
    done, num_total : int
        Number of completed steps, and of all steps. 0 if unknown.
    words : str
        Description for readers.
    """

    state: State
    done: int
    num_total: int
    words: str

    def header(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


class ProjectionJobs:
    """Run one projection at a time in a separate process, and report its progress.

    A request for another projection stops the running one, because the reader has moved to another
    head, unless a thread waits for it. Requesting the progress does not restart a cancelled or
    failed projection. Several threads may use this object: a page is built while the browser sends
    requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Jobs of the last request and of waiting threads. A `Work` explains a missing job.
        self._jobs: dict[Hashable, Job | Work] = {}
        self._awaited = Counter[Hashable]()

    def ask(
        self,
        key: Hashable,
        points: Callable[[], NDArray[np.float32]],
        settings: ProjectionSettings,
        *,
        restart: bool = False,
    ) -> tuple[NDArray[np.float32] | None, Work]:
        """Return the progress of a projection, and start it if it is not running.

        Parameters
        ----------
        key : hashable
            Key of the projection.
        points : callable
            Returns the points, float32, (points, head_dim).
        settings : ProjectionSettings
            Settings of the projection.
        restart : bool, default False
            Whether to start a cancelled or failed projection again.

        Returns
        -------
        coordinates : ndarray or None
            The newest frame, float32, (points, dimensions), or None.
        work : Work
            State and progress.
        """
        with self._lock:
            now = self._asked(key, points, settings, restart=restart)
        return _status(now)

    def wait(
        self,
        key: Hashable,
        points: Callable[[], NDArray[np.float32]],
        settings: ProjectionSettings,
        *,
        restart: bool = True,
    ) -> tuple[NDArray[np.float32], Work]:
        """Run a projection to its end.

        Returns
        -------
        coordinates : ndarray
            float32, (points, dimensions).
        work : Work
            Final state.

        Notes
        -----
        Projections that are requested during this call run in parallel.
        """
        missing = missing_package(settings.method)
        if missing is not None:
            raise ImportError(missing)
        with self._lock:
            job = self._asked(key, points, settings, restart=restart)
            if isinstance(job, Work):
                raise RuntimeError(job.words)
            self._awaited[key] += 1
        try:
            while job.wait(_LOOK_EVERY) == "running":
                pass
        except KeyboardInterrupt:
            job.cancel()
            raise
        finally:
            with self._lock:
                self._awaited[key] -= 1
        coordinates, work = _status(job)
        if work.state == "cancelled":
            raise RuntimeError(
                f"method={settings.method!r} was cancelled. Request it again to restart it."
            )
        if work.state != "done" or coordinates is None:
            raise RuntimeError(work.words)
        return coordinates, work

    def under_way(self, key: Hashable) -> tuple[NDArray[np.float32] | None, Work] | None:
        """Return the progress of the last requested or awaited projection, without starting one."""
        with self._lock:
            return _status(self._jobs[key]) if key in self._jobs else None

    def cancel(self, key: Hashable) -> None:
        """Stop a projection. Other projections continue."""
        with self._lock:
            self._end(key)

    def close(self) -> None:
        """Stop all projections."""
        with self._lock:
            for key in self._jobs:
                self._end(key)

    def _asked(
        self,
        key: Hashable,
        points: Callable[[], NDArray[np.float32]],
        settings: ProjectionSettings,
        *,
        restart: bool,
    ) -> Job | Work:
        """Return the job for `key` in any state, or start one. The caller holds the lock.

        End all other jobs for which no thread waits. With `restart`, start a cancelled or failed
        job again.
        """
        for other in [
            job_key for job_key in self._jobs if job_key != key and not self._awaited[job_key]
        ]:
            self._end(other)
            del self._jobs[other]
        if restart and key in self._jobs and self._jobs[key].state in {"cancelled", "failed"}:
            del self._jobs[key]
        if key not in self._jobs:
            # Stored only after it has started: a start without enough memory can be tried again.
            self._jobs[key] = _begun(points, settings)
        return self._jobs[key]

    def _end(self, key: Hashable) -> None:
        job = self._jobs.get(key)
        if job is not None and not isinstance(job, Work):
            job.cancel()


def _begun(points: Callable[[], NDArray[np.float32]], settings: ProjectionSettings) -> Job | Work:
    missing = missing_package(settings.method)
    if missing is not None:
        return Work("failed", 0, 0, missing)
    from attnviz.embedding.projection_process import Job

    try:
        return Job(points(), settings)
    # The picture shows the error, and the other methods of the view still work.
    except (OSError, ValueError) as error:
        return Work("failed", 0, 0, str(error))


def _status(job: Job | Work) -> tuple[NDArray[np.float32] | None, Work]:
    if isinstance(job, Work):
        return None, job
    # Read the state first: a frame that is newer than the state is harmless, an older one is not.
    state, frame = job.state, job.frame
    words = job.problem or ("" if frame is None else frame.words)
    if state == "cancelled":
        words = f"{_CANCELLED} {words}".rstrip()
    if frame is None:
        return None, Work(state, 0, 0, words or _NO_FRAME_YET)
    return frame.coordinates, Work(state, frame.done, frame.num_total, words)
