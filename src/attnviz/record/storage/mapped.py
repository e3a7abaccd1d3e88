"""The files that a record's numbers are read from while it is used.

A file that was deleted, or replaced by another, is still there for who has mapped it. One that was
made shorter is not: to read what it has lost ends the process, with all that is in its memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MappedFile", "check_mapped", "mapped_files"]


@dataclass(frozen=True)
class MappedFile:
    """A file as it was when it was mapped."""

    path: Path
    device: int
    number: int
    size: int

    def is_shorter(self) -> bool:
        """Whether it has lost some of its bytes since."""
        try:
            now = self.path.stat()
        except OSError:
            return False
        same = (now.st_dev, now.st_ino) == (self.device, self.number)
        return same and now.st_size < self.size


def mapped_files(place: Path) -> tuple[MappedFile, ...]:
    """A saved record's file, or the files in its folder."""
    paths = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    found = []
    for path in paths:
        now = path.stat()
        found.append(MappedFile(path.absolute(), now.st_dev, now.st_ino, now.st_size))
    return tuple(found)


def check_mapped(files: Iterable[MappedFile]) -> None:
    """Raise OSError where a file has lost some of its bytes, before they are read."""
    for file in files:
        if file.is_shorter():
            raise OSError(
                f"{str(file.path)!r} is shorter than when the record was loaded from it, so its "
                "weights are lost: restore the file, or extract the record again"
            )
