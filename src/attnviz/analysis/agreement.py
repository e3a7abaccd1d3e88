"""Agreement of two rankings, and the weight that can move to other keys with the same output."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.utils.arguments import short_repr

# A smaller `MovableWeight.share` is a rounding error of the linear program and is set to 0.
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
        Two lists with the same number of values. A position with NaN in either list is excluded.

    Returns
    -------
    float
        1 for the same order, -1 for the opposite order, NaN if all values of a list are equal.
        Equal values are treated as in Kendall (1945).

    Raises
    ------
    ImportError
        If scipy is not installed.
    ValueError
        If the lengths differ, or if fewer than two positions have a number in both lists.

    Notes
    -----
    Jain and Wallace (2019, arXiv 1902.10186) use tau to compare attention with the effects of
    removing single tokens. Effects depend on the way in which a token is removed. For comparison,
    report the tau of the effects of two ways of removal. The tau of attention can hardly be larger.

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
    """Other weights for a row that give the same output.

    Attributes
    ----------
    share : float
        Weight that moves to other keys: half the sum of the absolute differences. It is from 0 to 1
        if the row sums to 1.
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
    """Find weights that give the same output as a row of weights, but on other keys if possible.

    For weights a and values V, a linear program minimizes the dot product a . b over all weights
    b >= 0 that have the same sum as a and the same output, b V = a V. If a row has more keys than
    V has dimensions, much of the weight can move without changing the output. The weights then
    show little about what the head reads.

    Parameters
    ----------
    weights : array_like
        (keys,), a row of attention weights, not negative.
    values : array_like
        (keys, value_dim): the value vectors of the keys.

    Returns
    -------
    MovableWeight
        The share is a lower bound. Weights with a larger share may exist, because the program
        minimizes a . b.

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
    # Scale the values, because the solver is accurate only if all constraints have a similar size.
    scale = max(float(np.abs(value_rows).max()), np.finfo(np.float64).tiny)
    equal = np.vstack([value_rows.T / scale, np.ones(len(row))])
    solution = linprog(row, A_eq=equal, b_eq=equal @ row, bounds=(0, None), method="highs")
    if not solution.success:
        return MovableWeight(0.0, row)
    share = float(np.abs(solution.x - row).sum() / 2)
    return MovableWeight(share if share > _ROUNDING else 0.0, solution.x)
