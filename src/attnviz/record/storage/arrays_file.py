"""Safetensors written block by block, so that no array has to be in memory as a whole.

The library's own writer wants every array at once, twice over. The format is eight bytes that say
how long the header is, the header as JSON, and the arrays one after the other
(https://huggingface.co/docs/safetensors, section "Format").
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

import torch

__all__ = ["CHECKSUM", "Blocks", "array_checksum", "write_safetensors"]

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
# The library refuses to read a longer header.
_LONGEST_HEADER = 100_000_000
#: The name of the checksum among the metadata.
CHECKSUM = "crc32"
_UNKNOWN = "00000000"
# So much is read from a mapped file, summed and written at once, while it is near.
_PIECE = 1 << 22


@dataclass(frozen=True)
class Blocks:
    """An array that comes block by block.

    Attributes
    ----------
    dtype : dtype
        Of all blocks.
    shape : tuple of int
        Of the whole.
    blocks : iterable of Tensor
        In order; together they have as many entries as the whole.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    blocks: Iterable[torch.Tensor]


def write_safetensors(
    file: IO[bytes],
    arrays: Mapping[str, torch.Tensor | Blocks],
    metadata: Mapping[str, str],
    first: str = "",
) -> str:
    """Write arrays as safetensors, with a checksum among their metadata.

    Parameters
    ----------
    file : binary file
        Empty, open for writing, and seekable.
    arrays : mapping of str to Tensor or Blocks
        Kept in their dtype, on whichever device.
    metadata : mapping of str to str
        What else the file says.
    first : str, optional
        A text that the checksum begins with.

    Returns
    -------
    str
        The checksum: CRC-32 of `first`, and of each array, by name, its description and its bytes;
        as ``crc32`` among the metadata.

    Raises
    ------
    OSError
        If it cannot be written.
    TypeError
        If an array has a dtype that has no place in such a file.
    ValueError
        If blocks are not as large as was said, or the metadata are too long to be read again.
    """
    sized = {
        name: array
        if isinstance(array, Blocks)
        else Blocks(array.dtype, tuple(array.shape), (array,))
        for name, array in arrays.items()
    }
    header, places = _header(sized, {**metadata, CHECKSUM: _UNKNOWN})
    file.write(header)
    code = zlib.crc32(first.encode())
    for name in sorted(sized):
        array = sized[name]
        code = zlib.crc32(_description(name, array.dtype, array.shape), code)
        start, stop = (len(header) + place for place in places[name])
        file.seek(start)
        for piece in _pieces(array.blocks):
            file.write(piece)
            code = zlib.crc32(piece, code)
        if file.tell() != stop:
            raise ValueError(f"{name} has {file.tell() - start} bytes, {stop - start} were said")
    checksum = f"{code:08x}"
    # No text inside of it can look so: its quotes would be escaped.
    file.seek(header.index(f'"{CHECKSUM}":"{_UNKNOWN}"'.encode()) + len(CHECKSUM) + 4)
    file.write(checksum.encode())
    return checksum


def array_checksum(arrays: Mapping[str, torch.Tensor], first: str = "") -> str:
    """The checksum that `write_safetensors` gives; reads every byte.

    Parameters
    ----------
    arrays : mapping of str to Tensor
        By name.
    first : str, optional
        As it was written.

    Returns
    -------
    str
        Eight hexadecimal digits.
    """
    code = zlib.crc32(first.encode())
    for name in sorted(arrays):
        array = arrays[name]
        code = zlib.crc32(_description(name, array.dtype, tuple(array.shape)), code)
        for piece in _pieces([array]):
            code = zlib.crc32(piece, code)
    return f"{code:08x}"


def _description(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> bytes:
    return f"{name} {dtype} {shape}".encode()


def _header(
    arrays: Mapping[str, Blocks], metadata: Mapping[str, str]
) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The header with its length, and where each array begins and ends behind it."""
    places: dict[str, tuple[int, int]] = {}
    end = 0
    # Wide numbers first, so that all of them lie at multiples of their width.
    for name in sorted(arrays, key=lambda each: (-arrays[each].dtype.itemsize, each)):
        array = arrays[name]
        if array.dtype not in _NAMES:
            raise TypeError(f"{name} is {array.dtype}, which cannot be saved; convert it before")
        start, end = end, end + math.prod(array.shape) * array.dtype.itemsize
        places[name] = (start, end)
    described = {
        name: {
            "dtype": _NAMES[arrays[name].dtype],
            "shape": list(arrays[name].shape),
            "data_offsets": list(place),
        }
        for name, place in places.items()
    }
    text = json.dumps(
        {"__metadata__": dict(metadata), **described}, ensure_ascii=False, separators=(",", ":")
    ).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _LONGEST_HEADER:
        raise ValueError(
            f"the tokens and notes take {len(text):,} bytes, and a safetensors file may have "
            f"{_LONGEST_HEADER:,} beside its arrays; keep fewer tokens"
        )
    return len(text).to_bytes(8, "little") + text, places


def _pieces(blocks: Iterable[torch.Tensor]) -> Iterator[memoryview]:
    """The bytes of an array, a few MB at once."""
    for block in blocks:
        as_it_is = block.is_contiguous() and block.device.type == "cpu"
        # Head by head where copies have to be made: one of the whole could be too much.
        for part in block.unbind() if block.dim() > 2 and not as_it_is else [block]:
            flat = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            for start in range(0, len(flat), _PIECE):
                yield flat[start : start + _PIECE].numpy().data
