"""Reader of the parameters and attributes in docstrings of numpy style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any


def documented_names(source: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the name, type and description of each parameter and attribute of `source`.

    `source` is an object, such as a function, with a docstring in numpy style.

    >>> list(documented_names(documented_names))
    []
    """
    text = inspect.cleandoc(source.__doc__ or "")
    for title, section in re.findall(
        r"^(\w+)\n-{3,}\n(.*?)(?=\n\n\w+\n-{3,}|\Z)", text, re.M | re.S
    ):
        if title not in ("Parameters", "Attributes"):
            continue
        joined = section.replace(",\n", ", ")
        entries = re.findall(r"^(\S[^:\n]*?)(?: : (.*))?$((?:\n[ ]+.*|\n$)*)", joined, re.M)
        for names, kind, words in entries:
            for name in names.split(","):
                yield name.strip(" *"), kind, " ".join(words.split())
