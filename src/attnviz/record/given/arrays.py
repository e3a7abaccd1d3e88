"""Arrays of any library, nested lists and sequences of them as tensors, one a layer.

What was given may be a model's output, an array that was stacked by hand or a mask: whatever is no
array, is empty or has other axes than are wanted is refused by its name, with the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from attnviz.utils.arguments import whole_numbers

__all__ = ["array_tensor", "layer_numbers", "named_axes", "one_example", "split_layers"]


def array_tensor(given: Any, name: str, *, keep: tuple[torch.dtype, ...] = ()) -> torch.Tensor:
    """A detached tensor of an array or nested list of numbers; memory is shared where it can be.

    Floating point stays as it is, as do dtypes in `keep`; others and plain numbers become float32.
    TypeError, naming the argument, if it is not an array of real numbers.
    """
    try:
        tensor = given if isinstance(given, torch.Tensor) else _from_array(given, keep)
        if why := _unreadable(tensor):
            raise TypeError(why)  # noqa: TRY301 - told like all others
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is not an array of numbers ({error})") from error
    tensor = tensor.detach()
    if tensor.is_floating_point() and tensor.element_size() == 1:
        # Nothing is computed in 8 bits; float32 has all of their numbers.
        return tensor.float()
    return tensor if tensor.is_floating_point() or tensor.dtype in keep else tensor.float()


def _unreadable(tensor: torch.Tensor) -> str:
    """Why a tensor cannot be read, and the way out; empty if it can."""
    if tensor.is_complex():
        return "complex numbers"
    if tensor.is_nested:
        return "a nested tensor; give a list of its parts, tensor.unbind()"
    if tensor.layout != torch.strided:
        return "a sparse tensor; give tensor.to_dense()"
    if tensor.is_quantized:
        return "a quantised tensor; give tensor.dequantize()"
    if tensor.is_meta:
        return "a tensor on the device 'meta', which holds no numbers"
    return ""


def _from_array(given: Any, keep: tuple[torch.dtype, ...]) -> torch.Tensor:
    array = np.asarray(given)
    kept = array.dtype in (np.float16, np.float64) or (array.dtype == np.bool_ and keep)
    if not kept and array.dtype.kind in "biuf":
        array = array.astype(np.float32, copy=False)
    # torch shares memory with native, writable arrays that run forwards only.
    array = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
    return torch.from_numpy(array)


def split_layers(
    given: Any,
    name: str,
    axes: Sequence[str],
    explain: Callable[[tuple[int, ...]], str] = lambda _: "",
) -> list[Any]:
    """Split a list of arrays, or an array with the layers as its first axis, into layers.

    `axes` names those of a layer; `explain` says what an array of another shape may be, and what to
    do about it. Nothing of the entries is checked. TypeError or ValueError if it is not a sequence,
    is empty or an array with other axes.
    """
    one = f"({', '.join(axes)})"
    either = f"{one} or (1, {', '.join(axes)})"
    if isinstance(given, torch.Tensor) or hasattr(given, "__array__"):
        whole = array_tensor(given, name)
        if whole.dim() not in (len(axes) + 1, len(axes) + 2):
            shape = tuple(whole.shape)
            raise ValueError(
                f"{name} is one array of shape {shape}; give (layers, {', '.join(axes)}) or "
                f"(layers, 1, {', '.join(axes)}), or a list with one array {either} a layer"
                f"{explain(shape)}"
            )
        given = list(whole)
    if isinstance(given, (str, bytes, Mapping)) or not hasattr(given, "__len__"):
        raise TypeError(
            f"{name} must be a sequence with one array a layer; got {type(given).__name__}"
        )
    if len(given) == 0:
        raise ValueError(f"{name} is empty; give one array {either} a layer")
    return list(given)


def layer_numbers(layers: Sequence[int] | None, count: int, name: str) -> list[int]:
    """The model's numbers of the `count` layers that argument `name` has; None numbers from 0.

    TypeError or ValueError if they are not as many different whole numbers from 0 on.
    """
    given = range(count) if layers is None else layers
    hint = f"one for each of the {count} layers of {name}"
    numbers = list(whole_numbers("layers", given, hint=hint))
    if len(numbers) != count or len(set(numbers)) != len(numbers) or min(numbers, default=0) < 0:
        raise ValueError(
            f"layers={numbers!r} must number each of the {count} layers of {name} once, from 0"
        )
    return numbers


def one_example(
    tensor: torch.Tensor,
    name: str,
    axes: Sequence[str],
    explain: Callable[[tuple[int, ...]], str] = lambda _: "",
) -> torch.Tensor:
    """Take a batch of one away; returns a tensor with the axes wanted.

    `name` is ``"attentions[2]"`` for a layer of several. ValueError if there are several examples,
    other axes, or nothing in it; `explain` says what an array of another shape may be.
    """
    shape = tuple(tensor.shape)
    argument = name.partition("[")[0]
    if len(shape) == len(axes) + 1 and shape[0] != 1:
        raise ValueError(
            f"{name} has shape {shape}, a batch of {shape[0]} examples; a record is one example: "
            f"give the {argument if argument != 'attentions' else 'weights'} of one, for example "
            f"[layer[i : i + 1] for layer in {argument}]"
        )
    if len(shape) == len(axes) + 1:
        tensor = tensor[0]
    if tensor.dim() != len(axes):
        wanted = f"({', '.join(axes)})"
        raise ValueError(
            f"{name} has shape {shape}; it must be {wanted} or (1, {', '.join(axes)})"
            f"{explain(shape)}"
        )
    if 0 in tensor.shape:
        what = "weights" if "attentions" in argument else "numbers"
        raise ValueError(f"{name} has shape {shape}: it holds no {what}")
    return tensor


def named_axes(shape: Sequence[int], axes: Sequence[str]) -> str:
    """A shape with the name of every axis.

    >>> named_axes((2, 5, 7), ("heads", "queries", "keys"))
    'heads 2, queries 5, keys 7'
    """
    return ", ".join(f"{axis} {length}" for axis, length in zip(axes, shape, strict=True))
