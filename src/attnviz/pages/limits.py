"""Size limits and file types of pages, and the error messages for pages that are too large.

By default, the size limit of a page with the weights of a record grows with the text. It is 64
bytes for each query in each head of a causal stack, and 128 bytes in other stacks. The limit is at
least 6 MB. It is at most 40 MB if all stacks are causal, and at most 80 MB otherwise. For 12 layers
of 12 causal heads, the limit is 6 MB for 512 tokens, 9.4 MB for 1,024 tokens and 37.7 MB for 4,096
tokens. A stack is the attention of one kind in all layers, such as self-attention.
"""

from __future__ import annotations

import math
import os
from typing import Any, Literal, cast, get_args

import numpy as np

from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import as_path, whole_number

PagePrecision = Literal["auto", "exact"]
FileKind = Literal["html", "svg", "png", "pdf"]

#: Maximum size in bytes of a page that contains all weights. It applies if the user passes neither
#: `max_mb` nor `precision="exact"`. A page of this size opens at once and can be sent by email.
FULL_BYTES = 6_000_000
#: Maximum number of weights in a page with `precision="exact"`, unless it contains queries and keys
#: instead. More weights slow down the browser.
MAX_WEIGHTS = 200_000_000
#: Maximum number of weights of a record that a page with `precision="auto"` can show. The page
#: contains the largest of them, and finding these takes minutes on two cores.
MAX_SEARCHED_WEIGHTS = 5_000_000_000
#: Maximum number of weights of a record for which the error of rounding its queries and keys is
#: measured with all queries. For a record with more weights, it is measured with sampled queries.
MAX_MEASURED = 100_000_000
#: Maximum value of the argument `top_keys`: the number of strongest keys of each query in the page
#: of an embedding view.
MAX_KEYS = 64
#: Maximum value of `max_mb`, the size of a page in megabytes. Browsers do not open larger files.
MAX_MEGABYTES = 400

#: Advice in the errors for pages that are too large.
SMALLER = "Choose layers with include_layers=[...], or use a shorter text."


def check_options(precision: str, max_mb: float | None) -> int | None:
    """Check the options of a page, and convert the size limit to bytes.

    Returns
    -------
    int or None
        Size limit in bytes, at least 1, or None if `max_mb` is None.

    Raises
    ------
    TypeError, ValueError
        If an option is invalid.

    Examples
    --------
    >>> check_options("auto", 2.5)
    2500000
    """
    if precision not in ("auto", "exact"):
        raise ValueError(
            f'precision={precision!r} must be "auto" (the most exact page that stays small) or '
            '"exact" (every weight in one byte)'
        )
    if max_mb is None:
        return None
    if isinstance(max_mb, bool) or not isinstance(max_mb, (int, float, np.number)):
        raise TypeError(f"max_mb must be a number of megabytes, such as 10; got {max_mb!r}")
    if not 0 < max_mb <= MAX_MEGABYTES or math.isnan(max_mb):
        raise ValueError(
            f"max_mb={max_mb!r} must be greater than 0 and at most {MAX_MEGABYTES}, which browsers "
            "can open"
        )
    # Return at least 1. The error for such a low limit is raised later, when the necessary size is
    # known.
    return max(1, round(max_mb * 1_000_000))


def check_top_keys(top_keys: Any) -> int:
    """Check that `top_keys` is a whole number from 0 to `MAX_KEYS`, and return it as int.

    Examples
    --------
    >>> check_top_keys(5)
    5
    """
    hint = "the number of keys of each query, such as 5 (0 draws no lines)"
    return whole_number("top_keys", top_keys, 0, MAX_KEYS, hint=hint)


def check_file_kind(path: str | os.PathLike[str]) -> FileKind:
    """Return the file type for the suffix of a path. A path without a suffix is an HTML page.

    Raise ValueError for other suffixes.
    """
    kind = as_path("path", path, "file").suffix.lower().removeprefix(".") or "html"
    if kind not in get_args(FileKind):
        raise ValueError(f"path={str(path)!r} must end in .html, .svg, .png or .pdf")
    return cast("FileKind", kind)


def count_rows(stack: AttentionStack) -> int:
    """Return the number of rows of weights in a stack. Each query has one row in each head."""
    return len(stack.query_tokens) * sum(stack.heads_per_layer)


def count_weights(record: AttentionRecord) -> int:
    """Return the number of weights of all heads in a record."""
    return sum(count_rows(stack) * len(stack.key_tokens) for stack in record.stacks.values())


def default_limit(record: AttentionRecord) -> int:
    """Return the default size limit in bytes that the module docstring describes."""
    stacks = record.stacks.values()
    size = sum(count_rows(stack) * (64 if stack.causal else 128) for stack in stacks)
    max_size = 40_000_000 if all(stack.causal for stack in stacks) else 80_000_000
    return max(FULL_BYTES, min(size, max_size))


def format_megabytes(count: int) -> str:
    """Format a number of bytes as megabytes with at most four significant digits.

    The number is rounded up, so that a page with `count` bytes fits if a user passes this number as
    its size limit.

    Examples
    --------
    >>> format_megabytes(81_234), format_megabytes(100_001), format_megabytes(12_345_600)
    ('0.08124', '0.1001', '12.35')
    """
    step = 10 ** max(0, len(str(count)) - 4)
    return f"{math.ceil(count / step) * step / 1e6:.10g}"


def too_large_message(limit: int, needed: int, contents: str = "") -> str:
    """Return the error message for a page that exceeds its size limit.

    Parameters
    ----------
    limit : int
        Size limit in bytes.
    needed : int
        Size of the page in bytes.
    contents : str
        Words that say what the page with `needed` bytes contains, such as "without weights". They
        follow the size in the message.
    """
    return (
        f"a page of at most {limit / 1e6:.10g} MB is too small for this record. It takes "
        f"{' '.join([format_megabytes(needed), 'MB', contents]).strip()}. Pass a larger max_mb. "
        f"{SMALLER}"
    )
