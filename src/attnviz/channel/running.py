"""Projections that take seconds: how far they are, told whenever somebody asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.projection import ProjectionSettings, missing_package

if TYPE_CHECKING:
    from attnviz.projecting import Job, Projector

__all__ = ["RunningProjections", "Work"]

# How often whoever waits looks again.
_LOOK_EVERY = 0.05

State = Literal["running", "failed", "cancelled", "done"]


@dataclass(frozen=True)
class Work:
    """How far a projection is.

    Attributes
    ----------
    state : {"running", "failed", "cancelled", "done"}
    done, of : int
        Steps done, of how many; 0 where nobody knows yet.
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


class RunningProjections:
    """Runs one projection at a time in a process of its own, and says how far it is.

    Asking for another one ends the one that runs: somebody has moved on to another head. What a
    reader cancelled, and what failed, is not begun again by asking how far it is.
    """

    def __init__(self) -> None:
        self._projector: Projector | None = None
        self._key: Hashable = None
        self._job: Job | None = None
        self._ended: Work | None = None

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
        if key != self._key or (restart and self._state() in {"cancelled", "failed"}):
            self._begin(key, points, settings)
        return self._now()

    def wait(
        self,
        key: Hashable,
        points: Callable[[], NDArray[np.float32]],
        settings: ProjectionSettings,
        *,
        restart: bool = True,
    ) -> tuple[NDArray[np.float32], Work]:
        """Run a projection to its end.

        Parameters
        ----------
        key, points, settings, restart
            As in `ask`.

        Returns
        -------
        coordinates : ndarray
            float32, (points, dimensions).
        work : Work
            Done.

        Raises
        ------
        ImportError
            If its package is not installed.
        RuntimeError
            If it failed for another reason, or somebody cancelled it.
        """
        missing = missing_package(settings.method)
        if missing is not None:
            raise ImportError(missing)
        coordinates, work = self.ask(key, points, settings, restart=restart)
        try:
            while work.state == "running":
                time.sleep(_LOOK_EVERY)
                coordinates, work = self.ask(key, points, settings)
        except KeyboardInterrupt:
            self.cancel(key)
            raise
        if work.state != "done" or coordinates is None:
            raise RuntimeError(work.words)
        return coordinates, work

    def under_way(self, key: Hashable) -> tuple[NDArray[np.float32] | None, Work] | None:
        """Say how far a projection is, if it is the one that was asked for last; begin nothing.

        Parameters
        ----------
        key : hashable
            Names it.

        Returns
        -------
        (ndarray or None, Work) or None
            As `ask` says it.
        """
        return self._now() if key == self._key else None

    def cancel(self, key: Hashable) -> None:
        """End a projection; another one stays as it is.

        Parameters
        ----------
        key : hashable
            Names it.
        """
        if key == self._key and self._job is not None and self._job.state == "running":
            self._job.cancel()

    def close(self) -> None:
        """End whatever runs: nobody will ask for it."""
        if self._projector is not None:
            self._projector.close()

    def _begin(
        self,
        key: Hashable,
        points: Callable[[], NDArray[np.float32]],
        settings: ProjectionSettings,
    ) -> None:
        self._key, self._job, self._ended = key, None, None
        missing = missing_package(settings.method)
        if missing is not None:
            self._ended = Work("failed", 0, 0, missing)
            return
        from attnviz.projecting import Projector

        try:
            self._projector = self._projector or Projector()
            self._job = self._projector.start(points(), settings)
        # A word in the picture: the view goes on with the other methods.
        except (OSError, ValueError) as error:
            self._ended = Work("failed", 0, 0, str(error))

    def _state(self) -> State:
        if self._ended is not None or self._job is None:
            return "failed"
        return self._job.state

    def _now(self) -> tuple[NDArray[np.float32] | None, Work]:
        if self._ended is not None or self._job is None:
            return None, self._ended or Work("failed", 0, 0, "nothing was begun")
        # First the state: a frame that is newer than it does no harm, an older one might.
        state, frame = self._job.state, self._job.latest()
        if frame is None:
            words = "PCA, until the first frame is there" if state == "running" else "PCA"
            return None, Work(state, 0, 0, self._job.problem or words)
        words = self._job.problem or frame.words
        return frame.coordinates, Work(state, frame.done, frame.of, words)
