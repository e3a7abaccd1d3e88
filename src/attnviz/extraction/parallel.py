"""Models that are divided over processes in a way that hides heads or tokens from each of them.

Data parallel models (DDP, FSDP) give every process all heads of all tokens, and are read as usual.
Tensor parallel ones give each process some heads: what their attention received is put together
from all processes (`attnviz.extraction.capture.gather`), which have to run the same extraction.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from attnviz.extraction.modules import attention_modules

__all__ = ["Processes", "check_parallel", "check_whole", "digest", "processes_of", "together"]

_WHOLE_MODEL = (
    "Load the whole model in one process (from_pretrained without tp_plan and without a "
    "distributed_config; device_map='auto' spreads its layers over the devices of one process) and "
    "give that to attnviz"
)
#: How many seconds a process waits for the others, where the environment does not say.
_SECONDS = 300.0
_TIMEOUT = "ATTNVIZ_SPLIT_TIMEOUT"


def check_parallel(model: nn.Module) -> None:
    """Raise NotImplementedError where this process sees a part of the tokens or of the layers."""
    if not _distributed():
        return
    if _in_context_parallel(model):
        raise NotImplementedError(
            "model: it runs in context parallel, where each process has a part of the tokens and "
            "of the weights, which cannot be shown yet. Call attnviz outside of context_parallel, "
            "with the whole text"
        )
    if getattr(getattr(model, "_pp_stage", None), "pp_size", 1) > 1:
        raise NotImplementedError(
            "model: its layers are divided over processes (pipeline parallel), and this process "
            f"has a part of them, which cannot be shown yet. {_WHOLE_MODEL}"
        )


def check_whole(model: nn.Module) -> None:
    """Raise NotImplementedError where the heads are divided over processes."""
    processes = _found(model)
    if processes is not None:
        raise NotImplementedError(
            f"model: its attention heads are divided over {len(processes[0])} processes (tensor "
            "parallel); its attention can be recorded there, with attnviz.extract, and not "
            f"changed. {_WHOLE_MODEL}"
        )


def processes_of(model: nn.Module) -> Processes | None:
    """The processes that a model's heads are divided over; None where each has all of them."""
    found = _found(model)
    return None if found is None else Processes(*found)


def _distributed() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized()


class Processes:
    """The processes that a model's heads are divided over, in the order of the heads.

    They must make the same calls in the same order. Raises TimeoutError where one does not come
    within so many seconds as the environment variable ``ATTNVIZ_SPLIT_TIMEOUT`` says (300 by
    default), and ConnectionError where one has ended.

    Parameters
    ----------
    ranks : sequence of int
        Their ranks among all processes.
    group : ProcessGroup
        The model's own group of them.
    """

    def __init__(self, ranks: Sequence[int], group: Any) -> None:
        self._ranks = tuple(ranks)
        self._group = group
        self.position = self._ranks.index(torch.distributed.get_rank())
        self.seconds = _seconds()

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._ranks)

    @property
    def first(self) -> bool:
        """Whether this is the one that has the first heads: it writes files, and shows progress."""
        return self.position == 0

    @functools.cached_property
    def on_this_machine(self) -> int:
        """How many of them share the memory of this machine."""
        names = self.exchange(socket.gethostname().encode())
        return names.count(names[self.position])

    def exchange(self, data: bytes) -> list[bytes]:
        """Give some bytes to all processes, and get theirs."""
        # One byte more: a tensor of nothing cannot be stored.
        own = torch.frombuffer(bytearray(data) + b"\0", dtype=torch.uint8)
        sizes = [int(size) for size in self._gathered(torch.tensor([len(own)]))]
        return [bytes(each[:-1].numpy()) for each in self.gather(own, 0, sizes)]

    def gather(self, tensor: torch.Tensor, axis: int, sizes: Sequence[int]) -> list[torch.Tensor]:
        """The tensors of all processes, which differ in one axis alone; `sizes` are theirs there.

        On the device of this process's own.
        """
        shapes = [(*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]) for size in sizes]
        numbers = [math.prod(shape) * tensor.element_size() for shape in shapes]
        # As bytes: not every backend has every dtype.
        own = tensor.detach().contiguous().flatten().view(torch.uint8)
        padded = own.new_zeros(max(numbers))
        padded[: len(own)] = own
        return [
            each[:number].view(tensor.dtype).view(shape)
            for each, number, shape in zip(self._gathered(padded), numbers, shapes, strict=True)
        ]

    @contextmanager
    def together(self, what: bytes = b"") -> Iterator[None]:
        """Go on when all processes have done what stands in the block, each with the same `what`.

        Where one fails all do: with its own error there, and elsewhere a RuntimeError that has its
        words. ValueError where they do not have the same.
        """
        # Asked for now: in the block one may fail before it asks.
        _ = self.on_this_machine
        failure: Exception | None = None
        try:
            yield
        except Exception as error:  # noqa: BLE001
            failure = error
        said = b"" if failure is None else f"{type(failure).__name__}: {failure}".encode()
        heard = self.exchange(bytes([failure is not None]) + (said or what))
        if failure is not None:
            raise failure
        for rank, each in zip(self._ranks, heard, strict=True):
            if each[:1] == b"\1":
                words = each[1:].decode(errors="replace")
                raise RuntimeError(f"model: process {rank}, which has a part of its heads: {words}")
        if len(set(heard)) > 1:
            raise ValueError(
                f"inputs: the {self.size} processes that share the model's heads do not read the "
                "same, or not with the same options; give each the same (sampled texts need the "
                "same torch seed)"
            )

    def _gathered(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """A tensor of the same shape from each process."""
        distributed = torch.distributed
        with _explained(self):
            control = _group_of(self._ranks, self.seconds)
            # gloo gathers on the CPU; what lies on devices goes from one to the next, if it can.
            direct = tensor.device.type == "cpu" or distributed.get_backend(self._group) == "gloo"
            sent = tensor.cpu() if direct else tensor
            found = [torch.empty_like(sent) for _ in self._ranks]
            group = control if direct else self._group
            work = distributed.all_gather(found, sent, group=group, async_op=True)
            work.wait(timedelta(seconds=self.seconds))
        # A group counts by rank, heads may not.
        places = {rank: place for place, rank in enumerate(_ranks_of(group))}
        return [found[places[rank]].to(tensor.device) for rank in self._ranks]


def _ranks_of(group: Any) -> list[int]:
    return list(torch.distributed.get_process_group_ranks(group))


def _seconds() -> float:
    given = os.environ.get(_TIMEOUT, "").strip()
    try:
        seconds = float(given) if given else _SECONDS
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(
            f"the environment variable {_TIMEOUT} is {given!r}; give the seconds that a process "
            "waits for the others, such as 300"
        )
    return seconds


# The group of the last call: it costs connections, and belongs to one set-up of the processes.
_last: list[Any] = []


def _group_of(ranks: Sequence[int], seconds: float) -> Any:
    """A group of these processes whose calls end after some seconds; all of them must ask."""
    distributed = torch.distributed
    key = (distributed.group.WORLD, tuple(ranks), seconds)
    if not _last or _last[0] != key:
        _last.clear()
        made = distributed.new_group(
            list(ranks),
            timeout=timedelta(seconds=seconds),
            backend="gloo",
            use_local_synchronization=True,
        )
        _last.extend((key, made))
    return _last[1]


@contextmanager
def _explained(processes: Processes) -> Iterator[None]:
    """Say in errors of the transport what happened."""
    started = time.monotonic()
    try:
        yield
    except RuntimeError as error:
        # What was broken off cannot be used again.
        _last.clear()
        others = f"the {processes.size} processes that the model's heads are divided over"
        late = time.monotonic() - started >= 0.9 * processes.seconds
        if late:
            raise TimeoutError(
                f"model: not all of {others} came within {processes.seconds:g} seconds; call "
                f"attnviz in each of them, with the same arguments ({_TIMEOUT} is how many seconds "
                "to wait)"
            ) from error
        raise ConnectionError(
            f"model: one of {others} has ended or was cut off; start all of them again"
        ) from error


@contextmanager
def together(processes: Processes | None, what: bytes = b"") -> Iterator[None]:
    """`Processes.together`, where heads are divided."""
    if processes is None:
        yield
        return
    with processes.together(what):
        yield


def digest(values: Mapping[str, Any]) -> bytes:
    """A short name for values, the same in each process that has the same ones."""
    found = hashlib.sha256()
    for name, value in sorted(values.items()):
        found.update(f"{name}:".encode())
        if isinstance(value, torch.Tensor):
            found.update(f"{tuple(value.shape)}{value.dtype}".encode())
            flat = value.detach().cpu().contiguous().flatten()
            found.update(flat.view(torch.uint8).numpy().tobytes())
        else:
            found.update(repr(value).encode())
    return found.digest()


def _in_context_parallel(model: nn.Module) -> bool:
    """Whether torch has put its ring attention in the place of attention."""
    # Inside of `context_parallel` the function is replaced; `parallelize_module` sets hooks.
    hooks = (each for module in model.modules() for each in module._forward_pre_hooks.values())
    return _is_ring(functional.scaled_dot_product_attention) or any(map(_is_ring, hooks))


def _is_ring(function: Any) -> bool:
    function = getattr(function, "func", function)
    home = str(getattr(function, "__module__", ""))
    return home.startswith("torch.distributed.tensor.experimental.")


def _found(model: nn.Module) -> tuple[list[int], Any] | None:
    """Ranks of the processes that the heads are divided over, and the model's group of them."""
    if not _distributed():
        return None
    from torch.distributed.tensor import DTensor

    by_fsdp = _parameters_of_fsdp(model)
    for entry in attention_modules(model):
        for parameter in entry.module.parameters():
            if isinstance(parameter, DTensor):
                mesh = parameter.device_mesh
                divided = [
                    axis
                    for axis, placement in enumerate(parameter.placements)
                    if not placement.is_replicate()
                ]
                # FSDP divides parameters along an axis of its own, which comes first, and gathers
                # them before they are used.
                left = [axis for axis in divided[id(parameter) in by_fsdp :] if mesh.size(axis) > 1]
                if left:
                    found = mesh.get_group(left[-1])
                    return _ranks_of(found), found
    # Older versions of transformers leave plain tensors in each process.
    size = getattr(model, "_tp_size", None) or 1
    if size <= 1 or any(isinstance(each, DTensor) for each in model.parameters()):
        return None
    whole: Any = getattr(model, "_device_mesh", None)
    group: Any = torch.distributed.group.WORLD if whole is None else whole.get_group()
    return _ranks_of(group), group


def _parameters_of_fsdp(model: nn.Module) -> set[int]:
    from torch.distributed import fsdp

    # In torch from 2.6 on.
    kind = getattr(fsdp, "FSDPModule", ())
    return {
        id(parameter)
        for module in model.modules()
        if isinstance(module, kind)
        for parameter in module.parameters()
    }
