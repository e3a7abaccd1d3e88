"""t-SNE and UMAP in a separate process, so that the kernel can answer other requests.

`Job` starts this module as a program: ``python -m attnviz.embedding.projection_process``. The
program reads settings and points from its standard input and writes frames to its standard output.
It exits when its standard input is closed. This happens at the latest when the kernel ends.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.embedding.projection import Frame, ProjectionSettings, missing_package, project

State = Literal["running", "failed", "cancelled", "done"]

# Seconds to wait for the end of a killed process. Usually it ends at once, but a process that waits
# for a disk ends later.
_PATIENCE_S = 10.0
# Niceness of the projection process. The kernel gets more processor time than this process, so that
# it answers the reader's requests quickly.
_NICE = 5


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


class Job:
    """Projection that runs in a separate process. Its methods may be called from any thread.

    `points` is float32, (points, dimensions). If a package is missing or the process cannot be
    started, the state is "failed" from the beginning.
    """

    def __init__(self, points: NDArray[np.float32], settings: ProjectionSettings) -> None:
        self.state: State = "running"
        #: Newest frame, or None before the first frame. If the state is "done", it is the result.
        self.frame: Frame | None = None
        #: Reason why the projection failed, in words, or None if it has not failed.
        self.problem = missing_package(settings.method)
        self._lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._follow, args=(points, settings), name="attnviz-projection", daemon=True
        )
        if self.problem is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `_follow` closes it
            try:
                self._process = _started(self._errors)
            except OSError as error:
                self._errors.close()
                self.problem = str(error)
        if self.problem is None:
            self._thread.start()
        else:
            self.state = "failed"

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

    def wait(self, seconds: float | None = None) -> State:
        """Wait until the projection ends, at most `seconds` (None: no limit). Return the state."""
        if self.state == "running":
            self._thread.join(seconds)
        return self.state

    def cancel(self) -> None:
        """Stop the projection if it is running. The newest frame is kept."""
        with self._lock:
            if self.state != "running":
                return
            self.state = "cancelled"
            self._process.kill()
        self._thread.join(_PATIENCE_S)

    def _follow(self, points: NDArray[np.float32], settings: ProjectionSettings) -> None:
        """Send the points to the projection process, read its frames, and wait until it ends."""
        problem: str | None = None
        with self._errors, self._process as process:
            try:
                _write(process.stdin, asdict(settings), points)
            except OSError:
                # The process ended before it had read all points. `_why` finds the reason below.
                with suppress(OSError):
                    process.stdin.close()
            while (message := _read(process.stdout)) is not None:
                header, coordinates = message
                problem = header.pop("problem", None)
                if problem is None:
                    self.frame = Frame(coordinates, **header)
            code = process.wait()
            if problem is None:
                problem = _why(code, self._errors)
        with self._lock:
            if self.state == "running":
                done = self.frame is not None and self.frame.final
                self.problem = None if done else problem
                self.state = "done" if done else "failed"


def _started(errors: IO[bytes]) -> Any:
    """Start the projection process, and return it."""
    paths = [path for path in sys.path if Path(path).is_absolute()]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "attnviz.embedding.projection_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*paths, str(Path(__file__).parents[2])]),
            # By default, OpenMP threads that wait keep their cores busy. This slows down the
            # kernel, and the projection itself, if all cores are in use.
            "OMP_WAIT_POLICY": "PASSIVE",
        },
        # In a new session, the process does not get the keyboard interrupt that stops a cell of the
        # notebook.
        start_new_session=True,
    )


def _write(stream: IO[bytes], header: dict[str, Any], points: NDArray[np.float32]) -> None:
    stream.write(json.dumps(header | {"shape": points.shape}).encode() + b"\n")
    stream.write(points.tobytes())
    stream.flush()


def _read(stream: IO[bytes]) -> tuple[dict[str, Any], NDArray[np.float32]] | None:
    """Read a header and an array that `_write` wrote, or return None if the stream ended."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    header: dict[str, Any] = json.loads(line)
    shape = header.pop("shape")
    size = 4 * math.prod(shape)
    data = stream.read(size)
    return (header, np.frombuffer(data, np.float32).reshape(shape)) if len(data) == size else None


def _why(code: int, errors: IO[bytes]) -> str:
    """Return why the projection process ended without a result or an error message.

    `errors` is a file with its standard error output.
    """
    if code < 0:
        why = f"it was ended by the signal {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            why += ", as happens when memory runs out. Use fewer points"
    else:
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        why = f"it ended with code {code} ({lines[-1].strip() if lines else 'no message'})"
    return f"the projection process stopped: {why}"


def main() -> int:
    """Project the points from standard input. Return 0 if the result was written, otherwise 1."""
    # Write frames to a copy of standard output, and redirect standard output itself to standard
    # error. Messages that libraries print are then not mixed with the frames.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked = _read(sys.stdin.buffer)
    if asked is None:
        return 1
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(OSError, AttributeError):
        os.nice(_NICE)
    settings, points = asked

    def tell(frame: Frame) -> None:
        header = vars(frame).copy()
        _write(answers, header, header.pop("coordinates"))

    try:
        project(points, ProjectionSettings(**settings), frame=tell)
    except MemoryError:
        problem = "there is not enough memory to project these points. Use fewer points"
    except (ImportError, ValueError, TypeError) as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - a reader is to know of every error of the libraries
        problem = f"{type(error).__name__}: {error}"
    else:
        return 0
    _write(answers, {"problem": problem}, np.zeros(0, np.float32))
    return 1


def _end_with_parent() -> None:
    # A read from `sys.stdin` would hold the lock of its buffer, which blocks the exit of
    # the process.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
