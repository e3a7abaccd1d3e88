"""Agreement of two rankings, and the weight that can move without changing the output."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import short_repr

__all__ = ["MovableWeight", "kendall_tau", "movable_weight"]

# Smaller values of `MovableWeight.share` are rounding errors of the linear program.
_ROUNDING = 1e-9


def _scipy(needed: str) -> None:
    try:
        import scipy.optimize  # noqa: F401 - looked for alone
    except ImportError as error:
        raise ImportError(
            f"{needed} needs scipy: pip install 'attnviz[scipy]'", name="scipy"
        ) from error


def kendall_tau(a: Any, b: Any) -> float:
    """Compute Kendall's tau-b, the agreement of two rankings.

    Parameters
    ----------
    a, b : array_like
        Two lists with the same number of values. Pairs with a NaN are excluded.

    Returns
    -------
    float
        1 for the same order, -1 for the opposite order, NaN if all values of a list are equal.
        Ties count as in Kendall (1945).

    Raises
    ------
    ImportError
        If scipy is not installed.
    ValueError
        If the lengths differ, or if fewer than two pairs are left.

    Notes
    -----
    Jain and Wallace (2019, arXiv 1902.10186) compare attention with leave-one-out effects in this
    way. Two ways of removing tokens do not agree completely either. Report their tau as the upper
    limit.

    Examples
    --------
    >>> round(kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]), 6)
    0.666667
    """
    _scipy("kendall_tau")
    from scipy.stats import kendalltau

    one, other = (np.asarray(values, dtype=np.float64).ravel() for values in (a, b))
    if len(one) != len(other):
        raise ValueError(
            f"a has {len(one)} numbers and b has {len(other)}. Pass lists of the same length."
        )
    valid = ~(np.isnan(one) | np.isnan(other))
    if valid.sum() < 2:
        raise ValueError(f"a and b have {valid.sum()} pairs of numbers. tau needs at least two.")
    return float(kendalltau(one[valid], other[valid]).statistic)


class MovableWeight(NamedTuple):
    """Other weights of a row that give the same output.

    Attributes
    ----------
    share : float
        Share of the weight that moves, from 0 to 1: half the sum of the absolute differences.
    weights : ndarray of float64
        (keys,): the other weights.

    Examples
    --------
    >>> movable_weight([0.5, 0.5], [[1.0], [2.0]]).share
    0.0
    """

    share: float
    weights: NDArray[np.float64]


def movable_weight(weights: Any, values: Any) -> MovableWeight:
    """Find weights with the same output that overlap as little as possible with a row of weights.

    A linear program minimizes a . b for the weights a over all b >= 0 that have the same sum as a
    and satisfy b V = a V. If there are more keys than value dimensions, much of the weight can move
    without changing the output. The row then says little about what the head reads.

    Parameters
    ----------
    weights : array_like
        (keys,), not negative.
    values : array_like
        (keys, value_dim): the values of the keys.

    Returns
    -------
    MovableWeight
        The share is a lower bound: other weights may overlap less.

    Raises
    ------
    ImportError
        If scipy is not installed.
    ValueError
        If the shapes do not fit, or a number is negative, NaN or infinite.

    Examples
    --------
    >>> movable = movable_weight([1.0, 0.0, 0.0], [[0.0], [1.0], [-1.0]])
    >>> movable.share, movable.weights.round(6).tolist()
    (1.0, [0.0, 0.5, 0.5])
    """
    _scipy("movable_weight")
    from scipy.optimize import linprog

    row = np.asarray(weights, dtype=np.float64)
    value_rows = np.asarray(values, dtype=np.float64)
    if row.ndim != 1 or value_rows.ndim != 2 or len(row) != len(value_rows) or not len(row):
        raise ValueError(
            f"weights {row.shape} and values {value_rows.shape} must be (keys,) and (keys, "
            "value_dim)"
        )
    if not (np.isfinite(row).all() and np.isfinite(value_rows).all()) or row.min() < 0:
        raise ValueError(
            f"weights={short_repr(weights)} and values must be finite, and weights not negative"
        )
    # The solver needs rows of similar magnitude.
    scale = max(float(np.abs(value_rows).max()), np.finfo(np.float64).tiny)
    equal = np.vstack([value_rows.T / scale, np.ones(len(row))])
    solution = linprog(row, A_eq=equal, b_eq=equal @ row, bounds=(0, None), method="highs")
    if not solution.success:
        return MovableWeight(0.0, row)
    share = float(np.abs(solution.x - row).sum() / 2)
    return MovableWeight(share if share > _ROUNDING else 0.0, solution.x)
