"""t-SNE and UMAP in the background, with their progress."""

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

# Seconds for which a thread waits at a time. In between, Python can raise KeyboardInterrupt.
_LOOK_EVERY = 0.5
# Message before the first frame, while the plot shows the principal components.
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
        Number of completed steps, and number of all steps. 0 if unknown.
    words : str
        Description of the state in words, for the caption of the plot.
    """

    state: State
    done: int
    num_total: int
    words: str

    def header(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


class ProjectionJobs:
    """Projections that run in separate processes, with their progress.

    A request for a projection stops all other projections, because the reader has moved to another
    head. Projections for which a thread waits continue. Requesting the progress of a cancelled or
    failed projection does not restart it. Several threads may use this object, because a page may
    be built while the browser sends requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Job of the last request, and jobs for which threads wait. If a job could not be started,
        # the value is a `Work` that states why.
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
        """Return the progress of a projection, and start it if it was not started before.

        Parameters
        ----------
        key : hashable
            Key that identifies the projection.
        points : callable
            Function that returns the points, float32, (points, head_dim).
        settings : ProjectionSettings
            Settings of the projection.
        restart : bool, default False
            Whether to start a cancelled or failed projection again.

        Returns
        -------
        coordinates : ndarray or None
            Newest frame, float32, (points, dimensions), or None before the first frame.
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
        """Run a projection, or continue a running one, and wait until it ends.

        The parameters are those of `ask`.

        Returns
        -------
        coordinates : ndarray
            Result, float32, (points, dimensions).
        work : Work
            Final state.

        Raises
        ------
        ImportError
            If a package for the method is missing.
        RuntimeError
            If the projection fails or is cancelled.

        Notes
        -----
        Projections that other threads request during this call run in parallel.
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
        """Return the newest frame and the progress of a projection, without starting it.

        Return None if `key` is neither the last requested projection nor one for which a thread
        waits.
        """
        with self._lock:
            return _status(self._jobs[key]) if key in self._jobs else None

    def cancel(self, key: Hashable) -> None:
        """Stop one projection. Other projections continue."""
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
        """Return the job for `key`, which may have ended, or start it. The caller holds the lock.

        End all other jobs for which no thread waits. If `restart` is True, start a cancelled or
        failed job again.
        """
        for other in [
            job_key for job_key in self._jobs if job_key != key and not self._awaited[job_key]
        ]:
            self._end(other)
            del self._jobs[other]
        if restart and key in self._jobs and self._jobs[key].state in {"cancelled", "failed"}:
            del self._jobs[key]
        if key not in self._jobs:
            # If `_begun` raises an error, such as MemoryError, nothing is stored, and the next
            # request tries again.
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
    # Return the error instead of raising it. The plot shows it, and the view can use other methods.
    except (OSError, ValueError) as error:
        return Work("failed", 0, 0, str(error))


def _status(job: Job | Work) -> tuple[NDArray[np.float32] | None, Work]:
    if isinstance(job, Work):
        return None, job
    # Read the state before the frame. In the opposite order, the state could be "done" while the
    # frame is not the final one.
    state, frame = job.state, job.frame
    words = job.problem or ("" if frame is None else frame.words)
    if state == "cancelled":
        words = f"{_CANCELLED} {words}".rstrip()
    if frame is None:
        return None, Work(state, 0, 0, words or _NO_FRAME_YET)
    return frame.coordinates, Work(state, frame.done, frame.num_total, words)
