"""What a page contains, as a reader of the file finds it."""

from __future__ import annotations

import json
import re
from typing import Any

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
    pieces = ("blocks", "first_rows", "maps", "strips", "images", "vectors")
    return data | {name: whole(data[name]) for name in pieces if name in data}


def size_without_first_rows(page: str) -> int:
    """The bytes of a page without the rows that it has by themselves: these give way first."""
    return len(page.encode()) - sum(len(each["data"]) for each in data_of(page)["first_rows"])
