"""Head patterns: the share of a head's weight that falls on a set of query-key pairs.

For weights A (rows are queries i, columns are keys j) and a set D of pairs,

    mass(A, D) = sum of A[i, j] over (i, j) in D / number of queries with an allowed key in D

The mass is 1 if each of these queries has all of its weight on keys in D. It is the mean attention
of Clark et al. 2019 (arXiv 1906.04341, section 3), except that the mean is over the queries with an
allowed key in D. The paper does not state over which queries it averages. With a mean over all
queries, the mass of the previous token could never reach 1, because the first query has no previous
token.

`pairs_of` defines the pairs of each pattern. The functions of this module use it for complete
arrays, and `attnviz.analysis.heads` uses it for a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "PATTERNS",
    "PairIndices",
    "codes_of",
    "first_token",
    "induction",
    "mass_on",
    "next_token",
    "pairs_of",
    "previous_token",
    "repeated_induction",
    "same_token",
    "self_token",
]

Scores = NDArray[np.float64]
Tokens = Sequence[Hashable] | NDArray[Any]


Pairs = NDArray[np.bool_]
Indices = NDArray[np.int64]
_Value = TypeVar("_Value", np.float32, np.bool_)
# Function that returns which query-key pairs belong to a pattern, bool, (rows, keys). Its arguments
# are query positions (rows, 1), key positions (1, keys), and the codes of all tokens (keys,). Equal
# tokens have equal codes.
_Definition = Callable[[Indices, Indices, Indices], Pairs]


def _induction(query: Indices, key: Indices, codes: Indices) -> Pairs:
    # The first token has no previous token. Use -1, which is not the code of any token.
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
"""Names of the patterns. A pattern depends only on positions and on which tokens are equal."""


def pairs_of(
    pattern: str,
    rows: slice | NDArray[np.int64],
    num_keys: int,
    codes: NDArray[np.int64] | None = None,
) -> Pairs:
    """Return which query-key pairs belong to one of `PATTERNS`, bool, (rows, keys).

    `rows` is a slice with start and stop, or an array of query positions. `codes` is the result of
    `codes_of`, (keys,). Only ``"same token"`` and ``"induction"`` need it.

    >>> pairs_of("previous token", slice(1, 3), 3)
    array([[ True, False, False],
           [False,  True, False]])
    """
    query = (np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows)[:, None]
    key = np.arange(num_keys)[None, :]
    return _DEFINITIONS[pattern](query, key, np.zeros(0, np.int64) if codes is None else codes)


@dataclass(frozen=True)
class PairIndices:
    """Indices of the pairs of a pattern in a block of weights, (rows, keys), sorted by row.

    Most patterns have one pair per row. With indices, only a few weights of a block are read.

    Attributes
    ----------
    rows, indices : ndarray of int64, (pairs,)
        Row of each pair, and index of each pair into the flattened block.
    firsts : ndarray of int64
        For each row with a pair, the index into `rows` of its first pair.

    Examples
    --------
    >>> pairs = PairIndices.of(np.eye(2, dtype=np.bool_))
    >>> pairs.sums_of(np.array([[[0.5, 0.5], [0.25, 0.75]]], np.float32))
    array([1.25])
    """

    rows: Indices
    indices: Indices
    firsts: Indices

    @classmethod
    def of(cls, pairs: Pairs) -> PairIndices:
        """Create the indices of the pairs that are True in `pairs`, (rows, keys)."""
        indices = np.flatnonzero(pairs)
        rows = indices // pairs.shape[1]
        return cls(rows, indices, np.flatnonzero(np.diff(rows, prepend=-1)))

    def values_of(self, block: NDArray[_Value]) -> NDArray[_Value]:
        """Return the values of the pairs in a block. The block is (heads, rows, keys).

        The result is (heads, pairs).
        """
        return np.take(block.reshape(len(block), -1), self.indices, axis=1)

    def sums_of(self, block: NDArray[np.float32]) -> Scores:
        """Return the sum over all pairs for each head of a block, (heads, rows, keys)."""
        sums: Scores = self.values_of(block).sum(axis=1, dtype=np.float64)
        return sums

    def sums_by_row(self, numbers: Scores, allowed: Pairs) -> Scores:
        """Add, for each allowed pair, the entry of its row in `numbers`. Return one sum per head.

        `numbers` is (heads, rows) and `allowed` is (heads, rows, keys). A row with two allowed
        pairs is counted twice. In both arrays, the axis of heads may have length 1 for all heads.
        """
        of_rows = numbers[:, self.rows]
        sums: Scores = of_rows.sum(axis=1)
        if not allowed.all():
            sums = (of_rows * self.values_of(allowed)).sum(axis=1)
        return sums

    def count_rows(self, allowed: Pairs) -> Indices:
        """Return the number of rows that have at least one allowed pair, for each head.

        `allowed` is (heads, rows, keys), or (1, rows, keys) if all heads share one mask.
        """
        if not len(self.firsts) or allowed.all():
            return np.full(len(allowed), len(self.firsts))
        has_pair = np.logical_or.reduceat(self.values_of(allowed), self.firsts, axis=1)
        counts: Indices = np.count_nonzero(has_pair, axis=1)
        return counts


def codes_of(tokens: Sequence[Hashable] | NDArray[Any], num_tokens: int) -> NDArray[np.int64]:
    """Return a number for each token, (tokens,). Equal tokens have the same number.

    `tokens` are ids or texts. Numbers begin with 0, in the order of first occurrence. Raise
    TypeError if `tokens` is a string or a batch, or ValueError if its length is not `num_tokens`.

    >>> codes_of(["a", "b", "a"], 3).tolist()
    [0, 1, 0]
    """
    if isinstance(tokens, str):
        raise TypeError(f"tokens must be a list of ids or of texts; got one string, {tokens!r}")
    listed = list(tokens)
    if len(listed) != num_tokens:
        raise ValueError(
            f"tokens must have {num_tokens} entries, one per row of weights; got {len(listed)}"
        )
    numbers: dict[Hashable, int] = {}
    try:
        codes = [numbers.setdefault(token, len(numbers)) for token in listed]
    except TypeError:
        raise TypeError(
            "tokens must be one list of ids or of texts, not a batch; got entries of type "
            f"{type(listed[0]).__name__}"
        ) from None
    return np.array(codes, np.int64)


def _checked(weights: ArrayLike) -> NDArray[np.floating[Any]]:
    # Compare the names of the classes, because importing the classes would import torch.
    if type(weights).__name__ in ("AttentionRecord", "AttentionStack"):
        raise TypeError(
            f"weights must be an array; got {weights!r}. Measure all of its heads with "
            'attnviz.analysis.head_scores(record, "previous token"), or pass the weights of a '
            "layer, record.stack().weights(layer=0)."
        )
    array = np.asarray(weights)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise TypeError(f"weights must be real numbers; got an array of {array.dtype}")
    if array.ndim < 2:
        raise ValueError(
            "weights must have the shape (..., n_queries, n_keys), such as (heads, 12, 12); got "
            f"shape {array.shape}"
        )
    if 0 in array.shape[-2:]:
        raise ValueError(
            f"weights must have at least one query and one key; got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        what = "NaN" if np.isnan(array).any() else "infinite values"
        raise ValueError(f"weights contains {what}. Rows without an allowed key must be zeros.")
    if (array < 0).any():
        raise ValueError(
            "weights contains negative values. Pass the weights after the softmax, not the logits."
        )
    return array


def _square(weights: ArrayLike, pattern: str) -> tuple[NDArray[np.floating[Any]], int]:
    array = _checked(weights)
    num_queries, num_keys = array.shape[-2:]
    if num_queries != num_keys:
        raise ValueError(
            f"weights must be square for the pattern {pattern!r}, which compares the positions of "
            f"queries and keys in one text; got {num_queries} queries and {num_keys} keys"
        )
    return array, num_queries


def _pairs(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Check that `value` is bool and fits the weights. Return an array (..., queries, keys).

    `shape` is the shape of the weights, (..., queries, keys). `name` is the name of the argument in
    messages.
    """
    array = np.asarray(value)
    if array.dtype != bool:
        raise TypeError(
            f"{name} must be an array of bool; got {array.dtype}. Convert it with {name} = "
            f"{name}.astype(bool)."
        )
    try:
        pairs = np.broadcast_shapes(array.shape, shape[-2:])
        fits = np.broadcast_shapes(pairs, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} must have the shape (n_keys,), (n_queries, n_keys) or that of weights, "
            f"{shape}; got {array.shape}"
        )
    return np.broadcast_to(array, pairs)


def _all_pairs(
    pattern: str, weights: NDArray[Any], codes: NDArray[np.int64] | None = None
) -> NDArray[np.bool_]:
    num_queries, num_keys = weights.shape[-2:]
    return pairs_of(pattern, slice(0, num_queries), num_keys, codes)


def mass_on(weights: ArrayLike, mask: ArrayLike, *, allowed: ArrayLike | None = None) -> Scores:
    """Measure the share of the weight that falls on chosen query-key pairs.

    Parameters
    ----------
    weights : array_like of float, (..., n_queries, n_keys)
        Attention weights after the softmax.
    mask : array_like of bool, (n_keys,), (n_queries, n_keys) or the shape of `weights`
        True for the chosen pairs. Pass (n_keys,) to choose the same keys for all queries, such as
        delimiters, punctuation or the patches of an object.
    allowed : array_like of bool, same shapes as `mask`, optional
        True for the pairs that the model's mask allows. By default, all pairs are allowed. Pass
        this argument if `mask` contains pairs that the model forbids, such as later keys in a
        causal model (pass ``np.tri(n, dtype=bool)``) or keys outside a sliding window. Queries
        without an allowed pair in `mask` are not counted.

    Returns
    -------
    ndarray of float64, (...)
        Share of the weight, from 0 to 1 if rows sum to at most 1 and forbidden pairs have weight 0.
        NaN if no query has an allowed pair in `mask`.

    Raises
    ------
    ValueError
        If shapes do not fit, or weights are NaN, infinite or negative.
    TypeError
        If `weights` are not real numbers, or `mask` or `allowed` are not bool.

    Notes
    -----
    The result is the sum of `weights` over all pairs of `mask`, divided by the number of queries
    with an allowed pair in `mask`. The source is in `attnviz.analysis.patterns`.

    Examples
    --------
    >>> weights = np.array([[0.9, 0.1], [0.5, 0.5]])
    >>> float(mass_on(weights, np.array([True, False])))
    0.7
    """
    array = _checked(weights)
    chosen = _pairs("mask", mask, array.shape)
    possible = chosen
    if allowed is not None:
        possible = chosen & _pairs("allowed", allowed, array.shape)
    mass = np.where(chosen, array, 0).sum(axis=(-2, -1), dtype=np.float64)
    num_queries = possible.any(axis=-1).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(num_queries > 0, mass / num_queries, np.nan)
    return np.asarray(share, dtype=np.float64)


def previous_token(weights: ArrayLike, *, allowed: ArrayLike | None = None) -> Scores:
    """Measure how much the queries attend to the token before them.

    Parameters
    ----------
    weights : array_like of float, (..., n, n)
        Attention weights after the softmax.
    allowed : array_like of bool, optional
        As in `mass_on`.

    Returns
    -------
    ndarray of float64, (...)
        From 0 to 1. NaN for a single token, or if `allowed` contains none of the pairs.

    Raises
    ------
    TypeError, ValueError
        As for `mass_on`. Also if `weights` are not square.

    Notes
    -----
    The result is the mass of the pairs j = i - 1 (see `attnviz.analysis.patterns`). Clark et al.
    2019 (arXiv 1906.04341, section 3.1) describe such heads, and Voita et al. 2019 (arXiv
    1905.09418) call them "positional heads".

    Examples
    --------
    >>> float(previous_token([[1.0, 0.0], [0.75, 0.25]]))
    0.75
    """
    array, _ = _square(weights, "previous token")
    return mass_on(array, _all_pairs("previous token", array), allowed=allowed)


def next_token(weights: ArrayLike, *, allowed: ArrayLike | None = None) -> Scores:
    """Measure how much the queries attend to the token after them.

    Parameters
    ----------
    weights : array_like of float, (..., n, n)
        Attention weights after the softmax.
    allowed : array_like of bool, optional
        As in `mass_on`. For a causal model, the result is NaN with its mask and 0 by default.

    Returns
    -------
    ndarray of float64, (...)
        From 0 to 1. NaN for a single token, or if `allowed` contains none of the pairs.

    Raises
    ------
    TypeError, ValueError
        As for `mass_on`. Also if `weights` are not square.

    Notes
    -----
    The result is the mass of the pairs j = i + 1 (see `attnviz.analysis.patterns`). Clark et al.
    2019 (arXiv 1906.04341, section 3.1) describe such heads.

    Examples
    --------
    >>> float(next_token([[0.5, 0.5], [0.75, 0.25]]))
    0.5
    """
    array, _ = _square(weights, "next token")
    return mass_on(array, _all_pairs("next token", array), allowed=allowed)


def self_token(weights: ArrayLike, *, allowed: ArrayLike | None = None) -> Scores:
    """Measure how much the queries attend to themselves.

    Parameters
    ----------
    weights : array_like of float, (..., n, n)
        Attention weights after the softmax.
    allowed : array_like of bool, optional
        As in `mass_on`.

    Returns
    -------
    ndarray of float64, (...)
        From 0 to 1. NaN if `allowed` contains none of the pairs.

    Raises
    ------
    TypeError, ValueError
        As for `mass_on`. Also if `weights` are not square.

    Notes
    -----
    The result is the mass of the pairs j = i (see `attnviz.analysis.patterns`). Clark et al. 2019
    (arXiv 1906.04341, section 3.1) describe such heads.

    Examples
    --------
    >>> float(self_token([[0.5, 0.5], [0.75, 0.25]]))
    0.375
    """
    array, _ = _square(weights, "self")
    return mass_on(array, _all_pairs("self", array), allowed=allowed)


def first_token(weights: ArrayLike, *, allowed: ArrayLike | None = None) -> Scores:
    """Measure how much the queries attend to the first key. The first query is included.

    Parameters
    ----------
    weights : array_like of float, (..., n_queries, n_keys)
        Attention weights after the softmax.
    allowed : array_like of bool, optional
        As in `mass_on`.

    Returns
    -------
    ndarray of float64, (...)
        From 0 to 1. NaN if `allowed` contains none of the pairs.

    Raises
    ------
    TypeError, ValueError
        As for `mass_on`.

    Notes
    -----
    The result is the mass of the pairs j = 0 (see `attnviz.analysis.patterns`). Xiao et al. 2024
    (arXiv 2309.17453, "attention sinks") explain why many heads attend to the first key.

    Examples
    --------
    >>> float(first_token([[1.0, 0.0], [0.75, 0.25]]))
    0.875
    """
    array = _checked(weights)
    return mass_on(array, _all_pairs("first token", array), allowed=allowed)


def same_token(weights: ArrayLike, tokens: Tokens, *, allowed: ArrayLike | None = None) -> Scores:
    """Measure how much the queries attend to earlier occurrences of the same token.

    Parameters
    ----------
    weights : array_like of float, (..., n, n)
        Attention weights after the softmax.
    tokens : sequence of int or str, (n,)
        Ids or texts of the tokens.
    allowed : array_like of bool, optional
        As in `mass_on`.

    Returns
    -------
    ndarray of float64, (...)
        From 0 to 1. NaN if no token repeats, or if `allowed` contains none of the pairs.

    Raises
    ------
    TypeError, ValueError
        As for `mass_on`. Also if `weights` are not square or `tokens` do not fit.

    Notes
    -----
    The result is the mass of the pairs with t_j = t_i and j < i, where t are the tokens (see
    `attnviz.analysis.patterns`). Wang et al. 2023 (arXiv 2211.00593) call such heads "duplicate
    token heads".

    Examples
    --------
    >>> weights = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.75, 0.0, 0.25]]
    >>> float(same_token(weights, ["a", "b", "a"]))
    0.75
    """
    array, number = _square(weights, "same token")
    pairs = _all_pairs("same token", array, codes_of(tokens, number))
    return mass_on(array, pairs, allowed=allowed)


def induction(weights: ArrayLike, tokens: Tokens, *, allowed: ArrayLike | None = None) -> Scores:
    """Measure how much a query attends to the tokens that followed its token earlier in the text.

    Parameters
    ----------
    weights : array_like of float, (..., n, n)
        Attention weights after the softmax.
    tokens : sequence of int or str, (n,)
        Ids or texts of the tokens.
    allowed : array_like of bool, optional
        As in `mass_on`.

    Returns
    -------
    ndarray of float64, (...)
        From 0 to 1. NaN if no token repeats, or if `allowed` contains none of the pairs.

    Raises
    ------
    TypeError, ValueError
        As for `mass_on`. Also if `weights` are not square or `tokens` do not fit.

    See Also
    --------
    repeated_induction : same measure on random tokens, whose meaning does not help a head.

    Notes
    -----
    The result is the mass of the pairs with t_(j-1) = t_i and 1 <= j <= i, where t are the tokens
    (see `attnviz.analysis.patterns`). Olsson et al. 2022 (arXiv 2209.11895) call it "prefix
    matching", but measure it on random tokens.

    Examples
    --------
    >>> weights = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]
    >>> float(induction(weights, ["a", "b", "a"]))
    0.75
    """
    array, number = _square(weights, "induction")
    pairs = _all_pairs("induction", array, codes_of(tokens, number))
    return mass_on(array, pairs, allowed=allowed)


def repeated_induction(weights: ArrayLike, length: int) -> Scores:
    """Measure induction on random tokens that are repeated once, as in its original definition.

    Parameters
    ----------
    weights : array_like of float, (..., 2 * length, 2 * length)
        Weights of a model on a text of `length` random tokens, followed by the same tokens. Draw
        the tokens without replacement. If a token occurs twice in a half, even a perfect induction
        head divides its weight between two keys.
    length : int
        Number of tokens in each half of the text.

    Returns
    -------
    ndarray of float64, (...)
        From 0 to 1.

    Raises
    ------
    ValueError
        If the text does not have ``2 * length`` tokens, or weights are NaN, infinite or negative.

    Notes
    -----
    The result is the mean of A[i, i - T + 1] over i >= T, where A are the weights and T is
    `length`. It is the "prefix matching score" of Olsson et al. 2022 (arXiv 2209.11895).

    Examples
    --------
    >>> weights = np.zeros((4, 4))
    >>> weights[2, 1], weights[3, 2] = 1.0, 0.5
    >>> float(repeated_induction(weights, 2))
    0.75
    """
    array, number = _square(weights, "induction")
    if length < 1 or number != 2 * length:
        raise ValueError(
            "length must be half the number of tokens, because they are repeated once; got "
            f"length={length} for weights of {number} tokens"
        )
    on_diagonal = np.diagonal(array, offset=1 - length, axis1=-2, axis2=-1)
    # The diagonal begins with the last query of the first half. Omit this query.
    return np.asarray(on_diagonal[..., -length:].mean(axis=-1, dtype=np.float64))
