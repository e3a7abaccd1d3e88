"""Scores of arrays of weights: the share of the weight that falls on a set of query-key pairs.

A pattern is such a set, for example each query with the previous token.
`attnviz.analysis.measures` defines the formula, and the pairs of each pattern.
`attnviz.analysis.heads` computes the same scores for the heads of a record.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnviz.analysis.measures import TokenFacts, named, pairs_of
from attnviz.utils.arrays import as_array

Scores = NDArray[np.float64]
Tokens = Sequence[Hashable] | NDArray[Any]


def _checked(weights: ArrayLike) -> NDArray[np.floating[Any]]:
    array = as_array(weights)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise TypeError(
            f"weights must be an array of real numbers; got an array of {array.dtype}. For the "
            'heads of a record, use attnviz.analysis.head_scores(record, "previous token").'
        )
    if array.ndim < 2 or 0 in array.shape[-2:]:
        raise ValueError(
            "weights must have the shape (..., n_queries, n_keys), such as (heads, 12, 12), with "
            f"at least one query and one key; got shape {array.shape}"
        )
    if not np.isfinite(array).all():
        what = "NaN" if np.isnan(array).any() else "infinite values"
        raise ValueError(f"weights contains {what}. Rows without an allowed key must be zeros.")
    if (array < 0).any():
        raise ValueError(
            "weights contains negative values. Pass the weights after the softmax, not the logits."
        )
    return array


def _pairs(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Check that `value` is bool and fits the weights. Return it with a query and a key axis.

    `shape` is the shape of the weights, (..., queries, keys). `name` is the name of the argument in
    messages. Raise TypeError or ValueError for another dtype or shape.
    """
    array = as_array(value)
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


def _score(
    name: str, weights: ArrayLike, allowed: ArrayLike | None, tokens: Tokens | None = None
) -> Scores:
    """Return the score of the pattern `name`. Pass `tokens` if its pairs depend on tokens.

    Raise ValueError if queries and keys must be the same tokens, but `weights` are not square, or
    if `tokens` does not have one entry per key.
    """
    measure, array = named(name), _checked(weights)
    num_queries, num_keys = array.shape[-2:]
    if measure.one_text and num_queries != num_keys:
        raise ValueError(
            f"weights must be square for the pattern {name!r}, which compares the positions of "
            f"queries and keys in one text; got {num_queries} queries and {num_keys} keys"
        )
    keys = TokenFacts(range(num_keys) if tokens is None else list(tokens))
    if len(keys) != num_keys:
        raise ValueError(
            f"tokens must have {num_keys} entries, one per row of weights; got {len(keys)}"
        )
    return mass_on(array, pairs_of(measure, keys, keys, np.arange(num_queries)), allowed=allowed)


def mass_on(weights: ArrayLike, mask: ArrayLike, *, allowed: ArrayLike | None = None) -> Scores:
    """Measure the share of the weight that falls on chosen query-key pairs.

    Parameters
    ----------
    weights : array_like of float, (..., n_queries, n_keys)
        Attention weights after the softmax.
    mask : array_like of bool, (n_keys,), (n_queries, n_keys) or the shape of `weights`
        True for the chosen pairs. Pass (n_keys,) to choose the same keys for all queries, such as
        delimiters, punctuation or the patches of an object.
    allowed : array_like of bool, with one of the shapes that `mask` may have, optional
        True for the pairs that the model's mask allows. By default, all pairs are allowed. Pass
        this argument if `mask` contains pairs that the model forbids, such as later keys in a
        causal model (pass ``np.tri(n, dtype=bool)``) or keys outside a sliding window. Queries
        without an allowed pair in `mask` are not counted.

    Returns
    -------
    ndarray of float64, (...)
        Share of the weight. It is from 0 to 1 if the weights of each query sum to at most 1 and
        forbidden pairs have weight 0. It is NaN if no query has an allowed pair in `mask`.

    Raises
    ------
    ValueError
        If shapes do not fit, or weights are NaN, infinite or negative.
    TypeError
        If `weights` are not real numbers, or `mask` or `allowed` are not bool.

    Notes
    -----
    The result is the sum of `weights` over all pairs of `mask`, divided by the number of queries
    with an allowed pair in `mask`. `attnviz.analysis.measures` names the paper.

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
    The result is the mass of the pairs j = i - 1 (see `attnviz.analysis.measures`). Clark et al.
    2019 (arXiv 1906.04341, section 3.1) describe such heads, and Voita et al. 2019 (arXiv
    1905.09418) call them "positional heads".

    Examples
    --------
    >>> float(previous_token([[1.0, 0.0], [0.75, 0.25]]))
    0.75
    """
    return _score("previous token", weights, allowed)


def next_token(weights: ArrayLike, *, allowed: ArrayLike | None = None) -> Scores:
    """Measure how much the queries attend to the token after them.

    Parameters
    ----------
    weights : array_like of float, (..., n, n)
        Attention weights after the softmax.
    allowed : array_like of bool, optional
        As in `mass_on`. For a causal model, the result is NaN if its mask is passed, and otherwise
        0.

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
    The result is the mass of the pairs j = i + 1 (see `attnviz.analysis.measures`). Clark et al.
    2019 (arXiv 1906.04341, section 3.1) describe such heads.

    Examples
    --------
    >>> float(next_token([[0.5, 0.5], [0.75, 0.25]]))
    0.5
    """
    return _score("next token", weights, allowed)


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
    The result is the mass of the pairs j = i (see `attnviz.analysis.measures`). Clark et al. 2019
    (arXiv 1906.04341, section 3.1) describe such heads.

    Examples
    --------
    >>> float(self_token([[0.5, 0.5], [0.75, 0.25]]))
    0.375
    """
    return _score("self", weights, allowed)


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
    The result is the mass of the pairs j = 0 (see `attnviz.analysis.measures`). Xiao et al. 2024
    (arXiv 2309.17453, "attention sinks") explain why many heads attend to the first key.

    Examples
    --------
    >>> float(first_token([[1.0, 0.0], [0.75, 0.25]]))
    0.875
    """
    return _score("first token", weights, allowed)


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
    `attnviz.analysis.measures`). Wang et al. 2023 (arXiv 2211.00593) call such heads "duplicate
    token heads".

    Examples
    --------
    >>> weights = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.75, 0.0, 0.25]]
    >>> float(same_token(weights, ["a", "b", "a"]))
    0.75
    """
    return _score("same token", weights, allowed, tokens)


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
    repeated_induction : similar measure on random tokens, so that meaning does not affect it.

    Notes
    -----
    The result is the mass of the pairs with t_(j-1) = t_i and 1 <= j <= i, where t are the tokens
    (see `attnviz.analysis.measures`). Olsson et al. 2022 (arXiv 2209.11895) call it "prefix
    matching", but measure it on random tokens.

    Examples
    --------
    >>> weights = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.75, 0.0]]
    >>> float(induction(weights, ["a", "b", "a"]))
    0.75
    """
    return _score("induction", weights, allowed, tokens)


def repeated_induction(weights: ArrayLike, length: int) -> Scores:
    """Measure induction on random tokens that are repeated once, as Olsson et al. defined it.

    Parameters
    ----------
    weights : array_like of float, (..., 2 * length, 2 * length)
        Weights of a model on a text of `length` random tokens, followed by the same tokens. Draw
        the tokens without replacement. If a token occurs twice in one half of the text, even a
        perfect induction head divides its weight between two keys.
    length : int
        Number of tokens in each half of the text.

    Returns
    -------
    ndarray of float64, (...)
        From 0 to 1.

    Raises
    ------
    TypeError, ValueError
        As for `mass_on`. Also if `weights` are not square, do not have ``2 * length`` tokens, or
        `length` is not positive.

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
    array = _checked(weights)
    if array.shape[-2:] != (2 * length, 2 * length):
        raise ValueError(
            "length must be half the number of tokens, because they are repeated once; got "
            f"length={length} for weights of the shape {array.shape}"
        )
    on_diagonal = np.diagonal(array, offset=1 - length, axis1=-2, axis2=-1)
    # The first entry of the diagonal belongs to the last query of the first half. Omit it.
    return np.asarray(on_diagonal[..., -length:].mean(axis=-1, dtype=np.float64))
