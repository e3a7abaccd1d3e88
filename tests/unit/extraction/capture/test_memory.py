"""Tests of the free memory and disk space, and of the errors if a capture needs more."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from attnviz.extraction.capture.memory import (
    LayerSize,
    check_disk,
    check_memory,
    free_disk,
    free_memory,
    needed_memory,
)
from attnviz.extraction.options import CaptureOptions

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


SYSTEM = {"proc/meminfo": "MemTotal: 64000 kB\nMemFree: 10 kB\nMemAvailable:   8000 kB\n"}


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        pytest.param({}, 8000 * 1024, id="no group"),
        # Inside a container, the container's own cgroup is the root.
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": "5000000\n",
                "sys/fs/cgroup/memory.current": "3000000\n",
                "sys/fs/cgroup/memory.stat": "anon 100\ninactive_file 500000\n",
            },
            2_500_000,
            id="container",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/user/job\n",
                "sys/fs/cgroup/user/job/memory.max": "max\n",
                "sys/fs/cgroup/user/job/memory.current": "10\n",
                "sys/fs/cgroup/user/memory.max": "1000\n",
                "sys/fs/cgroup/user/memory.current": "900\n",
            },
            100,
            id="limit of the parent group",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/box\n0::/\n",
                "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "700\n",
                "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "500\n",
                "sys/fs/cgroup/memory/box/memory.stat": "total_inactive_file 50\n",
            },
            250,
            id="version 1 of cgroups",
        ),
    ],
)
def test_the_limit_of_a_container_counts(
    group: dict[str, str], expected: int, tmp_path: Path
) -> None:
    assert free_memory(CPU, files(tmp_path, SYSTEM | group)) == expected


def test_free_memory_is_unknown_without_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr("os.sysconf", unknown, raising=False)
    assert free_memory(CPU, tmp_path) is None
    assert free_memory(torch.device("mps"), tmp_path) is None
    monkeypatch.setattr("os.sysconf", lambda _: 100, raising=False)
    assert free_memory(CPU, tmp_path) == 10_000


def test_memory_that_torch_holds_unused_on_a_cuda_device_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 20)
    assert free_memory(CUDA) == 130


def layers(
    device: torch.device, numbers: range = range(32), tokens: int = 131_072
) -> list[LayerSize]:
    """Return layer sizes as in Llama 3 8B: 32 heads that share 8 key heads of 128 dimensions."""
    return [
        LayerSize(number, 32, 8, 128, ((tokens, tokens),), torch.float32, device)
        for number in numbers
    ]


def error_of(sizes: list[LayerSize], options: CaptureOptions, free: dict[torch.device, Any]) -> str:
    with pytest.raises(MemoryError) as raised:
        check_memory(sizes, options, free.get)
    return str(raised.value)


def test_the_error_says_how_much_is_needed_and_what_needs_less() -> None:
    needed = needed_memory(layers(CPU), CaptureOptions(CPU))[CPU]
    for free in (needed, None):
        check_memory(layers(CPU), CaptureOptions(CPU), {CPU: free}.get)
    assert error_of(layers(CPU), CaptureOptions(CPU), {CPU: 60 * 10**9}) == (
        "inputs: keeping the queries and keys of 32 layers for 131,072 tokens takes 86 GB on cpu, "
        "and 60 GB are free. Pass fewer layers (layers=) or a shorter text, or pass "
        'dtype="bfloat16" or spool="folder" to av.extract.'
    )


def test_the_error_of_a_small_disk_says_what_needs_less(tmp_path: Path) -> None:
    # `free_disk` accepts a folder that does not exist yet.
    assert (free_disk(tmp_path / "no" / "such") or 0) > 0
    needed = needed_memory(layers(CPU), CaptureOptions(CPU))[CPU]
    for free in (needed, None):
        check_disk(layers(CPU), CaptureOptions(CPU), tmp_path, {tmp_path: free}.get)
    with pytest.raises(OSError, match="spool: the queries and keys") as raised:
        check_disk(layers(CPU), CaptureOptions(CPU), tmp_path, lambda _: needed - 1)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path))
    assert raised.value.strerror == (
        "spool: the queries and keys of 32 layers for 131,072 tokens take 86 GB, and 86 GB are "
        'free on that disk. Pass fewer layers (layers=), dtype="bfloat16" or a shorter text.'
    )


def test_layers_are_counted_on_their_device() -> None:
    other = torch.device("cuda", 1)
    mixed = layers(CUDA, range(4), 1000) + layers(other, range(4, 8), 1000)
    needed = needed_memory(mixed, CaptureOptions())
    assert needed[CUDA] == needed[other]
    check_memory(mixed, CaptureOptions(), needed.get)
    # The error names the device that lacks the most memory.
    free = {CUDA: needed[CUDA] - 2, other: needed[other] - 1}
    assert "on cuda:0" in error_of(mixed, CaptureOptions(), free)
    assert "on cuda:1" in error_of(mixed, CaptureOptions(), free | {CUDA: needed[CUDA]})
