"""The process that lays points out: ``python -m attnviz.embedding.projection_process <folder>``.

The folder holds what is asked for, and the frames come back in it. The process ends, and takes its
folder with it, as soon as the process that started it is gone: then its standard input, to which
nothing is written, comes to its end.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from attnviz.embedding.projection import Frame, ProjectionSettings, project

__all__ = ["ProjectionFolder", "main"]

_FRAME, _RESULT = "frame.npz", "result.npz"
# Seconds between frames that are written: more than a reader can follow.
_FRAMES_APART = 0.3
# The kernel comes first, which the same reader uses meanwhile.
_NICE = 5


class ProjectionFolder:
    """What the two processes write for each other: files in a folder of their own.

    Each file is there as a whole or not at all, and nothing of them is unpickled.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: The process's standard error.
        self.errors = path / "errors.txt"

    def write_request(self, points: NDArray[np.float32], settings: ProjectionSettings) -> None:
        """Write what is to be laid out, and how."""
        self._write("points.npy", lambda file: np.save(file, points, allow_pickle=False))
        self._write("settings.json", lambda file: file.write(json.dumps(asdict(settings)).encode()))

    def read_request(self) -> tuple[NDArray[np.float32], ProjectionSettings]:
        """Read what is to be laid out, and how."""
        settings = json.loads((self.path / "settings.json").read_text(encoding="utf-8"))
        points = np.load(self.path / "points.npy", allow_pickle=False)
        return points, ProjectionSettings(**settings)

    def write_frame(self, frame: Frame) -> None:
        """Write a frame in place of the one before."""
        arrays: dict[str, Any] = {
            "coordinates": frame.coordinates,
            "steps": np.array([frame.done, frame.of, frame.final]),
            "words": np.array(frame.words),
        }
        # A frame's file may be open in the other process, and on some systems is not replaced
        # then: the next one will be. The result's file is not read before it is there.
        with nullcontext() if frame.final else suppress(PermissionError):
            name = _RESULT if frame.final else _FRAME
            self._write(name, lambda file: np.savez(file, **arrays))

    def read_frame(self) -> Frame | None:
        """The newest frame; None where there is none yet, or it cannot be read."""
        for name in (_RESULT, _FRAME):
            # What cannot be read now can be read next time, unless the process ends and says why.
            with (
                suppress(OSError, ValueError, KeyError, EOFError, BadZipFile),
                np.load(self.path / name, allow_pickle=False) as arrays,
            ):
                done, of, final = (int(step) for step in arrays["steps"])
                words = str(arrays["words"])
                return Frame(arrays["coordinates"], done, of, final=bool(final), words=words)
        return None

    def write_problem(self, words: str) -> None:
        """Write why there will be no result."""
        self._write("problem.txt", lambda file: file.write(words.encode()))

    def read_problem(self) -> str | None:
        """Why there is no result; None where the process did not say."""
        with suppress(FileNotFoundError):
            return (self.path / "problem.txt").read_text(encoding="utf-8")
        return None

    def last_error(self) -> str:
        """The last line on the process's standard error; empty where there is none."""
        with suppress(OSError):
            lines = self.errors.read_text(encoding="utf-8", errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def _write(self, name: str, write: Callable[[IO[bytes]], Any]) -> None:
        beside = self.path / f".{name}"
        with beside.open("wb") as file:
            write(file)
        beside.replace(self.path / name)


def main(arguments: list[str]) -> int:
    """Lay out what a folder asks for: 0 where the result is there, 1 where a file says why not."""
    folder = ProjectionFolder(Path(arguments[0]))
    threading.Thread(target=_end_with_parent, args=(folder.path,), daemon=True).start()
    with suppress(OSError, AttributeError):
        os.nice(_NICE)
    written = -_FRAMES_APART

    def keep(frame: Frame) -> None:
        nonlocal written
        now = time.monotonic()
        if frame.final or now - written >= _FRAMES_APART:
            folder.write_frame(frame)
            written = now

    try:
        project(*folder.read_request(), frame=keep, progress=False)
    except MemoryError:
        folder.write_problem("there is not enough memory to lay these points out: take fewer")
    except (ImportError, ValueError, TypeError) as error:
        folder.write_problem(str(error))
    except Exception as error:  # noqa: BLE001 - a reader is to know of every error of the libraries
        folder.write_problem(f"{type(error).__name__}: {error}")
    else:
        return 0
    return 1


def _end_with_parent(folder: Path) -> None:
    # Below Python's own buffers, which are locked during a read.
    while os.read(0, 1):
        pass
    # What the other thread is writing meanwhile is caught by the second time.
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
