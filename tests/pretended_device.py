"""A pretended accelerator: the rehearsal of CUDA on a machine without one.

`pytest -p pretended_device` registers the device "pretended" with torch, with two indices. Its
tensors say that they are on this device, and their numbers are in the memory of the host. As on
CUDA,

- tensors of different devices do not meet, except for scalars in elementwise operations,
- `.numpy()` is refused,
- an asynchronous copy to the host arrives when the host waits for the device the next time. Until
  then, the host sees NaN (or another wrong number).

`Traffic` lists all copies and waits in a ``with`` block, and measures the memory of the device.

torch ships the class of such devices as an experimental interface for Python, so this works with
the pinned version of torch only. `torch.tensor` and `torch.as_tensor` fill the memory of their
result without the dispatcher. They are replaced for the whole process, so pytest runs in a separate
process (`models/test_rehearsal.py`).

What no pretended device can show: speed, kernels, the order of summation, several streams, and
memory that the allocator keeps.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import torch
from torch.utils import _device
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretended"
aten = torch.ops.aten

#: Operations whose result depends on numbers, so that the host waits for the device: Python
#: numbers, sizes of tensors, and decompositions that report errors.
_WAITS = {
    *(
        "_local_scalar_dense is_nonzero nonzero masked_select equal unique_dim _unique2 _unique"
    ).split(),
    *("unique_consecutive bincount linalg_eigh _linalg_eigh _linalg_svd linalg_inv_ex").split(),
}
#: Operations with an argument that is a list of indices: tensors of numbers, or boolean masks.
_INDEXED = set(
    "index index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put".split()
)
_COPIES = {"copy_", "copy", "_to_copy"}
#: Operations on numbers that CUDA refuses with `torch.use_deterministic_algorithms(True)`.
_NOT_DETERMINISTIC = {"cumsum", "cumsum_", "histc", "kthvalue", "median", "nanmedian"}
#: Operations that take no scalar tensor of the host. Elementwise operations take it.
_STRICT = set(
    "mm bmm addmm baddbmm cat stack gather scatter scatter_ index_select embedding scatter_add "
    "scatter_add_ searchsorted bucketize index_add index_add_ index_copy index_copy_ index_fill "
    "index_fill_ convolution native_layer_norm dot mv equal _fused_rms_norm take_along_dim "
    "masked_select".split()
)


class Event(NamedTuple):
    """A copy or a wait.

    `kind` is "to host", "to device" or "wait". `waits` is whether the host waits for the device.
    `line` is the innermost line of attnviz, or of the caller if attnviz did not cause the event.
    """

    kind: str
    operation: str
    bytes: int
    waits: bool
    line: str


class Traffic:
    """Context manager that lists events of all threads, and measures the device's memory.

    Attributes
    ----------
    events : list of Event
        Copies and waits.
    peak : int
        Largest number of bytes of the device, minus those at the beginning.
    """

    active: Traffic | None = None

    def __enter__(self) -> Traffic:
        self.events: list[Event] = []
        self._start = self.most = Memory.bytes
        self._outer, Traffic.active = Traffic.active, self
        return self

    def __exit__(self, *_: object) -> None:
        Traffic.active = self._outer

    @property
    def peak(self) -> int:
        return self.most - self._start

    @property
    def waits(self) -> int:
        """Number of times that the host waits for the device."""
        return sum(event.waits for event in self.events)

    def bytes(self, kind: str) -> int:
        """Return the bytes of all events of a kind. Single numbers do not count."""
        return sum(event.bytes for event in self.events if event.kind == kind and event.bytes > 8)

    def by_line(self) -> str:
        """Return a table of events by line, for a failing test."""
        counts = Counter((event.kind, event.operation, event.line) for event in self.events)
        return "\n".join(f"{count:5} {' '.join(key)}" for key, count in counts.most_common())


def _line() -> str:
    frame, caller = sys._getframe(2), "?"
    while frame.f_back is not None:
        frame = frame.f_back
        name = frame.f_code.co_filename
        if "/src/attnviz/" in name:
            return f"{name.partition('/src/attnviz/')[2]}:{frame.f_lineno}"
        if caller == "?" and "/torch/" not in name and name != __file__:
            caller = f"{name.rpartition('/')[2]}:{frame.f_lineno}"
    return caller


# Copies that the host has asked for, and that have not arrived.
_pending: list[tuple[torch.Tensor, torch.Tensor]] = []


def _arrive() -> None:
    while _pending:
        host, numbers = _pending.pop(0)
        with torch.inference_mode():
            host.copy_(numbers)


def _note(kind: str, operation: str, tensor: torch.Tensor, *, waits: bool = True) -> None:
    if waits:
        _arrive()
    if Traffic.active is not None:
        size = tensor.numel() * tensor.element_size()
        Traffic.active.events.append(Event(kind, operation, size, waits, _line()))


class Memory:
    """Bytes of the device: each piece of memory of living tensors once."""

    bytes = 0
    _held: ClassVar[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()

    @classmethod
    def add(cls, numbers: torch.Tensor) -> None:
        storage = numbers.untyped_storage()
        if cls._held.get(storage._cdata) is storage:
            return
        cls._held[storage._cdata] = storage
        cls.bytes += storage.nbytes()
        weakref.finalize(storage, cls._free, storage.nbytes())
        if Traffic.active is not None:
            Traffic.active.most = max(Traffic.active.most, cls.bytes)

    @classmethod
    def _free(cls, size: int) -> None:
        cls.bytes -= size


class DeviceTensor(torch.Tensor):
    """Tensor of the device. Its numbers are those of a tensor of the CPU."""

    numbers: torch.Tensor

    @staticmethod
    def __new__(
        cls: Any, numbers: torch.Tensor, device: torch.device, requires_grad: bool = False
    ) -> DeviceTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            layout=numbers.layout,
            device=device,
            requires_grad=requires_grad,
        )
        made.numbers = numbers
        Memory.add(numbers)
        return made  # type: ignore[no-any-return]

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.numbers!r} on {self.device}"

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    # torch makes a tensor of a list of indices itself, without the dispatcher.
    def __getitem__(self, index: Any) -> Any:
        return torch.Tensor.__getitem__(self, _index(index, self.device))

    def __setitem__(self, index: Any, value: Any) -> None:
        torch.Tensor.__setitem__(self, _index(index, self.device), value)

    def new_tensor(  # type: ignore[override]
        self, data: Any, *, dtype: Any = None, device: Any = None, **kwargs: Any
    ) -> Any:
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return DeviceTensor, (self.numbers.detach(), self.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            copied = DeviceTensor(self.numbers.detach().clone(), self.device, self.requires_grad)
            if getattr(self, "_is_param", False):
                copied._is_param = True
            memo[id(self)] = copied
        return memo[id(self)]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(func, *args, **(kwargs or {}))


def _index(index: Any, device: torch.device) -> Any:
    if isinstance(index, tuple):
        return tuple(_index(part, device) for part in index)
    numbers = isinstance(index, list) and all(isinstance(part, int | list) for part in index)
    return _tensor(index, dtype=None if index else torch.long).to(device) if numbers else index


def _refuse_two_devices(name: str, args: Any, tensors: list[torch.Tensor]) -> None:
    devices = {tensor.device for tensor in tensors}
    if len(devices) < 2 or name in _COPIES or name == "tensor_split":
        return
    host = torch.device("cpu")
    if name in _INDEXED:
        # A tensor of the device takes indices of the host, and copies them.
        indices = [index for index in args[1] if index is not None and index.device != host]
        wrong = [*indices, *(value for value in args[2:3] if value.dim())]
        same = all(tensor.device == args[0].device for tensor in wrong)
    elif name in _STRICT:
        same = False
    else:
        same = len({tensor.device for tensor in tensors if tensor.dim()}) < 2
    if not same:
        shown = ", ".join(f"{tuple(tensor.shape)} on {tensor.device}" for tensor in tensors)
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices: "
            f"{name}({shown})"
        )


def _refuse_if_deterministic(name: str) -> None:
    if torch.are_deterministic_algorithms_enabled():
        raise RuntimeError(
            f"{name} does not have a deterministic implementation, but you set "
            "'torch.use_deterministic_algorithms(True)'."
        )


def _log(name: str, args: Any, kwargs: Any, target: torch.device | None) -> None:
    """Note the copies and waits of an operation, before it runs."""
    if name in _COPIES:
        source = args[0] if name == "_to_copy" else args[1]
        to = target or torch.device("cpu")
        if source.device != to:
            asynchronous = kwargs.get("non_blocking") or args[2:3] == (True,)
            kind = "to host" if to.type == "cpu" else "to device"
            _note(kind, name, source, waits=not asynchronous)
    elif name in _INDEXED and isinstance(args[0], DeviceTensor):
        fills = len(args) > 2 and args[2].numel() == 1 and args[2].device.type == "cpu"
        for index in args[1]:
            if index is not None and not isinstance(index, DeviceTensor):
                _note("to device", f"{name} by indices of the host", index)
            elif index is not None and index.dtype in (torch.bool, torch.uint8) and not fills:
                _note("wait", f"{name} by a boolean mask", index)
    elif name in _WAITS or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        _note("wait", name, next(arg for arg in args if isinstance(arg, DeviceTensor)))


def _target(name: str, args: Any, kwargs: Any, on_device: list[DeviceTensor]) -> Any:
    """Return the device of the result of an operation, or None for the CPU."""
    device = on_device[0].device if on_device else None
    if kwargs.get("device") is not None:
        device = torch.device(kwargs["device"])
    elif name in ("copy_", "copy"):
        device = args[0].device
    if device is None or device.type != NAME:
        return None
    return torch.device(NAME, device.index or 0)


def _run(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation with the numbers of its tensors."""
    flat, spec = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]
    on_device = [tensor for tensor in tensors if isinstance(tensor, DeviceTensor)]
    name = func._schema.name.removeprefix("aten::")
    _refuse_two_devices(name, args, tensors)
    target = _target(name, args, kwargs, on_device)
    if on_device and name in _NOT_DETERMINISTIC and on_device[0].is_floating_point():
        _refuse_if_deterministic(name)
    if on_device or name in _COPIES:
        _log(name, args, kwargs, target)
    real = [leaf.numbers if isinstance(leaf, DeviceTensor) else leaf for leaf in flat]
    real_args, real_kwargs = tree_unflatten(real, spec)
    if kwargs.get("device") is not None:
        real_kwargs["device"] = torch.device("cpu")
    real_kwargs.pop("pin_memory", None)
    is_count = name == "histc" and not real_args[0].is_floating_point()
    if is_count:
        # CUDA has it for integers, too.
        real_args = (real_args[0].double(), *real_args[1:])
    result = func(*real_args, **real_kwargs)
    result = result.to(tensors[0].dtype) if is_count else result
    resized = any(leaf.shape != leaf.numbers.shape for leaf in on_device)
    if resized and torch.Tag.inplace_view not in func.tags:
        raise NotImplementedError(f"the pretended device cannot resize a tensor: {name}")
    if target is None:
        if on_device and name == "_to_copy" and kwargs.get("non_blocking"):
            _pending.append((result, result.clone()))
            result.fill_(float("nan") if result.is_floating_point() else 1)
        return result
    # An operation in place returns its argument.
    pairs = zip(real, flat, strict=True)
    owners = {id(numbers): leaf for numbers, leaf in pairs if isinstance(leaf, DeviceTensor)}

    def wrapped(leaf: Any) -> Any:
        is_new = isinstance(leaf, torch.Tensor) and id(leaf) not in owners
        return DeviceTensor(leaf, target) if is_new else owners.get(id(leaf), leaf)

    result = tree_map(wrapped, result)
    if name in _COPIES or not on_device:
        return result
    return return_and_correct_aliasing(func, args, kwargs, result)


class _Backend:
    """`torch.pretended`, which torch asks about the backend."""

    def is_initialized(self) -> bool:
        return True

    is_available = is_initialized

    def _is_in_bad_fork(self) -> bool:
        return False

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 2

    def synchronize(self, _device: Any = None) -> None:
        _note("wait", "synchronize", torch.empty(0))

    def manual_seed_all(self, seed: int) -> None:
        pass

    manual_seed = manual_seed_all

    def get_rng_state(self, _device: Any = 0) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Any, device: Any = 0) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    #: Memory of each device in bytes.
    total = 1 << 40

    def mem_get_info(self, _device: Any = 0) -> tuple[int, int]:
        return max(0, self.total - Memory.bytes), self.total

    def memory_allocated(self, _device: Any = 0) -> int:
        return Memory.bytes

    memory_reserved = memory_allocated

    def get_device_properties(self, _device: Any = 0) -> SimpleNamespace:
        return SimpleNamespace(total_memory=self.total, name=NAME, major=9, minor=0)


def _made_on_host(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return `torch.tensor` or `torch.as_tensor` for the device: make on the host, then copy."""

    def made(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or (
            torch.device(device).type != NAME and not isinstance(data, DeviceTensor)
        ):
            return make(data, *args, device=device, **kwargs)
        if not isinstance(data, torch.Tensor):
            return make(data, *args, **kwargs).to(device)
        return data.detach().to(device, kwargs.get("dtype"), copy=make is _tensor)

    return made


_setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
# A backend of Python has no streams, so torch cannot wait for them.
torch.accelerator.synchronize = _Backend().synchronize
torch.__future__.set_swap_module_params_on_conversion(True)
_library = torch.library.Library("_", "IMPL")
_library.fallback(_run, "PrivateUse1")
# The kernels of torch for these operations resize an empty result. A wrapper cannot be resized.
_factories = torch.library.Library("aten", "IMPL")
for _overload in "arange arange.start arange.start_step eye eye.m full ones zeros".split():
    _packet, _, _kind = _overload.partition(".")
    _operation = getattr(getattr(aten, _packet), _kind or "default")
    _factories.impl(_overload, partial(_run, _operation), "PrivateUse1")
# torch keeps the functions that `with torch.device(...)` changes: keep the real ones.
_device._device_constructors()
_tensor, _as_tensor = torch.tensor, torch.as_tensor
torch.tensor, torch.as_tensor = _made_on_host(_tensor), _made_on_host(_as_tensor)
