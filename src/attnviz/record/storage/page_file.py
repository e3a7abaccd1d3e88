"""Reading of a record from an exported page.

A record can be restored from two kinds of pages. A page with queries and keys contains the arrays
that a file of the record would contain. A page with all weights contains rows of weights in the
form that `attnviz.pages.rows` describes. Other pages contain only the largest weights, from which a
record cannot be restored.

The numbers are compressed (zlib) and written in base64 as the texts of ``<template>`` elements,
which browsers do not show. The JSON of the page refers to these elements by their ids. No code of
the page runs.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.storage.safetensors_file import DTYPE_NAMES

#: Maximum size of a page in megabytes. Browsers do not open larger files.
MAX_MEGABYTES = 400

_BEGIN = b"<!doctype html>"
_DATA = '<script type="application/json" id="attnviz-data">'
_TEXT = re.compile(r'<template id="(attnviz-\d+)">([A-Za-z0-9+/=]*)</template>')
_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}
# Maximum number of bytes of all data of a page after decompression. Without it, the decompressed
# data of a small file could fill the memory.
_MAX_BYTES = 4_000_000_000
_MAX_HEADER_BYTES = 100_000_000
# Largest code of a weight, and of a signed number. A code is one byte. Code c means the number
# maximum * (c / largest code)^2, with the sign of c. `maximum` is in the header of each layer: the
# largest possible weight of its stack, or the largest possible absolute value if it is signed.
_TOP_CODE, _TOP_SIGNED_CODE = 255, 127

_Json = Mapping[str, Any]


def is_page(path: Path) -> bool:
    """Whether a file begins like an exported page. False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGIN)).lower() == _BEGIN
    except OSError:
        return False


def read_page(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the header and the arrays of the record that a page contains.

    They are like the result of `schema.record_to_arrays`. If the weights are not exact, a note in
    the header states the largest error. Raise ValueError if the record cannot be restored from the
    page, or the page is damaged.
    """
    if path.stat().st_size > MAX_MEGABYTES * 1_000_000:
        raise ValueError(
            f"path={str(path)!r} has more than {MAX_MEGABYTES} MB, more than any page of attnviz"
        )
    try:
        return _read(path.read_text(encoding="utf-8"))
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        message = f"its data are not those of a page ({error!r})"
    except (ValueError, zlib.error) as error:
        message = str(error)
    raise ValueError(f"path={str(path)!r} cannot be loaded: {message}")


def _read(page: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    # The JSON contains no "<". Therefore it ends at the first "</script>".
    _, begin, rest = page.partition(_DATA)
    text, end, _ = rest.partition("</script>")
    if not begin or not end:
        raise ValueError("it is not a complete page of attnviz")
    data = json.loads(text)
    saved = data.get("saved")
    if saved is None and "embedded" in data:
        raise ValueError(
            "it contains only the strongest keys of each query, from which the record cannot be "
            "restored. Save the record itself with record.save(path), or the page with "
            'precision="exact".'
        )
    if saved is None:
        raise ValueError("it is a page of several texts, which are not one record")
    texts = _Texts(dict(_TEXT.findall(page)))
    header = json.loads(texts.inflate(saved["header"], _MAX_HEADER_BYTES))
    arrays = {name: _read_array(entry, texts) for name, entry in saved["arrays"].items()}
    if not data["blocks"]:
        errors = [float(layer["error"]) for layer in data["errors"]]
        content = "Queries and keys were read from a page"
    else:
        arrays |= {
            f"{block['stack']}/{block['layer']}/weights": _read_rows(block, texts)
            for block in data["blocks"]
        }
        errors = [float(block["error"]) for block in data["blocks"]]
        content = "The weights were read from a page, which contains each of them in one byte"
    if max(errors) > 0:
        note = f"{content}. The largest error of a weight is {max(errors):.2g}."
        header["notes"] = [*header["notes"], note]
    return header, arrays


class _Texts:
    """Texts of the elements of a page, which contain compressed data in base64.

    The total size of the data that is decompressed from them is limited to `_MAX_BYTES`.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._room = _MAX_BYTES

    def reserve(self, size: int) -> None:
        """Subtract `size` bytes from the bytes that may still be decompressed.

        Raise ValueError if fewer remain.
        """
        self._room -= size
        if self._room < 0:
            raise ValueError(f"it contains more than {_MAX_BYTES / 1e9:g} GB")

    def inflate(self, name: str, size: int) -> bytes:
        """Return the decompressed bytes of the element `name`, such as ``"#attnviz-0003"``.

        `size` is the maximum number of bytes, which `reserve` subtracts. Raise ValueError if the
        element is missing, damaged or larger.
        """
        self.reserve(size)
        text = self._texts.get(name.removeprefix("#"))
        if text is None:
            raise ValueError(f"it is incomplete, because the element {name!r} is missing")
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text, validate=True), max(size, 1))
        # zlib compares its checksum only when it reads beyond the data. Ask for one more byte.
        data += inflater.decompress(inflater.unconsumed_tail, 1)
        if len(data) > size or not inflater.eof:
            raise ValueError(f"the element {name!r} is damaged")
        return data


def _read_array(entry: _Json, texts: _Texts) -> torch.Tensor:
    """Return the array whose dtype, shape and element id (of its data) are in `entry`."""
    dtype, shape = _DTYPES[entry["dtype"]], _checked_shape(entry["shape"])
    size = dtype.itemsize * int(np.prod(shape, dtype=object))
    data = texts.inflate(entry["data"], size)
    if len(data) != size:
        raise ValueError(f"an array has {len(data)} bytes, but its shape {shape} needs {size}")
    if not size:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def _checked_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(side) is int and side >= 0 for side in shape):
        raise TypeError(f"shape={shape!r} must be a list of numbers from 0")
    return tuple(shape)


def _read_rows(block: _Json, texts: _Texts) -> torch.Tensor:
    """Return all weights of a layer, (heads, rows, columns), float32.

    `block` is the header of the layer, as in `attnviz.pages.rows`.
    """
    heads, num_rows, columns = _checked_shape(block["shape"])
    lengths = [int(length) for length in block["runs"]]
    if min(lengths) < 0 or len(lengths) != 6:
        raise ValueError(f"runs={lengths} must be six lengths")
    # The decoded weights have four bytes each.
    texts.reserve(4 * heads * num_rows * columns)
    data = np.frombuffer(texts.inflate(block["data"], sum(lengths)), np.uint8)
    if len(data) != sum(lengths):
        raise ValueError(f"a layer has {len(data)} bytes, but its runs need {sum(lengths)}")
    counts, firsts, befores, _, _, codes = np.split(data, np.cumsum(lengths)[:-1])
    count = heads * num_rows
    if _integers(counts, count).any():
        raise ValueError("some rows contain only their largest weights")
    begin = _integers(firsts, count)
    last = np.minimum(columns, np.tile(np.arange(num_rows), heads) + 1 + int(block["reach"]))
    end = np.maximum(begin, last - _integers(befores, count))
    if (end - begin).sum() != len(codes):
        raise ValueError(f"a layer has {len(codes)} weights, but its rows need other numbers")
    key = np.arange(columns)
    signed = bool(block.get("signed", False))
    roots = codes.view(np.int8) / _TOP_SIGNED_CODE if signed else codes / _TOP_CODE
    weights = np.zeros((count, columns), np.float32)
    weights[(key >= begin[:, None]) & (key < end[:, None])] = (
        float(block["maximum"]) * roots * np.abs(roots)
    )
    return torch.from_numpy(weights.reshape(heads, num_rows, columns))


def _integers(digits: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """Return the numbers that the bytes `digits` encode (LEB128, see `attnviz.pages.rows`).

    Raise ValueError if these are not exactly `count` numbers, or if one has more than five digits.
    """
    is_last = digits < 128
    if np.count_nonzero(is_last) != count or (count and not is_last[-1]):
        raise ValueError(
            f"a layer has {np.count_nonzero(is_last)} rows, but its shape needs {count}"
        )
    if not count:
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.append(True, is_last[:-1]))
    exponent = np.arange(len(digits)) - np.repeat(starts, np.diff(np.append(starts, len(digits))))
    if exponent.max() > 4:
        raise ValueError("a number has more than five digits")
    decoded: NDArray[np.int64] = np.add.reduceat(
        (digits.astype(np.int64) & 127) << (7 * exponent), starts
    )
    return decoded
