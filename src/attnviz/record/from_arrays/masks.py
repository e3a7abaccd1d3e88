"""Conversion of the masks and biases that a caller of `AttentionRecord.from_qk` passes.

A mask of numbers is added to the logits. It is separated into flags of allowed pairs (a `Mask`) and
finite values (a `Bias`). Causal attention and sliding windows are stored as a few parameters. Other
masks are stored in the smallest form that represents them exactly.
"""

from __future__ import annotations

from typing import Any

import torch

from attnviz.record.from_arrays.arrays import as_tensor
from attnviz.record.masks import BandMask, Bias, Mask, compact_bias, compact_mask


def create_band(
    num_queries: int, num_keys: int, *, causal: bool, window: int | None
) -> BandMask | None:
    """Return the mask of causal attention, of a sliding window, or of both.

    Return None, which allows all pairs, if `causal` is False and `window` is None.

    With `window`, the distance from the query to an allowed key is less than `window`, in both
    directions unless `causal` is True. The last query and the last key have the same position.
    Raise ValueError if a mask is requested for more queries than keys.
    """
    if not causal and window is None:
        return None
    if num_queries > num_keys:
        raise ValueError(
            "causal= and window= need queries that are the last of the keys, but there are "
            f"{num_queries} queries and {num_keys} keys. Pass the allowed pairs as mask=."
        )
    before = None if window is None else window - 1
    return BandMask(before, 0 if causal else before, num_keys - num_queries)


def read_mask(
    value: Any, name: str, shape: tuple[int, int, int], band: BandMask | None
) -> tuple[Mask | None, torch.Tensor | None]:
    """Separate a mask into the allowed pairs and the finite values that are added to the logits.

    `value` is the mask that the caller passed: bool (True if a query may attend to a key), floating
    point (added to the logits) or None. In a floating-point mask, minus infinity or a number close
    to the lowest of the dtype forbids a pair. `band` is the result of `create_band`: a pair is
    allowed only if `band` also allows it. The first result is None if all pairs are allowed. The
    second result is None if all added values are 0. `shape` is (heads, queries, keys). Raise
    TypeError or ValueError if `value` is not a mask, does not fit `shape`, or contains NaN or plus
    infinity.
    """
    if value is None:
        return band, None
    if "int" in str(getattr(value, "dtype", "")):
        raise TypeError(
            f"{name} is {value.dtype}, which is ambiguous. Pass bool, True if a query may attend "
            "to a key, or floating point, which is added to the logits."
        )
    tensor = as_tensor(value, name, keep=(torch.bool,))
    tensor = _three_axes(tensor, name, shape, rows=(shape[1],))
    added = None
    if tensor.dtype == torch.bool:
        allowed = tensor
    else:
        if bool(torch.isnan(tensor).any()) or bool(torch.isposinf(tensor).any()):
            raise ValueError(
                f"{name} contains NaN or plus infinity. It is added to the logits: pass 0 for "
                "allowed pairs and minus infinity for others."
            )
        # Many models add the lowest number of the dtype instead of minus infinity.
        allowed = tensor > torch.finfo(tensor.dtype).min / 2
        values = tensor.masked_fill(~allowed, 0.0)
        added = values if bool(values.any()) else None
    if band is not None:
        rows, columns = slice(0, shape[1]), slice(0, shape[2])
        allowed = allowed & band.allowed(0, rows, columns, allowed.device)
    return compact_mask(allowed), added


def read_bias(
    value: Any, name: str, shape: tuple[int, int, int], added: torch.Tensor | None
) -> Bias | None:
    """Return the sum of a bias and of the finite values of a mask as a `Bias`.

    `value` is the bias, or None. `added` is the second result of `read_mask`, which may be None.
    Return None if both are None, or if all sums are 0. `shape` is (heads, queries, keys). Raise
    TypeError or ValueError if `value` is not an array, does not fit `shape`, or contains values
    that are not finite.
    """
    if value is None:
        return None if added is None else compact_bias(added)
    tensor = _three_axes(as_tensor(value, name), name, shape, rows=(1, shape[1]))
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(
            f"{name} contains NaN or infinity. Pass keys that a query may not attend to as mask=."
        )
    return compact_bias(tensor if added is None else tensor + added)


def _three_axes(
    tensor: torch.Tensor, name: str, shape: tuple[int, int, int], *, rows: tuple[int, ...]
) -> torch.Tensor:
    """Return a tensor with three axes, (heads or 1, queries or 1, keys).

    In `tensor`, the axis of heads may be missing, or a batch axis of length 1 may precede it.
    `shape` is (heads, queries, keys). `rows` has the valid lengths of the axis of queries, such as
    1 and the number of queries. Raise ValueError if the tensor does not fit.
    """
    actual = tuple(tensor.shape)
    if len(actual) == 4 and actual[0] == 1:
        tensor = tensor[0]
    if tensor.dim() == 2:
        tensor = tensor[None]
    if tuple(tensor.shape) not in {(heads, r, shape[2]) for heads in (1, shape[0]) for r in rows}:
        raise ValueError(
            f"{name} has shape {actual}; it must be (queries, keys) or (heads, queries, keys), "
            f"with heads {shape[0]}, queries {shape[1]}, keys {shape[2]}"
        )
    return tensor
