"""The strongest keys of some queries anywhere in a text.

A view shows a window of a long text; this says to which keys the rest of a query's weight goes.
``js/src/client/requests/strongest.ts`` is the other side, and finds the same in pages.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypedDict, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.codec import not_finite
from attnviz.server.protocol import heads_of
from attnviz.server.row_sums import RowSums
from attnviz.utils.progress import Pace, Steps

__all__ = [
    "Combine",
    "Pair",
    "Strongest",
    "StrongestHeader",
    "encoded_strongest",
    "strongest_keys",
]

Combine = Literal["separate", "mean", "max"]
Pair = Literal["all", "a-a", "a-b", "b-a", "b-b"]
LeaveOut = Sequence[str | int]

# Entries of weights that are held at once, 16 MB in float32: also while another reply is made.
_ENTRIES = 1 << 22


class StrongestHeader(TypedDict):
    """What a reply says about its buffer.

    Attributes
    ----------
    shape : list of int
        Matrices, rows, and keys a row.
    """

    shape: tuple[int, int, int]


@dataclass(frozen=True)
class Strongest:
    """Where the weight of some queries goes, for each matrix: a head, or several put together.

    Of signed numbers keys are ordered by size, `weights` have their signs, and `sums` are of sizes.

    Attributes
    ----------
    keys : ndarray
        int32, (matrices, rows, k): the strongest first; -1 where a query has no more.
    weights : ndarray
        float32, (matrices, rows, k): theirs, 0 where there is none.
    sums : ndarray
        float32, (matrices, rows, 3): of the keys that are meant, of those that are left out, and of
        other keys that the pair of texts does not take. The first is summed and not what the
        others leave of 1, which would be rounding where a strong key is left out.
    """

    keys: NDArray[np.int32]
    weights: NDArray[np.float32]
    sums: NDArray[np.float32]


def strongest_keys(
    stack: AttentionStack,
    *,
    layer: int,
    heads: Sequence[int],
    rows: slice,
    k: int,
    combine: Combine = "separate",
    leave_out: LeaveOut = (),
    pair: Pair = "all",
    row_sums: RowSums | None = None,
    largest: int | None = None,
) -> Steps[Strongest]:
    """Find the strongest keys of some queries, and sum the weight of all keys, in steps.

    Of more than `largest` bytes, nothing is computed: ValueError.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
    >>> from attnviz.utils.progress import completed
    >>> found = completed(
    ...     strongest_keys(record.stack(), layer=0, heads=[0], rows=slice(0, 2), k=1)
    ... )
    >>> found.keys.tolist(), found.weights.tolist()
    ([[[0], [1]]], [[[1.0], [0.75]]])
    """
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    layer, heads = heads_of(stack, layer, heads)
    if combine not in {"separate", "mean", "max"}:
        raise ValueError(f'combine={combine!r} must be "separate", "mean" or "max"')
    if pair not in get_args(Pair):
        raise ValueError(f"pair={pair!r} must be one of {', '.join(get_args(Pair))}")
    row_sums = row_sums or RowSums()
    num_keys = len(stack.key_tokens)
    groups = [[head] for head in heads] if combine == "separate" else [list(heads)]
    k = min(k, num_keys)
    shape = (len(groups), rows.stop - rows.start)
    size = 4 * len(groups) * shape[1] * (2 * k + 3)
    if largest is not None and size > largest:
        raise ValueError(
            f"the strongest keys are {size} bytes; {largest} are sent at once, so ask for fewer "
            "rows or keys"
        )
    out = torch.from_numpy(_left_out(stack.key_tokens, leave_out))
    found = Strongest(
        np.full((*shape, k), -1, np.int32),
        np.zeros((*shape, k), np.float32),
        np.zeros((*shape, 3), np.float32),
    )
    away = torch.from_numpy(~_of_text(stack.key_tokens, pair)) & ~out
    step = max(1, _ENTRIES // num_keys)
    pace = Pace("strongest keys", len(heads) * shape[1] * num_keys)
    for matrix, group in enumerate(groups):
        for start in range(rows.start, rows.stop, step):
            part = slice(start, min(start + step, rows.stop))
            here = slice(part.start - rows.start, part.stop - rows.start)
            one = partial(row_sums.whole_rows, stack, layer=layer, rows=part)
            weights = yield from _together(one, group, combine, pace, signed=stack.signed)
            signs = torch.sign(weights) if stack.signed else None
            weights = weights if signs is None else weights.abs()
            gone = [_sum_of(weights, out), _sum_of(weights, away)]
            # What is not finite stays so: 0 times it is NaN.
            weights *= (~(out | away)).to(weights)
            sums = torch.stack([weights.sum(dim=1), *gone], dim=1)
            if not bool(sums.isfinite().all()):
                query = part.start + int((~sums.isfinite()).any(dim=1).nonzero()[0])
                raise not_finite(
                    f"stack {stack.name!r}, layer {layer}", f"the first of query {query}"
                )
            strong, keys = weights.topk(k, dim=1)
            found.keys[matrix, here] = keys.masked_fill(strong == 0, -1).cpu().numpy()
            if signs is not None:
                strong *= signs.gather(1, keys)
            found.weights[matrix, here] = strong.cpu().numpy()
            found.sums[matrix, here] = sums.cpu().numpy()
    return found


def encoded_strongest(
    stack: AttentionStack, *, largest: int, **wanted: Any
) -> Steps[tuple[StrongestHeader, bytes]]:
    """The same for a reply: keys, weights and sums one after the other, little endian."""
    found = yield from strongest_keys(stack, largest=largest, **wanted)
    parts = (found.keys, found.weights, found.sums)
    data = b"".join(part.astype(part.dtype.newbyteorder("<")).tobytes() for part in parts)
    matrices, rows, k = found.keys.shape
    return {"shape": (matrices, rows, k)}, data


def _together(
    rows_of: Callable[..., torch.Tensor],
    heads: Sequence[int],
    combine: Combine,
    pace: Pace,
    *,
    signed: bool,
) -> Steps[torch.Tensor]:
    """Rows of one head, or of the mean or the maximum over several; no more than two are held.

    The maximum of signed numbers is the one of the largest size, with its sign.
    """
    weights = rows_of(head=heads[0])
    yield from pace.did(weights.numel())
    for head in heads[1:]:
        more = rows_of(head=head)
        if combine == "max" and signed:
            weights = torch.where(more.abs() > weights.abs(), more, weights)
        else:
            weights = torch.maximum(weights, more) if combine == "max" else weights.add_(more)
        yield from pace.did(weights.numel())
    return weights / len(heads) if combine == "mean" else weights


def _sum_of(weights: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    if not bool(columns.any()):
        return torch.zeros(len(weights), device=weights.device)
    return weights[:, columns.to(weights.device)].sum(dim=1)


def _left_out(keys: Tokens, leave_out: LeaveOut) -> NDArray[np.bool_]:
    flags = np.zeros(len(keys), np.bool_)
    for each in dict.fromkeys(leave_out):
        if each == "special":
            flags |= np.array(keys.special, np.bool_)
        elif each == "first":
            flags[:1] = True
        elif isinstance(each, int) and 0 <= each < len(keys):
            flags[each] = True
        else:
            given = reprlib.repr(each)
            raise ValueError(
                f'leave_out={given} must be "special", "first" or a key from 0 to {len(keys) - 1}'
            )
    return flags


def _of_text(tokens: Tokens, pair: str) -> NDArray[np.bool_]:
    """Which keys are of the text that the pair names; all for "all"."""
    if pair == "all":
        return np.ones(len(tokens), np.bool_)
    wanted = "ab".index(pair[2])
    return np.array([sequence == wanted for sequence in tokens.sequence], np.bool_)
