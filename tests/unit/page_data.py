"""What a page contains, as a reader of the file finds it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.pages.strongest import decode_sparse
from attnviz.utils.progress import Steps

_DATA = re.compile(r'<script [^>]*id="attnviz-data">(.*?)</script>', re.DOTALL)
_PART = re.compile(r'<template class="attnviz-part">(.*?)</template>', re.DOTALL)


def parts_of(page: str) -> list[str]:
    """The long texts that stand apart from the data, in the order of their names."""
    return _PART.findall(page)


def bare_data_of(page: str) -> Any:
    """The data, with the names of the parts in place of long texts."""
    [text] = _DATA.findall(page)
    return json.loads(text)


def data_of(page: str) -> Any:
    """The data, with all texts in their places."""
    parts = parts_of(page)

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: whole(each) for key, each in value.items()}
        if isinstance(value, list):
            return [whole(each) for each in value]
        if isinstance(value, str) and re.fullmatch(r"#\d{4,}", value):
            return parts[int(value[1:])]
        return value

    data = bare_data_of(page)
    pieces = ("blocks", "first_rows", "maps", "images", "vectors")
    return data | {name: whole(data[name]) for name in pieces if name in data}


def size_without_first_rows(page: str) -> int:
    """The bytes of a page without the rows that it has by themselves: these give way first."""
    return len(page.encode()) - sum(len(each["data"]) for each in data_of(page)["first_rows"])


def before_the_code(page: str) -> int:
    """How many parts stand before the page's code."""
    return len(parts_of(page[: page.index('id="attnviz-bundle"')]))


def shown(block: dict[str, Any]) -> NDArray[np.float64]:
    """The weights of a layer, as a reader of the page gets them."""
    data = zlib.decompress(base64.b64decode(block["data"]))
    if block["encoding"] == "strongest-keys":
        return decode_sparse(block, data).dense()
    heads, rows, columns = block["shape"]
    weights = np.zeros((heads, rows, columns))
    held = np.tri(rows, columns, block["reach"], dtype=np.bool_)
    if block["encoding"] == "bfloat16":
        first, second = np.frombuffer(data, np.uint8).astype(np.uint32).reshape(2, heads, -1)
        weights[:, held] = (first << 24 | second << 16).view(np.float32)
    elif block["encoding"] == "int8-sqrt":
        signed = np.frombuffer(data, np.int8).reshape(heads, -1).astype(np.float64)
        weights[:, held] = block["maximum"] * signed * np.abs(signed) / 127**2
    else:
        codes = np.frombuffer(data, np.uint8).reshape(heads, -1)
        weights[:, held] = block["maximum"] * (codes / 255) ** 2
    return weights


def no_page_of_all(*_: object, **__: object) -> Steps[None]:
    """In place of a page of all weights."""
    yield from ()
