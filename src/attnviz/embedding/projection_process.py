"""Layouts that take seconds run in a process of their own, so that the kernel stays free meanwhile.

`Job` starts ``python -m attnviz.embedding.projection_process``. The process gets settings and
points by its standard input, and frames come back by its standard output. It ends as soon as the
process that started it is gone: then its standard input, to which nothing more is written, comes to
its end.
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

# A process that is killed is gone at once, unless its disk does not answer.
_PATIENCE_S = 10.0
# The kernel comes first, which the same reader uses meanwhile.
_NICE = 5


class Job:
    """A layout in a process of its own; for use from any thread.

    Points are float32, (points, dimensions). Raises as `project` does of them, and OSError if no
    process can be started.
    """

    def __init__(self, points: NDArray[Any], settings: ProjectionSettings) -> None:
        rows = as_points(points)
        space_of(rows, settings.metric)
        self.settings = settings
        self.state: State = "running"
        #: The newest frame: the result where the job is done; None where there is none yet.
        self.frame: Frame | None = None
        #: Why it failed, for readers; None as long as it did not.
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
                    # Threads that spin while they wait for each other take what others need: beside
                    # other work a layout is sooner there without, and the kernel too.
                    "OMP_WAIT_POLICY": "PASSIVE",
                },
                # An interrupt of a notebook's cell means the cell.
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
        """Wait, not longer than `seconds`, until nothing is left of it but the result."""
        self._thread.join(seconds)
        return self.state

    def cancel(self) -> None:
        """End it at once, if it still runs; its last frame stays."""
        # A process that was forked off this one has no job.
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self.state != "running":
                return
            self.state = "cancelled"
            self._process.kill()
        self._thread.join(_PATIENCE_S)

    def _follow(self, points: NDArray[np.float32], errors: IO[bytes]) -> None:
        """Give the process its points, take its frames, and wait for its end."""
        problem: str | None = None
        with errors, self._process as process:
            try:
                _write(process.stdin, asdict(self.settings), points)
            except OSError:
                # It ended before it had read them, and its end says why.
                with suppress(OSError):
                    process.stdin.close()
            while (found := _read(process.stdout)) is not None:
                header, coordinates = found
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
    """Read what `_write` wrote; None where the other process ended before."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    header: dict[str, Any] = json.loads(line)
    shape = header.pop("shape")
    size = 4 * math.prod(shape)
    data = stream.read(size)
    return (header, np.frombuffer(data, np.float32).reshape(shape)) if len(data) == size else None


def _paths() -> list[str]:
    """Where the process finds its modules: where this one does, relative names excepted."""
    own = str(Path(__file__).parents[2])
    paths = [path for path in sys.path if Path(path).is_absolute()]
    return paths if own in paths else [*paths, own]


def _why(code: int, errors: IO[bytes]) -> str:
    """Why a process ended that said nothing itself."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        why = f"it was ended by the signal {name}"
        if name == "SIGKILL":
            why += ", as happens where memory runs out: take fewer points"
    else:
        why = f"it ended with code {code}"
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        if lines:
            why += f" ({lines[-1].strip()})"
    return f"the process that lays the points out stopped: {why}"


def main() -> int:
    """Lay out what standard input asks for: 0 where the result was written, 1 where it was not."""
    # Text that libraries print is not a frame.
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
        problem = "there is not enough memory to lay these points out: take fewer"
    except (ImportError, ValueError, TypeError) as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - a reader is to know of every error of the libraries
        problem = f"{type(error).__name__}: {error}"
    else:
        return 0
    _write(answers, {"problem": problem}, np.zeros(0, np.float32))
    return 1


def _end_with_parent() -> None:
    # Below Python's own buffers, which are locked during a read.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
