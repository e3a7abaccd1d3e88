"""Files that are complete or not there."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from attnviz.utils.arguments import as_path

__all__ = ["open_atomic", "write_atomic"]


@contextmanager
def open_atomic(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], Path]]:
    """Write a file beside its place, and move it there when it is complete.

    Yields the file to write to, and the absolute path that it will have. A file that is there
    already is replaced at the end, and passes on its mode. A link stays, and the file that it leads
    to is replaced.

    OSError, naming the path, if the file cannot be written or something else than a file is there.
    """
    named = as_path("path", path, "file").absolute()
    target = Path(os.path.realpath(named))
    beside = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        if target.exists() and not target.is_file():
            raise FileExistsError(errno.EEXIST, "it is not a file; give the name of a file")
        try:
            with beside.open("xb") as file:
                if target.exists():
                    shutil.copymode(target, beside)
                yield file, named
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot write path={str(path)!r}: {error.strerror or error}", str(named)
        ) from error


def write_atomic(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write bytes to a file that is complete or not there; returns its absolute path."""
    with open_atomic(path) as (file, target):
        file.write(data)
    return target
