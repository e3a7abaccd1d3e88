"""How much memory is free on a device, as far as the system tells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch

__all__ = ["free_memory", "in_words"]

_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def free_memory(device: torch.device, root: Path = Path("/")) -> int | None:
    """Bytes that can still be had on a device.

    Parameters
    ----------
    device : device
        The CPU, or a CUDA device.
    root : Path
        Where Linux shows its files.

    Returns
    -------
    int or None
        On the CPU what the system could give without swapping, and what a container may still take
        (cgroups, version 1 and 2) where that is less; on CUDA what the device has left, with what
        torch holds and doesn't use. None where nobody tells.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    if device.type != "cpu":
        return None
    known = [*_available(root), *_left_in_groups(root)]
    return max(0, min(known)) if known else None


def _available(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024
            return
    try:
        yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        # macOS and Windows have no such number.
        return


def _left_in_groups(root: Path) -> Iterator[int]:
    """What each of the groups that this process is in may still take."""
    for line in _lines(root / "proc/self/cgroup"):
        _, kinds, path = line.split(":", 2)
        if kinds == "":
            names = ("memory.max", "memory.current", "inactive_file")
            yield from _left(root / "sys/fs/cgroup", path, names)
        elif "memory" in kinds.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _left(root / "sys/fs/cgroup/memory", path, names)


def _left(top: Path, path: str, names: tuple[str, str, str]) -> Iterator[int]:
    folder = top / path.strip().lstrip("/")
    # A group is bound by all groups around it. In a container the path may be the host's.
    for each in [folder, *folder.parents]:
        if each == top.parent:
            return
        limit, used = (_number(each / name) for name in names[:2])
        if limit is None or used is None:
            continue
        # Files that were read are kept as long as nobody needs the room.
        cached = [
            int(line.split()[1])
            for line in _lines(each / "memory.stat")
            if line.startswith(f"{names[2]} ")
        ]
        yield limit - used + sum(cached)


def _number(path: Path) -> int | None:
    # "max" where there is no limit.
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def in_words(count: int) -> str:
    """A number of bytes as a reader would say it.

    Parameters
    ----------
    count : int
        Bytes.

    Returns
    -------
    str

    Examples
    --------
    >>> in_words(34_359_738_368), in_words(1_250_000)
    ('34 GB', '1.2 MB')
    """
    for size, unit in _UNITS:
        if count >= size:
            number = count / size
            return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"
    return f"{count} bytes"
