"""Checks of numbers that are on a device, and copies to the host, for which the host waits once.

To read a number of a device, the host waits until the device has computed everything before it.
Then the device has nothing to do until the host asks for more. So these numbers, and the copies of
queries and keys, are collected while the model runs, and read together at its end. Numbers of the
CPU are read at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

# Maximum number of bytes of copies that have not arrived, apart from those of one layer. They are
# in pinned memory, which a device writes while it computes, but which the system cannot swap out.
_MAX_PINNED = 1 << 28


def _can_wait_for(device: torch.device) -> bool:
    accelerator = None if device.type == "cpu" else torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == device.type


class Postponed:
    """Checks and copies of one forward that wait for a device."""

    def __init__(self) -> None:
        self._checks: list[tuple[torch.Tensor, Callable[[list[float]], None]]] = []
        # Copies in the memory of the caller, and their numbers in pinned memory.
        self._copies: list[tuple[torch.Tensor, torch.Tensor, torch.device]] = []

    def check(self, numbers: torch.Tensor, read: Callable[[list[float]], None]) -> None:
        """Call `read` with a list of the `numbers`, (count,), now or in `finish`.

        `read` raises an error if the numbers are wrong. It must not hold tensors of the model.
        """
        if numbers.device.type == "cpu":
            read(numbers.tolist())
        else:
            self._checks.append((numbers, read))

    def copy(self, tensor: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        """Copy a tensor. The numbers of a copy from a device to the CPU arrive in `arrive`."""
        layout = torch.contiguous_format
        if device.type != "cpu" or not _can_wait_for(tensor.device):
            return tensor.to(device, dtype, copy=True, memory_format=layout)
        if sum(pinned.nbytes for _, pinned, _ in self._copies) > _MAX_PINNED:
            self.arrive()
        # torch pins the memory of such a copy. The caller may keep the result for long, so it is
        # in other memory.
        pinned = tensor.to(device, non_blocking=True, memory_format=layout)
        copied = torch.empty(pinned.shape, dtype=dtype)
        self._copies.append((copied, pinned, tensor.device))
        return copied

    def arrive(self) -> None:
        """Wait until all numbers of the copies have arrived."""
        for device in dict.fromkeys(device for _, _, device in self._copies):
            torch.accelerator.synchronize(device)
        copies, self._copies = self._copies, []
        # A model that sets the inference mode in its own forward made the copies in this mode.
        with torch.inference_mode():
            for copied, pinned, _ in copies:
                copied.copy_(pinned)

    def finish(self) -> None:
        """Complete all checks and copies. Raise the error of the first check that fails."""
        self.arrive()
        checks, self._checks = self._checks, []
        devices = dict.fromkeys(numbers.device for numbers, _ in checks)
        for device in devices:
            of_device = [check for check in checks if check[0].device == device]
            packed = torch.cat([numbers.detach().float() for numbers, _ in of_device]).cpu()
            parts = packed.split([len(numbers) for numbers, _ in of_device])
            for (_, read), part in zip(of_device, parts, strict=True):
                read(part.tolist())
