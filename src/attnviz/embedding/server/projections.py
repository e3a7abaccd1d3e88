"""Projections that take seconds, and how far they are."""

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

# How often waiting can be interrupted.
_LOOK_EVERY = 0.5
# Without a frame of its own a plot is that of the principal components.
_NO_FRAME_YET = "PCA, until the first frame is there"
_CANCELLED = "Cancelled."

State = Literal["running", "failed", "cancelled", "done"]


@dataclass(frozen=True)
class Work:
    """How far a projection is.

    Attributes
    ----------
    state : {"running", "failed", "cancelled", "done"}
    done, num_total : int
        Steps done, of how many; 0 where it is not known yet.
    words : str
        The same for readers.
    """

    state: State
    done: int
    num_total: int
    words: str

    def header(self) -> dict[str, Any]:
        """Fit for JSON."""
        return asdict(self)


class ProjectionJobs:
    """Runs one projection at a time in a process of its own, and says how far it is.

    Asking for another one ends the one that runs, because the reader has moved on to another head;
    but not one that is awaited. What a reader cancelled, and what failed, is not begun again by
    asking how far it is. Several threads may use it at once: a page is made while the browser asks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The last question, and what it waits for: a job, or the reason that there is none.
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
        """Say how far a projection is; begin it where it is not under way.

        Parameters
        ----------
        key : hashable
            Names it.
        points : callable
            Makes what is projected, float32, (points, head_dim).
        settings : ProjectionSettings
            How.
        restart : bool, default False
            Whether what was cancelled or has failed is begun again.

        Returns
        -------
        coordinates : ndarray or None
            The newest frame, float32, (points, dimensions); None while there is none.
        work : Work
            How far it is.
        """
        with self._lock:
            now = self._asked(key, points, settings, restart=restart)
        return _told(now)

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
            Done.

        Notes
        -----
        Another one that is asked for meanwhile runs beside this one.
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
        coordinates, work = _told(job)
        if work.state == "cancelled":
            raise RuntimeError(
                f"method={settings.method!r} was cancelled before its end; ask again to restart it"
            )
        if work.state != "done" or coordinates is None:
            raise RuntimeError(work.words)
        return coordinates, work

    def under_way(self, key: Hashable) -> tuple[NDArray[np.float32] | None, Work] | None:
        """Say how far a projection is, if it was asked for last or is awaited; begin nothing."""
        with self._lock:
            return _told(self._jobs[key]) if key in self._jobs else None

    def cancel(self, key: Hashable) -> None:
        """End a projection; another one stays as it is."""
        with self._lock:
            self._end(key)

    def close(self) -> None:
        """End what runs: it will not be asked for."""
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
        """The job of that name, under way or begun; the lock is held."""
        for other in [each for each in self._jobs if each != key and not self._awaited[each]]:
            self._end(other)
            del self._jobs[other]
        if restart and key in self._jobs and self._jobs[key].state in {"cancelled", "failed"}:
            del self._jobs[key]
        if key not in self._jobs:
            # Only then it has a name: what cannot even begin for want of memory is tried again.
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
    # A word in the picture: the view goes on with the other methods.
    except (OSError, ValueError) as error:
        return Work("failed", 0, 0, str(error))


def _told(now: Job | Work) -> tuple[NDArray[np.float32] | None, Work]:
    if isinstance(now, Work):
        return None, now
    # First the state: a frame that is newer than it does no harm, an older one might.
    state, frame = now.state, now.frame
    words = now.problem or ("" if frame is None else frame.words)
    if state == "cancelled":
        words = f"{_CANCELLED} {words}".rstrip()
    if frame is None:
        return None, Work(state, 0, 0, words or _NO_FRAME_YET)
    return frame.coordinates, Work(state, frame.done, frame.num_total, words)
