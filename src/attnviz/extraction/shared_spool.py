"""Folders of records of a model whose heads are divided over processes: one of them writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch

from attnviz.extraction.parallel import Processes
from attnviz.record.record import AttentionRecord, load
from attnviz.record.storage.safetensors_file import Blocks
from attnviz.record.storage.spool import Spool, SpoolFolders
from attnviz.utils.restoring import Restoring

__all__ = ["SharedSpoolFolders"]


class SharedSpoolFolders(SpoolFolders):
    """Places for the records of one extraction that several processes run.

    The first process writes, the others open what it has written: they must see the same folder.
    """

    def __init__(
        self, processes: Processes, folder: str | os.PathLike[str], *, several: bool
    ) -> None:
        super().__init__(folder, several=several)
        self._processes = processes

    def check(self) -> None:
        """Refuse a place in all processes where the first may not write."""
        with self._processes.together():
            if self._processes.first:
                super().check()

    def take(self, count: int, undo: Restoring) -> list[Spool]:
        """Take the next places, begun by the first process."""
        spools = self._take(count)
        with self._processes.together():
            if self._processes.first:
                return self._begin(spools, undo)
        return [_WrittenElsewhere(spool.folder) for spool in spools]

    def finish(
        self, spools: Sequence[Spool], records: Sequence[AttentionRecord]
    ) -> list[AttentionRecord]:
        """Make the places records, and open them in all processes."""
        made: list[AttentionRecord] = []
        for first in (True, False):
            with self._processes.together():
                if self._processes.first == first:
                    made = super().finish(spools, records)
        return made


class _WrittenElsewhere(Spool):
    """A record that another process writes: here nothing is kept of it."""

    def write(
        self, name: str, arrays: Mapping[str, torch.Tensor | Blocks]
    ) -> dict[str, torch.Tensor]:
        """Arrays of the same shapes, all zeros, which take no memory."""
        del name
        return {
            each: torch.zeros((), dtype=array.dtype).expand(tuple(array.shape))
            for each, array in arrays.items()
        }

    def clear(self) -> None:
        """There is nothing to remove."""

    def finish(self, record: AttentionRecord) -> AttentionRecord:
        """Open the record that was written; `record` holds zeros."""
        del record
        try:
            return load(self.folder)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                error.errno,
                "spool: this process does not see what the first one has written; give a folder "
                "that all processes share",
                str(self.folder),
            ) from error
