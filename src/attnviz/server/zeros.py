"""Zeros of three kinds, in replies about a stack whose model chooses keys before the softmax.

In such a stack (`AttentionStack.chooses_keys`), a weight is 0 because the key is masked, because it
was not chosen (left out), or because the softmax computed a value too small for a float32 number.
Float32 replies distinguish these cases without additional bytes:

- masked: -0,
- left out: +0,
- scored by the softmax: above 0, namely `SCORED_ZERO` if the softmax computed 0.

The sign of the sum of several zeros then follows the same rule: it is -0 only if all pairs are
masked. Other stacks have zeros of one kind, +0. The function ``zeroInWords`` in
``js/src/client/zeros.ts`` reads the signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.masks import Rows

#: Number in place of a weight that the softmax computed as 0. It is far below the rounding error of
#: float32 weights, and large enough that a mean over many pairs is above 0.
SCORED_ZERO = 2.0**-100
# Kinds of pairs. A cell of a coarse tile or a mean over heads has the largest kind of its pairs.
_MASKED, _LEFT_OUT, _SCORED = 0, 1, 2


def kinds_of_pairs(
    attention: LayerAttention, heads: Sequence[int], rows: Rows, columns: slice
) -> NDArray[np.uint8]:
    """Return the kind of each pair: 0 masked, 1 left out, 2 scored by the softmax.

    The result is uint8, (heads, rows, columns), or (1, rows, columns) if all heads share a mask.
    """
    allowed = attention.allowed(heads, rows, columns).numpy()
    left_out = attention.left_out(heads, rows, columns).numpy()
    kinds: NDArray[np.uint8] = np.where(allowed, _SCORED, left_out * _LEFT_OUT).astype(np.uint8)
    return kinds


def mark_zeros(weights: NDArray[Any], kinds: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return `weights` as float32, with zeros that show the kinds of their pairs.

    `kinds` is the result of `kinds_of_pairs` for the same pairs, or the largest kind in each cell.

    >>> mark_zeros(np.array([0.0, 0.0, 0.5]), np.array([0, 1, 2], np.uint8))
    array([-0. ,  0. ,  0.5], dtype=float32)
    """
    scored = np.where(weights == 0, SCORED_ZERO, weights)
    unscored = np.where(kinds == _LEFT_OUT, 0.0, -0.0)
    return np.where(kinds == _SCORED, scored, unscored).astype(np.float32)
