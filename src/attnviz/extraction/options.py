"""Options of `extract`, and what is kept by them: layers and heads, their dtype and device."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import torch
from transformers import GenerationConfig

from attnviz.utils.arguments import from_end, listed, shown, whole_numbers

__all__ = [
    "CaptureOptions",
    "ExtractOptions",
    "Heads",
    "Layers",
    "RecordOptions",
    "narrows",
    "read_capture_options",
]

# What `attnviz.extract` takes as layers and as heads.
Layers = int | Iterable[int] | Literal["all"] | None
Heads = int | Iterable[int] | Mapping[int, int | Iterable[int]] | Literal["all"] | None


class RecordOptions(TypedDict, total=False):
    """Arguments of `attnviz.extract` that may be the same for many texts."""

    tokenizer: Any
    processor: Any
    generate: int | Mapping[str, Any] | GenerationConfig | None
    truncation: bool | int
    name: str | None
    layers: Layers
    heads: Heads
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
    heads : tuple of int, mapping of int to tuple of int, or None
        The model's numbers of the heads, the same in every layer or layer by layer, likewise; None
        is all, as is what a mapping does not name.
    """

    device: torch.device | None = None
    dtype: torch.dtype | None = None
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | Mapping[int, tuple[int, ...]] | None = None

    @property
    def everything(self) -> bool:
        """Whether all layers and heads are kept."""
        return self.layers is None and self.heads is None

    def of_stack(self, numbers: Sequence[int]) -> CaptureOptions:
        """The same for a stack with layers of these numbers, ascending: none is from the end.

        >>> CaptureOptions(layers=(-1, 0), heads={-1: (2,)}).of_stack([0, 4, 8]).layers
        (8, 0)
        """
        layers, heads = self.layers, self.heads
        if layers is not None:
            layers = tuple(dict.fromkeys(from_end(each, numbers) for each in layers))
        if isinstance(heads, Mapping):
            heads = {from_end(layer, numbers): chosen for layer, chosen in heads.items()}
        return replace(self, layers=layers, heads=heads)

    def heads_of(self, layer: int, num_heads: int) -> tuple[int, ...]:
        """Heads of a layer that are kept, ascending; empty where the layer is not.

        Layers must have the model's numbers, as `of_stack` gives them.

        Examples
        --------
        >>> CaptureOptions(layers=(0, 5), heads={5: (1, 2)}).heads_of(5, 12)
        (1, 2)
        """
        if self.layers is not None and layer not in self.layers:
            return ()
        heads = self.heads.get(layer) if isinstance(self.heads, Mapping) else self.heads
        if heads is None:
            return tuple(range(num_heads))
        chosen = {from_end(head, range(num_heads)) for head in heads}
        return tuple(sorted(head for head in chosen if 0 <= head < num_heads))


def narrows(received: torch.dtype, dtype: torch.dtype | None) -> bool:
    """Whether floating point numbers of one dtype are rounded, or too large, in another.

    Examples
    --------
    >>> narrows(torch.bfloat16, torch.float16), narrows(torch.bfloat16, torch.float32)
    (True, False)
    """
    return dtype is not None and torch.promote_types(received, dtype) != dtype


def read_capture_options(
    layers: Any = None,
    heads: Any = None,
    dtype: Any = None,
    device: Any = "cpu",
) -> CaptureOptions:
    """Read the arguments of `attnviz.extract` before a model runs; numbers come back ascending.

    Raises TypeError if one is of a wrong kind, and ValueError if it names nothing or one twice,
    heads of a layer that is not kept, a dtype that cannot hold queries and keys, or a device that
    is not there.
    """
    layers, heads = (
        None if isinstance(given, str) and given == "all" else given for given in (layers, heads)
    )
    wanted = None if layers is None else _numbers("layers", layers, "[0, 5]")
    chosen: tuple[int, ...] | dict[int, tuple[int, ...]] | None = None
    if isinstance(heads, Mapping):
        chosen = _by_layer(heads)
        if wanted is None:
            wanted = tuple(chosen)
        others = sorted(set(chosen) - set(wanted))
        if others:
            raise ValueError(
                f"heads={shown(heads)} names layer {others[0]}, and layers={shown(layers)} does "
                "not keep it; "
                f"add {others[0]} to layers, or leave layers out to keep the layers that heads "
                "names"
            )
    elif heads is not None:
        chosen = _numbers("heads", heads, "[3, 7], or {0: [3], 5: [1, 2]} by layer")
    return CaptureOptions(_read_device(device), _read_dtype(dtype), wanted, chosen)


def _by_layer(heads: Mapping[Any, Any]) -> dict[int, tuple[int, ...]]:
    example = "{0: [3], 5: [1, 2]}"
    layers = _numbers("heads", heads, example)
    by_number = {int(layer): given for layer, given in heads.items()}
    return {
        layer: _numbers("heads", by_number[layer], example, f"heads[{layer}]") for layer in layers
    }


def _numbers(argument: str, given: Any, example: str, name: str = "") -> tuple[int, ...]:
    """The numbers of layers or heads that `name`, a part of an argument, holds; ascending."""
    name = name or argument
    read = whole_numbers(name, listed(given), hint=f"such as {example}")
    if not read:
        raise ValueError(
            f"{name}={shown(given)} is empty; leave {argument} out to keep all, or give "
            f"{argument} such as {example}"
        )
    counts = Counter(read)
    if len(counts) < len(read):
        twice = next(number for number in read if counts[number] > 1)
        raise ValueError(f"{name}={shown(given)} names {twice} twice; name each once")
    return tuple(sorted(read))


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
