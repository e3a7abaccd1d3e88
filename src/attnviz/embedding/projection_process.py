"""Projections that take seconds run in a separate process, so that the kernel can continue.

`Job` starts ``python -m attnviz.embedding.projection_process``. The process reads settings and
points from its standard input and writes frames to its standard output. It exits when its standard
input is closed, which happens when the process that started it ends.
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
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.embedding.projection import Frame, ProjectionSettings, as_points, project, space_of

__all__ = ["Job", "State", "main"]

State = Literal["running", "done", "failed", "cancelled"]

# Seconds to wait for a killed process. It ends immediately unless its disk does not respond.
_PATIENCE_S = 10.0
# The kernel has priority, because the reader uses it at the same time.
_NICE = 5


class Job:
    """Projection in a separate process, for use from any thread.

    Points are float32, (points, dimensions). Raises the errors of `project` for invalid points, and
    OSError if the process cannot be started.
    """

    def __init__(self, points: NDArray[Any], settings: ProjectionSettings) -> None:
        rows = as_points(points)
        space_of(rows, settings.metric)
        self.settings = settings
        self.state: State = "running"
        #: Newest frame, which is the result if the job is done, or None.
        self.frame: Frame | None = None
        #: Reason of a failure for readers, or None.
        self.problem: str | None = None
        self._owner = os.getpid()
        self._lock = threading.Lock()
        with tempfile.TemporaryFile() as errors:
            self._process: Any = subprocess.Popen(
                [sys.executable, "-P", "-m", "attnviz.embedding.projection_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(_paths()),
                    # OpenMP threads must not spin while they wait: with other work on the machine,
                    # spinning slows down the projection and the kernel.
                    "OMP_WAIT_POLICY": "PASSIVE",
                },
                # A keyboard interrupt is meant for the notebook's cell, not for this process.
                start_new_session=True,
            )
            self._thread = threading.Thread(
                target=self._follow,
                args=(rows, os.fdopen(os.dup(errors.fileno()), "rb")),
                name="attnviz-projection",
                daemon=True,
            )
            self._thread.start()

    def wait(self, seconds: float | None = None) -> State:
        """Wait for the end of the process, for at most `seconds`, and return the state."""
        self._thread.join(seconds)
        return self.state

    def cancel(self) -> None:
        """Stop the process if it still runs, and keep the last frame."""
        # A forked process does not own the job.
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self.state != "running":
                return
            self.state = "cancelled"
            self._process.kill()
        self._thread.join(_PATIENCE_S)

    def _follow(self, points: NDArray[np.float32], errors: IO[bytes]) -> None:
        """Send the points to the process, read its frames, and wait for its end."""
        problem: str | None = None
        with errors, self._process as process:
            try:
                _write(process.stdin, asdict(self.settings), points)
            except OSError:
                # The process ended before it had read the points. Its exit code has the reason.
                with suppress(OSError):
                    process.stdin.close()
            while (message := _read(process.stdout)) is not None:
                header, coordinates = message
                problem = header.pop("problem", None)
                if problem is None:
                    self.frame = Frame(coordinates, **header)
            code = process.wait()
            if problem is None:
                problem = _why(code, errors)
        with self._lock:
            if self.state == "running":
                done = self.frame is not None and self.frame.final
                self.state = "done" if done else "failed"
                self.problem = None if done else problem


def _write(stream: IO[bytes], header: dict[str, Any], points: NDArray[np.float32]) -> None:
    stream.write(json.dumps(header | {"shape": points.shape}).encode() + b"\n")
    stream.write(points.tobytes())
    stream.flush()


def _read(stream: IO[bytes]) -> tuple[dict[str, Any], NDArray[np.float32]] | None:
    """Read what `_write` wrote, or return None if the other process ended."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    header: dict[str, Any] = json.loads(line)
    shape = header.pop("shape")
    size = 4 * math.prod(shape)
    data = stream.read(size)
    return (header, np.frombuffer(data, np.float32).reshape(shape)) if len(data) == size else None


def _paths() -> list[str]:
    """Return the absolute import paths of this process, for the new process."""
    own = str(Path(__file__).parents[2])
    paths = [path for path in sys.path if Path(path).is_absolute()]
    return paths if own in paths else [*paths, own]


def _why(code: int, errors: IO[bytes]) -> str:
    """Explain why a process ended without a message."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        why = f"it was ended by the signal {name}"
        if name == "SIGKILL":
            why += ", as happens when memory runs out. Use fewer points"
    else:
        why = f"it ended with code {code}"
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        if lines:
            why += f" ({lines[-1].strip()})"
    return f"the projection process stopped: {why}"


def main() -> int:
    """Project the points from standard input. Return 0 if the result was written, 1 if not."""
    # Keep texts that libraries print out of the frames.
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
        header = {
            "done": frame.done,
            "num_total": frame.num_total,
            "final": frame.final,
            "words": frame.words,
        }
        _write(answers, header, frame.coordinates)

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
    # Use the file descriptor, because Python's own buffers are locked during a read.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
