"""Where the records of an extraction are written: a folder, or one inside it for each."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnviz.record.storage.folder import INDEX, MARKER
from attnviz.record.storage.spool import Spool

__all__ = ["SpoolFolders"]


class SpoolFolders:
    """Places for the records of one extraction: the folder itself, or one inside it for each.

    Parameters
    ----------
    folder : path-like
        As given.
    several : bool
        Whether there are several records: they get folders ``0``, ``1``, ... inside it.
    """

    def __init__(self, folder: str | os.PathLike[str], *, several: bool) -> None:
        self._outer = Spool(folder)
        self.folder = folder
        self._several = several
        self._next = 0

    def check(self, count: int) -> None:
        """Refuse places where nothing may be written, before anything runs.

        Parameters
        ----------
        count : int
            How many records will come.

        Raises
        ------
        OSError
            As `Spool.check`.
        """
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

    @contextmanager
    def taken(self, count: int) -> Iterator[list[Spool]]:
        """Take the next places; what is not finished when the block ends is discarded.

        Parameters
        ----------
        count : int
            How many.

        Yields
        ------
        list of Spool
            Begun.

        Raises
        ------
        OSError
            As `Spool.begin`.
        """
        self.check(count)
        outer = self._outer.folder
        made = self._several and self._outer.make()
        spools = self._spools(range(self._next, self._next + count))
        self._next += count
        try:
            for spool in spools:
                spool.begin()
            yield spools
        finally:
            for spool in spools:
                spool.discard()
            if made and not any(outer.iterdir()):
                outer.rmdir()

    def _spools(self, numbers: range) -> list[Spool]:
        if not self._several:
            return [Spool(self.folder)]
        return [Spool(Path(self.folder) / str(number)) for number in numbers]
