"""Writing of a record to a folder (a spool) while a model runs, for records larger than the memory.

The arrays of each layer, such as queries and keys, are written to a separate file as soon as the
layer is captured. Another file, the index, is written last. It has the form of a saved record
without these arrays, and contains the name of their file for each of them. A folder without an
index is not a record.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnviz.record.storage.safetensors_file import (
    Blocks,
    map_arrays,
    read_arrays,
    write_arrays,
    write_safetensors,
)
from attnviz.record.storage.schema import record_to_arrays
from attnviz.utils.arguments import as_path
from attnviz.utils.cleanup import Cleanup

if TYPE_CHECKING:
    from attnviz.record.record import AttentionRecord

INDEX = "index.safetensors"


class Spool:
    """Writer of one record to a folder, whose parent folder must exist.

    Call `begin`, then `write` for each layer, then `finish`. If the extraction fails, call
    `discard`. To start again with another run of the model, call `clear`.

    >>> spool = Spool("long")                                       # doctest: +SKIP
    >>> spool.begin()                                               # doctest: +SKIP
    >>> written = spool.write("layers.0", {"queries": ..., "keys": ...})  # doctest: +SKIP
    >>> spool.finish(record)                                        # doctest: +SKIP
    >>> record = av.load("long")                                    # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = as_path("spool", folder, "folder").absolute()
        self._given = str(folder)
        self._made = False
        self._count = 0
        # Names of the written files.
        self._files: set[str] = set()
        # By its id, each array that `write` returned, the name of its file, and its name in this
        # file. While the array is referenced here, no other object gets its id.
        self._written: dict[int, tuple[torch.Tensor, str, str]] = {}

    def check(self) -> None:
        """Raise OSError if the folder is not empty, is a file, or has no parent folder."""
        with self._naming():
            if self.folder.is_dir():
                if any(self.folder.iterdir()):
                    raise FileExistsError(
                        errno.EEXIST, "the folder is not empty. Pass another one or delete it"
                    )
            elif self.folder.exists():
                raise NotADirectoryError(errno.ENOTDIR, "it is a file. Pass the path of a folder")
            elif not self.folder.parent.is_dir():
                raise FileNotFoundError(errno.ENOENT, "the parent folder does not exist")

    def make(self) -> None:
        """Create the folder if it does not exist."""
        with self._naming():
            self._made = not self.folder.exists()
            self.folder.mkdir(exist_ok=True)

    def begin(self) -> None:
        """Create the folder. Raise OSError if it is not empty or cannot be created.

        Call this before `write`.
        """
        self.check()
        self.make()

    def write(
        self, name: str, arrays: Mapping[str, torch.Tensor | Blocks]
    ) -> dict[str, torch.Tensor]:
        """Write arrays to a new file. Return them memory-mapped from this file.

        The name of the file contains `name`, such as ``"layers.0"``. Raise OSError with the folder
        in its message if the file cannot be written.
        """
        file_name = f"{self._count:04}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:100]}.safetensors"
        self._count += 1
        path = self.folder / file_name
        with self._naming():
            # Store the name before the file exists, so that `discard` removes the file if an
            # interrupt follows.
            self._files.add(file_name)
            try:
                file = path.open("xb")
            except FileExistsError:
                # The file belongs to another process that writes to the same folder. Keep it.
                self._files.discard(file_name)
                raise
            with file:
                write_safetensors(file, arrays, {})
        mapped = map_arrays(path)[1]
        for array_name, array in mapped.items():
            self._written[id(array)] = (array, file_name, array_name)
        return mapped

    def clear(self) -> None:
        """Remove all written files, so that another run of the model can write its layers."""
        self._remove(list(self._files))
        self._written = {}

    def finish(self, record: AttentionRecord) -> None:
        """Write the index. The folder can then be loaded, with all arrays memory-mapped.

        `record` contains the arrays that `write` returned. They are not written again. All other
        arrays of `record` are stored in the index. Files of which `record` contains no array are
        removed.
        """
        header, arrays = record_to_arrays(record)
        layers: dict[str, dict[str, str]] = {}
        index_arrays: dict[str, torch.Tensor] = {}
        for name, array in arrays.items():
            if id(array) in self._written:
                _, file, own_name = self._written[id(array)]
                layers.setdefault(file, {})[name] = own_name
            else:
                index_arrays[name] = array
        self._remove(self._files - layers.keys())
        with self._naming():
            write_arrays(self.folder / INDEX, header | {"layers": layers}, index_arrays)

    def discard(self) -> None:
        """Remove all written files, unless `finish` has completed the record.

        The folder is also removed if `make` created it and it is empty. This method may be called
        at any time, also several times.
        """
        if not (self.folder / INDEX).exists():
            self._remove(list(self._files))
            self.remove_if_empty()
        self._written = {}

    def remove_if_empty(self) -> None:
        """Remove the folder if `make` created it and it is empty."""
        if self._made:
            with suppress(OSError):
                self.folder.rmdir()

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            # Windows raises OSError for a file that is still mapped. The file then remains.
            with suppress(OSError):
                (self.folder / name).unlink()
            self._files.discard(name)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Replace an OSError of the ``with`` block by one whose message contains the folder."""
        try:
            yield
        except OSError as error:
            raise type(error)(
                error.errno,
                f"spool={self._given!r} cannot be written: {error.strerror or error}",
                str(self.folder),
            ) from error


class SpoolFolders:
    """Creator of one `Spool` for each record of an extraction.

    `several` is whether the inputs are several examples, each of which becomes a record. These are
    written to the subfolders ``0``, ``1``, ... of `folder`. A single record is written to `folder`
    itself.
    """

    def __init__(self, folder: str | os.PathLike[str], *, several: bool) -> None:
        self._outer = Spool(folder)
        self.folder = folder
        self.several = several
        self._next = 0

    def check(self) -> None:
        """Raise OSError if `folder` is not empty, is a file, or has no parent folder."""
        self._outer.check()

    def take(self, count: int, undo: Cleanup) -> list[Spool]:
        """Create the folders of the next `count` records, and return one spool for each.

        If `several` is False, `count` is not used, and the result is one spool. `undo` calls
        `Spool.discard` of each spool when its ``with`` block ends, so that only complete records
        remain.
        """
        spools = [self._outer]
        if self.several:
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
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the header and the memory-mapped arrays of a record in a folder.

    Raise FileNotFoundError if the folder does not contain a record, or ValueError if the record is
    damaged.
    """
    folder = as_path("path", path, "folder")
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(
            f"no record at path={str(path)!r}: the folder has no {INDEX}, which is written last. "
            "The records of several examples are in its subfolders 0, 1, ..."
        )
    header, arrays = read_arrays(folder / INDEX)
    try:
        layers = header.pop("layers", {})
        # A changed index could contain paths. Reject all names that lead outside the folder.
        for name in layers:
            if Path(name).name != name:
                raise ValueError(f"{name!r} is not a file name")  # noqa: TRY301 - wrapped below
        for name, names in layers.items():
            _, mapped = map_arrays(folder / name)
            arrays |= {full_name: mapped[own_name] for full_name, own_name in names.items()}
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"path={str(path)!r} is damaged ({error}); extract it again") from error
    return header, arrays
