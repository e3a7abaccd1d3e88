"""What a run was measured on and with, and what else the machine did meanwhile."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
import transformers

import attnviz
from benchmarks.tools import versions


def machine(browser: str) -> dict[str, str]:
    """The machine, the packages and the day, each in words."""
    command = [browser, "--version"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    peers = ", ".join(f"{name} {version}" for name, version in versions().items())
    return {
        "cores": f"{os.cpu_count()} cores, {_processor()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "browser": said.stdout.strip(),
        "packages": f"attnviz {attnviz.__version__}, {peers}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "load": f"{_load():.1f} when the run began",
    }


#: Above this share of all cores, taken by other processes, seconds of the clock mean nothing.
BUSY = 0.1


@dataclass(frozen=True)
class Part:
    """A part of a run.

    Attributes
    ----------
    name : str
        What it measured.
    seconds : float
        By the clock.
    cpu_s : float
        Of the CPU, all of its processes together.
    others : float
        Share of the time of all cores that processes of no part of this run took, 0 to 1. What a
        hypervisor kept for others is in it.
    load : float
        The system's load average of the last minute, at its end.
    """

    name: str
    seconds: float
    cpu_s: float
    others: float
    load: float

    @property
    def is_busy(self) -> bool:
        """Whether others took so much that seconds of the clock mean nothing."""
        return self.others > BUSY


class PartClock:
    """Measures a part of a run from when it is made on."""

    def __init__(self) -> None:
        self._start, self._own = time.monotonic(), time.process_time()
        self._busy = _busy()

    def part(self, name: str, cpu_s: float) -> Part:
        """The part until now, whose processes took so many seconds of the CPU, this one apart."""
        took = time.monotonic() - self._start
        own = cpu_s + time.process_time() - self._own
        others = (_busy() - self._busy - own) / (took * (os.cpu_count() or 1))
        # The system counts in hundredths of a second, and at other moments than this does.
        return Part(name, took, own, min(1.0, max(0.0, others)), _load())


def _busy() -> float:
    """Seconds of all cores in which they did something since the machine started."""
    times = psutil.cpu_times()
    # A guest's time is in the user's already.
    idle = times.idle + getattr(times, "iowait", 0.0)
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests)


def _load() -> float:
    return os.getloadavg()[0]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
