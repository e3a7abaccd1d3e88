"""Functions that decode the contents of an exported page."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.pages.strongest import ENCODING, SparseRows

_DATA = re.compile(r'<script [^>]*id="attnviz-data">(.*?)</script>', re.DOTALL)
_LAYER = re.compile(r'<template id="(attnviz-\d+)">(.*?)</template>', re.DOTALL)


def bare_data_of(page: str) -> Any:
    """Return the JSON data of a page, in which ``#ID`` stands for the text of the element ID."""
    [text] = _DATA.findall(page)
    return json.loads(text)


def data_of(page: str) -> Any:
    """Return the JSON data. In blocks, maps and vectors, replace ``#ID`` by the element's text."""
    texts = dict(_LAYER.findall(page))

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: whole(item) for key, item in value.items()}
        if isinstance(value, list):
            return [whole(item) for item in value]
        if isinstance(value, str) and value.startswith("#attnviz-"):
            return texts[value[1:]]
        return value

    data = bare_data_of(page)
    return data | {
        name: whole(data[name]) for name in ("blocks", "maps", "vectors") if name in data
    }


def shown(block: dict[str, Any]) -> NDArray[np.float64]:
    """Decode the weights or differences of a layer of the page, (heads, rows, columns)."""
    data = unpacked(block["data"])
    if block["encoding"] == "strongest-keys":
        return decode_sparse(block, data).dense()
    heads, rows, columns = block["shape"]
    weights = np.zeros((heads, rows, columns))
    stored = np.tri(rows, columns, block["reach"], dtype=np.bool_)
    if block["encoding"] == "int8-sqrt":
        signed = np.frombuffer(data, np.int8).reshape(heads, -1).astype(np.float64)
        weights[:, stored] = block["maximum"] * signed * np.abs(signed) / 127**2
    else:
        codes = np.frombuffer(data, np.uint8).reshape(heads, -1)
        weights[:, stored] = block["maximum"] * (codes / 255) ** 2
    return weights


def unpacked(text: str) -> bytes:
    """Decode base64 and decompress the result."""
    return zlib.decompress(base64.b64decode(text))


def no_page_of_all(*_: object, **__: object) -> None:
    """Return None, as `pages.encoding._embed_all` does if a page has no room for all weights."""


def decode_sparse(header: Mapping[str, Any], data: bytes) -> SparseRows:
    """Decode a layer of which a page has only the largest weights of each row."""
    assert header["encoding"] == ENCODING
    assert sum(header["runs"]) == len(data)
    heads, num_rows, columns = header["shape"]
    runs = np.split(np.frombuffer(data, np.uint8), np.cumsum(header["runs"])[:-1])
    counts, firsts, before, gaps = (_unpacked(runs[index]) for index in (0, 1, 2, 4))
    row = np.tile(np.arange(num_rows), heads)
    assert len(counts) == len(row)
    # The first gap of a row is the distance from the entry in `firsts` to the first embedded key.
    # Each later gap is the number of keys between two embedded keys.
    of_rows = zip(firsts, np.split(gaps, np.cumsum(counts)[:-1]), strict=True)
    keys = [first - 1 + np.cumsum(gaps_of_row + 1) for first, gaps_of_row in of_rows]
    last = np.minimum(columns, row + 1 + header["reach"])
    return SparseRows(
        shape=(heads, num_rows, columns),
        counts=counts,
        keys=np.concatenate(keys),
        codes=runs[5],
        firsts=firsts,
        ends=np.maximum(firsts, last - before),
        rests=runs[3],
        maximum=header["maximum"],
        max_rest=header["max_rest"],
        signed=header.get("signed", False),
    )


def _unpacked(digits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Decode base-128 numbers, lowest digit first. All digits but the last are stored plus 128."""
    ends = np.flatnonzero(digits < 128) + 1
    starts = np.concatenate([[0], ends])[:-1]
    exponent = np.arange(len(digits)) - np.repeat(starts, ends - starts)
    digit = (digits.astype(np.int64) & 127) << (7 * exponent)
    return np.add.reduceat(digit, starts) if len(starts) else digit
