"""Runs a process that may hang or eat memory: ended at a limit, with what it said until then."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
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
        All lines as one object; `fault` says in words why there are no more.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join((str(TESTS), str(PEERS))),
    }
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        process = subprocess.Popen(
            command, cwd=TESTS, env=environment, stdout=said, stderr=complained
        )
        largest, fault = _watch(process, said.fileno(), limits)
        said.seek(0)
        complained.seek(0)
        figures: dict[str, Any] = {}
        for line in said.read().splitlines():
            with contextlib.suppress(ValueError):
                figures.update(json.loads(line))
        if fault is None and process.returncode != 0:
            lines = [line for line in complained.read().splitlines() if line.strip()]
            fault = (lines or [f"ended with {process.returncode}"])[-1][:200]
    return Outcome(figures, largest, fault)


def _watch(process: subprocess.Popen[bytes], said: int, limits: Limits) -> tuple[int, str | None]:
    watched = psutil.Process(process.pid)
    end = time.monotonic() + limits.seconds
    has_spoken = False
    largest = 0
    fault = None
    family: list[psutil.Process] = []
    try:
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                family = [watched, *watched.children(recursive=True)]
            for each in family:
                with contextlib.suppress(psutil.Error):
                    largest = max(largest, each.memory_info().rss)
            if not has_spoken and os.fstat(said).st_size > 0:
                has_spoken = True
                end = time.monotonic() + limits.more_seconds
            if time.monotonic() > end:
                fault = f"not within {limits.seconds:.0f} s"
            elif largest > limits.bytes:
                fault = f"needs more than {limits.bytes / 2**30:g} GB"
            elif psutil.virtual_memory().available < _LEFT_BYTES:
                fault = "the machine had no memory left"
            if fault:
                break
            time.sleep(_LOOK_S)
    finally:
        # Also where the run is interrupted.
        for each in reversed(family):
            with contextlib.suppress(psutil.Error):
                each.kill()
        process.wait()
    return largest, fault
