"""Projections that take seconds, and how far they are."""

from __future__ import annotations

import threading
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
    done, of : int
        Steps done, of how many; 0 where it is not known yet.
    words : str
        The same for readers.
    """

    state: State
    done: int
    of: int
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
        self._key: Hashable = None
        # What was asked for last: a job, or why there is none.
        self._now: Job | Work | None = None
        self._awaited: list[tuple[Hashable, Job]] = []

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
            self._awaited.append((key, job))
        try:
            while job.wait(_LOOK_EVERY) == "running":
                pass
        except KeyboardInterrupt:
            job.cancel()
            raise
        finally:
            with self._lock:
                self._awaited.remove((key, job))
        coordinates, work = _told(job)
        if work.state == "cancelled":
            raise RuntimeError(
                f"method={settings.method!r} was cancelled before its end; ask again to restart it"
            )
        if work.state != "done" or coordinates is None:
            raise RuntimeError(work.words)
        return coordinates, work

    def under_way(self, key: Hashable) -> tuple[NDArray[np.float32] | None, Work] | None:
        """Say how far a projection is, if it is the one that was asked for last; begin nothing."""
        with self._lock:
            return _told(self._now) if self._now is not None and key == self._key else None

    def cancel(self, key: Hashable) -> None:
        """End a projection; another one stays as it is."""
        with self._lock:
            for each, job in self._jobs():
                if each == key:
                    job.cancel()

    def close(self) -> None:
        """End what runs: it will not be asked for."""
        with self._lock:
            for _, job in self._jobs():
                job.cancel()

    def _jobs(self) -> list[tuple[Hashable, Job]]:
        """What may still run."""
        now = self._now
        shown = [] if now is None or isinstance(now, Work) else [(self._key, now)]
        return [*self._awaited, *shown]

    def _asked(
        self,
        key: Hashable,
        points: Callable[[], NDArray[np.float32]],
        settings: ProjectionSettings,
        *,
        restart: bool,
    ) -> Job | Work:
        """The job of that name, under way or begun; the lock is held."""
        now = self._now if key == self._key else None
        now = now or next((job for each, job in self._awaited if each == key), None)
        if now is not None and not (restart and now.state in {"cancelled", "failed"}):
            if now is not self._now:
                self._leave()
        else:
            self._leave()
            # Only then it has a name: what cannot even begin for want of memory is tried again.
            now = _begun(points, settings)
        self._key, self._now = key, now
        return now

    def _leave(self) -> None:
        """End what was asked for last, unless it is awaited."""
        now, self._key, self._now = self._now, None, None
        if now is None or isinstance(now, Work) or any(now is job for _, job in self._awaited):
            return
        now.cancel()


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
    return frame.coordinates, Work(state, frame.done, frame.of, words)
