"""Masks and biases as JSON with named arrays and back, each distinct one once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, Bias, DenseBias, DistanceBias, Mask, PackedMask
from attnviz.record.windows import WindowBias, WindowMask

__all__ = ["SharedParts", "check_covers", "shared_from_header"]

_WINDOWS = ("query_windows", "key_windows")
_PLACES = (*_WINDOWS, "query_places", "key_places")


class SharedParts:
    """Masks, biases and words by identity, so that each is written once.

    Parameters
    ----------
    arrays : dict of str to Tensor
        Gets their numbers, by names that begin with ``shared/``.

    Attributes
    ----------
    header : dict
        By name what each mask and bias is, fit for JSON.
    """

    def __init__(self, arrays: dict[str, torch.Tensor]) -> None:
        self.header: dict[str, dict[str, Any]] = {}
        self._arrays = arrays
        self._names: dict[int, str] = {}

    def name(self, part: Mask | Bias | None) -> str | None:
        """The name of a mask or bias, the same for the same object; None for none."""
        if part is None:
            return None
        if id(part) not in self._names:
            name = f"shared/{len(self._names)}"
            self._names[id(part)] = name
            self.header[name] = self._describe(name, part)
        return self._names[id(part)]

    def starts(self, places: NDArray[np.int64]) -> str:
        """The name of the places where words begin, the same for the same array."""
        if id(places) not in self._names:
            name = f"shared/{len(self._names)}"
            self._names[id(places)] = name
            self._arrays[name] = torch.from_numpy(places.astype(np.int64))
        return self._names[id(places)]

    def _describe(self, name: str, part: Mask | Bias) -> dict[str, Any]:
        match part:
            case BandMask(before, after, offset):
                return {"kind": "band", "before": before, "after": after, "offset": offset}
            case PackedMask(bits, num_keys):
                self._arrays[name] = bits
                return {"kind": "packed", "num_keys": num_keys}
            case DistanceBias(values, num_queries):
                self._arrays[name] = values
                return {"kind": "distance", "num_queries": num_queries}
            case DenseBias(values):
                self._arrays[name] = values
                return {"kind": "dense"}
            case WindowMask():
                self._arrays |= {f"{name}/{each}": getattr(part, each) for each in _WINDOWS}
                return {"kind": "windows"}
            case WindowBias(values):
                self._arrays |= {f"{name}/{each}": getattr(part, each) for each in _PLACES}
                self._arrays[name] = values
                return {"kind": "in windows"}


def shared_from_header(
    name: str, fields: dict[str, Any], arrays: dict[str, torch.Tensor]
) -> Mask | Bias:
    """Make a mask or bias again.

    Parameters
    ----------
    name : str
        Its own.
    fields : dict
        What `SharedParts.header` says of it.
    arrays : dict of str to Tensor
        With its numbers.

    Returns
    -------
    Mask or Bias

    Raises
    ------
    LookupError, TypeError, ValueError
        If header and arrays do not fit together.
    """
    match fields["kind"]:
        case "band":
            before, after, offset = fields["before"], fields["after"], fields["offset"]
            if not (_is_whole(before) and _is_whole(after) and isinstance(offset, int)):
                raise TypeError(f"{name} has ends that are no whole numbers")
            return BandMask(before, after, offset)
        case "packed":
            return PackedMask(arrays[name], fields["num_keys"])
        case "distance":
            return DistanceBias(arrays[name], fields["num_queries"])
        case "dense":
            return DenseBias(arrays[name])
        case "windows":
            return WindowMask(*(arrays[f"{name}/{each}"] for each in _WINDOWS))
        case "in windows":
            return WindowBias(arrays[name], *(arrays[f"{name}/{each}"] for each in _PLACES))
    raise ValueError(f"{name} is of an unknown kind, {fields['kind']!r}")


def _is_whole(number: object) -> bool:
    return number is None or isinstance(number, int)


def check_covers(attention: QueryKeyAttention, prefix: str) -> None:
    """Refuse a mask or bias that does not fit: a row would read another's values.

    Parameters
    ----------
    attention : QueryKeyAttention
        With them.
    prefix : str
        Its name, for errors.

    Raises
    ------
    ValueError
        If one does not fit the queries and keys.
    """
    heads, queries, keys = attention.num_heads, attention.num_queries, attention.num_keys
    mask, bias = attention.mask, attention.bias
    fits = True
    if isinstance(mask, PackedMask):
        bits = tuple(mask.bits.shape)
        fits &= mask.num_keys == keys and bits in {
            (some, queries, -(-keys // 8)) for some in (1, heads)
        }
    if isinstance(bias, DistanceBias):
        values = tuple(bias.values.shape)
        fits &= bias.num_queries == queries and values in {
            (some, queries + keys - 1) for some in (1, heads)
        }
    if isinstance(bias, DenseBias):
        fits &= tuple(bias.values.shape) in {
            (some, rows, keys) for some in (1, heads) for rows in (1, queries)
        }
    for part in (mask, bias):
        if isinstance(part, (WindowMask, WindowBias)):
            fits &= _covers(part.query_windows, queries) and _covers(part.key_windows, keys)
    if isinstance(bias, WindowBias):
        windows, some_heads, rows, columns = bias.values.shape
        fits &= some_heads in (1, heads) and bias.values.is_floating_point()
        fits &= _covers(bias.query_places, queries, rows) and _covers(
            bias.key_places, keys, columns
        )
        fits &= windows == 1 or _covers(bias.query_windows, queries, windows)
    if not fits:
        raise ValueError(f"{prefix}: its mask or bias does not fit {queries} x {keys}")


def _covers(numbers: torch.Tensor, count: int, stop: int | None = None) -> bool:
    """Whether there is a number for each token, and all lie under `stop`."""
    whole = numbers.dtype == torch.int64 and tuple(numbers.shape) == (count,)
    return whole and (stop is None or (int(numbers.min()) >= 0 and int(numbers.max()) < stop))
