"""How long something will take, by how it grew until now."""

from __future__ import annotations

import math
from collections.abc import Sequence


def expected_seconds(known: Sequence[tuple[float, float]], size: float) -> float:
    """What a size will take: by the power of the last two that are known.

    Of one that is known it is in proportion to the size, which is the least: pages hold a number
    for each pair of tokens. Of none it is 0.

    Examples
    --------
    >>> expected_seconds([(64, 1.0), (128, 4.0)], 256)
    16.0
    >>> expected_seconds([(64, 1.0)], 256)
    4.0
    """
    if not known:
        return 0.0
    last, seconds = known[-1]
    power = 1.0
    if len(known) > 1:
        before, less = known[-2]
        # Seconds of small sizes are mostly those of starting.
        power = max(1.0, math.log(seconds / less) / math.log(last / before))
    return float(seconds * (size / last) ** power)
