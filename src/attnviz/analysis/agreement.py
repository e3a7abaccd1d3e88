"""Agreement of the orders of two lists of numbers, such as weights and effects of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnviz.utils.arrays import as_array


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
    try:
        from scipy.stats import kendalltau
    except ImportError as error:
        raise ImportError(
            "kendall_tau needs scipy: pip install 'attnviz[scipy]'", name="scipy"
        ) from error
    pairs = np.stack([as_array(values, np.float64).ravel() for values in (a, b)])
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    if pairs.shape[1] < 2:
        raise ValueError(f"a and b have {pairs.shape[1]} pairs of numbers. tau needs at least two.")
    return float(kendalltau(*pairs).statistic)
