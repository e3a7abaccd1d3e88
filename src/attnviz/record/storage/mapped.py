"""Files from which the arrays of a record are memory-mapped.

A process can still read a mapped file after the file was deleted or replaced. If the file was
truncated, the operating system ends a process that reads the missing part, and all data of the
process is lost. Therefore, `check_mapped` detects truncated files before arrays are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MappedFile:
    """A file from which arrays are memory-mapped, with its size when it was mapped.

    `device` and `number` (inode) identify the file, and `size` is in bytes.
    """

    path: Path
    device: int
    number: int
    size: int

    def is_shorter(self) -> bool:
        """Whether the file has been truncated since it was mapped. False if it was replaced."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        same = (status.st_dev, status.st_ino) == (self.device, self.number)
        return same and status.st_size < self.size


def list_mapped_files(location: Path) -> tuple[MappedFile, ...]:
    """Return one `MappedFile` for the file `location`, or for each safetensors file in a folder."""
    paths = sorted(location.glob("*.safetensors")) if location.is_dir() else [location]
    files = []
    for path in paths:
        status = path.stat()
        files.append(MappedFile(path.absolute(), status.st_dev, status.st_ino, status.st_size))
    return tuple(files)


def check_mapped(files: Iterable[MappedFile]) -> None:
    """Raise OSError if a file has been truncated. Call this before reading mapped arrays."""
    for file in files:
        if file.is_shorter():
            raise OSError(
                f"{str(file.path)!r} was truncated after the record was loaded from it, so that "
                "weights are lost. Restore the file, or extract the record again."
            )
