"""Insert small faults into a copy of the source and check that tests fail.

    python scripts/mutants.py                  run all mutants of tests/mutants.toml
    python scripts/mutants.py record csv       run mutants with one of these words in file or reason
    python scripts/mutants.py --check          only check that every mutant fits the source
    python scripts/mutants.py --jobs 1         run one mutant at a time (default: one per core)

A mutant is a small fault, described by a table of `tests/mutants.toml`. In the file `file`, the
text `old`, which must occur exactly once, is replaced by the text `new`. At least one of `tests`
must then fail: the mutant is "killed". `why` says why the fault matters. `equivalent` explains why
no test can detect a mutant. The tests of such a mutant must pass: it stays "alive".

Tools such as mutmut, cosmic-ray and Stryker generate mutants by rule. For a package of this size,
they would generate thousands, and each needs seconds to import torch or start Vitest. They would
run for hours and leave hundreds of survivors to review, most of them equivalent. The list here is
written by hand. It has mistakes that a person would make and that would show wrong numbers to a
reader.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = ROOT / "tests" / "mutants.toml"
# Large folders that no mutant changes. A copy has symbolic links to them.
LINKED = (".venv", "js/node_modules", "src/attnviz/static")
KILLED, ALIVE, BROKEN = "killed", "alive", "broken"
# Exit status of pytest if tests ran and some failed.
TEST_FAILED = 1
# Signals by which a process dies if a mutant makes it read freed memory. The mutant is then killed.
CRASHES = (signal.SIGBUS, signal.SIGSEGV)
LAST_FAILED = ".pytest_cache/v/cache/lastfailed"


@dataclass(frozen=True)
class Mutant:
    """Small fault, and the tests that must detect it. See the docstring of this script."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str
    #: Reason why no test can detect the fault. Empty for a mutant that must be killed.
    equivalent: str = ""

    @property
    def problem(self) -> str:
        """Reason why the mutant cannot be inserted or tested, or an empty string."""
        path = ROOT / self.file
        if not path.is_file():
            return "the file does not exist"
        count = path.read_text(encoding="utf-8").count(self.old)
        if count != 1:
            return f"`old` must occur once, but occurs {count} times: {self.old!r}"
        if self.old == self.new:
            return f"`new` equals `old`: {self.old!r}"
        gone = [test for test in self.tests if not (ROOT / test.partition("::")[0]).exists()]
        if gone:
            return f"tests do not exist: {', '.join(gone)}"
        return "" if self.tests else "`tests` is empty"


def read(path: Path = MUTANTS) -> list[Mutant]:
    """Read all mutants from a file."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**table, "tests": tuple(table["tests"].split())}) for table in tables]


def problems(mutants: Sequence[Mutant]) -> list[str]:
    """Return one line for each mutant that does not fit the source."""
    return [f"{mutant.file}: {mutant.problem}" for mutant in mutants if mutant.problem]


@dataclass(frozen=True)
class Outcome:
    """Result of the tests of a mutant.

    Attributes
    ----------
    result : str
        "killed" if a test failed, "alive" if all passed, "broken" if they could not run.
    printed : str
        Output of the tests.
    noticed : tuple of str
        Failed tests of pytest, and files with failed tests of Vitest.
    """

    result: str
    printed: str = ""
    noticed: tuple[str, ...] = ()


class Copy:
    """Copy of the repository, in which tests run with inserted faults."""

    def __init__(self, root: Path) -> None:
        self.root = root
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        for name in names:
            source = ROOT / name
            if name and source.is_file():
                target = root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        for name in LINKED:
            (root / name).symlink_to((ROOT / name).resolve())
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(root / "src"),
            "OMP_NUM_THREADS": "1",
            # Python would use old bytecode if a file changed twice within a second.
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Insert a fault into the copy, and remove the fault at the end of the block."""
        path = self.root / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def run(self, tests: Sequence[str]) -> Outcome:
        """Run tests until one fails, first those of Vitest, then those of pytest."""
        front_end = [test.removeprefix("js/") for test in tests if test.startswith("js/")]
        python = [test for test in tests if not test.startswith("js/")]
        outcome = Outcome(ALIVE)
        for run, paths in ((self._vitest, front_end), (self._pytest, python)):
            if paths and outcome.result == ALIVE:
                outcome = run(paths)
        return outcome

    def _pytest(self, tests: Sequence[str]) -> Outcome:
        failed = self.root / LAST_FAILED
        failed.unlink(missing_ok=True)
        code, printed = self._wait([sys.executable, "-m", "pytest", "-x", "-q", *tests], self.root)
        if -code in CRASHES:
            return Outcome(KILLED, printed, tuple(tests))
        if code != TEST_FAILED or not failed.is_file():
            return Outcome(BROKEN if code else ALIVE, printed)
        return Outcome(KILLED, printed, tuple(json.loads(failed.read_text(encoding="utf-8"))))

    def _vitest(self, tests: Sequence[str]) -> Outcome:
        report = self.root / "vitest.json"
        report.unlink(missing_ok=True)
        command = ["node", "node_modules/vitest/vitest.mjs", "run", "--bail=1", "--maxWorkers=1"]
        command += ["--reporter=json", f"--outputFile={report}", *tests]
        code, printed = self._wait(command, self.root / "js")
        if code == 0:
            return Outcome(ALIVE, printed)
        files = (
            json.loads(report.read_text(encoding="utf-8"))["testResults"]
            if report.is_file()
            else []
        )
        noticed = {
            Path(file["name"]).relative_to(self.root.resolve()).as_posix()
            for file in files
            if any(test["status"] == "failed" for test in file["assertionResults"])
        }
        return Outcome(KILLED if noticed else BROKEN, f"{printed}{files}", tuple(noticed))

    def _wait(self, command: Sequence[str], folder: Path) -> tuple[int, str]:
        answer = subprocess.run(
            command,
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return answer.returncode, answer.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants, or only check them. Return 0 if all results are as expected, otherwise 1."""
    parser = argparse.ArgumentParser(prog="python scripts/mutants.py")
    parser.add_argument(
        "words", nargs="*", help="only mutants with one of these words in file or reason"
    )
    parser.add_argument(
        "--check", action="store_true", help="only check that every mutant fits the source"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    mutants = read()
    if wrong := problems(mutants):
        print("tests/mutants.toml does not fit the source:", *wrong, sep="\n")
        return 1
    words = options.words
    if words:
        mutants = [
            mutant
            for mutant in mutants
            if any(word in f"{mutant.file} {mutant.why}" for word in words)
        ]
    if options.check or not mutants:
        print(f"{len(mutants)} mutants fit the source")
        return 0 if mutants else 1
    return run_all(mutants, options.jobs)


def run_all(mutants: Sequence[Mutant], jobs: int) -> int:
    """Run each mutant in a copy, and print its result. Return 1 if any is unexpected."""
    begun = time.monotonic()
    unexpected: list[str] = []
    noticed: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for job in range(jobs):
            copies.put(Copy(Path(folder) / str(job)))

        def judged(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                with copy.changed(mutant):
                    return copy.run(mutant.tests)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as executor:
            for mutant, outcome in zip(mutants, executor.map(judged, mutants), strict=True):
                noticed.update(outcome.noticed)
                as_expected = outcome.result == (ALIVE if mutant.equivalent else KILLED)
                mark = "  " if as_expected else "!!"
                print(f"{mark} {outcome.result:7} {mutant.file}: {mutant.why}", flush=True)
                if outcome.result == BROKEN:
                    print(outcome.printed[-2000:])
                if not as_expected:
                    change = f"{mutant.old!r} -> {mutant.new!r}"
                    unexpected.append(f"{outcome.result}: {mutant.file}: {change}")
        # Run the tests that failed again without a fault: they must pass.
        unchanged = copies.get().run(sorted(noticed))
        if unchanged.result != ALIVE:
            unexpected.append(f"these fail without a change: {' '.join(unchanged.noticed)}")
            print(unchanged.printed[-2000:])
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    print(f"\n{len(mutants)} mutants in {minutes}:{seconds:02}, {len(unexpected)} unexpected")
    print(*unexpected, sep="\n")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
