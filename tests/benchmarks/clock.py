"""How long something takes, and what the processor does meanwhile, here and in other processes."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

import psutil


@dataclass
class Row:
    """One figure, and what the processor did meanwhile."""

    what: str
    figure: str
    kernel_s: float | None = None
    browser_s: float | None = None


class Clock:
    """Time, and the processor's time in this process and in those that it started."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._own, self._others = time.process_time(), _of_others()

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.perf_counter() - self._start

    def row(self, what: str, seconds: float | None = None) -> Row:
        """What took until now, or so many seconds."""
        took = self.seconds if seconds is None else seconds
        others = max(0.0, _of_others() - self._others)
        return Row(what, in_words(took), time.process_time() - self._own, others)


def _of_others() -> float:
    # Of those that have ended since; then of those that run.
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for each in psutil.Process().children(recursive=True):
        try:
            times = each.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def in_words(value: float) -> str:
    """Seconds, to be read."""
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.1f} s"
