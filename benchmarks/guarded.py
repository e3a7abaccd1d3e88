"""Run a process under limits of time and memory, and keep the output that it wrote before."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
#: Folder into which `make bench` installs the other tools.
PEERS = ROOT / ".bench"
_LOOK_S = 0.05
# With less free memory the machine begins to swap or to kill processes.
_LEFT_BYTES = 2 << 30


@dataclass(frozen=True)
class Limits:
    """Limits of time and of the memory of the largest process."""

    #: Seconds until the first line of figures.
    seconds: float
    bytes: int
    #: Seconds for the remaining figures.
    more_seconds: float = 60

    @property
    def words(self) -> str:
        """Both limits as text."""
        return f"{self.seconds:.0f} s and {self.bytes / 2**30:g} GB"


@dataclass(frozen=True)
class Outcome:
    """Figures of a process, the size of its largest process, and the reason why it was ended."""

    figures: dict[str, Any]
    largest_bytes: int
    fault: str | None
    #: Seconds of CPU time of the process and its children.
    cpu_s: float


def guarded(module: str, *arguments: str, limits: Limits) -> Outcome:
    """Run ``python -m module arguments`` under the limits.

    The module writes lines of JSON, each an object, which `put_together` merges. The memory limit
    holds for each child process separately. `fault` of the result says why figures are missing.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "src", PEERS))),
    }
    # Allow compiled modules, as in an installation.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        waited = _cpu_of_ended()
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=errors)
        watched = _Watched(process)
        fault = _watch(watched, output.fileno(), limits)
        output.seek(0)
        errors.seek(0)
        figures: dict[str, Any] = {}
        for line in output.read().splitlines():
            with contextlib.suppress(ValueError):
                put_together(figures, json.loads(line))
        if fault is None and process.returncode != 0:
            lines = [line for line in errors.read().splitlines() if line.strip()]
            fault = (lines or [f"ended with {process.returncode}"])[-1][:200]
    # Polling misses the last moments of a process, and the system counts only processes that were
    # not killed.
    cpu = max(watched.cpu_s, _cpu_of_ended() - waited)
    return Outcome(figures, watched.largest_bytes, fault, cpu)


def put_together(figures: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Merge figures into `figures`: objects recursively, other values by replacement."""
    for name, value in more.items():
        current = figures.get(name)
        if isinstance(current, dict) and isinstance(value, Mapping):
            put_together(current, value)
        else:
            figures[name] = value


def _cpu_of_ended() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


@dataclass
class _Watched:
    """A process and its children, with their largest size and their CPU time."""

    process: subprocess.Popen[bytes]
    largest_bytes: int = 0
    family: list[psutil.Process] = field(default_factory=list)
    _cpu: dict[int, float] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu.values())

    def look(self) -> None:
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(self.process.pid)
            self.family = [first, *first.children(recursive=True)]
        for process in self.family:
            with contextlib.suppress(psutil.Error), process.oneshot():
                self.largest_bytes = max(self.largest_bytes, process.memory_info().rss)
                times = process.cpu_times()
                self._cpu[process.pid] = times.user + times.system


def _watch(watched: _Watched, output_file: int, limits: Limits) -> str | None:
    end = time.monotonic() + limits.seconds
    has_spoken = False
    fault = None
    try:
        while watched.process.poll() is None:
            watched.look()
            if not has_spoken and os.fstat(output_file).st_size > 0:
                has_spoken = True
                end = time.monotonic() + limits.more_seconds
            if time.monotonic() > end:
                fault = f"not within {limits.more_seconds if has_spoken else limits.seconds:.0f} s"
            elif watched.largest_bytes > limits.bytes:
                fault = f"needs more than {limits.bytes / 2**30:g} GB"
            elif psutil.virtual_memory().available < _LEFT_BYTES:
                fault = "the machine had no memory left"
            if fault:
                break
            time.sleep(_LOOK_S)
    finally:
        # Also end the processes if the run is interrupted.
        for process in reversed(watched.family):
            with contextlib.suppress(psutil.Error):
                process.kill()
        watched.process.wait()
    return fault
