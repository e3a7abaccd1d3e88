"""t-SNE and UMAP in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from attnviz.embedding.projection import ProjectionSettings
from attnviz.embedding.projection_process import Job

# Seconds for which a thread waits at a time. In between, Python can raise KeyboardInterrupt.
_LOOK_EVERY = 0.5


class ProjectionJobs:
    """Projections that run in separate processes.

    A request for a projection stops and removes all other projections, because the reader has moved
    to another head or changed the settings. Projections for which a thread waits continue. A
    projection that failed, or that `cancel` stopped, is kept, and starts again only with `restart`.
    Several threads may use this object, because a page may be built while the browser sends
    requests.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[Hashable, Job] = {}
        self._awaited: list[Job] = []

    def ask(
        self,
        key: Hashable,
        points: Callable[[], NDArray[np.float32]],
        settings: ProjectionSettings,
        *,
        restart: bool = False,
    ) -> Job:
        """Return the stored job of a projection, or start a job if none is stored.

        `key` identifies the projection. `points` returns the points, float32, (points, dimensions).
        If `restart` is True, a cancelled or failed projection is started again.
        """
        with self._lock:
            for other in [other for other in self._jobs if other != key]:
                if self._jobs[other] not in self._awaited:
                    self._jobs.pop(other).cancel()
            job = self._jobs.get(key)
            if job is None or (restart and job.state in {"cancelled", "failed"}):
                # If `points` raises an error, such as MemoryError, nothing is stored, and the next
                # request tries again.
                job = self._jobs[key] = Job(points(), settings)
        return job

    def wait(
        self,
        key: Hashable,
        points: Callable[[], NDArray[np.float32]],
        settings: ProjectionSettings,
    ) -> Job:
        """Run a projection, or continue a running one, and return its job when it is done.

        The parameters are those of `ask`. Raise RuntimeError if the projection fails or is
        cancelled.
        """
        job = self.ask(key, points, settings, restart=True)
        self._awaited.append(job)
        try:
            while job.wait(_LOOK_EVERY) == "running":
                pass
        except KeyboardInterrupt:
            job.cancel()
            raise
        finally:
            self._awaited.remove(job)
        if job.state == "cancelled":
            raise RuntimeError(
                f"method={settings.method!r} was cancelled. Request it again to restart it."
            )
        if job.state == "failed":
            raise RuntimeError(job.problem)
        return job

    def under_way(self, key: Hashable) -> Job | None:
        """Return the job of a projection, or None if no job of this projection is stored."""
        return self._jobs.get(key)

    def cancel(self, key: Hashable) -> None:
        """Stop one projection. Other projections continue."""
        if key in self._jobs:
            self._jobs[key].cancel()

    def close(self) -> None:
        """Stop all projections."""
        for job in self._jobs.values():
            job.cancel()
