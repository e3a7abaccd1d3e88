"""Types of the arguments of `extract`, and options that select the attention to keep."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import torch
from transformers import GenerationConfig

from attnviz.utils.arguments import as_list, resolve_negative, short_repr, whole_numbers

# Types of the arguments `layers` and `steps` of `attnviz.extract`.
Layers = int | Iterable[int] | Literal["all"] | None
Steps = int | Iterable[int] | Literal["all", "mean"] | None


class RecordOptions(TypedDict, total=False):
    """Arguments of `attnviz.extract` that functions for a corpus of many texts take, too."""

    tokenizer: Any
    processor: Any
    generate: int | Mapping[str, Any] | GenerationConfig | None
    truncation: bool | int
    part: int | None
    passages: Any
    name: str | None
    layers: Layers
    dtype: str | torch.dtype | None
    device: str | torch.device | None


class ExtractOptions(RecordOptions, total=False):
    """Arguments of `attnviz.extract` except `model`, `inputs` and `target`."""

    decoder_input_ids: Any
    index: Any
    steps: Steps
    outputs: bool
    spool: str | os.PathLike[str] | None
    progress: bool


def check_options(options: Mapping[str, Any], *, refused: Collection[str] = ()) -> None:
    """Check options that a function takes as `RecordOptions`.

    Raise TypeError for an unknown option, or for an option in `refused` that is not None.
    """
    for name, value in options.items():
        if name not in RecordOptions.__annotations__:
            raise TypeError(
                f"{name}= is not an argument of this function. Options of attnviz.extract that it "
                f"takes are {', '.join(sorted(RecordOptions.__annotations__.keys() - refused))}."
            )
        if name in refused and value is not None:
            raise TypeError(f"{name}= is not supported. Do not pass it.")


# Valid values of the argument `dtype`. Integers and float8 are too coarse for meaningful weights.
_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class CaptureOptions:
    """Selection of the attention to keep.

    Attributes
    ----------
    device : device or None
        Device of queries and keys. None keeps them on the device where they were computed.
    dtype : dtype or None
        Dtype of queries and keys. None keeps the dtype that the attention received.
    layers : tuple of int or None
        Layers to keep, by the model's numbers. Negative numbers count from the end of each stack.
        None keeps all layers.
    outline : bool
        Whether only the numbers of layers, heads and tokens are kept, and neither queries and keys
        nor weights.
    outputs : bool
        Whether the outputs of heads (what each head adds to the residual stream) are kept, too, in
        float32.
    """

    device: torch.device | None = None
    dtype: torch.dtype | None = None
    layers: tuple[int, ...] | None = None
    outline: bool = False
    outputs: bool = False

    def of_stack(self, numbers: Sequence[int]) -> CaptureOptions:
        """Return options in which negative layers are replaced by the layers of a stack.

        `numbers` are the numbers of these layers, in ascending order. Negative layers that are out
        of range do not change.

        Examples
        --------
        >>> CaptureOptions(layers=(-1, 0)).of_stack([0, 4, 8]).layers
        (8, 0)
        """
        if self.layers is None:
            return self
        layers = dict.fromkeys(resolve_negative(layer, numbers) for layer in self.layers)
        return replace(self, layers=tuple(layers))

    def keeps(self, layer: int) -> bool:
        """Whether the layer with number `layer` is kept.

        If `layers` may contain negative numbers, call this method on a result of `of_stack`.

        Examples
        --------
        >>> CaptureOptions(layers=(0, 5)).keeps(5)
        True
        """
        return self.layers is None or layer in self.layers


def narrows(received: torch.dtype, dtype: torch.dtype | None) -> bool:
    """Whether numbers of dtype `received` may be rounded or overflow when converted to `dtype`.

    False if `dtype` is None, which means no conversion.

    Examples
    --------
    >>> narrows(torch.bfloat16, torch.float16), narrows(torch.bfloat16, torch.float32)
    (True, False)
    """
    return dtype not in (None, received) and torch.promote_types(received, dtype) != dtype


def read_capture_options(
    layers: Any = None, dtype: Any = None, device: Any = "cpu", **others: Any
) -> CaptureOptions:
    """Convert arguments of `attnviz.extract` into options. Layers are sorted, without duplicates.

    `others` are further arguments of `attnviz.extract`, which are ignored.

    Raise TypeError if `layers` or `dtype` has an invalid type. Raise ValueError if `layers` is
    empty, if `dtype` is not valid for queries and keys, or if the device is not available.
    """
    del others
    everything = layers is None or (isinstance(layers, str) and layers == "all")
    numbers = None if everything else _read_layers(layers)
    return CaptureOptions(_read_device(device), _read_dtype(dtype), numbers)


def _read_layers(layers: Any) -> tuple[int, ...]:
    numbers = whole_numbers("layers", as_list(layers), hint="such as [0, 5]")
    if not numbers:
        raise ValueError(
            f"layers={short_repr(layers)} is empty. Pass layers such as [0, 5], or remove "
            "layers to keep all."
        )
    return tuple(sorted(set(numbers)))


def _read_dtype(dtype: Any) -> torch.dtype | None:
    if dtype is None:
        return None
    valid = ", ".join(map(repr, _DTYPES))
    if not isinstance(dtype, str | torch.dtype):
        raise TypeError(f"dtype must be one of {valid} (or a torch.dtype); got {dtype!r}")
    valid_dtype = _DTYPES.get(str(dtype).removeprefix("torch."))
    if valid_dtype is None:
        raise ValueError(f"dtype={dtype!r} cannot hold queries and keys. Pass one of {valid}.")
    return valid_dtype


def _read_device(device: Any) -> torch.device | None:
    if device is None:
        return None
    try:
        # This raises an error if torch does not know the device, or if it is not available.
        return torch.empty(1, device=device).device
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(
            f"device={device!r} cannot keep queries and keys ({reason}). Pass device='cpu', an "
            "available device, or None to leave them where they are computed."
        ) from error
