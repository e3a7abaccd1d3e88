"""Tests of a device run on a pretended device, in a separate process.

`pretended_device.py` says what it shows, and what it cannot show. `make gpu` runs the same tests on
CUDA.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def run(plugin: str, *arguments: str) -> None:
    """Run pytest with the pretended device, and fail with its output."""
    folders = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", plugin, "-p", "no:cacheprovider", *arguments],
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": folders},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout


FILES = [f"tests/models/test_{name}.py" for name in ("cuda", "on_a_device", "views_on_a_device")]


@pytest.mark.timeout(300)
def test_the_tests_of_a_device() -> None:
    run("pretended_device", "-m", "not slow", *FILES)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_slow_tests_of_a_device() -> None:
    run("pretended_device", "-m", "slow", *FILES)
