"""Conversion of arrays of any library, and of nested lists, to one tensor per layer.

The argument `name` of these functions is the name of the value in error messages, such as
``"attentions[2]"``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from attnviz.utils.arguments import whole_numbers
from attnviz.utils.arrays import as_array


def as_tensor(value: Any, name: str, *, keep: tuple[torch.dtype, ...] = ()) -> torch.Tensor:
    """Convert an array or nested list to a tensor without gradient. Share its memory if possible.

    Values of the dtypes float16, bfloat16, float32, float64 and those in `keep` keep their dtype.
    All others become float32. Raise TypeError if `value` is not an array of real numbers.
    """
    try:
        tensor = value if isinstance(value, torch.Tensor) else _from_array(value, keep)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is not an array of numbers ({error})") from error
    dense = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized
    if not dense or tensor.is_complex() or tensor.is_meta:
        raise TypeError(f"{name} is not an array of numbers: pass a dense tensor of real numbers")
    tensor = tensor.detach()
    # torch does not compute with 8-bit floats. float32 represents all of their values.
    is_float = tensor.is_floating_point() and tensor.element_size() > 1
    return tensor if is_float or tensor.dtype in keep else tensor.float()


def _from_array(value: Any, keep: tuple[torch.dtype, ...]) -> torch.Tensor:
    array = as_array(value)
    keeps_dtype = array.dtype in (np.float16, np.float64) or (array.dtype == np.bool_ and keep)
    if not keeps_dtype and array.dtype.kind in "biuf":
        array = array.astype(np.float32, copy=False)
    # `torch.from_numpy` does not accept another byte order or negative strides, and warns about
    # arrays that are not writable. `np.require` copies such arrays.
    array = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
    return torch.from_numpy(array)


def layers_of(value: Any, name: str, axes: Sequence[str], if_missing: str = "") -> list[Any]:
    """Split an argument with the arrays of all layers into a list with one array per layer.

    `value` is a list of arrays, or one array whose first axis is the layers. The arrays themselves
    are not checked. `axes` are the names of the axes of one array, for messages. Raise TypeError if
    `value` is not a sequence, or ValueError if it is empty or contains None. `if_missing` is a hint
    at the end of the message of this ValueError.
    """
    each = f"one array ({', '.join(axes)}) per layer"
    if isinstance(value, torch.Tensor) or hasattr(value, "__array__"):
        value = list(as_tensor(value, name))
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        raise TypeError(f"{name} must be a sequence with {each}; got {type(value).__name__}")
    if len(value) == 0 or any(layer is None for layer in value):
        state = "contains None" if value else "is empty"
        raise ValueError(f"{name} {state}, instead of {each}{if_missing}")
    return list(value)


def without_batch_axis(tensor: torch.Tensor, name: str, axes: Sequence[str]) -> torch.Tensor:
    """Return `tensor` without a batch axis of length 1.

    The batch axis is an additional first axis, before the axes with the names `axes`. Raise
    ValueError if the tensor has another number of axes, the batch contains several examples, or the
    tensor is empty.
    """
    shape = tuple(tensor.shape)
    if len(shape) == len(axes) + 1 and shape[0] == 1:
        tensor = tensor[0]
    if tensor.dim() != len(axes) or not tensor.numel():
        raise ValueError(
            f"{name} has shape {shape}; it must be ({', '.join(axes)}) or (1, {', '.join(axes)}), "
            "the numbers of one layer and one example"
        )
    return tensor


def check_layer_numbers(layers: Sequence[int] | None, count: int, name: str) -> list[int]:
    """Return `layers` as a list, or 0, 1, ..., `count` - 1 if it is None.

    Raise TypeError or ValueError if `layers` does not contain `count` different integers of at
    least 0. `name` is the argument that contains the arrays of these layers.
    """
    hint = f"one for each of the {count} layers of {name}"
    numbers = list(whole_numbers("layers", range(count) if layers is None else layers, hint=hint))
    if len(numbers) != count or len(set(numbers)) != len(numbers) or min(numbers) < 0:
        raise ValueError(f"layers={numbers!r} must be different numbers from 0, {hint}")
    return numbers
