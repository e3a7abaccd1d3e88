"""Strongest keys of queries: the keys with the largest weights among all keys of a text.

For a long text, a view draws lines only to these keys. If the reader has pinned a query, the view
also lists the strongest keys that are outside the part of the text that it draws. The TypeScript
file ``js/src/client/requests/strongest.ts`` reads the replies. In exported pages, the TypeScript
file computes the same results.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.softmax import strongest_keys
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.codec import not_finite_error
from attnviz.server.protocol import Reply, check_heads, check_reply_size
from attnviz.server.row_normalizers import RowNormalizers
from attnviz.utils.progress import Pace

Combine = Literal["separate", "mean", "max"]
Pair = Literal["all", "a-a", "a-b", "b-a", "b-b"]
LeaveOut = Sequence[str | int]

# Maximum number of weights of one matrix that are computed at the same time (16 MiB of float32).
_MAX_WEIGHTS = 1 << 22


class StrongestHeader(TypedDict):
    """Header of a reply with the strongest keys of queries in its buffer.

    The buffer has three arrays, one after the other. The first has the positions of the strongest
    keys of each query, int32, (matrices, queries, k), the strongest first, with -1 if fewer than k
    keys have weight. The second has the weights of these keys, float32. The third has three sums of
    weights for each query, float32, (matrices, queries, 3): over the included keys, over the keys
    in `leave_out`, and over the other keys, which `pair` excludes (see `StrongestRequest`).

    Attributes
    ----------
    shape : list of int
        Number of matrices (one per head, or one if the heads are combined), number of queries, and
        k, the number of keys per query.
    """

    shape: tuple[int, int, int]


@dataclass(frozen=True)
class Strongest:
    """Strongest keys of each query, for one or several matrices of weights.

    A matrix has the weights of one head, or the combined weights of several heads. Signed numbers
    are sorted by absolute value. `weights` have their signs, but `sums` are of absolute values.

    Attributes
    ----------
    keys : ndarray
        Positions of the keys, int32, (matrices, rows, k). The strongest key of a row is first. Keys
        with weight 0 are replaced by -1.
    weights : ndarray
        Weights of `keys`, float32, (matrices, rows, k). 0 if the key is -1.
    sums : ndarray
        Three sums of weights for each row, float32, (matrices, rows, 3): over the keys that may be
        in `keys`, over the keys that the argument `leave_out` excludes, and over the other keys,
        which the argument `pair` excludes (see `attnviz.server.server.StrongestRequest`).
    """

    keys: NDArray[np.int32]
    weights: NDArray[np.float32]
    sums: NDArray[np.float32]

    def reply(self) -> Reply:
        """Return a reply with a `StrongestHeader` and the three arrays in little endian."""
        arrays = (self.keys, self.weights, self.sums)
        data = b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in arrays)
        return Reply({"shape": self.keys.shape}, data)


def find_strongest_keys(
    stack: AttentionStack,
    *,
    layer: int,
    heads: Sequence[int],
    rows: slice,
    k: int,
    combine: Combine = "separate",
    leave_out: LeaveOut = (),
    pair: Pair = "all",
    row_normalizers: RowNormalizers | None = None,
) -> Strongest:
    """Find the k strongest keys of each query in `rows`, and sums of the weights of each query.

    See `attnviz.server.server.StrongestRequest` for the arguments. Raise ValueError before the
    computation if the result does not fit into a reply.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
    >>> strongest = (
    ...     find_strongest_keys(record.stack(), layer=0, heads=[0], rows=slice(0, 2), k=1)
    ... )
    >>> strongest.keys.tolist(), strongest.weights.tolist()
    ([[[0], [1]]], [[[1.0], [0.75]]])
    """
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    layer, heads = check_heads(stack, layer, heads)
    row_normalizers = row_normalizers or RowNormalizers()
    num_keys = len(stack.key_tokens)
    groups = [[head] for head in heads] if combine == "separate" else [list(heads)]
    k = min(k, num_keys)
    shape = (len(groups), rows.stop - rows.start)
    size = 4 * len(groups) * shape[1] * (2 * k + 3)
    check_reply_size("the strongest keys", size, "Request fewer rows or keys.")
    left_out = torch.from_numpy(_left_out_keys(stack.key_tokens, leave_out))
    strongest = Strongest(
        np.full((*shape, k), -1, np.int32),
        np.zeros((*shape, k), np.float32),
        np.zeros((*shape, 3), np.float32),
    )
    other_text = torch.from_numpy(~_keys_of_pair(stack.key_tokens, pair)) & ~left_out
    step = max(1, _MAX_WEIGHTS // num_keys)
    pace = Pace("strongest keys", len(heads) * shape[1] * num_keys)
    for matrix, group in enumerate(groups):
        for start in range(rows.start, rows.stop, step):
            part = slice(start, min(start + step, rows.stop))
            out_rows = slice(part.start - rows.start, part.stop - rows.start)
            read_head = partial(row_normalizers.block, stack, layer, rows=part, pace=pace)
            weights = _combine_heads(read_head, group, combine, signed=stack.signed)
            signs = torch.sign(weights) if stack.signed else None
            weights = weights if signs is None else weights.abs()
            excluded_sums = [_sum_columns(weights, left_out), _sum_columns(weights, other_text)]
            # Set excluded weights to 0 by multiplication. 0 times NaN or infinity is NaN, so such
            # weights make a sum NaN and raise the error below. A mask would hide them.
            weights *= (~(left_out | other_text)).to(weights)
            sums = torch.stack([weights.sum(dim=1), *excluded_sums], dim=1)
            if not bool(sums.isfinite().all()):
                query = part.start + int((~sums.isfinite()).any(dim=1).nonzero()[0])
                raise not_finite_error(
                    f"stack {stack.name!r}, layer {layer}", f"the first of query {query}"
                )
            top_weights, keys = strongest_keys(weights, k)
            strongest.keys[matrix, out_rows] = keys.masked_fill(top_weights == 0, -1).cpu().numpy()
            if signs is not None:
                top_weights *= signs.gather(1, keys)
            strongest.weights[matrix, out_rows] = top_weights.cpu().numpy()
            strongest.sums[matrix, out_rows] = sums.cpu().numpy()
    return strongest


def _combine_heads(
    read_head: Callable[..., torch.Tensor],
    heads: Sequence[int],
    combine: Combine,
    *,
    signed: bool,
) -> torch.Tensor:
    """Compute rows of one head, or the mean or maximum of the rows of several heads.

    `read_head` computes the rows of a head. If `signed`, the maximum is the number with the largest
    absolute value. The rows of at most two heads are in memory at the same time.
    """
    weights: torch.Tensor
    [weights] = read_head(heads=heads[:1])
    for head in heads[1:]:
        [head_weights] = read_head(heads=[head])
        if combine == "mean":
            weights.add_(head_weights)
        elif signed:
            weights = torch.where(head_weights.abs() > weights.abs(), head_weights, weights)
        else:
            weights = torch.maximum(weights, head_weights)
    return weights / len(heads) if combine == "mean" else weights


def _sum_columns(weights: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    if not bool(columns.any()):
        return torch.zeros(len(weights), device=weights.device)
    return weights[:, columns.to(weights.device)].sum(dim=1)


def _left_out_keys(keys: Tokens, leave_out: LeaveOut) -> NDArray[np.bool_]:
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
