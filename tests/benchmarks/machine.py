"""What a run was measured on and with."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
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
        "load": f"{os.getloadavg()[0]:.1f} when the run began",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
