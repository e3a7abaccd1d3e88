"""Parts of the benchmark: limits of time and memory, and the tables."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import psutil
import pytest

from benchmarks.figures import Figure, seconds, spread
from benchmarks.growth import expected_seconds
from benchmarks.guarded import ROOT, Limits, guarded
from benchmarks.machine import Part
from benchmarks.report import (
    Results,
    document,
    tables,
    with_figures,
)


def run(statement: str, limits: Limits) -> tuple[dict[str, Any], str | None]:
    """Run a statement in a separate process with Python's timeit."""
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


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (0.4, "400 ms"),
        ([0.4, 0.46, 0.39], "400 ms [390 to 460]"),
        ([0.9, 1.2, 1.0], "1.0 s [900 ms to 1.2 s]"),
        ([2.0, 2.0, 2.0], "2.0 s"),
    ],
)
def test_a_figure_has_its_spread(figure: Figure, text: str) -> None:
    assert spread(figure, seconds) == text


def published() -> Results:
    """Return the run whose figures are in the docs."""
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


def test_expected_seconds_extrapolate_the_growth() -> None:
    # Each tenfold size took a hundred times as long.
    assert expected_seconds([(10, 0.5), (100, 50.0)], 1000) == pytest.approx(5000)
    # If the time did not grow, it may still be proportional to the size. The same holds if only one
    # size was measured.
    assert expected_seconds([(10, 2.0), (100, 2.0)], 200) == pytest.approx(4)
    assert expected_seconds([(12, 3.0)], 36) == pytest.approx(9)
    assert expected_seconds([], 64) == 0


def test_published_pages_contain_the_figures_of_one_run() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    expected = document(published()), with_figures(readme, published())
    assert (page, readme) == expected, (
        "a page differs from the report: write both again with `PYTHONPATH=tests python -m "
        "benchmarks --from docs/benchmarks.json --write-docs`"
    )
