"""How large an exported page may be.

The limit grows with the text: 6 MB, and where that is more, 64 bytes for each query of each head,
or 128 where queries look ahead, up to 40 or 80 MB. 12 layers of 12 causal heads may take 6 MB at
512 tokens, 9.4 MB at 1,024 and 37.7 MB at 4,096.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.utils.arguments import whole_number

__all__ = [
    "PagePrecision",
    "check_options",
    "check_top_keys",
    "count_rows",
    "count_weights",
    "default_limit",
]

#: ``"auto"`` or ``"exact"``.
PagePrecision = Literal["auto", "exact"]

#: A page of this size carries every weight where it can: it opens at once and can be mailed.
FULL_BYTES = 6_000_000
#: Pages of all weights have at most so many: above, a browser tab struggles.
MAX_WEIGHTS = 200_000_000
#: So many weights are looked at to find the strongest: minutes on two cores.
MAX_LOOKED_AT = 5_000_000_000
#: Up to so many weights are computed twice, to measure what rounding vectors does to all of them.
MAX_MEASURED = 100_000_000
#: Keys of each query that a page carries at most where a person says how many.
MAX_KEYS = 64
#: No browser takes a longer text.
MAX_MEGABYTES = 400

_BYTES_PER_ROW = {"causal": 64, "both ways": 128}
_MOST_BYTES = {"causal": 40_000_000, "both ways": 80_000_000}


def check_options(precision: str, max_mb: float | None) -> int | None:
    """Refuse options of pages that make no sense.

    Parameters
    ----------
    precision : {"auto", "exact"}
        As given.
    max_mb : float or None
        As given.

    Returns
    -------
    int or None
        `max_mb` in bytes.

    Raises
    ------
    TypeError
        If `max_mb` is no number.
    ValueError
        If either is none of its values.

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
    """Refuse what is no number of keys.

    Parameters
    ----------
    top_keys : int
        As given.

    Returns
    -------
    int

    Raises
    ------
    TypeError, ValueError
        If it is none.

    Examples
    --------
    >>> check_top_keys(5)
    5
    """
    hint = "the number of keys of each query, such as 5; 0 draws no lines"
    return whole_number("top_keys", top_keys, 0, MAX_KEYS, hint=hint)


def count_rows(stack: AttentionStack) -> int:
    """Queries of all heads that were kept.

    Parameters
    ----------
    stack : AttentionStack
        The stack.

    Returns
    -------
    int
    """
    return len(stack.query_tokens) * sum(len(stack.kept_heads(layer)) for layer in stack.layers)


def count_weights(record: AttentionRecord) -> int:
    """Weights of all heads that were kept.

    Parameters
    ----------
    record : AttentionRecord
        The record.

    Returns
    -------
    int
    """
    return sum(count_rows(stack) * len(stack.key_tokens) for stack in record.stacks.values())


def default_limit(record: AttentionRecord, causal: Iterable[str]) -> int:
    """Bytes that a page may have where nobody says so.

    Parameters
    ----------
    record : AttentionRecord
        The record.
    causal : iterable of str
        Names of the stacks whose queries do not look ahead.

    Returns
    -------
    int
    """
    kinds = {name: "causal" if name in set(causal) else "both ways" for name in record.stacks}
    wanted = sum(
        _BYTES_PER_ROW[kinds[name]] * count_rows(stack) for name, stack in record.stacks.items()
    )
    most = max(_MOST_BYTES[kind] for kind in kinds.values())
    return max(FULL_BYTES, min(wanted, most))
