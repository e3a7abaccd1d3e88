"""Two tests of whether attention weights explain what a model does.

`kendall_tau` compares the order of two lists of numbers, such as weights and effects of tokens.
`movable_weight` takes the weights of one query, and finds different weights that give the head the
same output for this query. The found weights overlap as little as possible with the given weights.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import short_repr
from attnviz.utils.arrays import as_array

# A `MovableWeight.share` up to this is a rounding error of the linear program, and is set to 0.
_ROUNDING = 1e-9


def _scipy(module: str, needed: str) -> Any:
    try:
        return import_module(f"scipy.{module}")
    except ImportError as error:
        raise ImportError(
            f"{needed} needs scipy: pip install 'attnviz[scipy]'", name="scipy"
        ) from error


def kendall_tau(a: Any, b: Any) -> float:
    """Compute Kendall's tau-b, the agreement of the orders of two lists of numbers.

    Parameters
    ----------
    a, b : array_like
        Two lists with the same number of values. Positions with NaN in either list are excluded.

    Returns
    -------
    float
        1 for the same order, -1 for the opposite order, NaN if all values of a list are equal.
        Ties are treated as in Kendall (1945).

    Raises
    ------
    ImportError
        If scipy is not installed.
    ValueError
        If the lengths differ, or if fewer than two positions have a number in both lists.

    Notes
    -----
    Jain and Wallace (2019, arXiv 1902.10186) use tau to compare attention with the effects of
    removing single tokens. These effects depend on the way in which a token is removed. Therefore,
    also report the tau between the effects of two ways of removal. The tau between attention and
    effects can hardly be larger than the tau between the two ways of removal.

    Examples
    --------
    >>> round(kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]), 6)
    0.666667
    """
    kendalltau = _scipy("stats", "kendall_tau").kendalltau
    pairs = np.stack([as_array(values, np.float64).ravel() for values in (a, b)])
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    if pairs.shape[1] < 2:
        raise ValueError(f"a and b have {pairs.shape[1]} pairs of numbers. tau needs at least two.")
    return float(kendalltau(*pairs).statistic)


class MovableWeight(NamedTuple):
    """Other weights of a query with which the output of the head for this query stays the same.

    Attributes
    ----------
    share : float
        Weight that moves to other keys: half the sum of the absolute differences between the
        original weights and `weights`. It is from 0 to 1 if the original weights sum to 1.
    weights : ndarray of float64
        The other weights, (keys,). They are on other keys as far as possible.

    Examples
    --------
    >>> movable_weight([0.5, 0.5], [[1.0], [2.0]]).share
    0.0
    """

    share: float
    weights: NDArray[np.float64]


def movable_weight(weights: Any, values: Any) -> MovableWeight:
    """Find other weights of a query with which the output of the head for this query is the same.

    For weights a and values V, a linear program minimizes the dot product a . b over all weights
    b >= 0 that have the same sum as a and the same output, b V = a V. Therefore b is on other keys
    than a as far as possible. If there are more keys than dimensions of V, often much of the weight
    can move. The weights a then say little about the keys on which the output depends.

    Parameters
    ----------
    weights : array_like
        Attention weights of one query, (keys,), not negative, for at least one key.
    values : array_like
        Value vectors of the keys, (keys, value_dim).

    Returns
    -------
    MovableWeight
        The weights b, and the share of the weight that moves. Other weights may have a larger
        share, because the program minimizes a . b and does not maximize the share. If the solver
        fails, the result is the weights a, with the share 0.

    Raises
    ------
    ImportError
        If scipy is not installed.
    ValueError
        If the shapes do not fit, a weight is negative, or a weight or value is NaN or infinite.

    Examples
    --------
    >>> movable = movable_weight([1.0, 0.0, 0.0], [[0.0], [1.0], [-1.0]])
    >>> movable.share, movable.weights.round(6).tolist()
    (1.0, [0.0, 0.5, 0.5])
    """
    linprog = _scipy("optimize", "movable_weight").linprog
    row = as_array(weights, np.float64)
    value_rows = as_array(values, np.float64)
    if row.ndim != 1 or value_rows.ndim != 2 or len(row) != len(value_rows) or not len(row):
        raise ValueError(
            f"weights {row.shape} and values {value_rows.shape} must be (keys,) and (keys, "
            "value_dim)"
        )
    if not (np.isfinite(row).all() and np.isfinite(value_rows).all()) or row.min() < 0:
        raise ValueError(
            f"weights={short_repr(weights)} and values must be finite, and weights not negative"
        )
    # Scale the values, because the solver is accurate only if all constraints have a similar size.
    scale = max(float(np.abs(value_rows).max()), np.finfo(np.float64).tiny)
    equal = np.vstack([value_rows.T / scale, np.ones(len(row))])
    solution = linprog(row, A_eq=equal, b_eq=equal @ row, bounds=(0, None), method="highs")
    if not solution.success:
        return MovableWeight(0.0, row)
    share = float(np.abs(solution.x - row).sum() / 2)
    return MovableWeight(share if share > _ROUNDING else 0.0, solution.x)
