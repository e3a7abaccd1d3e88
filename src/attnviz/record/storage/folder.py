"""A record as a folder: safetensors files, and an index of them that is written last.

The index is what makes the folder a record: without it, files are what an interrupt left behind.
This module knows no record, only its header and its arrays.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from attnviz.record.storage.safetensors_file import (
    ALWAYS_SUMMED,
    CHECKSUM,
    array_checksum,
    as_text,
    map_arrays,
)
from attnviz.utils.arguments import as_path
from attnviz.utils.files import write_whole

__all__ = [
    "INDEX",
    "MARKER",
    "SPOOLED",
    "StoredArray",
    "StoredFile",
    "is_part",
    "read_folder",
    "write_index",
]

#: The file that says what the others hold.
INDEX = "index.json"
#: The file that lies there while others are written.
MARKER = "unfinished.txt"
#: Files that are written, beside the index: "0003-model.layers.3.self_attn.safetensors".
SPOOLED = re.compile(r"\d{4,}-.*\.safetensors|\.index\.json\..*")

# The index begins with the checksum of what follows.
_BEFORE, _BEHIND = b'{"crc32":"', b'",'


@dataclass(frozen=True)
class StoredFile:
    """A safetensors file of a folder: its length in bytes, and the checksum of its arrays."""

    bytes: int
    crc32: str


@dataclass(frozen=True)
class StoredArray:
    """Where an array lies: the file, its name there, its dtype (``"float32"``) and its shape."""

    file: str
    name: str
    dtype: str
    shape: list[int]


def write_index(
    folder: Path,
    header: Mapping[str, Any],
    files: Mapping[str, StoredFile],
    arrays: Mapping[str, StoredArray],
) -> Path:
    """Write the index, complete or not at all; `arrays` are by the names that `header` implies."""
    content = {
        "files": {name: asdict(file) for name, file in files.items()},
        "arrays": {name: asdict(array) for name, array in arrays.items()},
        "record": dict(header),
    }
    rest = as_text(content).encode()[1:]
    checksum = f"{zlib.crc32(rest):08x}".encode()
    return write_whole(folder / INDEX, _BEFORE + checksum + _BEHIND + rest)


def read_folder(
    path: str | os.PathLike[str], *, verify: bool = False
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read the header and the arrays of a folder that holds a record, memory-mapped.

    The index, and the lengths, names, dtypes and shapes in all files are always held against the
    checksums; so are all numbers where they are 16 MB at most, or with `verify`. FileNotFoundError
    if it holds no record; ValueError if it is damaged, or what was writing there was interrupted.
    """
    folder = as_path("path", path, "folder")
    if not (folder / INDEX).is_file():
        _refuse(path, folder)
    try:
        return _read(path, folder, (folder / INDEX).read_bytes(), verify=verify)
    except FileNotFoundError:
        # It was removed since.
        _refuse(path, folder)
        raise


def _read(
    path: str | os.PathLike[str], folder: Path, index: bytes, *, verify: bool
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    content = _content(path, index)
    try:
        files = {name: StoredFile(**fields) for name, fields in content["files"].items()}
        arrays = {name: StoredArray(**fields) for name, fields in content["arrays"].items()}
        header = content["record"]
        verify = verify or sum(file.bytes for file in files.values()) <= ALWAYS_SUMMED
        mapped = {name: _mapped(folder, name, file, verify=verify) for name, file in files.items()}
        found = {name: _array(name, array, mapped) for name, array in arrays.items()}
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        reason = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise ValueError(f"path={str(path)!r} is damaged ({reason}); extract it again") from error
    if not isinstance(header, dict):
        raise ValueError(f"path={str(path)!r} is damaged (its header is not an object)")
    return header, found


def is_part(path: Path) -> bool:
    """Whether a file is one of those that a folder's record is made of, also an unfinished one."""
    index = path.parent / INDEX
    if (path.parent / MARKER).is_file():
        return path.name in (INDEX, MARKER) or SPOOLED.fullmatch(path.name) is not None
    if not index.is_file():
        return False
    with index.open("rb") as file:
        if file.read(len(_BEFORE)) != _BEFORE:
            return False
        # Tokens of a long text are in it, too: read where the name alone says so much.
        if path.name == INDEX or SPOOLED.fullmatch(path.name) is None:
            return path.name == INDEX
        return f'"{path.name}":{{"bytes":'.encode() in file.read()


def _refuse(path: str | os.PathLike[str], folder: Path) -> None:
    if (folder / MARKER).exists():
        raise ValueError(
            f"path={str(path)!r} holds a part of a record: what wrote it was interrupted, or still "
            f"writes. Extract again with spool={str(path)!r}, which starts again, or delete the "
            "folder"
        )
    try:
        records = [each for each in folder.iterdir() if (each / INDEX).is_file()]
    except FileNotFoundError:
        records = []
    inside = sorted(records, key=lambda each: (len(each.name), each.name))
    if inside:
        names = ", ".join(each.name for each in inside[:3]) + (", ..." if inside[3:] else "")
        raise ValueError(
            f"path={str(path)!r} holds {len(inside)} records, in the folders {names}: load one of "
            f"them, for example load({str(Path(path) / inside[0].name)!r})"
        )
    raise FileNotFoundError(f"no record at path={str(path)!r}: the folder has no {INDEX}")


def _content(path: str | os.PathLike[str], data: bytes) -> dict[str, Any]:
    start = len(_BEFORE) + 8
    rest = data[start + len(_BEHIND) :]
    stated = data[len(_BEFORE) : start]
    whole = data.startswith(_BEFORE) and data[start : start + len(_BEHIND)] == _BEHIND
    if not whole or stated != f"{zlib.crc32(rest):08x}".encode():
        raise ValueError(
            f"path={str(path)!r} is damaged or is not a saved record: its {INDEX} is not what was "
            "written"
        )
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"path={str(path)!r} has a damaged {INDEX} ({error})") from error
    return dict(content)


def _mapped(folder: Path, name: str, file: StoredFile, *, verify: bool) -> dict[str, torch.Tensor]:
    # The index is data: it must not lead out of its folder.
    if Path(name).name != name or name in ("", ".", ".."):
        raise ValueError(f"{name!r} is not the name of a file")
    path = folder / name
    if not path.is_file():
        raise ValueError(f"{name} is missing")
    if path.stat().st_size != file.bytes:
        raise ValueError(f"{name} has {path.stat().st_size:,} bytes, {file.bytes:,} were written")
    metadata, arrays = map_arrays(path)
    stated = {metadata.get(CHECKSUM)} | ({array_checksum(arrays)} if verify else set())
    if stated != {file.crc32}:
        raise ValueError(f"{name} is not what was written")
    return arrays


def _array(
    name: str, array: StoredArray, mapped: Mapping[str, Mapping[str, torch.Tensor]]
) -> torch.Tensor:
    found = mapped[array.file][array.name]
    if (str(found.dtype), list(found.shape)) != (f"torch.{array.dtype}", list(array.shape)):
        raise ValueError(
            f"{name} is {found.dtype} of shape {tuple(found.shape)}, {array.dtype} of shape "
            f"{tuple(array.shape)} was written"
        )
    return found
