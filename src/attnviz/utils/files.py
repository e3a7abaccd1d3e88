"""Files that are written whole, and that are read as they were at one moment."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from platform import node
from typing import IO, TypeVar

from attnviz.utils.arguments import as_path

if sys.platform != "win32":
    import fcntl

__all__ = ["read_unchanged", "write_whole", "writing_whole"]

_Read = TypeVar("_Read")

# As many as Linux follows.
_MOST_LINKS = 40
_LONGEST_NAME = 255
_DAY = 86_400
# A file that changes while it is read is read again after so many seconds.
_PAUSES = (0.0, 0.01, 0.03, 0.1, 0.3)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def writing_whole(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], Path]]:
    """Write a file so that it is complete or not there; an existing one is replaced at the end.

    Yields the file to write to, beside its place, and the absolute path that it will have. A link
    stays, and what it leads to is replaced. What is replaced passes on its mode, and its owner
    where that is permitted. What earlier calls left there because their process was killed is
    removed.

    OSError, naming the path, if the folder does not exist or cannot be written to, or if something
    is there that is not a file, or a file that may not be written.
    """
    named = as_path("path", path, "file").absolute()
    with _naming(path, named):
        target, replaced = _replaceable(path, named)
        _remove_abandoned(target)
        handle, beside = _created(target, 0o666 if replaced is None else 0o600)
        # As long as the file is locked, no other call takes it for abandoned.
        lock = None if sys.platform == "win32" else os.dup(handle)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file, named
                if replaced is not None and sys.platform != "win32":
                    _pass_on(handle, replaced)
            beside.replace(target)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
        finally:
            if lock is not None:
                os.close(lock)


def write_whole(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write bytes so that their file is complete or not there; returns its absolute path."""
    with writing_whole(path) as (file, target):
        file.write(data)
    return target


def read_unchanged(path: Path, read: Callable[[Path], _Read]) -> _Read:
    """Read a file that others may replace or change meanwhile, as it was at one moment.

    `read` gets a path of the file that is open here: on Linux it stays that file's, whatever
    happens to its name. If the file changed while it was read, or `read` raised a ValueError and
    its name leads to another file by then, it is read again, five times at most.

    OSError if the file does not exist; ValueError if it did not stay the same.
    """
    for pause in _PAUSES:
        time.sleep(pause)
        with path.open("rb") as file:
            opened = Path(f"/dev/fd/{file.fileno()}") if sys.platform == "linux" else path
            opened = opened if opened.exists() else path
            before = _identity(opened)
            try:
                result = read(opened)
            except (OSError, ValueError):
                if _identity(path) == before:
                    raise
                continue
            if _identity(opened) == before:
                return result
    raise ValueError(
        f"path={str(path)!r} is being written to: it changed {len(_PAUSES)} times while it was "
        "read; try again when it is complete"
    )


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


@contextmanager
def _naming(path: str | os.PathLike[str], named: Path) -> Iterator[None]:
    """Name the path in errors of the system."""
    try:
        yield
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot write path={str(path)!r}: {error.strerror or error}", str(named)
        ) from error


def _replaceable(path: str | os.PathLike[str], named: Path) -> tuple[Path, os.stat_result | None]:
    """The file that a path leads to, and its state; None where it is not there yet."""
    if os.path.basename(os.fspath(path)) in ("", ".", ".."):  # noqa: PTH119 - pathlib drops them
        raise IsADirectoryError(errno.EISDIR, "it names a folder; give the name of a file in it")
    target = named
    for _ in range(_MOST_LINKS):
        if not target.is_symlink():
            break
        target = target.parent / target.readlink()
    else:
        raise OSError(errno.ELOOP, "its links lead in a circle")
    try:
        # Of the path: links of the system may lead to what has no name.
        state = named.stat()
    except FileNotFoundError:
        return target, None
    kind = _KINDS.get(stat.S_IFMT(state.st_mode))
    if kind == "a folder":
        raise IsADirectoryError(errno.EISDIR, "it is a folder; give the name of a file in it")
    if kind is not None or not target.exists():
        raise FileExistsError(
            errno.EEXIST, f"it is {kind or 'a file without a name'}; give the name of a file"
        )
    effective = os.access in os.supports_effective_ids
    if not os.access(target, os.W_OK, effective_ids=effective):
        raise PermissionError(errno.EACCES, "the file there is read-only; give another name")
    return target, state


def _pass_on(handle: int, replaced: os.stat_result) -> None:
    """Give an open file the owner of what it replaces, where that is permitted, and its mode."""
    if sys.platform == "win32":
        return
    own = os.fstat(handle)
    if own.st_gid != replaced.st_gid:
        with suppress(OSError):
            os.fchown(handle, -1, replaced.st_gid)
    if own.st_uid != replaced.st_uid:
        with suppress(OSError):
            os.fchown(handle, replaced.st_uid, -1)
    # Not every file system has modes.
    with suppress(PermissionError):
        os.fchmod(handle, replaced.st_mode & 0o777)


def _beginning(target: Path) -> str:
    """What the names of unfinished files of a target begin with."""
    name = target.name
    if len(os.fsencode(name)) > _LONGEST_NAME - 32:
        name = f"{zlib.crc32(os.fsencode(name)):08x}"
    return f".{name}."


def _this_host() -> str:
    return f"{zlib.crc32(node().encode()):08x}"


def _created(target: Path, mode: int) -> tuple[int, Path]:
    """Make a file beside a target, locked, with the mode that the system makes of `mode`."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    while True:
        beside = target.with_name(f"{_beginning(target)}{_this_host()}-{secrets.token_hex(4)}")
        try:
            handle = os.open(beside, flags, mode)
        except FileExistsError:
            continue
        # Another call may have taken it for abandoned before it was locked.
        if _locked(handle) is not False and os.fstat(handle).st_nlink > 0:
            return handle, beside
        os.close(handle)
        with suppress(OSError):
            beside.unlink()


def _locked(handle: int) -> bool | None:
    """Lock an open file: whether nothing else had; None where files cannot be locked."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Not every file system has locks.
        return None
    return True


def _remove_abandoned(target: Path) -> None:
    """Remove the unfinished files of a target of which the writing process is gone."""
    pattern = re.compile(re.escape(_beginning(target)) + r"([0-9a-f]{8})-[0-9a-f]{8}")
    with suppress(OSError), os.scandir(target.parent) as inside:
        for each in inside:
            if found := pattern.fullmatch(each.name):
                with suppress(OSError):
                    _remove_if_abandoned(Path(each.path), found[1])


def _remove_if_abandoned(beside: Path, host: str) -> None:
    """Remove an unfinished file that nothing writes to any more.

    Locks tell on the same machine. They may not reach from one machine to another, so that files
    of another one are left alone for a day, and likewise where files cannot be locked.
    """
    old = time.time() - beside.lstat().st_mtime > _DAY
    if sys.platform == "win32":
        # Windows removes nothing that is open.
        if old:
            beside.unlink()
        return
    handle = os.open(beside, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        locked = _locked(handle)
        if locked is not False and (old or (locked and host == _this_host())):
            beside.unlink()
    finally:
        os.close(handle)
