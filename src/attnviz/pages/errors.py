"""What is said where no page can be made: why, and the ways out that this record has."""

from __future__ import annotations

import math
from collections import Counter

from attnviz.pages import limits
from attnviz.record.record import AttentionRecord

__all__ = [
    "code_too_large",
    "megabytes",
    "no_room",
    "too_large",
    "too_long",
    "too_many",
    "vectors_too_large",
]

_SHORTER = "take a shorter text"


def megabytes(count: int) -> str:
    """Bytes as megabytes, which as a limit leave room for them.

    Parameters
    ----------
    count : int
        Bytes, at least 1.

    Returns
    -------
    str
        Four digits, rounded up.

    Examples
    --------
    >>> megabytes(81_234), megabytes(100_001), megabytes(12_345_600), megabytes(81_230)
    ('0.08124', '0.1001', '12.35', '0.08123')
    """
    step = 10 ** max(0, len(str(count)) - 4)
    return f"{math.ceil(count / step) * step / 1e6:.10g}"


def too_long(record: AttentionRecord) -> str:
    """Why no page is made of so many weights.

    Parameters
    ----------
    record : AttentionRecord
        One of more than `attnviz.pages.limits.MAX_LOOKED_AT`.

    Returns
    -------
    str
    """
    count, most = limits.count_weights(record), limits.MAX_LOOKED_AT
    return (
        f"a page would be made from {count:,} weights, which takes too long to compute (at most "
        f"{most:,}): {', or '.join(_fewer(record, most))}. Views in a notebook need no page, and "
        "show texts of any length"
    )


def too_many(record: AttentionRecord, max_bytes: int | None) -> str:
    """Why no page carries every weight.

    Parameters
    ----------
    record : AttentionRecord
        The record.
    max_bytes : int or None
        The limit that was asked for; None where there are more weights than any page carries.

    Returns
    -------
    str
    """
    count, most = limits.count_weights(record), limits.MAX_WEIGHTS
    if max_bytes is None:
        ways, limit = _fewer(record, most), f"at most {most:,}"
    else:
        limit = f"max_mb={max_bytes / 1e6:g}"
        ways = ["allow more with max_mb=", *_layers(record), _SHORTER]
    if count <= limits.MAX_LOOKED_AT:
        ways.append('let the page carry the strongest with precision="auto"')
    return (
        f'precision="exact": a page with all {count:,} weights would be too large ({limit}): '
        f"{', or '.join(ways)}"
    )


def no_room(record: AttentionRecord, limit: int, *, without: int, needed: int | None = None) -> str:
    """Why a limit is too low.

    Parameters
    ----------
    record : AttentionRecord
        The record.
    limit : int
        Bytes that the page may have.
    without : int
        Bytes of the page without weights, queries and keys.
    needed : int, optional
        Bytes of the smallest page; only known where `without` leaves room for trying.

    Returns
    -------
    str
    """
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
    """Why no page at all fits.

    Parameters
    ----------
    limit, bare : int
        Bytes that the page may have, and those of one with nothing but the view's own code.

    Returns
    -------
    str
    """
    return (
        f"max_mb={limit / 1e6:.10g} has no room for any record: the view's own code takes "
        f"{megabytes(bare)} MB of every page; allow more"
    )


def vectors_too_large(record: AttentionRecord, limit: int, bare: int) -> str:
    """Why queries and keys do not fit.

    Parameters
    ----------
    record : AttentionRecord
        The record.
    limit, bare : int
        Bytes that the page may have, and those of one with nothing but the view's own code.

    Returns
    -------
    str
    """
    return (
        f"the page has no room for the queries and keys of all layers: they take more than "
        f"{(limit - bare) / 1e6:.4g} MB, which is what max_mb={limit / 1e6:.10g} leaves beside the "
        f"view's own code; {', or '.join(['allow more', *_layers(record), _SHORTER])}"
    )


def too_large(record: AttentionRecord, limit: int, size: int) -> str:
    """Why a page is not given out.

    Parameters
    ----------
    record : AttentionRecord
        The record.
    limit, size : int
        Bytes that it may have, and those that it has.

    Returns
    -------
    str
    """
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
    pairs = 0
    for stack in record.stacks.values():
        size = len(stack.query_tokens) * len(stack.key_tokens)
        pairs += size
        for layer in stack.layers:
            layers[layer] += len(stack.kept_heads(layer)) * size
    fitting, heads = most // max(layers.values()), most // pairs
    if fitting and len(layers) > 1:
        which = f"up to {fitting} of {len(layers)}"
        return [f"choose layers with include_layers=[...], {which}", _SHORTER]
    if heads:
        return [f"keep up to {heads} of one layer's heads with extract(..., heads=...)", _SHORTER]
    return [_SHORTER]
