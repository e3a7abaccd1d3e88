"""Reading and writing of safetensors files with named arrays and a header of JSON values.

Reading runs no code of the file, unlike reading a pickle, and memory-maps the arrays.
`write_arrays` is atomic: it never leaves an incomplete file.

An array may be generated while it is written, block by block
(`Blocks`). The writer of the safetensors library would need all arrays in memory, twice.

A safetensors file begins with eight bytes that contain the length of the safetensors header. This
header follows as JSON. It describes the arrays, and contains metadata: strings by name. Then come
the bytes of the arrays (https://huggingface.co/docs/safetensors, section "Format"). The header of
attnviz is one of the strings in the metadata.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch

from attnviz.utils.arguments import as_path, encodable
from attnviz.utils.files import open_atomic

_SUFFIX = ".safetensors"
_HEADER_KEY = "attnviz"
#: Names of the dtypes of arrays in files.
DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
# Limit of the safetensors library, which rejects longer headers.
_MAX_HEADER_BYTES = 100_000_000
# If a KeyboardInterrupt arrives while torch creates a tensor from mapped memory, torch raises an
# error with this message instead of the KeyboardInterrupt. No other cause of the message is known.
# Therefore, `map_arrays` raises KeyboardInterrupt, and does not report that the file is damaged.
_HIDDEN_INTERRUPT = "could not determine the shape of object"


def compact_json(values: Mapping[str, Any], *, allow_nan: bool = True) -> str:
    """Return `values` as JSON without spaces. The result can be encoded in UTF-8."""
    write = partial(
        json.dumps,
        dict(values),
        allow_nan=allow_nan,
        separators=(",", ":"),
        default=_number_of_scalar,
    )
    text = write(ensure_ascii=False)
    # Lone surrogates cannot be encoded in UTF-8, but JSON can escape them.
    return text if encodable(text) == text else write()


def _number_of_scalar(value: Any) -> Any:
    """Convert a scalar of numpy or torch, such as the scale of a layer, to a Python number."""
    if getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def add_suffix(path: Path) -> Path:
    """Add ``.safetensors`` to a path without a suffix, as `write_arrays` does."""
    return path if path.suffix else path.with_suffix(_SUFFIX)


def saved_file(path: Path) -> Path:
    """Return `path` if it exists, otherwise the path with the suffix that `add_suffix` adds."""
    exists = os.path.exists(path)  # noqa: PTH110 - Path.exists can raise OSError
    return path if exists else add_suffix(path)


def write_arrays(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]
) -> Path:
    """Write a header (JSON values) and named arrays to a file, and return its path.

    The path is `path`, with ``.safetensors`` if it has no suffix. Raise OSError if the file cannot
    be written, TypeError if a dtype is not supported, or ValueError if the header has more than
    100 MB.
    """
    path = add_suffix(as_path("path", path, "file"))
    metadata = {_HEADER_KEY: compact_json(header)}
    with open_atomic(path) as (file, target):
        write_safetensors(file, arrays, metadata)
    return target


def map_arrays(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Return the metadata and the memory-mapped arrays of a safetensors file.

    The file may be written by any program. Raise OSError if it cannot be opened, or ValueError if
    it is not a safetensors file or has a wrong length.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with path.open("rb") as opened:
            # safe_open opens a path twice, and the file could be replaced between the two calls.
            # The path of an open file always leads to the same file.
            same = f"/dev/fd/{opened.fileno()}" if sys.platform == "linux" else path
            with safe_open(same, framework="pt") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - `file` is not a mapping
    except (SafetensorError, ValueError, RuntimeError, UnicodeDecodeError) as error:
        if _HIDDEN_INTERRUPT in str(error):
            raise KeyboardInterrupt from error
        raise ValueError(
            f"path={str(path)!r} is damaged or is not a saved record ({error}); save it again"
        ) from error
    return metadata, arrays


def read_arrays(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the header and the memory-mapped arrays of a file that `write_arrays` wrote.

    Raise FileNotFoundError if the file does not exist, or ValueError if it is damaged or was not
    written by attnviz.
    """
    source = as_path("path", path, "file")
    try:
        metadata, arrays = map_arrays(source)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"no file at path={str(path)!r}") from error
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot read path={str(path)!r}: {error.strerror or error}", str(source)
        ) from error
    if _HEADER_KEY not in metadata:
        raise ValueError(
            f"path={str(path)!r} is a safetensors file without a header of attnviz. Load a file "
            "of record.save(path), or the complete folder of spool=."
        )
    try:
        header = json.loads(metadata[_HEADER_KEY])
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"path={str(path)!r} has a damaged header ({error})") from error
    if not isinstance(header, dict):
        raise ValueError(f"path={str(path)!r} has a damaged header (not an object)")
    return header, arrays


@dataclass(frozen=True)
class Blocks:
    """An array that is generated block by block while it is written.

    `dtype` and `shape` are those of the whole array. The tensors `blocks` have this dtype. Their
    entries, one tensor after the other, are the entries of the array in C order.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    blocks: Iterable[torch.Tensor]


def write_safetensors(
    file: IO[bytes],
    arrays: Mapping[str, torch.Tensor | Blocks],
    metadata: Mapping[str, str],
) -> None:
    """Write arrays and metadata as safetensors to an empty file.

    Raise TypeError if a dtype is not supported. Raise ValueError if a `Blocks` has more or fewer
    entries than its shape, or the safetensors header is too long.
    """
    sized = {
        name: array
        if isinstance(array, Blocks)
        else Blocks(array.dtype, tuple(array.shape), (array,))
        for name, array in arrays.items()
    }
    # Arrays whose items have more bytes come first. The offset of every array is then a multiple of
    # the bytes of one of its items.
    ordered = sorted(sized.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    file.write(_header(ordered, metadata))
    for name, array in ordered:
        start = file.tell()
        for piece in _bytes_of(array.blocks):
            file.write(piece)
        written, size = file.tell() - start, _size(array)
        if written != size:
            raise ValueError(f"{name} has {written} bytes instead of {size}")


def _size(array: Blocks) -> int:
    return math.prod(array.shape) * array.dtype.itemsize


def _header(arrays: Sequence[tuple[str, Blocks]], metadata: Mapping[str, str]) -> bytes:
    """Return the safetensors header, which begins with its length, for arrays in this order."""
    described: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in arrays:
        if array.dtype not in DTYPE_NAMES:
            raise TypeError(f"{name} is {array.dtype}, which cannot be saved. Convert it first.")
        start, end = end, end + _size(array)
        described[name] = {
            "dtype": DTYPE_NAMES[array.dtype],
            "shape": array.shape,
            "data_offsets": (start, end),
        }
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER_BYTES:
        raise ValueError(
            f"the tokens and notes take {len(text):,} bytes, but the header of a safetensors file "
            f"has at most {_MAX_HEADER_BYTES:,}. Save fewer tokens."
        )
    return len(text).to_bytes(8, "little") + text


def _bytes_of(blocks: Iterable[torch.Tensor]) -> Iterator[memoryview]:
    """Yield the bytes of an array's blocks, with little of it in memory."""
    for block in blocks:
        if not block.numel():
            continue  # view() rejects the strides of 0 that an empty block may have.
        # Copy the queries or keys of a layer from a device at once, because each copy waits for it.
        on_cpu = block.detach().cpu()
        # A block with entries that are not in C order must be copied. A copy of the whole block
        # could be too large for the memory. Therefore, if it has more than two axes, copy one index
        # of its first axis, such as a head, at a time.
        splits = on_cpu.dim() > 2 and not on_cpu.is_contiguous()
        for part in on_cpu.unbind() if splits else [on_cpu]:
            yield part.contiguous().reshape(-1).view(torch.uint8).numpy().data
