"""Arrays and a header to a file and back, as safetensors.

Nothing is unpickled, and a file is complete or not there: it is written beside its place and then
renamed. Arrays are mapped, not read; a checksum tells a file that was damaged since, where
safetensors would read other numbers. This module knows no record.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from attnviz.record.storage.arrays_file import CHECKSUM, array_checksum, write_safetensors
from attnviz.utils.paths import as_path

__all__ = [
    "ALWAYS_SUMMED",
    "as_text",
    "map_arrays",
    "read_arrays",
    "write_arrays",
    "write_whole",
    "writing_whole",
]

_HEADER_KEY = "attnviz"
_HEADER_CHECKSUM_KEY = "header_crc32"
#: Arrays of so many bytes are held against their checksum without being asked. Of a long text one
#: layer is gigabytes, and whoever opens a record looks at a few of its rows.
ALWAYS_SUMMED = 1 << 24


@contextmanager
def writing_whole(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], Path]]:
    """Write a file so that it is complete or not there.

    Parameters
    ----------
    path : path-like
        Where to write; an existing file is replaced when the block ends without an error.

    Yields
    ------
    file : binary file
        To write to; it lies beside its place.
    target : Path
        The file that it will be, absolute.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written to, naming the path.
    """
    target = as_path("path", path, "file").absolute()
    try:
        handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot write path={str(path)!r}: {error.strerror}", str(target.parent)
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, target
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


def write_whole(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write bytes so that their file is complete or not there.

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
    with writing_whole(path) as (file, target):
        file.write(data)
    return target


def as_text(header: Mapping[str, Any]) -> str:
    """A header as JSON, as short as it can be.

    Parameters
    ----------
    header : mapping
        Anything that JSON can hold.

    Returns
    -------
    str
    """
    text = json.dumps(dict(header), ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair is no text to a file, but it can be written as an escape.
        return json.dumps(dict(header), separators=(",", ":"))
    return text


def write_arrays(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]
) -> Path:
    """Write a header and named arrays, a few MB of them at a time.

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
    TypeError, ValueError
        If it could not be read again: for a dtype that it cannot hold, or a header of 100 MB.
    """
    text = as_text(header)
    metadata = {_HEADER_KEY: text, _HEADER_CHECKSUM_KEY: _header_checksum(text, arrays)}
    with writing_whole(path) as (file, target):
        write_safetensors(file, arrays, metadata, first=text)
    return target


def _header_checksum(header: str, arrays: Mapping[str, torch.Tensor]) -> str:
    """Eight hexadecimal digits that tell any change of everything but the numbers."""
    code = zlib.crc32(header.encode())
    for name in sorted(arrays):
        array = arrays[name]
        code = zlib.crc32(f"{name} {array.dtype} {tuple(array.shape)}".encode(), code)
    return f"{code:08x}"


def map_arrays(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Map the arrays of any safetensors file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    metadata : dict of str to str
    arrays : dict of str to Tensor
        Nothing of them is read until it is needed.

    Raises
    ------
    ValueError
        If it is no such file, or not as long as it says.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, ValueError, RuntimeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"path={str(path)!r} is damaged or is not a saved record ({error}); save it again"
        ) from error
    return metadata, arrays


def read_arrays(
    path: str | os.PathLike[str], *, verify: bool = False
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read what `write_arrays` wrote.

    Parameters
    ----------
    path : path-like
        The file.
    verify : bool, default False
        Whether to hold every byte against the checksum. Header, names and shapes always are, and
        so are arrays of up to 16 MB in all.

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
    source = as_path("path", path, "file")
    if not source.is_file():
        raise FileNotFoundError(f"no file at path={str(path)!r}")
    metadata, arrays = map_arrays(source)
    if _HEADER_KEY not in metadata:
        raise ValueError(
            f"path={str(path)!r} is a safetensors file, but attnviz did not write it; "
            "a record is saved with record.save(path)"
        )
    text = metadata[_HEADER_KEY]
    intact = metadata.get(_HEADER_CHECKSUM_KEY) == _header_checksum(text, arrays)
    intact = intact and CHECKSUM in metadata
    if verify or sum(array.nbytes for array in arrays.values()) <= ALWAYS_SUMMED:
        intact = intact and metadata.get(CHECKSUM) == array_checksum(arrays, text)
    if not intact:
        raise ValueError(
            f"path={str(path)!r} is damaged: it is not what was written; save it again"
        )
    try:
        header = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"path={str(path)!r} has a damaged header ({error})") from error
    if not isinstance(header, dict):
        raise ValueError(f"path={str(path)!r} has a damaged header (no object)")
    return header, arrays
