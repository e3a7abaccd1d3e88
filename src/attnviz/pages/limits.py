"""What a page may be asked to be: file kinds, limits, and errors with the ways out.

The limit grows with the text: 6 MB, and where that is more, 64 bytes for each query of each head,
or 128 where queries look ahead, up to 40 or 80 MB. 12 layers of 12 causal heads may take 6 MB at
512 tokens, 9.4 MB at 1,024 and 37.7 MB at 4,096.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import as_path, whole_number

__all__ = [
    "PagePrecision",
    "check_file_kind",
    "check_options",
    "check_top_keys",
    "code_too_large",
    "count_rows",
    "count_weights",
    "default_limit",
    "megabytes",
    "no_room",
    "too_large",
    "too_long",
    "too_many",
    "vectors_too_large",
]

#: ``"auto"`` or ``"exact"``.
PagePrecision = Literal["auto", "exact"]

#: A page of this size contains every weight where it can: it opens at once and can be mailed.
FULL_BYTES = 6_000_000
#: Pages of all weights have at most so many: above, a browser tab struggles.
MAX_WEIGHTS = 200_000_000
#: So many weights are looked at to find the strongest: minutes on two cores.
MAX_LOOKED_AT = 5_000_000_000
#: Up to so many weights are computed twice, to measure what rounding vectors does to all of them.
MAX_MEASURED = 100_000_000
#: Keys of each query that a page contains at most where a person says how many.
MAX_KEYS = 64
#: No browser takes a longer text.
MAX_MEGABYTES = 400

_SHORTER = "take a shorter text"

_BYTES_PER_ROW = {"causal": 64, "both ways": 128}
_MOST_BYTES = {"causal": 40_000_000, "both ways": 80_000_000}


def check_options(precision: str, max_mb: float | None) -> int | None:
    """Refuse options of pages that make no sense.

    Returns
    -------
    int or None
        `max_mb` in bytes.

    Examples
    --------
    >>> check_options("auto", 2.5)
    2500000
    """
    if precision not in ("auto", "exact"):
        raise ValueError(
            f'precision={precision!r} must be "auto", the most exact page that stays small, or '
            '"exact", every weight in one byte'
        )
    if max_mb is None:
        return None
    if isinstance(max_mb, bool) or not isinstance(max_mb, (int, float, np.number)):
        raise TypeError(f"max_mb must be a number of megabytes, such as 10; got {max_mb!r}")
    if not 0 < max_mb <= MAX_MEGABYTES or math.isnan(max_mb):
        raise ValueError(
            f"max_mb={max_mb!r} must lie above 0 and be at most {MAX_MEGABYTES}, what browsers open"
        )
    # Never none at all: a limit that is too low is refused with the size that would do.
    return max(1, round(max_mb * 1_000_000))


def check_top_keys(top_keys: Any) -> int:
    """Refuse anything but a number of keys.

    Examples
    --------
    >>> check_top_keys(5)
    5
    """
    hint = "the number of keys of each query, such as 5; 0 draws no lines"
    return whole_number("top_keys", top_keys, 0, MAX_KEYS, hint=hint)


def check_file_kind(path: str | os.PathLike[str]) -> Literal["html", "svg", "png", "pdf"]:
    """Tell from a file's name what a view is to be saved as. A name without a suffix is a page."""
    match as_path("path", path, "file").suffix.lower():
        case ".html" | "":
            return "html"
        case ".svg":
            return "svg"
        case ".png":
            return "png"
        case ".pdf":
            return "pdf"
    raise ValueError(f"path={str(path)!r} must end in .html, .svg, .png or .pdf")


def count_rows(stack: AttentionStack) -> int:
    """Queries of all heads."""
    return len(stack.query_tokens) * sum(stack.heads_per_layer)


def count_weights(record: AttentionRecord) -> int:
    """Weights of all heads."""
    return sum(count_rows(stack) * len(stack.key_tokens) for stack in record.stacks.values())


def default_limit(record: AttentionRecord, causal: Iterable[AttentionStack]) -> int:
    """Bytes that a page may have by default; `causal` are the stacks that do not look ahead."""
    names = {stack.name for stack in causal}
    kinds = {name: "causal" if name in names else "both ways" for name in record.stacks}
    wanted = sum(
        _BYTES_PER_ROW[kinds[name]] * count_rows(stack) for name, stack in record.stacks.items()
    )
    most = max(_MOST_BYTES[kind] for kind in kinds.values())
    return max(FULL_BYTES, min(wanted, most))


def megabytes(count: int) -> str:
    """Bytes as megabytes, which as a limit leave room for them.

    Four digits, rounded up.

    Examples
    --------
    >>> megabytes(81_234), megabytes(100_001), megabytes(12_345_600), megabytes(81_230)
    ('0.08124', '0.1001', '12.35', '0.08123')
    """
    step = 10 ** max(0, len(str(count)) - 4)
    return f"{math.ceil(count / step) * step / 1e6:.10g}"


def too_long(record: AttentionRecord) -> str:
    """Why no page is made of more weights than `MAX_LOOKED_AT`."""
    count, most = count_weights(record), MAX_LOOKED_AT
    return (
        f"a page would be made from {count:,} weights, which takes too long to compute (at most "
        f"{most:,}): {', or '.join(_fewer(record, most))}. Views in a notebook need no page, and "
        "show texts of any length"
    )


def too_many(record: AttentionRecord, max_bytes: int | None) -> str:
    """Why no page embeds every weight: a limit, or more weights than any page has."""
    count, most = count_weights(record), MAX_WEIGHTS
    if max_bytes is None:
        ways, limit = _fewer(record, most), f"at most {most:,}"
    else:
        limit = f"max_mb={max_bytes / 1e6:g}"
        ways = ["allow more with max_mb=", *_layers(record), _SHORTER]
    if count <= MAX_LOOKED_AT:
        ways.append('let the page store the strongest keys with precision="auto"')
    return (
        f'precision="exact": a page with all {count:,} weights would be too large ({limit}): '
        f"{', or '.join(ways)}"
    )


def no_room(record: AttentionRecord, limit: int, *, without: int, needed: int | None = None) -> str:
    """Why a limit is too low: `needed` are the bytes of the smallest page, where it was made."""
    start = f"a page of at most {limit / 1e6:.10g} MB has no room for this record: "
    more = "allow more with max_mb=" if needed is None else f"allow max_mb={megabytes(needed)}"
    ways = ", or ".join([more, *_layers(record), _SHORTER])
    if needed is None:
        return f"{start}without any weights it takes {megabytes(without)} MB already; {ways}"
    return (
        f"{start}without any weights it takes {megabytes(without)} MB, and with each query's two "
        f"strongest keys alone {megabytes(needed)} MB; {ways}"
    )


def code_too_large(limit: int, bare: int) -> str:
    """Why no page at all fits: `bare` are the bytes of one with nothing but the view's own code."""
    return (
        f"max_mb={limit / 1e6:.10g} has no room for any record: the view's own code takes "
        f"{megabytes(bare)} MB of every page; allow more"
    )


def vectors_too_large(record: AttentionRecord, limit: int, bare: int) -> str:
    """Why queries and keys do not fit beside the view's own code."""
    return (
        f"the page has no room for the queries and keys of all layers: they take more than "
        f"{(limit - bare) / 1e6:.4g} MB, which is what max_mb={limit / 1e6:.10g} leaves beside the "
        f"view's own code; {', or '.join(['allow more', *_layers(record), _SHORTER])}"
    )


def too_large(record: AttentionRecord, limit: int, size: int) -> str:
    """Why a page is not given out."""
    ways = ", or ".join(["allow more", *_layers(record), _SHORTER])
    return f"the page has {megabytes(size)} MB, more than max_mb={limit / 1e6:.10g}; {ways}"


def _layers(record: AttentionRecord) -> list[str]:
    """Fewer layers, where there are several."""
    several = len({layer for stack in record.stacks.values() for layer in stack.layers}) > 1
    return ["choose layers with include_layers=[...]"] if several else []


def _fewer(record: AttentionRecord, most: int) -> list[str]:
    """Ways to have no more than so many weights."""
    # A layer's number stands for it in every stack.
    layers: Counter[int] = Counter()
    for stack in record.stacks.values():
        size = len(stack.query_tokens) * len(stack.key_tokens)
        for layer in stack.layers:
            layers[layer] += stack.num_heads(layer) * size
    fitting = most // max(layers.values())
    if fitting and len(layers) > 1:
        which = f"up to {fitting} of {len(layers)}"
        return [f"choose layers with include_layers=[...], {which}", _SHORTER]
    return [_SHORTER]
