"""The benchmark's own parts: limits on what is measured, and the tables."""

from __future__ import annotations

import json
import time
from typing import Any

import psutil
import pytest

from benchmarks.guarded import Limits, guarded
from benchmarks.report import Results, Row, document, tables, with_figures

ROOM = 4 << 30


def run(statement: str, limits: Limits) -> tuple[dict[str, Any], str | None]:
    """Python's own timeit runs any statement in a process of its own."""
    outcome = guarded("timeit", "-n1", "-r1", statement, limits=limits)
    return outcome.figures, outcome.fault


def test_lines_of_figures_are_put_together() -> None:
    statement = """print('{"drawn_s": 1.5}'); print('{"nodes": 7}')"""
    assert run(statement, Limits(30, ROOM)) == ({"drawn_s": 1.5, "nodes": 7}, None)


def test_what_says_nothing_is_ended_in_time() -> None:
    start = time.monotonic()
    assert run("import time; time.sleep(60)", Limits(1, ROOM)) == ({}, "not within 1 s")
    assert time.monotonic() - start < 30


def test_what_was_said_before_the_end_is_kept() -> None:
    statement = """print('{"drawn_s": 2}', flush=True); import time; time.sleep(60)"""
    figures, fault = run(statement, Limits(30, ROOM, more_seconds=1))
    assert figures == {"drawn_s": 2}
    assert fault is not None


def test_what_eats_memory_is_ended() -> None:
    statement = "kept = bytearray(3 << 28); import time; time.sleep(60)"
    assert run(statement, Limits(50, 1 << 29)) == ({}, "needs more than 0.5 GB")


def is_alive(number: int) -> bool:
    try:
        return str(psutil.Process(number).status()) != "zombie"
    except psutil.NoSuchProcess:
        return False


def test_processes_that_it_started_end_with_it() -> None:
    statement = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        """print('{"child": %d}' % child.pid, flush=True); time.sleep(60)"""
    )
    figures, _ = run(statement, Limits(30, ROOM, more_seconds=1))
    child = int(figures["child"])
    end = time.monotonic() + 30
    # A process takes a moment to end, on a busy machine more than one.
    while is_alive(child) and time.monotonic() < end:
        time.sleep(0.1)
    assert not is_alive(child)


def test_the_error_of_what_fails_is_told() -> None:
    outcome = guarded("benchmarks.no_such_module", limits=Limits(30, ROOM))
    assert outcome.fault is not None
    assert "no_such_module" in outcome.fault


def results() -> Results:
    slow = {"build_s": 2.0, "drawn_s": 31.4, "html_bytes": 264e6, "nodes": 797_265}
    quick = {"build_s": 0.5, "drawn_s": 0.4, "html_bytes": 2.64e6, "nodes": 159}
    rows = [
        Row("head", "bertviz", 12, 512, {"build_s": 9.0}, "not within 120 s"),
        Row("head", "bertviz", 12, 256, slow),
        Row("head", "head", 12, 256, quick),
    ]
    extraction = {
        "256": {"plain_s": 0.2, "extract_s": 0.21, "plain_bytes": 4e7, "extract_bytes": 5e7}
    }
    drawing = {
        "1,024, as it opens": {"layer_warm_ms": 14.0, "layer_cold_ms": 96.0, "hover_ms": 1.25}
    }
    machine = dict.fromkeys(
        ("cores", "memory", "system", "browser", "packages", "date", "load"), "told"
    )
    return Results(machine, "120 s and 12 GB", rows, extraction, drawing)


def test_figures_are_told_with_their_ratio_to_attnviz() -> None:
    table = tables(results())
    assert "| 256 | BertViz, head_view | 2.0 s (4.0x) | – | 264 MB (100x) | 31.4 s (78x) |" in table
    # attnviz's own has no ratio to itself.
    assert "| 256 | attnviz, head view as it opens | 500 ms | – | 2.6 MB | 400 ms |" in table
    assert "| 512 | BertViz, head_view | did not open: not within 120 s |" in table


def test_the_longest_that_opened_is_told_beside_what_did_not() -> None:
    table = tables(results())
    assert "| BertViz, head_view | 256 tokens | 31.4 s | 512: not within 120 s |" in table
    assert "| attnviz, head view as it opens | 256 tokens | 400 ms | none was tried |" in table


def test_extraction_is_told_with_its_ratio_to_the_plain_forward() -> None:
    assert "| 256 | attnviz.extract | 210 ms (1.05x) | 50.0 MB (1.25x) |" in tables(results())


def test_the_document_names_the_machine_and_all_tables() -> None:
    text = document(results())
    for heading in ("Head views", "Longest text", "Extraction", "Drawing"):
        assert f"\n## {heading}\n" in text
    assert "| 1,024 | as it opens | 14.0 ms | 96.0 ms | 1.2 ms |" in text


def test_results_are_read_back_as_they_were_written() -> None:
    told = json.loads(json.dumps(results().to_json()))
    assert told["rows"][0]["name"] == "BertViz, head_view"
    assert Results.from_json(told) == results()


def test_the_readme_gets_its_figures_where_it_has_marks_for_them() -> None:
    readme = "Before\n<!-- figures of make bench -->\nold\n<!-- end of figures -->\nAfter\n"
    written = with_figures(readme, results())
    assert written.startswith("Before\n<!-- figures of make bench -->\n| n = 256, 12 x 12 heads |")
    assert "| BertViz, head_view | 2.0 s | 264 MB | 31.4 s | – | 797,265 |\n" in written
    assert "old" not in written
    assert written.endswith("<!-- end of figures -->\nAfter\n")
    with pytest.raises(ValueError, match="lacks <!-- figures of make bench -->"):
        with_figures("Before", results())
