"""`LiveTensors` counts the bytes of tensors that operations create, `Operations` the operations."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveTensors(TorchDispatchMode):
    """Counter of the memory of all tensors that operations create in a `with` block.

    Attributes
    ----------
    peak : int
        Largest sum of the bytes of these tensors at any time.
    largest : int
        Bytes of the largest of these tensors.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.peak = 0
        self.largest = 0
        self._alive = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and count its new tensors."""
        del types
        inputs = {storage._cdata for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            key = storage._cdata
            # Skip storage that the result shares with an argument or with an earlier result.
            if key in inputs or key in self._sizes:
                continue
            self._sizes[key] = storage.nbytes()
            self._alive += storage.nbytes()
            self.largest = max(self.largest, storage.nbytes())
            weakref.finalize(storage, self._gone, key)
        self.peak = max(self.peak, self._alive)
        return result

    def _gone(self, key: int) -> None:
        self._alive -= self._sizes.pop(key, 0)


class Operations(TorchDispatchMode):
    """Counter of the operations of torch in a `with` block, without those inside of others."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.count = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and count it."""
        del types
        self.count += 1
        return func(*args, **(kwargs or {}))


def _storages(tree: Any) -> Iterator[torch.UntypedStorage]:
    for leaf in tree_leaves(tree):
        if isinstance(leaf, torch.Tensor):
            yield leaf.untyped_storage()
        elif isinstance(leaf, torch.TypedStorage):
            yield leaf.untyped()
        elif isinstance(leaf, torch.UntypedStorage):
            yield leaf
