"""Start and stop of local servers of notebook hosts."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

START_SECONDS = 120
STOP_SECONDS = 20


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a server in a folder. Its output is written to the file `log`."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until an address responds. Otherwise end the server and fail with its output."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    stop(process)
    text = log.read_text(encoding="utf-8", errors="replace")
    message = f"{url} did not answer:\n{text[-4000:]}"
    raise RuntimeError(message)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server with SIGTERM, so that Jupyter ends its kernels first."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
