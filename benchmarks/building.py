"""Make one page in a separate process, and report time and memory.

PYTHONPATH=tests python -m benchmarks.building VIEW TOOL LAYERS TOKENS PAGE.html TIMES [WEIGHTS.npy]

The page is made up to TIMES times, within a limit of seconds. The memory is that of the first time.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from benchmarks.inputs import texts
from benchmarks.tools import VIEWS

Made = TypeVar("Made")
_MAX_SECONDS = 3.0


def measured(make: Callable[[], Made]) -> tuple[Made, float, float]:
    """Return the result of `make`, the seconds, and the growth of the peak memory in bytes."""
    with contextlib.suppress(OSError):
        # Reset the peak size that Linux keeps.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _largest_size()
    start = time.perf_counter()
    result = make()
    seconds = time.perf_counter() - start
    return result, seconds, _largest_size() - before


def _largest_size() -> int:
    """Return the peak resident size of this process in bytes."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        # The unit is kilobytes, except on macOS.
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    # Linux's ru_maxrss may be the size of the process that started this one.
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main(arguments: list[str]) -> None:
    """Make the page up to TIMES times. A small page comes first and loads what the tool imports."""
    view, name, layers, tokens, page, times, weights_path = [*arguments, ""][:7]
    torch.set_num_threads(1)
    tool = VIEWS[view][name]
    count = int(layers)
    tool.build(torch.full((count, count, 2, 2), 0.5), texts(2))
    weights = torch.empty(count, count, 0, 0)
    if weights_path:
        weights = torch.from_numpy(np.load(weights_path))
    html, first, memory = measured(lambda: tool.build(weights, texts(int(tokens))))
    seconds = [first]
    written = Path(page).write_bytes(html.encode())
    _say({"build_s": seconds, "build_bytes": memory, "html_bytes": written})
    del html
    while len(seconds) < int(times) and sum(seconds) < _MAX_SECONDS:
        start = time.perf_counter()
        tool.build(weights, texts(int(tokens)))
        seconds.append(time.perf_counter() - start)
        _say({"build_s": seconds})


def _say(figures: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
