"""`Copies` counts the tensors that are copied between two kinds of devices."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Copies(TorchDispatchMode):
    """Counter of the tensors that operations in a `with` block copy from `source` to `target`.

    Parameters
    ----------
    source, target : str
        Kinds of devices, such as ``"cuda"``. They may be equal.

    Attributes
    ----------
    count, bytes : int
        Number and bytes of the copied tensors. Tensors with one element do not count.
    """

    _COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)

    def __init__(self, source: str, target: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._source, self._target = source, target
        self.count = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self._COPIES:
            # `copy_` writes its second argument into the first.
            source = args[1] if func is torch.ops.aten.copy_.default else args[0]
            fits = (source.device.type, result.device.type) == (self._source, self._target)
            if fits and source.numel() > 1:
                self.count += 1
                self.bytes += source.numel() * source.element_size()
        return result
