"""How far two rankings agree, and how much of a row of weights says nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import short_repr

__all__ = ["MovableWeight", "kendall_tau", "movable_weight"]

# Less than this of a weight is rounding of the programme that moves it.
_ROUNDING = 1e-9


def _scipy(needed: str) -> None:
    try:
        import scipy.optimize  # noqa: F401 - looked for alone
    except ImportError as error:
        raise ImportError(
            f"{needed} needs scipy: pip install 'attnviz[scipy]'", name="scipy"
        ) from error


def kendall_tau(a: Any, b: Any) -> float:
    """Kendall's tau-b of two lists of numbers: how far they agree in which is larger.

    Parameters
    ----------
    a, b : array_like
        As many numbers each; pairs in which one is NaN are left out.

    Returns
    -------
    float
        1 where they order everything alike, -1 where they are opposite, NaN where one of them is
        the same everywhere. Ties count as in Kendall (1945).

    Raises
    ------
    ImportError
        If scipy is not installed.
    ValueError
        If they are not as many, or fewer than two are left.

    Notes
    -----
    Attention and leave-one-out are compared so by Jain and Wallace (2019, arXiv 1902.10186). Two
    kinds of leave-one-out do not agree fully either: state their tau beside it, as the ceiling.

    Examples
    --------
    >>> round(kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]), 6)
    0.666667
    """
    _scipy("kendall_tau")
    from scipy.stats import kendalltau

    one, other = (np.asarray(each, dtype=np.float64).ravel() for each in (a, b))
    if len(one) != len(other):
        raise ValueError(f"a has {len(one)} numbers and b {len(other)}; give as many of both")
    there = ~(np.isnan(one) | np.isnan(other))
    if there.sum() < 2:
        raise ValueError(f"a and b have {there.sum()} pairs of numbers; tau needs two at least")
    return float(kendalltau(one[there], other[there]).statistic)


class MovableWeight(NamedTuple):
    """How much of a row of weights could lie elsewhere.

    Attributes
    ----------
    share : float
        Weight that is moved, 0 to 1: half the sum of the differences.
    weights : ndarray of float64
        (keys,): other weights with the same output.

    Examples
    --------
    >>> movable_weight([0.5, 0.5], [[1.0], [2.0]]).share
    0.0
    """

    share: float
    weights: NDArray[np.float64]


def movable_weight(weights: Any, values: Any) -> MovableWeight:
    """Find other weights of a row that give the same output, with as little overlap as can be.

    A linear programme: b >= 0 with the sum of the weights a and b V = a V, that makes a . b least.
    Where there are more keys than dimensions of a value, much of a row can lie elsewhere and
    nothing changes: then the picture of the row says less than it seems.

    Parameters
    ----------
    weights : array_like
        (keys,), not negative.
    values : array_like
        (keys, value_dim): the values that the head reads.

    Returns
    -------
    MovableWeight
        A lower bound: other weights may overlap less.

    Raises
    ------
    ImportError
        If scipy is not installed.
    ValueError
        If the shapes do not fit, or a number is negative, NaN or infinite.

    Examples
    --------
    >>> found = movable_weight([1.0, 0.0, 0.0], [[0.0], [1.0], [-1.0]])
    >>> found.share, found.weights.round(6).tolist()
    (1.0, [0.0, 0.5, 0.5])
    """
    _scipy("movable_weight")
    from scipy.optimize import linprog

    row = np.asarray(weights, dtype=np.float64)
    read = np.asarray(values, dtype=np.float64)
    if row.ndim != 1 or read.ndim != 2 or len(row) != len(read) or not len(row):
        raise ValueError(
            f"weights {row.shape} and values {read.shape} must be (keys,) and (keys, value_dim)"
        )
    if not (np.isfinite(row).all() and np.isfinite(read).all()) or row.min() < 0:
        raise ValueError(
            f"weights={short_repr(weights)}: some numbers are negative, NaN or infinite"
        )
    # One size for all rows of the programme.
    scale = max(float(np.abs(read).max()), np.finfo(np.float64).tiny)
    equal = np.vstack([read.T / scale, np.ones(len(row))])
    found = linprog(row, A_eq=equal, b_eq=equal @ row, bounds=(0, None), method="highs")
    if not found.success:
        return MovableWeight(0.0, row)
    share = float(np.abs(found.x - row).sum() / 2)
    return MovableWeight(share if share > _ROUNDING else 0.0, found.x)
