"""The device on which tests marked `gpu` run: CUDA, or the pretended device of a rehearsal."""

from __future__ import annotations

import sys
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


def bytes_to_host(run: Callable[[], Any]) -> int:
    """Return the number of bytes that `run` copies from the device to the CPU."""
    if PRETENDED is not None:
        with PRETENDED.Traffic() as traffic:
            run()
        return int(traffic.bytes("to host"))
    with Copies("cuda", "cpu") as copies:
        run()
    return int(copies.bytes)
