"""Which pairs of query and key a pattern is made of, block by block.

One definition of each pattern, for weights that are there as a whole (`patterns`) and for those of
a record, which are computed a few rows at a time (`heads`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PATTERNS", "codes_of", "pairs_of"]

Pairs = NDArray[np.bool_]
Places = NDArray[np.int64]
# From queries (rows, 1), keys (1, keys), the code of each token.
_Definition = Callable[[Places, Places, Places], Pairs]


def _induction(query: Places, key: Places, codes: Places) -> Pairs:
    # No token stands before the first, which so follows none: it has a code of its own.
    before = np.concatenate([[-1], codes[:-1]])
    pairs: Pairs = (before[key] == codes[query]) & (key <= query)
    return pairs


_DEFINITIONS: dict[str, _Definition] = {
    "previous token": lambda query, key, _: key == query - 1,
    "next token": lambda query, key, _: key == query + 1,
    "self": lambda query, key, _: key == query,
    "first token": lambda query, key, _: (key == 0) & (query >= 0),
    "same token": lambda query, key, codes: (codes[key] == codes[query]) & (key < query),
    "induction": _induction,
}

PATTERNS = tuple(_DEFINITIONS)
"""Names of the patterns that weights and tokens alone define, as they are shown."""


def pairs_of(
    pattern: str,
    rows: slice | NDArray[np.int64],
    num_keys: int,
    codes: NDArray[np.int64] | None = None,
) -> Pairs:
    """Pairs of query and key that make a pattern.

    Parameters
    ----------
    pattern : str
        One of `PATTERNS`.
    rows : slice or ndarray of int64
        Queries: start and stop given, or their numbers.
    num_keys : int
        Number of keys.
    codes : ndarray of int, (n_keys,), optional
        Each token's number, not negative, as `codes_of` gives them; needed for
        ``"same token"`` and ``"induction"``.

    Returns
    -------
    ndarray of bool, (rows, n_keys)

    Examples
    --------
    >>> pairs_of("previous token", slice(1, 3), 3)
    array([[ True, False, False],
           [False,  True, False]])
    """
    query = (np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows)[:, None]
    key = np.arange(num_keys)[None, :]
    return _DEFINITIONS[pattern](query, key, np.zeros(0, np.int64) if codes is None else codes)


def codes_of(tokens: Sequence[Hashable] | NDArray[Any], num_tokens: int) -> NDArray[np.int64]:
    """Number the distinct tokens.

    Parameters
    ----------
    tokens : sequence of int or str, (n,)
        Ids or texts.
    num_tokens : int
        How many there must be.

    Returns
    -------
    ndarray of int, (n,)
        From 0, in the order in which they first occur.

    Raises
    ------
    TypeError
        If `tokens` is one text or a batch.
    ValueError
        If they are more or fewer.

    Examples
    --------
    >>> codes_of(["a", "b", "a"], 3).tolist()
    [0, 1, 0]
    """
    if isinstance(tokens, str):
        raise TypeError(f"tokens must be a list of ids or of texts; got one text, {tokens!r}")
    listed = list(tokens)
    if len(listed) != num_tokens:
        raise ValueError(
            f"tokens must be as many as the weights have rows, {num_tokens}; got {len(listed)}"
        )
    numbers: dict[Hashable, int] = {}
    try:
        codes = [numbers.setdefault(token, len(numbers)) for token in listed]
    except TypeError:
        raise TypeError(
            "tokens must be one list of ids or of texts, not a batch of several; got entries of "
            f"the type {type(listed[0]).__name__}"
        ) from None
    return np.array(codes, np.int64)
