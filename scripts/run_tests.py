"""Run the Python tests in two halves at once: most of them wait for a browser or a kernel.

Each half has an order of its own that never changes, so that a failure comes back.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
# About as long as all others together, by the first letter of what they are about.
VIEWS = sorted(TESTS.glob("browser/test_[b-hj-z]*.py"))
OTHERS = sorted(set(TESTS.glob("browser/test_*.py")) - set(VIEWS))
HALVES = {
    "pytest": [*(TESTS / name for name in ("unit", "models", "model_types")), *OTHERS],
    "views": VIEWS,
}


def main() -> int:
    """Run both halves.

    Returns
    -------
    int
        0 if all tests passed.
    """
    running = []
    for name, paths in HALVES.items():
        report = ROOT / "test-results" / f"{name}.xml"
        command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *map(str, paths)]
        running.append(subprocess.Popen(command, cwd=ROOT))
    return max(abs(process.wait()) for process in running)


if __name__ == "__main__":
    sys.exit(main())
