"""Conversion of text to valid file names."""

from __future__ import annotations

import re

_MAX_LENGTH = 80


def file_stem(text: str) -> str:
    """Convert text to a part of a file name that is valid on every operating system.

    Consecutive characters other than letters, digits and ``_.-`` become one ``-``. The result has
    at most 80 characters, does not begin or end with ``-``, ``.`` or ``_``, and may be empty.

    >>> file_stem("all-MiniLM-L6-v2"), file_stem("../../etc/passwd"), file_stem("a: b?")
    ('all-MiniLM-L6-v2', 'etc-passwd', 'a-b')
    """
    return re.sub(r"[^\w.-]+", "-", text)[:_MAX_LENGTH].strip("-._")
