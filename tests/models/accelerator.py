"""The device on which tests marked `gpu` run: CUDA, or the pretended device of a rehearsal."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from models.device_copies import Copies

#: The module `pretended_device` if pytest loaded it (`-p pretended_device`), else None.
PRETENDED = sys.modules.get("pretended_device")
DEVICE = torch.device("cuda" if PRETENDED is None else PRETENDED.NAME, 0)


def peak(run: Callable[[], Any]) -> int:
    """Return the largest number of bytes of the device that `run` needs at once."""
    if PRETENDED is not None:
        with PRETENDED.Traffic() as traffic:
            run()
        return int(traffic.peak)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


def held() -> int:
    """Return the number of bytes of the device that living tensors have."""
    gc.collect()
    if PRETENDED is not None:
        return int(PRETENDED.Memory.bytes)
    return torch.cuda.memory_allocated()


def waits(run: Callable[[], Any]) -> int:
    """Return how often the host waits for the device in `run`."""
    if PRETENDED is not None:
        with PRETENDED.Traffic() as traffic:
            run()
        print(traffic.by_line())  # noqa: T201  # for a failing test
        return int(traffic.waits)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(warning.message) for warning in caught)


def bytes_to_host(run: Callable[[], Any]) -> int:
    """Return the number of bytes that `run` copies from the device to the CPU."""
    if PRETENDED is not None:
        with PRETENDED.Traffic() as traffic:
            run()
        return int(traffic.bytes("to host"))
    with Copies("cuda", "cpu") as copies:
        run()
    return int(copies.bytes)
