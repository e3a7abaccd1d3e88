"""What two processes say to each other about a layout: files in a folder of their own.

Each file is there as a whole or not at all, and nothing of them is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.projection import Frame, ProjectionSettings

__all__ = ["ProjectingFolder"]


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
        self._write("frame.npz", lambda file: np.savez(file, **arrays))

    def shown(self) -> Frame | None:
        """The newest frame.

        Returns
        -------
        Frame or None
            None where there is none yet.
        """
        try:
            with np.load(self.path / "frame.npz", allow_pickle=False) as arrays:
                done, of, final = (int(step) for step in arrays["steps"])
                coordinates, words = arrays["coordinates"], str(arrays["words"])
        except FileNotFoundError:
            return None
        return Frame(coordinates, done=done, of=of, final=bool(final), words=words)

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
