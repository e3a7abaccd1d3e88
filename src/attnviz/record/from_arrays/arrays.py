"""Conversion of arrays of any library, and of nested lists, to one tensor per layer.

An input is, for example, a model's output, an array of all layers, or a mask. An input that is not
an array, is empty or has unexpected axes raises an error. The message contains the name of the
argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from attnviz.utils.arguments import whole_numbers


def as_tensor(value: Any, name: str, *, keep: tuple[torch.dtype, ...] = ()) -> torch.Tensor:
    """Convert an array or nested list to a tensor without gradient. Share memory if possible.

    Floating-point dtypes of at least 16 bits and the dtypes in `keep` are not changed. All others
    become float32. Raise TypeError if `value` is not an array of real numbers.
    """
    try:
        tensor = value if isinstance(value, torch.Tensor) else _from_array(value, keep)
        if reason := _unreadable(tensor):
            raise TypeError(reason)  # noqa: TRY301 - wrapped below
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is not an array of numbers ({error})") from error
    tensor = tensor.detach()
    if tensor.is_floating_point() and tensor.element_size() == 1:
        # torch does not compute with 8-bit floats. float32 represents all of their values.
        return tensor.float()
    return tensor if tensor.is_floating_point() or tensor.dtype in keep else tensor.float()


def _unreadable(tensor: torch.Tensor) -> str:
    """Return the reason why a tensor is not supported, or "" if it is supported.

    The text is part of an error message and may contain what to pass instead.
    """
    if tensor.is_complex():
        return "complex numbers"
    if tensor.is_nested:
        return "a nested tensor; pass a list of its parts, tensor.unbind()"
    if tensor.layout != torch.strided:
        return "a sparse tensor; pass tensor.to_dense()"
    if tensor.is_quantized:
        return "a quantized tensor; pass tensor.dequantize()"
    if tensor.is_meta:
        return "a tensor on the device 'meta', which has no values"
    return ""


def _from_array(value: Any, keep: tuple[torch.dtype, ...]) -> torch.Tensor:
    array = np.asarray(value)
    keeps_dtype = array.dtype in (np.float16, np.float64) or (array.dtype == np.bool_ and keep)
    if not keeps_dtype and array.dtype.kind in "biuf":
        array = array.astype(np.float32, copy=False)
    # torch shares memory only with an array that is writable, contiguous and in native byte order.
    # Any other array is copied.
    array = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
    return torch.from_numpy(array)


def split_layers(
    value: Any,
    name: str,
    axes: Sequence[str],
    explain: Callable[[tuple[int, ...]], str] = lambda _: "",
) -> list[Any]:
    """Return a list with one array per layer.

    `value` is a list of arrays, or one array whose first axis is the layers. `axes` are the names
    of the axes of one layer. If one array has other axes, `explain` returns a hint for the message
    from its shape. The arrays of a list are not checked. Raise TypeError or ValueError if `value`
    is not a sequence, is empty, or has wrong axes. `name` is the name of the argument in messages.
    """
    layer_axes = f"({', '.join(axes)})"
    either = f"{layer_axes} or (1, {', '.join(axes)})"
    if isinstance(value, torch.Tensor) or hasattr(value, "__array__"):
        array = as_tensor(value, name)
        if array.dim() not in (len(axes) + 1, len(axes) + 2):
            shape = tuple(array.shape)
            raise ValueError(
                f"{name} is one array of shape {shape}; pass (layers, {', '.join(axes)}) or "
                f"(layers, 1, {', '.join(axes)}), or a list with one array {either} per layer"
                f"{explain(shape)}"
            )
        value = list(array)
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        raise TypeError(
            f"{name} must be a sequence with one array per layer; got {type(value).__name__}"
        )
    if len(value) == 0:
        raise ValueError(f"{name} is empty; pass one array {either} per layer")
    return list(value)


def check_layer_numbers(layers: Sequence[int] | None, count: int, name: str) -> list[int]:
    """Return `layers` as a list, or 0, 1, ..., `count` - 1 if it is None.

    Raise TypeError or ValueError if `layers` does not contain `count` different integers of at
    least 0. `name` is the name of the argument that contains these layers, for messages.
    """
    requested = range(count) if layers is None else layers
    hint = f"one for each of the {count} layers of {name}"
    numbers = list(whole_numbers("layers", requested, hint=hint))
    if len(numbers) != count or len(set(numbers)) != len(numbers) or min(numbers, default=0) < 0:
        raise ValueError(
            f"layers={numbers!r} must be {count} different numbers from 0, one per layer of {name}"
        )
    return numbers


def remove_batch_axis(
    tensor: torch.Tensor,
    name: str,
    axes: Sequence[str],
    explain: Callable[[tuple[int, ...]], str] = lambda _: "",
) -> torch.Tensor:
    """Remove the batch axis, if the tensor has one. The result has the axes `axes`.

    `name` is the name of the tensor in messages, such as ``"attentions[2]"``. If the axes are
    wrong, `explain` returns a hint for the message from the shape. Raise ValueError if the batch
    contains several examples, the axes are wrong, or the tensor is empty.
    """
    shape = tuple(tensor.shape)
    argument = name.partition("[")[0]
    if len(shape) == len(axes) + 1 and shape[0] != 1:
        raise ValueError(
            f"{name} has shape {shape}, a batch of {shape[0]} examples, but a record is one "
            f"example. Pass the {argument if argument != 'attentions' else 'weights'} of one, for "
            f"example [layer[i : i + 1] for layer in {argument}]"
        )
    if len(shape) == len(axes) + 1:
        tensor = tensor[0]
    if tensor.dim() != len(axes):
        expected = f"({', '.join(axes)})"
        raise ValueError(
            f"{name} has shape {shape}; it must be {expected} or (1, {', '.join(axes)})"
            f"{explain(shape)}"
        )
    if 0 in tensor.shape:
        what = "weights" if "attentions" in argument else "numbers"
        raise ValueError(f"{name} has shape {shape}, which contains no {what}")
    return tensor


def describe_axes(shape: Sequence[int], axes: Sequence[str]) -> str:
    """Return a text with the name and length of each axis.

    >>> describe_axes((2, 5, 7), ("heads", "queries", "keys"))
    'heads 2, queries 5, keys 7'
    """
    return ", ".join(f"{axis} {length}" for axis, length in zip(axes, shape, strict=True))
