"""Arrays and a header to a file and back, as safetensors.

Nothing is unpickled, and a file is complete or not there: it is written beside its place and then
renamed. A checksum tells a file that was damaged since, where safetensors would read other numbers.
This module knows no record.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["read_arrays", "write_arrays", "write_whole"]

_HEADER_KEY = "attnviz"
_CHECKSUM_KEY = "crc32"


def write_whole(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write a file so that it is complete or not there.

    Parameters
    ----------
    path : path-like
        Where to write; an existing file is replaced.
    data : bytes
        Its content.

    Returns
    -------
    Path
        The file written, absolute.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written to, naming the path.
    """
    target = Path(path).expanduser().absolute()
    try:
        handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot write path={str(path)!r}: {error.strerror}", str(target.parent)
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp makes private files; give it the mode that open() would have given.
        umask = os.umask(0)
        os.umask(umask)
        Path(beside).chmod(0o666 & ~umask)
        Path(beside).replace(target)
    except OSError as error:
        Path(beside).unlink(missing_ok=True)
        raise type(error)(
            error.errno, f"cannot write path={str(path)!r}: {error.strerror}", str(target)
        ) from error
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    return target


def write_arrays(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]
) -> Path:
    """Write a header and named arrays.

    Parameters
    ----------
    path : path-like
        Where to write.
    header : mapping
        Anything that JSON can hold.
    arrays : mapping of str to Tensor
        Kept in their dtype.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    from safetensors.torch import save

    contiguous: dict[str, torch.Tensor] = {}
    storages: set[int] = set()
    for name, array in arrays.items():
        ready = array.detach().cpu().contiguous()
        # safetensors refuses arrays that share memory; layers of one given tensor do.
        address = ready.untyped_storage().data_ptr()
        contiguous[name] = ready.clone() if address in storages else ready
        storages.add(address)
    text = json.dumps(dict(header))
    metadata = {_HEADER_KEY: text, _CHECKSUM_KEY: _checksum(text, contiguous)}
    return write_whole(path, save(contiguous, metadata=metadata))


def _checksum(header: str, arrays: Mapping[str, torch.Tensor]) -> str:
    """Eight hexadecimal digits that tell any change: header, names, dtypes, shapes and numbers."""
    code = zlib.crc32(header.encode())
    for name in sorted(arrays):
        array = arrays[name]
        code = zlib.crc32(f"{name} {array.dtype} {tuple(array.shape)}".encode(), code)
        code = zlib.crc32(array.reshape(-1).view(torch.uint8).numpy().data, code)
    return f"{code:08x}"


def read_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read what `write_arrays` wrote.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    header : dict
    arrays : dict of str to Tensor
        Memory-mapped where the platform allows it.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged or was not written by attnviz.
    """
    from safetensors import SafetensorError, safe_open

    source = Path(path).expanduser()
    if not source.is_file():
        raise FileNotFoundError(f"no file at path={str(path)!r}")
    try:
        with safe_open(source, framework="pt") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, ValueError, RuntimeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"path={str(path)!r} is damaged or is not a saved record ({error}); save it again"
        ) from error
    if _HEADER_KEY not in metadata:
        raise ValueError(
            f"path={str(path)!r} is a safetensors file, but attnviz did not write it; "
            "a record is saved with record.save(path)"
        )
    if metadata.get(_CHECKSUM_KEY) != _checksum(metadata[_HEADER_KEY], arrays):
        raise ValueError(
            f"path={str(path)!r} is damaged: it is not what was written; save it again"
        )
    try:
        header = json.loads(metadata[_HEADER_KEY])
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"path={str(path)!r} has a damaged header ({error})") from error
    if not isinstance(header, dict):
        raise ValueError(f"path={str(path)!r} has a damaged header (no object)")
    return header, arrays
