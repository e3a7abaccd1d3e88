"""Checkpoints: fingerprints of model, texts and arguments, to decide whether a run may resume."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnviz.utils.arguments import short_repr

__all__ = ["check_same", "told", "weights_hash"]

# Numbers of each parameter that `weights_hash` reads.
_OF_A_PARAMETER = 1024


def weights_hash(model: torch.nn.Module) -> str:
    """Return a hash of the weights of a model: 16 hexadecimal digits.

    It covers the name, the shape and about a thousand numbers of each parameter.
    """
    code = hashlib.blake2b(digest_size=8)
    for name, parameter in sorted(model.named_parameters()):
        flat = parameter.detach().reshape(-1)
        some = flat[:: max(1, len(flat) // _OF_A_PARAMETER)]
        code.update(f"{name} {tuple(parameter.shape)}".encode())
        if some.device.type != "meta":
            code.update(some.double().cpu().numpy().tobytes())
    return code.hexdigest()


def told(value: Any) -> int:
    """Return the CRC-32 of an example or of a value that belongs to it, the same in any process.

    >>> told("the cat") == told("the cat") != told("the dog")
    True
    """
    return zlib.crc32(_words(value).encode("utf-8", "replace"))


def _words(value: Any) -> str:
    """Return a string for a value that is the same in any process."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_words(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_words, value))})"
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    # The repr of arrays, tensors and images omits most values or contains a memory address.
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
        return f"{array.shape} {array.dtype} {zlib.crc32(np.ascontiguousarray(array).tobytes()):x}"
    return repr(value)


def check_same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise ValueError if the checkpoint at `path` was made with different arguments.

    The error names the argument and both values.
    """
    for argument, value in here.items():
        if there.get(argument) != value:
            raise ValueError(
                f"checkpoint={str(path)!r}: {argument} is {short_repr(there.get(argument))} in the "
                f"file but {short_repr(value)} in this call. Pass the same {argument} or another "
                "file."
            )
