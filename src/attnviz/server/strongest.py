"""Strongest keys of queries: the keys with the largest weights among all keys of a text.

For a long text, a view draws lines only to these keys. If the reader has pinned a query, the view
also lists the strongest keys that are outside the part of the text that it draws. The TypeScript
file ``js/src/client/requests/strongest.ts`` reads the replies. In exported pages,
``js/src/client/page/reductions.ts`` computes the same results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.softmax import row_groups, strongest_keys
from attnviz.server.codec import encode_numbers, not_finite_error
from attnviz.server.protocol import Range, Reply, check_reply_size, range_slice
from attnviz.server.weights import Weights
from attnviz.utils.progress import Pace

# Maximum number of weights of one matrix that are computed at the same time (16 MiB of float32).
_MAX_WEIGHTS = 1 << 22


class Strongest(msgspec.Struct, frozen=True, tag_field="kind", tag="strongest"):
    """Reduction of each row to its strongest keys: the keys with the largest weights.

    Signed numbers are compared by absolute value.

    A row of the reply has 2k + 2 numbers. The first k are the positions of the strongest keys, the
    strongest first, or -1 if fewer than k keys have weight. The next k are the weights of these
    keys. The last two are sums of absolute weights: over the included and over the excluded keys.

    Attributes
    ----------
    k : int
        Maximum number of keys per query.
    exclude : list of range
        Ranges of keys that are not among the strongest keys.
    """

    k: int
    exclude: tuple[Range, ...] = ()

    def reply(self, weights: Weights) -> Reply:
        """Find the strongest keys of each row. Return a reply with an `EncodedHeader`."""
        strongest = find_strongest_keys(weights, self)
        # float32 is exact for positions up to 16,777,216.
        parts = [strongest.keys, strongest.weights, strongest.sums]
        return encode_numbers(np.concatenate(parts, axis=2, dtype="f4"), weights.stack.maximum)


@dataclass(frozen=True)
class StrongestKeys:
    """Strongest keys of each query, for one or several matrices of weights.

    Attributes
    ----------
    keys : ndarray
        Positions of the keys, int32, (matrices, rows, k). The strongest key of a row is first. Keys
        with weight 0 are replaced by -1.
    weights : ndarray
        Weights of `keys`, float32, (matrices, rows, k). 0 if the key is -1.
    sums : ndarray
        Two sums of absolute weights for each row, float32, (matrices, rows, 2): over the keys that
        may be in `keys`, and over the keys that `Strongest.exclude` excludes.
    """

    keys: NDArray[np.int32]
    weights: NDArray[np.float32]
    sums: NDArray[np.float32]


def find_strongest_keys(weights: Weights, asked: Strongest) -> StrongestKeys:
    """Find the strongest keys of each row, and sums of the weights of each row.

    Raise ValueError before the computation if the result does not fit into a reply.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
    >>> weights = Weights(record.stack(), 0, [0], rows=slice(0, 2), columns=slice(0, 2))
    >>> strongest = find_strongest_keys(weights, Strongest(k=1))
    >>> strongest.keys.tolist(), strongest.weights.tolist()
    ([[[0], [1]]], [[[1.0], [0.75]]])
    """
    if asked.k < 1:
        raise ValueError(f"k={asked.k} must be at least 1")
    stack, rows, columns = weights.stack, weights.rows, weights.columns
    k = min(asked.k, weights.num_columns)
    shape = len(weights.matrices), weights.num_rows
    size = 4 * math.prod(shape) * (2 * k + 2)
    check_reply_size("the strongest keys", size, "Request fewer rows or keys.")
    strongest = StrongestKeys(
        np.full((*shape, k), -1, np.int32),
        np.zeros((*shape, k), np.float32),
        np.zeros((*shape, 2), np.float32),
    )
    excluded = torch.zeros(len(stack.key_tokens), dtype=torch.bool)
    for keys in asked.exclude:
        excluded[range_slice("exclude", keys, len(excluded))] = True
    excluded = excluded[columns]
    step = max(1, _MAX_WEIGHTS // weights.num_columns)
    pace = Pace("strongest keys", len(weights.heads) * shape[1] * len(stack.key_tokens))
    for matrix, heads in enumerate(weights.matrices):
        for part, group in row_groups(rows, step):
            numbers = weights.matrix(heads, group, pace=pace)
            signs = torch.sign(numbers) if stack.signed else None
            numbers = numbers if signs is None else numbers.abs()
            excluded = excluded.to(numbers.device)
            excluded_sum = numbers[:, excluded].sum(dim=1)
            # Set excluded weights to 0 by multiplication. 0 times NaN or infinity is NaN, so such
            # weights make a sum NaN and raise the error below. A mask would hide them.
            numbers *= (~excluded).to(numbers)
            sums = torch.stack([numbers.sum(dim=1), excluded_sum], dim=1)
            if not bool(sums.isfinite().all()):
                first = int((~sums.isfinite()).any(dim=1).nonzero()[0])
                query = rows.start + part.start + first
                raise not_finite_error(weights.label, f"the first of query {query}")
            top_weights, top_keys = strongest_keys(numbers, k)
            positions = (top_keys + columns.start).masked_fill(top_weights == 0, -1)
            strongest.keys[matrix, part] = positions.cpu().numpy()
            if signs is not None:
                top_weights *= signs.gather(1, top_keys)
            strongest.weights[matrix, part] = top_weights.cpu().numpy()
            strongest.sums[matrix, part] = sums.cpu().numpy()
    return strongest
