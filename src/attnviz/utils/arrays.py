"""Conversion of arrays that a caller passes, and copies of tensors to a device."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    import torch


def as_array(value: Any, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Return an array, a tensor, or a nested list of numbers, arrays and tensors, as one array.

    Unlike `numpy.asarray`, accept tensors that are on a device, have a gradient, or are bfloat16,
    which becomes float32.

    >>> as_array([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    return np.asarray(_without_tensors(value), dtype)


def moved(
    tensor: torch.Tensor, device: torch.device | None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return a tensor on a device, without waiting for the device if the tensor is on the CPU.

    The host must wait for a copy in the other direction. Otherwise it reads the numbers too early.
    """
    return tensor.to(device, dtype, non_blocking=tensor.device.type == "cpu")


def _without_tensors(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_tensors(part) for part in value]
    # Without torch there are no tensors. Importing it would take seconds.
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
