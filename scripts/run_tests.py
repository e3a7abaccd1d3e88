"""Run the Python tests in two halves at once: many of them wait for a browser or a kernel.

    python scripts/run_tests.py            all but those marked slow
    python scripts/run_tests.py --all      all of them
    python scripts/run_tests.py --renew    the same, and note how long each file of tests took

Each half has an order of its own that never changes, so that a failure comes back. The halves take
about as long as each other by what `tests/durations.json` says of each file; a file that is not in
there counts as a short one. A browser test that fails is run once more; those that pass only then
are named at the end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import tally

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
DURATIONS = TESTS / "durations.json"
REPORTS = [ROOT / "test-results" / f"pytest-{half}.xml" for half in (1, 2)]
# What is run, from quick to slow.
FOLDERS = ("unit", "models", "model_types", "browser")
SHORT_SECONDS = 2.0


def files() -> list[str]:
    """Every file of tests, as a path within `tests`, in the order that they run in."""
    found = [path for folder in FOLDERS for path in sorted((TESTS / folder).rglob("test_*.py"))]
    return [path.relative_to(TESTS).as_posix() for path in found]


def share_a_server(name: str) -> bool:
    """Whether a file needs JupyterLab: all that do run in one half, in one tab of one server."""
    return "JupyterLab" in (TESTS / name).read_text(encoding="utf-8")


def halves(
    names: Iterable[str], seconds: Mapping[str, float], together: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Each name in one of two lists that take about as long; some stay `together`."""
    together = set(together)
    names = list(names)
    groups = [[name for name in names if name in together]]
    groups += [[name] for name in names if name not in together]
    durations = [sum(seconds.get(name, SHORT_SECONDS) for name in group) for group in groups]
    half: tuple[set[str], set[str]] = (set(), set())
    taken = [0.0, 0.0]
    # Each to the half that has less, from the longest to the shortest.
    for duration, group in sorted(zip(durations, groups, strict=True), reverse=True):
        shorter = taken.index(min(taken))
        half[shorter].update(group)
        taken[shorter] += duration
    return [name for name in names if name in half[0]], [name for name in names if name in half[1]]


def durations(reports: Iterable[Path]) -> dict[str, float]:
    """Seconds of each file, from reports that pytest wrote."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - just written
            # "tests.unit.test_words", or with a class behind it.
            parts = [part for part in case.get("classname", "").split(".") if part[:1].islower()]
            seconds["/".join(parts[1:]) + ".py"] += float(case.get("time", 0))
    return {name: round(seconds[name], 1) for name in sorted(seconds)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both halves; 0 if all tests passed."""
    parser = argparse.ArgumentParser(prog="python scripts/run_tests.py")
    parser.add_argument("--all", action="store_true", help="the slow tests, too")
    parser.add_argument("--renew", action="store_true", help="renew tests/durations.json")
    options = parser.parse_args(arguments)
    known = json.loads(DURATIONS.read_text(encoding="utf-8"))
    which = "all" if options.all else "quick"
    chosen = [] if options.all else ["-m", "not slow"]
    names = files()
    running = []
    for report, half in zip(
        REPORTS, halves(names, known[which], filter(share_a_server, names)), strict=True
    ):
        command = [
            *(sys.executable, "-m", "pytest", "--second-try", *chosen, f"--junitxml={report}")
        ]
        command += [f"tests/{name}" for name in half]
        running.append(subprocess.Popen(command, cwd=ROOT))
    statuses = [abs(process.wait()) for process in running]
    for name in tally.second_tries(REPORTS):
        print(f"passed only on the second try: {name}")
    if options.renew:
        known[which] = durations(REPORTS)
        DURATIONS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
