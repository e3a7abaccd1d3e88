"""Files that a record's arrays are mapped from.

A deleted or replaced file remains readable for a process that has mapped it. Reading
the missing part of a truncated file ends the process, and all of its data is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MappedFile", "check_mapped", "list_mapped_files"]


@dataclass(frozen=True)
class MappedFile:
    """Identity and size of a file at the time it was mapped."""

    path: Path
    device: int
    number: int
    size: int

    def is_shorter(self) -> bool:
        """Whether the file has been truncated since."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        same = (status.st_dev, status.st_ino) == (self.device, self.number)
        return same and status.st_size < self.size


def list_mapped_files(location: Path) -> tuple[MappedFile, ...]:
    """Return a saved record's file, or the files of its folder."""
    paths = sorted(location.glob("*.safetensors")) if location.is_dir() else [location]
    files = []
    for path in paths:
        status = path.stat()
        files.append(MappedFile(path.absolute(), status.st_dev, status.st_ino, status.st_size))
    return tuple(files)


def check_mapped(files: Iterable[MappedFile]) -> None:
    """Raise OSError if a file has been truncated, before it is read."""
    for file in files:
        if file.is_shorter():
            raise OSError(
                f"{str(file.path)!r} was truncated after the record was loaded from it, so that "
                "weights are lost. Restore the file, or extract the record again."
            )
