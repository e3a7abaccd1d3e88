"""t-SNE and UMAP in a thread, so that the kernel can answer other requests."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal

from attnviz.embedding.tsne_umap import Floats, Frame, ProjectionSettings, project
from attnviz.utils.cleanup import fork_safe_lock
from attnviz.utils.progress import Cancelled

State = Literal["running", "failed", "cancelled", "done"]

# Seconds for which a thread waits at a time. In between, Python can raise KeyboardInterrupt.
_LOOK_EVERY = 0.5
# Only one projection runs at a time. numba, which compiles UMAP, can abort the process if several
# threads call its functions at the same time.
_turn = fork_safe_lock()


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


class BackgroundProjection:
    """Projection that runs in a thread. Its methods may be called from any thread.

    The libraries compute without Python's lock. Therefore, a request of a reader waits at most a
    few tenths of a second for them. `points` is float32, (points, dimensions).
    """

    def __init__(self, points: Floats, settings: ProjectionSettings) -> None:
        self.state: State = "running"
        #: Newest frame, or None before the first frame. If the state is "done", it is the result.
        self.frame: Frame | None = None
        #: Reason why the projection failed, in words, or "" if it has not failed.
        self.problem = ""
        self._thread = threading.Thread(
            target=self._run, args=(points, settings), name="attnviz projection", daemon=True
        )
        self._thread.start()

    def work(self) -> Work:
        """Return the state and the progress."""
        # Read the state before the frame. In the opposite order, the state could be "done" while
        # the frame is not the final one.
        state, frame = self.state, self.frame
        words = self.problem or ("" if frame is None else frame.words)
        if state == "cancelled":
            words = f"Cancelled. {words}".rstrip()
        if frame is None:
            return Work(state, 0, 0, words or "PCA, until the first frame arrives")
        return Work(state, frame.done, frame.num_total, words)

    def wait(self) -> None:
        """Wait until the projection ends. KeyboardInterrupt cancels it."""
        try:
            while self.state == "running":
                self._thread.join(_LOOK_EVERY)
        except KeyboardInterrupt:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Stop the projection at its next step if it is running. The newest frame is kept."""
        if self.state == "running":
            self.state = "cancelled"

    def _run(self, points: Floats, settings: ProjectionSettings) -> None:
        end: State = "failed"
        try:
            with _turn:
                project(points, settings, self._show)
            end = "done"
        except Cancelled:
            return
        except MemoryError:
            self.problem = "there is not enough memory to project these points. Use fewer points"
        except (ImportError, ValueError, TypeError) as error:
            self.problem = str(error)
        except Exception as error:  # noqa: BLE001 - a reader is to know of every error of the libraries
            self.problem = f"{type(error).__name__}: {error}"
        if self.state == "running":
            self.state = end

    def _show(self, frame: Frame) -> None:
        if self.state != "running":
            raise Cancelled
        self.frame = frame
