"""Run the Python tests in two parallel halves, because many wait for a browser or a kernel.

    python scripts/run_tests.py            all tests except those marked slow
    python scripts/run_tests.py --sample   these, and the slow tests of a quarter of the files
    python scripts/run_tests.py --all      all tests
    python scripts/run_tests.py --renew    all tests, and update tests/durations.json

The hash of the commit determines the sample of slow tests. A sample runs in the environment "avx2"
of `processors.py`, because all other runs use the instructions of the local processor.

The halves have similar durations, according to `tests/durations.json`. A file that is not listed
there counts as `SHORT_SECONDS`. The order of the tests in a half is fixed. `--seed NUMBER` shuffles
the files and the tests of each file, and makes Hypothesis generate new examples. The same seed
reproduces a failure. A browser test that fails runs a second time. Tests that pass only the second
time are named at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import processors
import tally

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
DURATIONS = TESTS / "durations.json"
REPORTS = [ROOT / "test-results" / f"pytest-{half}.xml" for half in (1, 2)]
# Folders of tests. The quick ones come first.
FOLDERS = ("unit", "models", "browser")
SHORT_SECONDS = 2.0


def files() -> list[str]:
    """Return all test files as paths within `tests`, in the order in which they run."""
    paths = [path for folder in FOLDERS for path in sorted((TESTS / folder).rglob("test_*.py"))]
    return [path.relative_to(TESTS).as_posix() for path in paths]


def sample(names: Iterable[str], seed: str) -> set[str]:
    """Return about a quarter of the files.

    Their slow tests run together, because the tests of a file often share a notebook.
    """
    return {name for name in names if zlib.crc32(f"{seed}{name}".encode()) % 4 == 0}


def share_a_server(name: str) -> bool:
    """Return whether a file needs JupyterLab. All such files run in the same half."""
    return "JupyterLab" in (TESTS / name).read_text(encoding="utf-8")


def halves(
    names: Iterable[str], seconds: Mapping[str, float], together: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Divide names into two lists of similar duration. All names of `together` are in one list."""
    together = set(together)
    names = list(names)
    groups = [[name for name in names if name in together]]
    groups += [[name] for name in names if name not in together]
    durations = [sum(seconds.get(name, SHORT_SECONDS) for name in group) for group in groups]
    half: tuple[set[str], set[str]] = (set(), set())
    taken = [0.0, 0.0]
    # Add each group, the longest first, to the half with the shorter total duration.
    for duration, group in sorted(zip(durations, groups, strict=True), reverse=True):
        shorter = taken.index(min(taken))
        half[shorter].update(group)
        taken[shorter] += duration
    return [name for name in names if name in half[0]], [name for name in names if name in half[1]]


def durations(reports: Iterable[Path]) -> dict[str, tuple[float, float]]:
    """Return (seconds of quick tests, seconds of slow tests) of each file in JUnit reports."""
    seconds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for report in reports:
        for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - just written
            # The class name is "tests.unit.test_words" or "tests.unit.test_words.TestClass".
            parts = [part for part in case.get("classname", "").split(".") if part[:1].islower()]
            slow = case.find("properties/property[@name='slow']") is not None
            seconds["/".join(parts[1:]) + ".py"][slow] += float(case.get("time", 0))
    return {name: (round(quick, 1), round(slow, 1)) for name, (quick, slow) in seconds.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both halves. Return 0 if all tests passed, otherwise the larger exit status."""
    parser = argparse.ArgumentParser(prog="python scripts/run_tests.py")
    parser.add_argument(
        "--sample", action="store_true", help="slow tests of a quarter of the files, too"
    )
    parser.add_argument("--all", action="store_true", help="all slow tests, too")
    parser.add_argument("--renew", action="store_true", help="all, and renew tests/durations.json")
    parser.add_argument("--seed", type=int, help="shuffle the tests and generate new examples")
    options = parser.parse_args(arguments)
    names = files()
    chosen, with_slow, environment = ["-m", "not slow"], set(), dict(os.environ)
    if options.all or options.renew:
        chosen, with_slow = [], set(names)
    elif options.sample:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        with_slow = sample(names, commit)
        chosen = [f"--slow-only-in={','.join(f'tests/{name}' for name in sorted(with_slow))}"]
        environment |= processors.settings("avx2")
    if options.seed is not None:
        print(f"seed {options.seed}", flush=True)
        chosen += ["--random-order-bucket=module", f"--random-order-seed={options.seed}"]
        chosen += ["--hypothesis-profile=random", f"--hypothesis-seed={options.seed}"]
    seconds = {
        name: quick + (slow if name in with_slow else 0.0)
        for name, (quick, slow) in json.loads(DURATIONS.read_text(encoding="utf-8")).items()
    }
    running = []
    for report, half in zip(
        REPORTS, halves(names, seconds, filter(share_a_server, names)), strict=True
    ):
        command = [
            *(sys.executable, "-m", "pytest", "--second-try", *chosen, f"--junitxml={report}")
        ]
        command += [f"tests/{name}" for name in half]
        running.append(subprocess.Popen(command, cwd=ROOT, env=environment))
    statuses = [abs(process.wait()) for process in running]
    for name in tally.second_tries(REPORTS):
        print(f"passed only on the second try: {name}")
    if options.renew:
        renewed = durations(REPORTS)
        lines = [
            f"{json.dumps(name)}: {json.dumps(pair)}" for name, pair in sorted(renewed.items())
        ]
        DURATIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
