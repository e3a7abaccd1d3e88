"""Strongest keys of queries: the keys with the largest weights among all keys of a text.

For a long text, a view draws lines only to these keys. If the reader has pinned a query, the view
also lists the strongest keys that are outside the part of the text that it draws. The TypeScript
file ``js/src/client/requests/strongest.ts`` reads the replies. In exported pages,
``js/src/client/page/reductions.ts`` computes the same results.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.softmax import row_groups, strongest_keys
from attnviz.record.tokens import Tokens
from attnviz.server.codec import EncodedHeader, not_finite_error
from attnviz.server.protocol import Reply, check_reply_size
from attnviz.server.weights import Weights
from attnviz.utils.progress import Pace

Pair = Literal["all", "a-a", "a-b", "b-a", "b-b"]

# Maximum number of weights of one matrix that are computed at the same time (16 MiB of float32).
_MAX_WEIGHTS = 1 << 22


class Strongest(msgspec.Struct, frozen=True, tag_field="kind", tag="strongest"):
    """Reduction of each row to its strongest keys: the keys with the largest weights.

    Signed numbers are compared by absolute value.

    A row of the reply has 2k + 3 numbers. The first k are the positions of the strongest keys, the
    strongest first, or -1 if fewer than k keys have weight. The next k are the weights of these
    keys. The last three are sums of absolute weights: over the included keys, over the keys in
    `leave_out`, and over the other keys, which `pair` excludes.

    Attributes
    ----------
    k : int
        Maximum number of keys per query.
    leave_out : list
        Keys to leave out: "special" for special tokens, "first" for the first token, or the
        position of a key.
    pair : {"all", "a-a", "a-b", "b-a", "b-b"}
        Keys to include if the input is a pair of texts a and b: the keys in text a for "a-a" and
        "b-a", the keys in text b for "a-b" and "b-b", or all keys. The letter before the hyphen is
        the text of the queries. It does not change the reply, because `ReadRequest.rows` selects
        the queries.
    """

    k: int
    leave_out: tuple[str | int, ...] = ()
    pair: Pair = "all"

    def reply(self, weights: Weights) -> Reply:
        """Find the strongest keys of each row. Return a reply with an `EncodedHeader`."""
        strongest = find_strongest_keys(weights, self)
        # float32 is exact for positions up to 16,777,216.
        numbers = np.concatenate(
            [strongest.keys, strongest.weights, strongest.sums], axis=2, dtype="<f4"
        )
        header = EncodedHeader(
            shape=numbers.shape, encoding="float32", maximum=weights.stack.maximum, error=0.0
        )
        return Reply(header, numbers.tobytes())


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
        Three sums of absolute weights for each row, float32, (matrices, rows, 3): over the keys
        that may be in `keys`, over the keys that `Strongest.leave_out` excludes, and over the other
        keys, which `Strongest.pair` excludes.
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
    size = 4 * math.prod(shape) * (2 * k + 3)
    check_reply_size("the strongest keys", size, "Request fewer rows or keys.")
    strongest = StrongestKeys(
        np.full((*shape, k), -1, np.int32),
        np.zeros((*shape, k), np.float32),
        np.zeros((*shape, 3), np.float32),
    )
    tokens = stack.key_tokens
    left_out = torch.from_numpy(_left_out_keys(tokens, asked.leave_out)[columns])
    other_text = torch.from_numpy(~_keys_of_pair(tokens, asked.pair)[columns]) & ~left_out
    step = max(1, _MAX_WEIGHTS // weights.num_columns)
    pace = Pace("strongest keys", len(weights.heads) * shape[1] * len(tokens))
    for matrix, heads in enumerate(weights.matrices):
        for part, group in row_groups(rows, step):
            numbers = weights.matrix(heads, group, pace=pace)
            signs = torch.sign(numbers) if stack.signed else None
            numbers = numbers if signs is None else numbers.abs()
            excluded_sums = [_sum_columns(numbers, left_out), _sum_columns(numbers, other_text)]
            # Set excluded weights to 0 by multiplication. 0 times NaN or infinity is NaN, so such
            # weights make a sum NaN and raise the error below. A mask would hide them.
            numbers *= (~(left_out | other_text)).to(numbers)
            sums = torch.stack([numbers.sum(dim=1), *excluded_sums], dim=1)
            if not bool(sums.isfinite().all()):
                first = int((~sums.isfinite()).any(dim=1).nonzero()[0])
                query = rows.start + part.start + first
                raise not_finite_error(weights.label, f"the first of query {query}")
            top_weights, keys = strongest_keys(numbers, k)
            positions = (keys + columns.start).masked_fill(top_weights == 0, -1)
            strongest.keys[matrix, part] = positions.cpu().numpy()
            if signs is not None:
                top_weights *= signs.gather(1, keys)
            strongest.weights[matrix, part] = top_weights.cpu().numpy()
            strongest.sums[matrix, part] = sums.cpu().numpy()
    return strongest


def _sum_columns(weights: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    if not bool(columns.any()):
        return torch.zeros(len(weights), device=weights.device)
    return weights[:, columns.to(weights.device)].sum(dim=1)


def _left_out_keys(keys: Tokens, leave_out: tuple[str | int, ...]) -> NDArray[np.bool_]:
    flags = np.zeros(len(keys), np.bool_)
    for key in dict.fromkeys(leave_out):
        if key == "special":
            flags |= np.array(keys.special, np.bool_)
        elif key == "first":
            flags[:1] = True
        elif isinstance(key, int) and 0 <= key < len(keys):
            flags[key] = True
        else:
            shown = reprlib.repr(key)
            raise ValueError(
                f'leave_out={shown} must be "special", "first" or a key from 0 to {len(keys) - 1}'
            )
    return flags


def _keys_of_pair(tokens: Tokens, pair: str) -> NDArray[np.bool_]:
    """Return for each key whether `pair` includes it, bool, (keys,).

    "all" includes all keys. Other values include only the keys in the text after the hyphen, such
    as text b for "a-b". Special tokens belong to neither text.
    """
    if pair == "all":
        return np.ones(len(tokens), np.bool_)
    number = "ab".index(pair[2])
    return np.array([sequence == number for sequence in tokens.sequence], np.bool_)
