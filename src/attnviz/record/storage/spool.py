"""A record in a folder that is written while a model runs: a file for each layer, and an index.

The index is written last, and without it the folder does not count as a record. It is a saved
record without the arrays of the layers, and says in which file each of those lies.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from attnviz.record.record import AttentionRecord, load
from attnviz.record.storage.safetensors_file import (
    ALWAYS_SUMMED,
    CHECKSUM,
    Blocks,
    array_checksum,
    map_arrays,
    read_arrays,
    write_arrays,
    write_safetensors,
)
from attnviz.record.storage.schema import record_to_arrays
from attnviz.utils.arguments import as_path
from attnviz.utils.cleanup import Cleanup

__all__ = ["INDEX", "Spool", "SpoolFolders", "read_folder"]

INDEX = "index.safetensors"


class Spool:
    """Writes one record to a folder; the folder around it must be there.

    >>> spool = Spool("long")                                       # doctest: +SKIP
    >>> spool.begin()                                               # doctest: +SKIP
    >>> written = spool.write("layers.0", {"queries": ..., "keys": ...})  # doctest: +SKIP
    >>> record = spool.finish(record)                               # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = as_path("spool", folder, "folder").absolute()
        self._given = str(folder)
        self._made = False
        self._count = 0
        # The files, and the checksums of their arrays.
        self._files: dict[str, str] = {}
        # For each array its file and its name there. The arrays too: their ids must stay theirs.
        self._written: dict[int, tuple[torch.Tensor, str, str]] = {}

    def check(self) -> None:
        """Raise OSError if the folder is not empty or cannot be made."""
        with self._naming():
            if self.folder.is_dir():
                if any(self.folder.iterdir()):
                    raise FileExistsError(
                        errno.EEXIST, "the folder is not empty; give another one or delete it"
                    )
            elif self.folder.exists():
                raise NotADirectoryError(errno.ENOTDIR, "it is a file; give the name of a folder")
            elif not self.folder.parent.is_dir():
                raise FileNotFoundError(errno.ENOENT, "there is no folder to make it in")

    def make(self) -> None:
        """Make the folder if it is not there."""
        with self._naming():
            self._made = not self.folder.exists()
            self.folder.mkdir(exist_ok=True)

    def begin(self) -> None:
        """Take the folder. OSError if it is not empty or cannot be made."""
        self.check()
        self.make()

    def write(
        self, name: str, arrays: Mapping[str, torch.Tensor | Blocks]
    ) -> dict[str, torch.Tensor]:
        """Write arrays to a file of their own, named after `name`; returns them memory-mapped.

        OSError if they cannot be written, naming the folder and what would help.
        """
        file_name = f"{self._count:04}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:100]}.safetensors"
        self._count += 1
        path = self.folder / file_name
        with self._naming():
            # Noted before, so that an interrupt leaves nothing.
            self._files[file_name] = ""
            try:
                file = path.open("xb")
            except FileExistsError:
                # Another process writes here, too.
                del self._files[file_name]
                raise
            with file:
                self._files[file_name] = write_safetensors(file, arrays, {})
        mapped = map_arrays(path)[1]
        for each, array in mapped.items():
            self._written[id(array)] = (array, file_name, each)
        return mapped

    def clear(self) -> None:
        """Remove everything that was written: it is to be written anew."""
        self._remove(list(self._files))
        self._written = {}

    def finish(self, record: AttentionRecord) -> AttentionRecord:
        """Make the folder a record; returns it with everything mapped from the folder.

        Arrays that `write` returned are not written again. All others lie in the index.
        """
        header, arrays = record_to_arrays(record)
        layers: dict[str, dict[str, Any]] = {}
        others: dict[str, torch.Tensor] = {}
        for name, array in arrays.items():
            if id(array) in self._written:
                _, file, own_name = self._written[id(array)]
                layer = layers.setdefault(file, {CHECKSUM: self._files[file], "arrays": {}})
                layer["arrays"][name] = own_name
            else:
                others[name] = array
        self._remove(self._files.keys() - layers.keys())
        with self._naming():
            write_arrays(self.folder / INDEX, header | {"layers": layers}, others)
        return load(self.folder)

    def discard(self) -> None:
        """Remove what was written, unless the record is complete. It may be called at any time."""
        if not (self.folder / INDEX).exists():
            self._remove(list(self._files))
            self.remove_if_empty()
        self._written = {}

    def remove_if_empty(self) -> None:
        """Remove the folder if `make` made it and nothing is in it."""
        if self._made:
            with suppress(OSError):
                self.folder.rmdir()

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            # Windows doesn't remove what is still mapped.
            with suppress(OSError):
                (self.folder / name).unlink()
            self._files.pop(name, None)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Name the folder, and what would help, in errors of the system."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            way = (
                "; what was written is removed. Make room, give a folder on another disk, or keep "
                'less with layers= or dtype="bfloat16"'
                if full
                else ""
            )
            raise type(error)(
                error.errno,
                f"spool={self._given!r} cannot be written: {error.strerror or error}{way}",
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

    def check(self) -> None:
        """Raise OSError if the folder is not empty or cannot be made, before anything runs."""
        self._outer.check()

    def take(self, count: int, undo: Cleanup) -> list[Spool]:
        """Take the next places, begun.

        What is not finished when the block of `undo` ends is discarded.
        """
        spools = [self._outer]
        if self._several:
            numbers = range(self._next, self._next + count)
            self._next += count
            spools = [Spool(Path(self.folder) / str(number)) for number in numbers]
            undo.add(self._outer.remove_if_empty)
            self._outer.make()
        for spool in spools:
            undo.add(spool.discard)
            spool.begin()
        return spools


def read_folder(
    path: str | os.PathLike[str], *, verify: bool = False
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read the header and the arrays of a folder that holds a record, memory-mapped.

    The index and the lengths of all files are always held against what was written; so are all
    numbers where they are 16 MB at most, or with `verify`. FileNotFoundError if it holds no record;
    ValueError if it is damaged.
    """
    folder = as_path("path", path, "folder")
    if not (folder / INDEX).is_file():
        _refuse(path, folder)
    header, arrays = read_arrays(folder / INDEX, verify=verify)
    try:
        layers = header.pop("layers", {})
        # The index is data: it must not lead out of its folder.
        for name in layers:
            if Path(name).name != name:
                raise ValueError(f"{name!r} is not the name of a file")  # noqa: TRY301 - named below
        size = sum((folder / name).stat().st_size for name in layers)
        for name, layer in layers.items():
            metadata, mapped = map_arrays(folder / name)
            stated = {metadata.get(CHECKSUM)}
            if verify or size <= ALWAYS_SUMMED:
                stated.add(array_checksum(mapped))
            if stated != {layer[CHECKSUM]}:
                raise ValueError(f"{name} is not what was written")  # noqa: TRY301 - named below
            arrays |= {full: mapped[own] for full, own in layer["arrays"].items()}
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"path={str(path)!r} is damaged ({error}); extract it again") from error
    return header, arrays


def _refuse(path: str | os.PathLike[str], folder: Path) -> None:
    """Raise FileNotFoundError for a folder without an index."""
    inside = sorted(
        (each for each in folder.iterdir() if (each / INDEX).is_file()),
        key=lambda each: (len(each.name), each.name),
    )
    if inside:
        names = ", ".join(each.name for each in inside[:3]) + (", ..." if inside[3:] else "")
        raise FileNotFoundError(
            f"path={str(path)!r} holds {len(inside)} records, in the folders {names}: load one of "
            f"them, for example load({str(Path(path) / inside[0].name)!r})"
        )
    raise FileNotFoundError(
        f"no record at path={str(path)!r}: the folder has no {INDEX}, which is written last"
    )
