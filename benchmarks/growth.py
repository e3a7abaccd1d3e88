"""Prediction of the time for a larger size."""

from __future__ import annotations

import math
from collections.abc import Sequence


def expected_seconds(measured: Sequence[tuple[float, float]], size: float) -> float:
    """Extrapolate the time for `size` from the last two measured pairs of size and seconds.

    The growth is a power of the size. With one pair the time is proportional to the size, as a
    lower bound. Without any the result is 0.

    Examples
    --------
    >>> expected_seconds([(64, 1.0), (128, 4.0)], 256)
    16.0
    >>> expected_seconds([(64, 1.0)], 256)
    4.0
    """
    if not measured:
        return 0.0
    last, seconds = measured[-1]
    power = 1.0
    if len(measured) > 1:
        before, less = measured[-2]
        # The time of small sizes is mostly start-up time.
        power = max(1.0, math.log(seconds / less) / math.log(last / before))
    return float(seconds * (size / last) ** power)
