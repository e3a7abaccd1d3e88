"""What two processes say to each other about a layout: files in a folder of their own.

Each file is there as a whole or not at all, and nothing of them is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from attnviz.embedding.projection import Frame, ProjectionSettings

__all__ = ["ProjectingFolder"]

_FRAME, _RESULT = "frame.npz", "result.npz"


class ProjectingFolder:
    """A folder that a layout is asked for in, and that its frames come back in.

    Parameters
    ----------
    path : Path
        It must be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Where the process says what nobody planned for.
        self.errors = path / "errors.txt"

    def ask(self, points: NDArray[np.float32], settings: ProjectionSettings) -> None:
        """Write what is asked for.

        Parameters
        ----------
        points : ndarray of float32
            (points, dimensions).
        settings : ProjectionSettings
            How to lay them out.

        Raises
        ------
        OSError
            If there is no room for it.
        """
        self._write("points.npy", lambda file: np.save(file, points, allow_pickle=False))
        self._write("settings.json", lambda file: file.write(json.dumps(asdict(settings)).encode()))

    def asked(self) -> tuple[NDArray[np.float32], ProjectionSettings]:
        """Read what was asked for.

        Returns
        -------
        points : ndarray of float32
        settings : ProjectionSettings
        """
        settings = json.loads((self.path / "settings.json").read_text(encoding="utf-8"))
        points = np.load(self.path / "points.npy", allow_pickle=False)
        return points, ProjectionSettings(**settings)

    def show(self, frame: Frame) -> None:
        """Write a frame in the place of the one before.

        Parameters
        ----------
        frame : Frame
            The newest.

        Raises
        ------
        OSError
            If there is no room for it.
        """
        arrays: dict[str, Any] = {
            "coordinates": frame.coordinates,
            "steps": np.array([frame.done, frame.of, frame.final]),
            "words": np.array(frame.words),
        }
        # Nobody reads the result's file before it is there; a frame's may be open just now, and on
        # some systems is not replaced then: the next one will be.
        with nullcontext() if frame.final else suppress(PermissionError):
            name = _RESULT if frame.final else _FRAME
            self._write(name, lambda file: np.savez(file, **arrays))

    def shown(self) -> Frame | None:
        """The newest frame.

        Returns
        -------
        Frame or None
            None where there is none yet, or it cannot be read.
        """
        for name in (_RESULT, _FRAME):
            # What cannot be read now can be read next time, or is told of when the process ends.
            with (
                suppress(OSError, ValueError, KeyError, EOFError, BadZipFile),
                np.load(self.path / name, allow_pickle=False) as arrays,
            ):
                done, of, final = (int(step) for step in arrays["steps"])
                words = str(arrays["words"])
                return Frame(arrays["coordinates"], done, of, final=bool(final), words=words)
        return None

    def complain(self, words: str) -> None:
        """Write why there will be no result.

        Parameters
        ----------
        words : str
            For readers.
        """
        self._write("problem.txt", lambda file: file.write(words.encode()))

    def complaint(self) -> str | None:
        """Why there is no result, if that was said.

        Returns
        -------
        str or None
        """
        with suppress(FileNotFoundError):
            return (self.path / "problem.txt").read_text(encoding="utf-8")
        return None

    def last_error(self) -> str:
        """The last line that the process wrote without being asked; empty where there is none.

        Returns
        -------
        str
        """
        with suppress(OSError):
            lines = self.errors.read_text(encoding="utf-8", errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def _write(self, name: str, write: Callable[[IO[bytes]], Any]) -> None:
        beside = self.path / f".{name}"
        with beside.open("wb") as file:
            write(file)
        beside.replace(self.path / name)
