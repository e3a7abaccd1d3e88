"""A record written to a folder while it comes into being, layer by layer.

The folder is a record once its index is there, which is written last. Before that a file says that
it is not: what an interrupt leaves behind is never taken for a record, and may be begun anew.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from attnviz.record.record import AttentionRecord, load
from attnviz.record.storage.folder import (
    INDEX,
    MARKER,
    SPOOLED,
    StoredArray,
    StoredFile,
    write_index,
)
from attnviz.record.storage.safetensors_file import Blocks, map_arrays, write_safetensors
from attnviz.record.storage.schema import record_to_arrays
from attnviz.utils.arguments import as_path
from attnviz.utils.restoring import Restoring

__all__ = ["Spool", "SpoolFolders"]

_MARKER_TEXT = """attnviz is writing a record here, or was interrupted while it did.

Without index.json these files are not a record: extract again with this folder as spool=, which
starts again, or delete it.
"""
# Held by the process that writes.
_LOCK = "unfinished.lock"
_LAYER_ARRAY = re.compile(r"(?P<layer>.+/\d+)/(queries|keys|weights)", re.DOTALL)


class Spool:
    """Writes one record to a folder; the folder around it must be there.

    >>> spool = Spool("long")                                       # doctest: +SKIP
    >>> spool.begin()                                               # doctest: +SKIP
    >>> written = spool.write("layers.0", {"queries": ..., "keys": ...})  # doctest: +SKIP
    >>> record = spool.finish(record)                               # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = as_path("spool", folder, "folder").absolute()
        self._said = str(folder)
        # What `discard` has to take back: each is noted before it is done.
        self._begun = self._made = self._marked = self._locked = False
        self._lock: FileLock | None = None
        self._count = 0
        self._files: dict[str, StoredFile] = {}
        # The arrays too: their ids must stay theirs.
        self._written: dict[int, tuple[torch.Tensor, StoredArray]] = {}

    def is_there(self) -> bool:
        """Whether anything is at its place; OSError if nothing can be.

        The name may be too long, or a link that leads nowhere.
        """
        with self._telling():
            try:
                self.folder.stat()
            except (FileNotFoundError, NotADirectoryError):
                if self.folder.is_symlink():
                    raise FileExistsError(
                        errno.EEXIST, "it is a link to what is not there"
                    ) from None
                return False
        return True

    def check(self) -> None:
        """Refuse a place where nothing may be written, with an OSError.

        It may not be a folder, hold a record or anything else that no spool left behind, or the
        folder around it is not there.
        """
        if not self.is_there():
            if not self.folder.parent.is_dir():
                raise FileNotFoundError(
                    errno.ENOENT,
                    f"spool={self._said!r}: there is no folder to make it in",
                    str(self.folder.parent),
                )
            return
        if not self.folder.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR,
                f"spool={self._said!r} is a file; give the name of a folder",
                str(self.folder),
            )
        with self._telling():
            inside = [each.name for each in self.folder.iterdir()]
        if INDEX in inside:
            raise FileExistsError(
                errno.EEXIST,
                f"spool={self._said!r} holds a record already: load it with attnviz.load, delete "
                "it, or give another folder",
                str(self.folder),
            )
        own = {MARKER, _LOCK}
        others = sorted(name for name in inside if name not in own and not SPOOLED.fullmatch(name))
        if MARKER not in inside:
            others = sorted(inside)
        if others:
            raise FileExistsError(
                errno.EEXIST,
                f"spool={self._said!r} holds something else ({', '.join(others[:3])}"
                f"{', ...' if others[3:] else ''}), which is left as it is; give a folder of its "
                "own",
                str(self.folder),
            )

    def make(self) -> bool:
        """Make the folder if it is not there, and say whether it was made."""
        if self.is_there():
            return False
        with self._telling():
            self.folder.mkdir()
        return True

    def begin(self) -> None:
        """Take the folder, and remove what an interrupted spool left in it.

        OSError if nothing may be written there (see `check`), or another process is writing.
        """
        self.check()
        self._made = not self.is_there()
        marker = self.folder / MARKER
        self._marked = not marker.exists()
        self._begun = True
        try:
            self.make()
            with self._telling():
                marker.touch()
                self._lock = FileLock(self.folder / _LOCK)
                self._take_lock(self._lock)
                self._locked = True
                marker.write_text(_MARKER_TEXT, encoding="utf-8")
                self._remove(self._left())
        except BaseException:
            self.discard()
            raise

    def write(
        self, name: str, arrays: Mapping[str, torch.Tensor | Blocks]
    ) -> dict[str, torch.Tensor]:
        """Write arrays to a file of their own, named after `name`; returns them memory-mapped.

        OSError if they cannot be written, naming the folder and what would help.
        """
        file_name = f"{self._count:04}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:100]}.safetensors"
        self._count += 1
        path = self.folder / file_name
        with self._telling():
            try:
                with path.open("xb") as file:
                    checksum = write_safetensors(file, arrays, {})
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        self._files[file_name] = StoredFile(path.stat().st_size, checksum)
        mapped = map_arrays(path)[1]
        for each, array in mapped.items():
            dtype = str(array.dtype).removeprefix("torch.")
            stored = StoredArray(file_name, each, dtype, list(array.shape))
            self._written[id(array)] = (array, stored)
        return mapped

    def clear(self) -> None:
        """Remove everything that was written: it is to be written anew."""
        self._remove(self._left())
        self._written = {}

    def finish(self, record: AttentionRecord) -> AttentionRecord:
        """Make the folder a record; returns it with everything mapped from the folder.

        Arrays that `write` gave are not written again; all others, those that were changed since
        among them, are, layer by layer.
        """
        header, arrays = record_to_arrays(record)
        stored: dict[str, StoredArray] = {}
        missing: dict[str, dict[str, torch.Tensor]] = {}
        for name, array in arrays.items():
            if id(array) in self._written:
                stored[name] = self._written[id(array)][1]
                continue
            layer = _LAYER_ARRAY.fullmatch(name)
            missing.setdefault(layer["layer"] if layer else "shared", {})[name] = array
        for group, some in missing.items():
            for name, array in self.write(group, some).items():
                stored[name] = self._written[id(array)][1]
        used = {array.file for array in stored.values()}
        self._remove([name for name in self._files if name not in used])
        with self._telling():
            write_index(self.folder, header, self._files, stored)
        self.discard()
        return load(self.folder)

    def discard(self) -> None:
        """Let go of the folder: as it was, or with the record where that is whole.

        It may be called at any moment; one that was interrupted goes on.
        """
        if not self._begun:
            return
        whole = (self.folder / INDEX).exists()
        if self._locked and not whole:
            self._remove(self._left())
        if self._lock is not None:
            self._lock.release(force=True)
        # What could not be removed stays marked as what it is, and so does what is another's.
        if whole or (self._locked and not self._left()) or (self._marked and not self._locked):
            for name in (_LOCK, MARKER):
                with suppress(OSError):
                    (self.folder / name).unlink()
        if self._made and not whole:
            with suppress(OSError):
                self.folder.rmdir()
        self._written = {}
        self._begun = False

    def _left(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return [each.name for each in self.folder.iterdir() if SPOOLED.fullmatch(each.name)]

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            # Windows doesn't remove what is still mapped.
            with suppress(OSError):
                (self.folder / name).unlink()
            self._files.pop(name, None)

    def _take_lock(self, lock: FileLock) -> None:
        """Hold the folder for this process alone, as long as it lives; where there are locks."""
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise BlockingIOError(
                errno.EAGAIN,
                f"spool={self._said!r}: another extraction is writing there; give another folder",
                str(self.folder),
            ) from error
        except NotImplementedError:
            # Not every file system has them.
            self._lock = None

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Name the folder, and what would help, in errors of the system."""
        try:
            yield
        except BlockingIOError:
            raise
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            way = (
                "; what was written is removed. Make room, give a folder on another disk, or keep "
                'less with layers=, heads= or dtype="bfloat16"'
                if full
                else ""
            )
            raise type(error)(
                error.errno,
                f"spool={self._said!r} cannot be written: {error.strerror or error}{way}",
                str(self.folder),
            ) from error


class SpoolFolders:
    """Places for the records of one extraction: the folder itself, or one inside it for each.

    Where there are `several` they get folders ``0``, ``1``, ... inside it.
    """

    def __init__(self, folder: str | os.PathLike[str], *, several: bool) -> None:
        self._outer = Spool(folder)
        self.folder = folder
        self._several = several
        self._next = 0

    def check(self, count: int) -> None:
        """Refuse places for `count` records where nothing may be written, before anything runs."""
        outer = self._outer.folder
        if self._several and not (self._outer.is_there() and outer.is_dir()):
            # One inside it has nothing that could be in the way.
            self._outer.check()
            return
        if self._several and any((outer / name).exists() for name in (INDEX, MARKER)):
            raise FileExistsError(
                errno.EEXIST,
                f"spool={str(self.folder)!r} holds a record, or a part of one, and there are "
                "several to come; give another folder",
                str(outer),
            )
        for spool in self._spools(range(self._next, self._next + count)):
            spool.check()

    def take(self, count: int, undo: Restoring) -> list[Spool]:
        """Take the next places, begun.

        What is not finished when the block of `undo` ends is discarded.
        """
        self.check(count)
        return self._begin(self._take(count), undo)

    def finish(
        self, spools: Sequence[Spool], records: Sequence[AttentionRecord]
    ) -> list[AttentionRecord]:
        """Make the places that were taken records; there may be fewer records than places."""
        return [spool.finish(record) for spool, record in zip(spools, records, strict=False)]

    def _take(self, count: int) -> list[Spool]:
        spools = self._spools(range(self._next, self._next + count))
        self._next += count
        return spools

    def _begin(self, spools: list[Spool], undo: Restoring) -> list[Spool]:
        if self._several and not self._outer.is_there():
            undo.add(self._remove_if_empty)
            self._outer.make()
        for spool in spools:
            undo.add(spool.discard)
            spool.begin()
        return spools

    def _remove_if_empty(self) -> None:
        with suppress(OSError):
            self._outer.folder.rmdir()

    def _spools(self, numbers: range) -> list[Spool]:
        if not self._several:
            return [Spool(self.folder)]
        return [Spool(Path(self.folder) / str(number)) for number in numbers]
