"""Options of `extract`, and what is kept by them: layers, their dtype and device."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import torch
from transformers import GenerationConfig

from attnviz.utils.arguments import as_list, resolve_negative, short_repr, whole_numbers

__all__ = [
    "CaptureOptions",
    "ExtractOptions",
    "Layers",
    "RecordOptions",
    "narrows",
    "read_capture_options",
]

# What `attnviz.extract` takes as layers.
Layers = int | Iterable[int] | Literal["all"] | None


class RecordOptions(TypedDict, total=False):
    """Arguments of `attnviz.extract` that may be the same for many texts."""

    tokenizer: Any
    processor: Any
    generate: int | Mapping[str, Any] | GenerationConfig | None
    truncation: bool | int
    name: str | None
    layers: Layers
    dtype: str | torch.dtype | None
    device: str | torch.device | None


class ExtractOptions(RecordOptions, total=False):
    """Arguments of `attnviz.extract` beside the model, its inputs and its target."""

    decoder_input_ids: Any
    spool: str | os.PathLike[str] | None
    progress: bool


# Others hold whole numbers, or so few digits that weights would mean nothing (float8).
_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class CaptureOptions:
    """What is kept, as a caller asked for it.

    Attributes
    ----------
    device : device or None
        Where; None leaves queries and keys where they were computed.
    dtype : dtype or None
        As what; None keeps the dtype that the attention received.
    layers : tuple of int or None
        The model's numbers of the layers; negative from the end of each stack. None is all.
    outline : bool
        Whether only shapes are kept: which layers and heads there are, over which tokens.
    """

    device: torch.device | None = None
    dtype: torch.dtype | None = None
    layers: tuple[int, ...] | None = None
    outline: bool = False

    def of_stack(self, numbers: Sequence[int]) -> CaptureOptions:
        """The same for a stack with layers of these numbers, ascending: none is from the end.

        >>> CaptureOptions(layers=(-1, 0)).of_stack([0, 4, 8]).layers
        (8, 0)
        """
        if self.layers is None:
            return self
        layers = dict.fromkeys(resolve_negative(each, numbers) for each in self.layers)
        return replace(self, layers=tuple(layers))

    def keeps(self, layer: int) -> bool:
        """Whether a layer is kept; layers must have the model's numbers, as `of_stack` gives them.

        Examples
        --------
        >>> CaptureOptions(layers=(0, 5)).keeps(5)
        True
        """
        return self.layers is None or layer in self.layers


def narrows(received: torch.dtype, dtype: torch.dtype | None) -> bool:
    """Whether floating point numbers of one dtype are rounded, or too large, in another.

    Examples
    --------
    >>> narrows(torch.bfloat16, torch.float16), narrows(torch.bfloat16, torch.float32)
    (True, False)
    """
    return dtype is not None and torch.promote_types(received, dtype) != dtype


def read_capture_options(
    layers: Any = None, dtype: Any = None, device: Any = "cpu"
) -> CaptureOptions:
    """Read the arguments of `attnviz.extract` before a model runs; numbers come back ascending.

    Raises TypeError if one is of a wrong kind, and ValueError if `layers` names nothing or a layer
    twice, a dtype cannot hold queries and keys, or a device is not there.
    """
    everything = layers is None or (isinstance(layers, str) and layers == "all")
    numbers = None if everything else _read_layers(layers)
    return CaptureOptions(_read_device(device), _read_dtype(dtype), numbers)


def _read_layers(layers: Any) -> tuple[int, ...]:
    numbers = whole_numbers("layers", as_list(layers), hint="such as [0, 5]")
    if not numbers:
        raise ValueError(
            f"layers={short_repr(layers)} is empty; leave layers out to keep all, or give layers "
            "such "
            "as [0, 5]"
        )
    counts = Counter(numbers)
    if len(counts) < len(numbers):
        twice = next(number for number in numbers if counts[number] > 1)
        raise ValueError(f"layers={short_repr(layers)} names {twice} twice; name each once")
    return tuple(sorted(numbers))


def _read_dtype(dtype: Any) -> torch.dtype | None:
    if dtype is None:
        return None
    *some, last = map(repr, _DTYPES)
    known = f"{', '.join(some)} or {last}"
    if not isinstance(dtype, str | torch.dtype):
        raise TypeError(f"dtype must be {known}, or such a torch.dtype; got {dtype!r}")
    found = _DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise ValueError(f"dtype={dtype!r} cannot hold queries and keys: give {known}")
    return found


def _read_device(device: Any) -> torch.device | None:
    if device is None:
        return None
    try:
        read = torch.device(device)
        if read.type == "meta":
            raise RuntimeError("it holds no numbers")  # noqa: TRY301 - told like all others
        # The only question that every kind of device answers.
        torch.empty(1, device=read)
    except TypeError:
        raise TypeError(
            f"device must be a device such as 'cpu' or 'cuda', or None to leave queries and keys "
            f"where they are computed; got {device!r}"
        ) from None
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        if reason.startswith("Expected one of"):
            reason = "torch does not know this kind of device"
        raise ValueError(
            f"device={device!r} cannot keep queries and keys ({reason}); give device='cpu', a "
            "device that is here, or None to leave them where they are computed"
        ) from error
    return read
