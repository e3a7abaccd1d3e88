"""Names of files, made of texts that may hold anything."""

from __future__ import annotations

import re

__all__ = ["file_stem"]

_LONGEST = 80


def file_stem(text: str) -> str:
    """A text as a part of a file's name that any system takes; empty where nothing is left.

    >>> file_stem("all-MiniLM-L6-v2"), file_stem("../../etc/passwd"), file_stem("a: b?")
    ('all-MiniLM-L6-v2', 'etc-passwd', 'a-b')
    """
    return re.sub(r"[^\w.-]+", "-", text)[:_LONGEST].strip("-._")
