"""Checkpoints: what tells whether reading that was interrupted may go on."""

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

# Numbers of each parameter that tell one model's weights from another's.
_OF_A_PARAMETER = 1024


def weights_hash(model: torch.nn.Module) -> str:
    """What tells the weights of a model from others: 16 hexadecimal digits.

    Of each parameter its name, its shape and a thousand of its numbers count.
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
    """What tells a text or an image, or what belongs to one, from another, in any process.

    >>> told("the cat") == told("the cat") != told("the dog")
    True
    """
    return zlib.crc32(_words(value).encode("utf-8", "replace"))


def _words(value: Any) -> str:
    """A value in words that are the same in another process."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_words(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_words, value))})"
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    # Arrays, tensors and images: their words leave out most, or say where they are in memory.
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
        return f"{array.shape} {array.dtype} {zlib.crc32(np.ascontiguousarray(array).tobytes()):x}"
    return repr(value)


def check_same(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse to go on with a checkpoint that was made with other arguments than those here.

    ValueError names the argument, and both values.
    """
    for argument, value in here.items():
        if there.get(argument) != value:
            raise ValueError(
                f"checkpoint={str(path)!r} was made with another {argument}: "
                f"{short_repr(there.get(argument))} there, {short_repr(value)} here; use the same, "
                "or "
                "another file"
            )
