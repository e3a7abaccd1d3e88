"""Choice of one in twenty test files, whose slow tests run. Half follow recent changes.

    python scripts/slow_sample.py COMMIT    print the targets of make that the chosen files need

The script uses only the standard library, so it runs before packages are installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

#: Folders of the tests that run together, as in pyproject.toml.
FOLDERS = ("unit", "models", "browser")
#: Targets of the Makefile that install programs for some slow tests, with the text by which a test
#: file says that it needs them.
PROGRAMS = {".hosts/installed": ".hosts/installed", "other-browsers": "browser.other_browsers"}
#: Number of commits whose changes count.
_COMMITS = 50


def recent_changes(root: Path) -> list[str]:
    """Return the paths that the last commits changed, beginning with the newest commit.

    The list is empty outside of a git repository.
    """
    command = ["git", "log", "--format=", "--name-only", "-n", str(_COMMITS)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.split()


def slow_files(files: Iterable[str], root: Path) -> set[str]:
    """Return the test files that mark tests as slow. Files that need CUDA are left out."""
    texts = {file: (root / file).read_text(encoding="utf-8") for file in files}
    return {
        file
        for file, text in texts.items()
        if re.search(r"mark\.slow|from marks import slow", text) and "mark.gpu" not in text
    }


def slow_sample(
    files: Collection[str], seed: str, changes: Sequence[str], root: Path
) -> frozenset[str]:
    """Choose one in twenty of the test files in `files`.

    Half of the sample are files that `changes` concern most recently: the file itself, or a
    package, view or component that it names in its path or imports. The others depend only on
    `seed`, so that each file is chosen now and then.
    """
    by_chance = sorted(files, key=lambda file: zlib.crc32(f"{seed}{file}".encode()))
    subjects = [{path, _subject(path)} for path in changes]
    ages = {
        file: next((age for age, changed in enumerate(subjects) if changed & names), len(subjects))
        for file in files
        for names in [_names(root, file)]
    }
    # Sorting keeps the order of chance among files whose changes are equally old.
    concerned = [
        file for file in sorted(by_chance, key=ages.__getitem__) if ages[file] < len(subjects)
    ]
    count = -(-len(files) // 20)
    chosen = concerned[: count // 2]
    return frozenset([*chosen, *(file for file in by_chance if file not in chosen)][:count])


def _subject(path: str) -> str:
    """Return the package, view or component of a source file, such as ``head`` or ``corpus``."""
    match = re.match(r"(?:src/attnviz|js/src(?:/views|/ui)?)/([^/.]+)", path)
    return match[1].replace("-", "_") if match else ""


def _names(root: Path, file: str) -> set[str]:
    """Return the path of a test file, the words of the path, and the packages that it imports."""
    text = (root / file).read_text(encoding="utf-8")
    imported = re.findall(r"^\s*(?:from|import) attnviz\.(\w+)", text, re.MULTILINE)
    return {file, *re.split(r"\W|_", file), *imported} - {""}


def needed_programs(seed: str, root: Path) -> list[str]:
    """Return the targets of `PROGRAMS` that the files chosen by `seed` need."""
    folders = [root / "tests" / folder for folder in FOLDERS]
    paths = [path for folder in folders for path in folder.rglob("test_*.py")]
    files = [path.relative_to(root).as_posix() for path in paths]
    sample = slow_sample(slow_files(files, root), seed, recent_changes(root), root)
    texts = [(root / file).read_text(encoding="utf-8") for file in sample]
    return [target for target, mark in PROGRAMS.items() if any(mark in text for text in texts)]


if __name__ == "__main__":
    print(*needed_programs(sys.argv[1], Path(__file__).resolve().parents[1]))
