"""The machine and the packages of a run, and the load by other processes."""

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
    """Describe the machine, the packages and the date."""
    command = [browser, "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    peers = ", ".join(f"{name} {version}" for name, version in versions().items())
    return {
        "cores": f"{os.cpu_count()} cores, {_processor()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "browser": answer.stdout.strip(),
        "packages": f"attnviz {attnviz.__version__}, {peers}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "load": f"{_load():.1f} when the run began",
    }


#: Share of all cores used by other processes above which wall-clock times mean nothing.
BUSY = 0.1


@dataclass(frozen=True)
class Part:
    """A part of a run.

    Attributes
    ----------
    name : str
        Title of the part.
    seconds : float
        Wall-clock time.
    cpu_s : float
        CPU time of all processes of the part.
    others : float
        Share of the time of all cores used by other processes, 0 to 1. Includes the time that a
        hypervisor gave to others.
    load : float
        Load average of the last minute, at the end of the part.
    """

    name: str
    seconds: float
    cpu_s: float
    others: float
    load: float

    @property
    def is_busy(self) -> bool:
        """Whether other processes used more than `BUSY` of all cores."""
        return self.others > BUSY


class PartClock:
    """Measure a part of a run from the construction of the object."""

    def __init__(self) -> None:
        self._start, self._own = time.monotonic(), time.process_time()
        self._busy = _busy()

    def part(self, name: str, cpu_s: float) -> Part:
        """Return the part up to now. `cpu_s` is the CPU time of its processes except this one."""
        took = time.monotonic() - self._start
        own = cpu_s + time.process_time() - self._own
        others = (_busy() - self._busy - own) / (took * (os.cpu_count() or 1))
        # The system counts in hundredths of a second and at other moments.
        return Part(name, took, own, min(1.0, max(0.0, others)), _load())


def _busy() -> float:
    """Return the busy seconds of all cores since the machine started."""
    times = psutil.cpu_times()
    # The user time includes the time of guests.
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
