"""Runs a process that may hang or eat memory: ended at a limit, with what it said until then."""

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

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
#: Where `make bench` installs the tools that attnviz is compared with.
PEERS = ROOT / ".bench"
_LOOK_S = 0.05
# Below this the machine begins to swap or to end processes of its own choice.
_LEFT_BYTES = 2 << 30


@dataclass(frozen=True)
class Limits:
    """How long a process may take, and how much memory the largest of its processes."""

    #: Until its first line of figures.
    seconds: float
    bytes: int
    #: For the rest of them.
    more_seconds: float = 60

    @property
    def words(self) -> str:
        """Both, to be read."""
        return f"{self.seconds:.0f} s and {self.bytes / 2**30:g} GB"


@dataclass(frozen=True)
class Outcome:
    """What a process said, the size of its largest process, and why it was ended, if it was."""

    figures: dict[str, Any]
    largest_bytes: int
    fault: str | None
    #: Of the CPU, which it and the processes that it started took.
    cpu_s: float


def guarded(module: str, *arguments: str, limits: Limits) -> Outcome:
    """Run ``python -m module arguments`` under the limits.

    Parameters
    ----------
    module : str
        A module of the tests.
    *arguments : str
        Its arguments. It writes lines of JSON, each an object.
    limits : Limits
        What it may use. Processes that it starts count too, each by itself.

    Returns
    -------
    Outcome
        All lines as one object (`put_together`); `fault` says in words why there are no more.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS, ROOT / "src", PEERS))),
    }
    # As where attnviz is installed: modules are compiled once.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        waited = _cpu_of_ended()
        process = subprocess.Popen(
            command, cwd=TESTS, env=environment, stdout=said, stderr=complained
        )
        watched = _Watched(process)
        fault = _watch(watched, said.fileno(), limits)
        said.seek(0)
        complained.seek(0)
        figures: dict[str, Any] = {}
        for line in said.read().splitlines():
            with contextlib.suppress(ValueError):
                put_together(figures, json.loads(line))
        if fault is None and process.returncode != 0:
            lines = [line for line in complained.read().splitlines() if line.strip()]
            fault = (lines or [f"ended with {process.returncode}"])[-1][:200]
    # Of processes that end between two looks the last moments are not seen, and the system counts
    # only those that ended by themselves.
    cpu = max(watched.cpu_s, _cpu_of_ended() - waited)
    return Outcome(figures, watched.largest_bytes, fault, cpu)


def put_together(figures: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add figures to those that are there: objects are merged, anything else is replaced."""
    for name, value in more.items():
        known = figures.get(name)
        if isinstance(known, dict) and isinstance(value, Mapping):
            put_together(known, value)
        else:
            figures[name] = value


def _cpu_of_ended() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


@dataclass
class _Watched:
    """A process and those that it started: their largest size, and their time of the CPU."""

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
        for each in self.family:
            with contextlib.suppress(psutil.Error), each.oneshot():
                self.largest_bytes = max(self.largest_bytes, each.memory_info().rss)
                times = each.cpu_times()
                self._cpu[each.pid] = times.user + times.system


def _watch(watched: _Watched, said: int, limits: Limits) -> str | None:
    end = time.monotonic() + limits.seconds
    has_spoken = False
    fault = None
    try:
        while watched.process.poll() is None:
            watched.look()
            if not has_spoken and os.fstat(said).st_size > 0:
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
        # Also where the run is interrupted.
        for each in reversed(watched.family):
            with contextlib.suppress(psutil.Error):
                each.kill()
        watched.process.wait()
    return fault
