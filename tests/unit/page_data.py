"""Functions that decode the contents of an exported page."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_DATA = re.compile(r'<script [^>]*id="attnviz-data">(.*?)</script>', re.DOTALL)
_LAYER = re.compile(r'<template id="(attnviz-\d+)">(.*?)</template>', re.DOTALL)


def bare_data_of(page: str) -> Any:
    """Return the JSON data of a page, in which ``#ID`` stands for the text of the element ID."""
    [text] = _DATA.findall(page)
    return json.loads(text)


def data_of(page: str) -> Any:
    """Return the JSON data of a page. Replace each ``#ID`` of arrays by the text."""
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
    names = {"blocks", "maps", "saved", "chosen"} & set(data)
    return data | {name: whole(data[name]) for name in names}


def reply_of(page: str, request: str, **arguments: Any) -> dict[str, Any]:
    """Return the reply that a page stores for a request with exactly these arguments."""
    [reply] = [
        reply
        for reply in bare_data_of(page)["replies"]
        if (reply["request"], reply["arguments"]) == (request, arguments)
    ]
    data: dict[str, Any] = reply
    return data


def unpacked(text: str) -> bytes:
    """Decode base64 and decompress the result."""
    return zlib.decompress(base64.b64decode(text))


class DecodedRows(NamedTuple):
    """Some rows of a layer of a page.

    Attributes
    ----------
    dense : ndarray of float64, (heads, rows, columns)
        Weight of each key.
    embedded : ndarray of bool, (heads, rows, columns)
        Whether the page contains the weight of each key. Other weights are estimates.
    """

    dense: NDArray[np.float64]
    embedded: NDArray[np.bool_]


def decode_layers(data: Mapping[str, Any]) -> Iterator[tuple[str, int, float, DecodedRows]]:
    """Decode the layers of a page, which are stored in parts.

    Yield the stack, the number, the largest error, and the rows of each layer.
    """
    for (stack, layer), parts in groupby(data["blocks"], itemgetter("stack", "layer")):
        blocks = list(parts)
        decoded = [decode_rows(block) for block in blocks]
        starts = np.cumsum([0, *(rows.dense.shape[1] for rows in decoded)])
        assert [block["start"] for block in blocks] == starts[:-1].tolist()
        error = max(block["error"] for block in blocks)
        sides = (np.concatenate(side, axis=1) for side in zip(*decoded, strict=True))
        yield stack, layer, error, DecodedRows(*sides)


def decode_rows(block: Mapping[str, Any], data: bytes | None = None) -> DecodedRows:
    """Decode some rows of a layer with plain loops. If `data` is None, decode ``block["data"]``."""
    data = unpacked(block["data"]) if data is None else data
    assert sum(block["runs"]) == len(data)
    heads, num_rows, columns = block["shape"]
    runs = [
        run.tobytes() for run in np.split(np.frombuffer(data, np.uint8), np.cumsum(block["runs"]))
    ]
    counts, firsts, befores, gaps = (iter(_integers(runs[index])) for index in (0, 1, 2, 4))
    rests, codes = iter(runs[3]), iter(runs[5])
    signed = block.get("signed", False)
    dense = np.zeros(block["shape"])
    embedded = np.zeros(block["shape"], np.bool_)
    for head in range(heads):
        for row in range(num_rows):
            count, first = next(counts), next(firsts)
            query = block.get("start", 0) + row
            end = max(first, min(columns, query + 1 + block["reach"]) - next(befores))
            keys = list(range(first, end))
            rest = block["max_rest"] * (next(rests) / 255) ** 2
            if count:
                keys, key = [], first - 1
                for _ in range(count):
                    key += next(gaps) + 1
                    keys.append(key)
                dense[head, row, first:end] = rest / (end - first - count)
            embedded[head, row, keys] = True
            for key in keys:
                code = next(codes)
                code = code - 256 if signed and code > 127 else code
                share = code * abs(code) / (127 if signed else 255) ** 2
                dense[head, row, key] = block["maximum"] * share
    assert all(next(run, None) is None for run in (counts, firsts, befores, gaps, rests, codes))
    return DecodedRows(dense, embedded)


def _integers(digits: bytes) -> Iterator[int]:
    """Decode base-128 numbers, lowest digit first. All digits but the last are stored plus 128."""
    number = shift = 0
    for digit in digits:
        number += (digit & 127) << shift
        shift += 7
        if digit < 128:
            yield number
            number = shift = 0
