"""Make small wrong changes in a copy of the source and see whether the tests notice.

    python scripts/mutants.py                  all of tests/mutants.toml
    python scripts/mutants.py record csv       those whose file or reason holds one of these words
    python scripts/mutants.py --check          only whether every change still has its place
    python scripts/mutants.py --jobs 1         one at a time; otherwise one for each core

Each mutant is a table of `tests/mutants.toml`: `file`, the text `old` that stands there exactly
once, the text `new`, the nearest `tests` that must fail then, and `why` it matters. `equivalent`
says why no test can tell the two apart: such a mutant is made as well, and is expected to live.

Mutmut, cosmic-ray and Stryker make their changes by rule: thousands for a package of this size,
each with seconds of importing torch or of starting vitest. They take hours and leave hundreds of
survivors that somebody has to read, most of them equivalent. This list is written by hand instead:
mistakes that a person would make and that would show a reader a wrong number.
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
# What is linked into a copy: large, and changed by no mutant.
LINKED = (".venv", "js/node_modules", "src/attnviz/static")
KILLED, ALIVE, BROKEN = "killed", "alive", "broken"
# What pytest returns when a test failed, as against when it could not run any.
TEST_FAILED = 1
# Reading what is not in memory any more ends the process, which is noticed too.
CRASHES = (signal.SIGBUS, signal.SIGSEGV)
LAST_FAILED = ".pytest_cache/v/cache/lastfailed"


@dataclass(frozen=True)
class Mutant:
    """A small wrong change, and the tests that must notice it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str
    #: Why no test can notice it; empty for a mutant that must be killed.
    equivalent: str = ""

    @property
    def problem(self) -> str:
        """What is wrong with the entry itself, or nothing."""
        path = ROOT / self.file
        if not path.is_file():
            return "there is no such file"
        found = path.read_text(encoding="utf-8").count(self.old)
        if found != 1:
            return f"`old` is there {found} times in place of once: {self.old!r}"
        if self.old == self.new:
            return f"`new` is what `old` is: {self.old!r}"
        gone = [test for test in self.tests if not (ROOT / test.partition("::")[0]).exists()]
        if gone or not self.tests:
            return f"there are no such tests: {', '.join(gone) or 'none are named'}"
        return ""


def read(path: Path = MUTANTS) -> list[Mutant]:
    """The mutants of a file."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**table, "tests": tuple(table["tests"].split())}) for table in tables]


def problems(mutants: Sequence[Mutant]) -> list[str]:
    """Entries that fit the source no longer, a line each."""
    return [f"{mutant.file}: {mutant.problem}" for mutant in mutants if mutant.problem]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: what the tests printed, and which of them failed."""

    result: str
    printed: str = ""
    noticed: tuple[str, ...] = ()


class Copy:
    """A copy of the tree, in which tests run and files may be wrong."""

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
            # Files change within the second that bytecode is told apart by.
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """The copy with one change."""
        path = self.root / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def run(self, tests: Sequence[str]) -> Outcome:
        """Whether these tests notice anything, and which of them did."""
        front_end = [test.removeprefix("js/") for test in tests if test.startswith("js/")]
        python = [test for test in tests if not test.startswith("js/")]
        outcome = Outcome(ALIVE)
        for run, some in ((self._vitest, front_end), (self._pytest, python)):
            if some and outcome.result == ALIVE:
                outcome = run(some)
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
            if any(each["status"] == "failed" for each in file["assertionResults"])
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
    """Make the mutants; 1 when one lives that a test should have noticed."""
    parser = argparse.ArgumentParser(prog="python scripts/mutants.py")
    parser.add_argument("words", nargs="*", help="only mutants whose file or reason holds a word")
    parser.add_argument("--check", action="store_true", help="only look whether all still fit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    mutants = read()
    if wrong := problems(mutants):
        print("tests/mutants.toml fits the source no longer:", *wrong, sep="\n")
        return 1
    words = options.words
    if words:
        mutants = [
            each for each in mutants if any(word in f"{each.file} {each.why}" for word in words)
        ]
    if options.check or not mutants:
        print(f"{len(mutants)} mutants fit the source")
        return 0 if mutants else 1
    return run_all(mutants, options.jobs)


def run_all(mutants: Sequence[Mutant], jobs: int) -> int:
    """Make each mutant in a copy of the tree; print a line for each as it ends."""
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
        # A test that fails by itself has noticed nothing.
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
