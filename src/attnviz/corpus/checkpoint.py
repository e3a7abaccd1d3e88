"""Checks that a checkpoint belongs to the same model, texts and arguments as a new call.

A checkpoint stores a hash of the model's weights and fingerprints of some texts. A new call
continues from the checkpoint only if its hash and fingerprints are equal to those.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnviz.utils.arguments import short_repr

__all__ = ["check_same", "fingerprint", "weights_hash"]

# `weights_hash` reads fewer than twice this number of entries from each parameter.
_NUMBERS_PER_PARAMETER = 1024


def weights_hash(model: torch.nn.Module) -> str:
    """Return a hash of the weights of a model as a string of 16 hexadecimal digits.

    The hash depends on the name, the shape and evenly spaced entries of each parameter. The entries
    of parameters on the meta device are not read.
    """
    code = hashlib.blake2b(digest_size=8)
    for name, parameter in sorted(model.named_parameters()):
        flat = parameter.detach().reshape(-1)
        numbers = flat[:: max(1, len(flat) // _NUMBERS_PER_PARAMETER)]
        code.update(f"{name} {tuple(parameter.shape)}".encode())
        if numbers.device.type != "meta":
            code.update(numbers.double().cpu().numpy().tobytes())
    return code.hexdigest()


def fingerprint(value: Any) -> int:
    """Return a checksum (CRC-32) of a text, an image or another value.

    Equal texts have the same checksum in every Python process, unlike with `hash`.

    >>> fingerprint("the cat") == fingerprint("the cat") != fingerprint("the dog")
    True
    """
    return zlib.crc32(_stable_repr(value).encode("utf-8", "replace"))


def _stable_repr(value: Any) -> str:
    """Return the content of containers, arrays and images as a string, or the repr of others."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_stable_repr(item)}' for name, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_stable_repr, value))})"
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    # Use a checksum for arrays, tensors and images, because their repr omits most values or
    # contains a memory address.
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
        return f"{array.shape} {array.dtype} {zlib.crc32(np.ascontiguousarray(array).tobytes()):x}"
    return repr(value)


def check_same(
    path: Path, saved_arguments: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Raise ValueError if an argument of this call differs from the value in a checkpoint.

    `saved_arguments` are stored in the checkpoint at `path`. `arguments` are passed in this call.
    """
    for argument, value in arguments.items():
        saved = saved_arguments.get(argument)
        if saved != value:
            raise ValueError(
                f"checkpoint={str(path)!r}: {argument} is {short_repr(saved)} in the file but "
                f"{short_repr(value)} in this call. Pass the same {argument} or another file."
            )
