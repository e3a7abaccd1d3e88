"""Tests of the free memory and disk space, and of the errors if a capture needs more."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from attnviz.extraction.capture import memory
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
    ],
)
def test_the_limit_of_a_container_counts(
    group: dict[str, str], expected: int, tmp_path: Path
) -> None:
    assert free_memory(CPU, files(tmp_path, SYSTEM | group)) == expected


def test_free_memory_is_unknown_without_a_source(tmp_path: Path) -> None:
    assert free_memory(CPU, tmp_path) is None
    assert free_memory(torch.device("mps"), tmp_path) is None


def test_memory_that_torch_holds_unused_on_a_cuda_device_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 20)
    assert free_memory(CUDA) == 130


def layers(device: torch.device, num_layers: int = 32, tokens: int = 131_072) -> list[LayerSize]:
    """Return layer sizes as in Llama 3 8B: 32 heads that share 8 key heads of 128 dimensions."""
    return [LayerSize(32, 8, 128, ((tokens, tokens),), torch.float32, device)] * num_layers


def test_the_error_says_how_much_is_needed_and_what_needs_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = needed_memory(layers(CPU), CaptureOptions(CPU))[CPU]
    for free in (needed, None):
        monkeypatch.setattr(memory, "free_memory", lambda _, free=free: free)
        check_memory(layers(CPU), CaptureOptions(CPU))
    monkeypatch.setattr(memory, "free_memory", lambda _: 60 * 10**9)
    with pytest.raises(MemoryError) as raised:
        check_memory(layers(CPU), CaptureOptions(CPU))
    assert str(raised.value) == (
        "inputs: keeping the queries and keys of 32 layers for 131,072 tokens takes 86 GB on cpu, "
        "and 60 GB are free. Pass fewer layers (layers=) or a shorter text, or pass "
        'dtype="bfloat16" or spool="folder" to av.extract.'
    )


def test_the_error_of_a_small_disk_says_what_needs_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `free_disk` accepts a folder that does not exist yet.
    assert free_disk(tmp_path / "no" / "such") > 0
    needed = needed_memory(layers(CPU), CaptureOptions(CPU))[CPU]
    monkeypatch.setattr(memory, "free_disk", lambda _: needed)
    check_disk(layers(CPU), CaptureOptions(CPU), tmp_path)
    monkeypatch.setattr(memory, "free_disk", lambda _: needed - 1)
    with pytest.raises(OSError, match="spool: the queries and keys") as raised:
        check_disk(layers(CPU), CaptureOptions(CPU), tmp_path)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path))
    assert raised.value.strerror == (
        "spool: the queries and keys of 32 layers for 131,072 tokens take 86 GB, and 86 GB are "
        'free on that disk. Pass fewer layers (layers=), dtype="bfloat16" or a shorter text.'
    )


def test_layers_are_counted_on_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    other = torch.device("cuda", 1)
    mixed = layers(CUDA, 4, 1000) + layers(other, 4, 1000)
    needed = needed_memory(mixed, CaptureOptions())
    assert needed[CUDA] == needed[other]
    free = dict(needed)
    monkeypatch.setattr(memory, "_MIN_CHECKED", 0)
    monkeypatch.setattr(memory, "free_memory", free.get)
    check_memory(mixed, CaptureOptions())
    free[other] -= 1
    with pytest.raises(MemoryError, match="on cuda:1"):
        check_memory(mixed, CaptureOptions())
