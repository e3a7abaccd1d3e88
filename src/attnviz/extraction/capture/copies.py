"""Functions and a class that copy the queries, keys and weights of a model's attention.

Copies are necessary because a tensor of the model may be a view, which keeps a larger tensor in
memory, or a cache, which the model overwrites later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from attnviz.extraction.capture.postponed import Postponed
from attnviz.extraction.options import CaptureOptions, narrows
from attnviz.record.attention import StoredAttention
from attnviz.record.storage.safetensors_file import Blocks
from attnviz.record.storage.spool import Spool

_Stored = TypeVar("_Stored", bound=StoredAttention)


class Copier:
    """Object that copies the attention of examples.

    `options` have the device and the dtype of the copies. `spools` has a spool (a folder on disk)
    for the copies of each example. If `spools` is empty, copies stay in memory. Their numbers may
    arrive only in `postponed.finish`.
    """

    def __init__(
        self, options: CaptureOptions, spools: Sequence[Spool], postponed: Postponed
    ) -> None:
        self._options = options
        self._spools = spools
        self.postponed = postponed

    def copy(self, attention: _Stored, written: tuple[int, str] | None = None) -> _Stored:
        """Copy the tensors of the attention of one example.

        Masks and biases are not copied, so that layers can share them. If spools exist, pass the
        index of the example and the path of the module as `written`, to write the copies to the
        spool of the example. None keeps them in memory. Raise ValueError if numbers are too large
        for the dtype, and OSError if the spool cannot be written.
        """
        tensors = attention.parts
        if written is None or not self._spools:
            copies = {what: self._convert(tensor, what) for what, tensor in tensors.items()}
            return replace(attention, **copies)
        example, name = written
        blocks = {
            what: Blocks(
                self._dtype(tensor, what),
                tuple(tensor.shape),
                # `map` converts one head at a time, so only one converted head is in memory.
                map(partial(self._convert, what=what), tensor.detach().cpu()),
            )
            for what, tensor in tensors.items()
        }
        return replace(attention, **self._spools[example].write(name, blocks))

    def _dtype(self, tensor: torch.Tensor, what: str) -> torch.dtype:
        # Do not round the decays of linear layers. They are multiplied over many tokens, and their
        # rounding errors would add up.
        is_rounded = what in ("queries", "keys", "weights")
        return (self._options.dtype if is_rounded else None) or tensor.dtype

    def _convert(self, tensor: torch.Tensor, what: str) -> torch.Tensor:
        """Copy the queries, keys or weights (`what`) to the device and dtype of copies.

        Raise ValueError if a number in the queries or keys is too large for the dtype.
        """
        device, tensor = self._options.device or tensor.device, tensor.detach()
        dtype = self._dtype(tensor, what)
        if not narrows(tensor.dtype, dtype):
            return self.postponed.copy(tensor, device, dtype)
        # Round on the device of the tensor, so that fewer bytes are copied.
        rounded = tensor.to(dtype, memory_format=torch.contiguous_format)
        limits = torch.finfo(dtype)
        if what == "weights":
            # Sparse attention is recognised by zeros in its weights, so rounding must not create
            # zeros. Replace them by the smallest positive number.
            vanished = (rounded == 0) & (tensor != 0)
            rounded.masked_fill_(vanished, limits.smallest_normal * limits.eps)
        else:

            def read(is_infinite: list[float]) -> None:
                if any(is_infinite):
                    raise ValueError(
                        f"dtype={str(dtype).removeprefix('torch.')!r} holds numbers up to "
                        f"{limits.max:,.0f}, and {what} of this model are larger. Pass "
                        "'bfloat16', which holds them in as many bytes."
                    )

            self.postponed.check(torch.isinf(rounded).any()[None], read)
        return rounded if rounded.device == device else self.postponed.copy(rounded, device, dtype)
