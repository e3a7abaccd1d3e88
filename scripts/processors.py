"""Run the tests that compare numbers as other processors would run them: `make processors`.

    python scripts/processors.py              in all environments, one after the other
    python scripts/processors.py avx2         in one of them
    python scripts/processors.py avx2 tests/unit/server

torch adds up in another order on each processor and with each number of threads, so sums differ in
their last digits. Its libraries take the order of an older processor if an environment variable
says so. `make test` runs in the environment of this machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("unit", "models", "model_types")
ENVIRONMENTS = {
    "avx2": {
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
    },
    "none": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"},
    "reproducible": {"OMP_NUM_THREADS": "1", "MKL_CBWR": "AVX2"},
    "threads": {"OMP_NUM_THREADS": "2"},
}
# A comparison with a tolerance, as numpy, torch and pytest write it, or with a small number.
_COMPARES = re.compile(r"allclose\(|assert_close\(|approx\(|\b[ar]tol=|<=? \d+(\.\d+)?e-\d+")


def numerical_files() -> list[Path]:
    """Return the files of tests that compare numbers with a tolerance."""
    files = [path for folder in FOLDERS for path in (ROOT / "tests" / folder).rglob("test_*.py")]
    # The sample of models compares with a bound that another module has.
    return sorted(
        path
        for path in files
        if path.name == "test_sample.py" or _COMPARES.search(path.read_text(encoding="utf-8"))
    )


def run(name: str, paths: list[str]) -> int:
    """Run tests in one environment and return pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    report = f"--junitxml={ROOT / 'test-results' / f'processors-{name}.xml'}"
    print(f"{name}: {ENVIRONMENTS[name]}", flush=True)
    return subprocess.run(
        [*command, report, *paths],
        cwd=ROOT,
        env=os.environ | ENVIRONMENTS[name],
        check=False,
    ).returncode


def main(arguments: list[str]) -> int:
    """Run tests in the environments that are named, or in all."""
    names = [each for each in arguments if each in ENVIRONMENTS] or list(ENVIRONMENTS)
    paths = [each for each in arguments if each not in ENVIRONMENTS]
    paths = paths or [str(path) for path in numerical_files()]
    failed = [name for name in names if run(name, paths)]
    print(f"failed: {', '.join(failed) or 'none'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
