"""Checkpoints of `head_statistics`: files from which a later call continues.

A checkpoint has the statistics of the texts that were read so far, a hash of the model's weights,
the arguments that a later call must not change (such as `layers` and `seed`), and fingerprints
(checksums) of up to 64 texts. A later call raises ValueError if the model, one of these arguments,
or the fingerprint of a text that was already read differs.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from attnviz.corpus.statistics_file import read_totals, write_totals
from attnviz.corpus.totals import Totals, compared_arguments
from attnviz.extraction.modules import plain_numbers
from attnviz.record.storage.safetensors_file import add_suffix
from attnviz.utils.arguments import as_path, short_repr

# Minimum time in seconds between two saves while texts are read.
_SECONDS_BETWEEN_SAVES = 30.0
# Maximum number of texts whose fingerprints a checkpoint stores.
_NUM_FINGERPRINTS = 64

# Number of entries of a parameter that `weights_hash` copies to the CPU at once.
_ENTRIES_PER_COPY = 1 << 20


def weights_hash(model: torch.nn.Module) -> str:
    """Return a hash of the weights of a model as a string of 16 hexadecimal digits.

    The hash depends on the name, the shape and all entries of each parameter, as float32. For a
    parameter whose values cannot be read, such as one on the meta device, it depends only on the
    name and the shape. Computing the hash takes about as long as a forward of a short text.
    """
    code = hashlib.blake2b(digest_size=8)
    for name, parameter in sorted(model.named_parameters()):
        code.update(f"{name} {tuple(parameter.shape)}".encode())
        numbers = plain_numbers(parameter)
        if numbers is None:
            continue
        checksum = 0
        for part in numbers.reshape(-1).split(_ENTRIES_PER_COPY):
            checksum = zlib.crc32(part.cpu().float().numpy(), checksum)
        code.update(checksum.to_bytes(4, "little"))
    return code.hexdigest()


def fingerprint(value: Any) -> int:
    """Return a checksum (CRC-32) of a text, an image or another value.

    A text has the same checksum in every Python process. Python's `hash` is not used, because its
    result for a string differs between processes.

    >>> fingerprint("the cat") == fingerprint("the cat") != fingerprint("the dog")
    True
    """
    return zlib.crc32(_stable_repr(value).encode("utf-8", "replace"))


def _stable_repr(value: Any) -> str:
    """Return a string that represents the content of `value`, to compute a checksum.

    For a tensor, array or image, the string contains the shape, the dtype and a checksum of the
    values. For a mapping, list or tuple, it contains such a string for each item. For any other
    object, it is the repr.
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_stable_repr(item)}' for name, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_stable_repr, value))})"
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    # Do not use the repr of an array, tensor or image. The repr of a large array or tensor omits
    # most values. The repr of an image contains an address in memory, which differs between
    # processes.
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
        return f"{array.shape} {array.dtype} {zlib.crc32(np.ascontiguousarray(array).tobytes()):x}"
    return repr(value)


class Checkpoint:
    """File to which the totals (the sums over the texts so far) are saved while texts are read.

    Later calls continue from this file.

    Parameters
    ----------
    path : path-like
        Path of the file. If the file exists and `resume` is False, FileExistsError is raised.
    arguments : mapping of str to str
        Arguments that a later call must not change: the name of each, and its value as a string.
        The arguments in `Totals.settings`, such as `seed`, are compared without being passed here.
    inputs : callable
        Function that takes the index of a text and returns the inputs of this text: the text
        itself, its columns, its parse and its target. The keys are the names of the arguments of
        `head_statistics`, such as ``"texts"``.
    count : int
        Number of all texts of the call, including those that are not read yet.
    resume : bool
        Whether to continue from the file if it exists.
    """

    def __init__(
        self,
        path: Any,
        arguments: Mapping[str, str],
        inputs: Callable[[int], Mapping[str, Any]],
        count: int,
        *,
        resume: bool,
    ) -> None:
        self._path = add_suffix(as_path("checkpoint", path, "file"))
        if self._path.exists() and not resume:
            raise FileExistsError(
                f"checkpoint={str(path)!r} already exists. Pass resume=True to continue it, or "
                "another path."
            )
        self._arguments, self._inputs, self._count = arguments, inputs, count
        self._saved = time.monotonic()

    def restored(self, new: Totals) -> Totals:
        """Return the totals in the file, or `new` if the file does not exist.

        `new` has the settings of this call, but no texts. If the file does not exist, `new` is also
        written to it. Raise ValueError if the file is not a checkpoint, or if it belongs to a call
        with another model, other arguments or other texts.
        """
        if not self._path.exists():
            self.save(new)
            return new
        totals, call = read_totals(self._path)
        if call is None:
            raise ValueError(
                f"checkpoint={str(self._path)!r} contains statistics that are not a checkpoint. "
                "Load them with HeadStatistics.load, and add the statistics of new texts."
            )
        # If only Ray actors (worker processes) load the model, `new` has no hash of its weights, so
        # the hash is not compared here. `Totals.plus` compares it when results of the actors, which
        # have the hash, are added.
        pairs = compared_arguments(totals, new)
        pairs |= {name: (call.get(name), value) for name, value in self._arguments.items()}
        for name, (saved, value) in pairs.items():
            if saved != value:
                raise ValueError(
                    f"checkpoint={str(self._path)!r}: {name} is {short_repr(saved)} in the file "
                    f"but {short_repr(value)} in this call. Pass the same {name} or another file."
                )
        self._check_inputs(call["inputs"], totals)
        return totals

    def _check_inputs(self, saved: Mapping[str, Mapping[str, int]], totals: Totals) -> None:
        """Raise ValueError if the inputs of a text have changed since the text was read.

        The inputs of a text are the text itself and its columns, parse and target. `saved` has up
        to 64 texts. Its keys are the indices of these texts, as strings. Each value maps the names
        of the inputs, such as "parse", to their fingerprints. Texts that are not in `totals` are
        ignored, because they were not read yet. A text that this call does not have counts as
        changed.
        """
        for index in map(int, saved):
            if not any(start <= index < stop for start, stop in totals.texts):
                continue
            values = self._fingerprints(index) if index < self._count else {"texts": 0}
            for argument, value in values.items():
                if saved[str(index)][argument] != value:
                    raise ValueError(
                        f"checkpoint={str(self._path)!r} was made with different {argument}. Pass "
                        f"the same {argument} or another file."
                    )

    def _fingerprints(self, index: int) -> dict[str, int]:
        return {name: fingerprint(value) for name, value in self._inputs(index).items()}

    def save_if_due(self, totals: Totals) -> None:
        """Save `totals` if the last save was more than `_SECONDS_BETWEEN_SAVES` seconds ago."""
        if time.monotonic() - self._saved > _SECONDS_BETWEEN_SAVES:
            self.save(totals)

    def save(self, totals: Totals) -> None:
        """Save `totals`, the arguments, and the fingerprints of up to 64 evenly spaced texts."""
        indices = np.unique(np.linspace(0, self._count - 1, _NUM_FINGERPRINTS).round().astype(int))
        inputs = {str(index): self._fingerprints(index) for index in indices.tolist()}
        write_totals(self._path, totals, {**self._arguments, "inputs": inputs})
        self._saved = time.monotonic()
