"""Atomic writing of files: a file is written completely, or its path is not changed."""

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


@contextmanager
def open_atomic(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], Path]]:
    """Open a temporary file in the folder of `path`, and rename it to `path` when the block ends.

    Yield the temporary file and the absolute form of `path`. If the block raises an exception, the
    temporary file is deleted. An existing file at `path` is replaced, and the new file gets its
    permissions. If `path` is a symbolic link, the file to which it points is replaced.

    Raise OSError with the path if the file cannot be written, or if `path` exists and is not a
    file.
    """
    absolute = as_path("path", path, "file").absolute()
    target = Path(os.path.realpath(absolute))
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        if target.exists() and not target.is_file():
            raise FileExistsError(
                errno.EEXIST, "it exists and is not a file. Pass the path of a file"
            )
        try:
            with temporary.open("xb") as file:
                if target.exists():
                    shutil.copymode(target, temporary)
                yield file, absolute
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise type(error)(
            error.errno,
            f"cannot write path={str(path)!r}: {error.strerror or error}",
            str(absolute),
        ) from error


def write_atomic(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write `data` to a file atomically. Return the absolute path of the file."""
    with open_atomic(path) as (file, target):
        file.write(data)
    return target
