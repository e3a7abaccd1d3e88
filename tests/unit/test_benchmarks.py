"""Test the limits of time and memory of benchmark processes, and the published tables."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import psutil
import pytest

from benchmarks.guarded import ROOT, Limits, guarded
from benchmarks.machine import Part
from benchmarks.report import (
    Results,
    document,
    tables,
    with_figures,
)


def run(statement: str, limits: Limits) -> tuple[dict[str, Any], str | None]:
    """Run a statement in a process with limits. Return its printed figures and the error."""
    outcome = guarded("timeit", "-n1", "-r1", statement, limits=limits)
    return outcome.figures, outcome.fault


def test_a_process_over_the_memory_limit_is_ended() -> None:
    statement = "kept = bytearray(3 << 28); import time; time.sleep(60)"
    assert run(statement, Limits(50, 1 << 29)) == ({}, "needs more than 0.5 GB")


@pytest.mark.slow
def test_a_process_over_the_time_limit_is_ended_with_its_children_and_its_output_kept() -> None:
    statement = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        """print('{"child": %d}' % child.pid, flush=True); time.sleep(600)"""
    )
    figures, fault = run(statement, Limits(30, 4 << 30, more_seconds=1))
    assert (fault or "").startswith("not within")
    with contextlib.suppress(psutil.NoSuchProcess):
        child = psutil.Process(figures["child"])
        psutil.wait_procs([child], timeout=60)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def published() -> Results:
    """Return the results whose figures are in the docs."""
    data = json.loads((ROOT / "docs" / "benchmarks.json").read_text(encoding="utf-8"))
    return Results.from_json(data)


def test_a_busy_machine_is_named_before_all_figures() -> None:
    quiet = replace(published(), parts=[Part("Extraction", 60.0, 60.0, 0.02, 1.0)])
    assert "machine was busy" not in document(quiet)
    busy = replace(quiet, parts=[*quiet.parts, Part("Drawing", 40.0, 9.0, 0.62, 6.2)])
    text = document(busy)
    assert text.index("**The machine was busy**") < text.index("## Head views")
    assert "Drawing (62%)" in text
    assert "Extraction (" not in text
    assert "**The machine was busy**" in tables(busy)


def test_published_pages_contain_the_figures_of_one_run() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    expected = document(published()), with_figures(readme, published())
    assert (page, readme) == expected, (
        "a page differs from the report: write both again with `PYTHONPATH=tests python -m "
        "benchmarks --from docs/benchmarks.json --write-docs`"
    )
