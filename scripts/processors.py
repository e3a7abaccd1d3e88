"""Run the numerical tests as if on other processors: `make processors`.

    python scripts/processors.py              all environments, one after the other
    python scripts/processors.py avx2         one environment
    python scripts/processors.py avx2 tests/unit/server    with arguments of pytest

The order in which torch adds numbers depends on the processor and the number of threads. Therefore
sums differ in their last digits. An environment here is a set of environment variables that select
the order of another processor. `make test` uses the order of this machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("unit", "models")
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
# Comparisons with a tolerance, by functions of numpy, torch and pytest or with a number like 1e-6.
_COMPARES = re.compile(r"allclose\(|assert_close\(|approx\(|\b[ar]tol=|<=? \d+(\.\d+)?e-\d+")


def settings(name: str) -> dict[str, str]:
    """Return the environment variables of an environment, with its own cache of compiled code.

    From a shared cache, TorchInductor would use code for other vector widths, with which compiled
    flex attention is wrong.
    """
    return {
        **ENVIRONMENTS[name],
        "TORCHINDUCTOR_CACHE_DIR": str(ROOT / "test-results" / f"inductor-{name}"),
    }


def numerical_files() -> list[Path]:
    """Return the test files that compare numbers with a tolerance."""
    files = [path for folder in FOLDERS for path in (ROOT / "tests" / folder).rglob("test_*.py")]
    # The pattern does not match test_model_types.py, whose tolerance is in another module.
    return sorted(
        path
        for path in files
        if path.name == "test_model_types.py" or _COMPARES.search(path.read_text(encoding="utf-8"))
    )


def run(name: str, arguments: list[str]) -> int:
    """Run pytest in one environment and return its exit status."""
    print(f"{name}: {ENVIRONMENTS[name]}", flush=True)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env=os.environ | settings(name),
        check=False,
    ).returncode


def main(arguments: list[str]) -> int:
    """Run tests in the named environments, or in all. Return the number of failed environments."""
    names = [argument for argument in arguments if argument in ENVIRONMENTS] or list(ENVIRONMENTS)
    options = [argument for argument in arguments if argument not in ENVIRONMENTS]
    options = options or ["-q", "-m", "not slow", *map(str, numerical_files())]
    failed = [name for name in names if run(name, options)]
    print(f"failed: {', '.join(failed) or 'none'}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
