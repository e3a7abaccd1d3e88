"""The benchmark's own parts: limits on what is measured, and the tables."""

from __future__ import annotations

import importlib.util
import json
import time
from dataclasses import replace
from typing import Any

import psutil
import pytest

from benchmarks.figures import Figure, seconds, spread
from benchmarks.growth import expected_seconds
from benchmarks.guarded import ROOT, Limits, guarded, put_together
from benchmarks.machine import BUSY, Part, PartClock
from benchmarks.report import (
    NOT_TRIED,
    SECTIONS,
    Results,
    Row,
    document,
    tables,
    with_figures,
)
from benchmarks.starting import STAGES
from benchmarks.starting import rows as rows_of_start

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


def test_the_cpu_time_of_what_it_started_is_counted() -> None:
    # As many seconds of the CPU on a busy machine, which takes longer for them.
    statement = "import time; [0 for _ in iter(lambda: time.process_time() < 1, False)]"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {statement!r}])"
    outcome = guarded("timeit", "-n1", "-r1", child, limits=Limits(50, ROOM))
    assert outcome.fault is None
    assert 1 <= outcome.cpu_s < 10


def test_lines_add_to_what_is_there() -> None:
    figures: dict[str, Any] = {"64": {"a_s": [1.0]}, "texts": 5}
    put_together(figures, {"64": {"b_s": [2.0]}, "texts": 6})
    put_together(figures, {"64": {"a_s": [1.0, 3.0]}})
    assert figures == {"64": {"a_s": [1.0, 3.0], "b_s": [2.0]}, "texts": 6}


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (0.4, "400 ms"),
        ([0.4], "400 ms"),
        ([0.4, 0.46, 0.39], "400 ms [390 to 460]"),
        ([0.9, 1.2, 1.0], "1.0 s [900 ms to 1.2 s]"),
        ([2.0, 2.0, 2.0], "2.0 s"),
        ([0.0015, 0.0021], "1.8 ms [1.5 to 2.1]"),
        ([0.009, 0.02], "14 ms [9.0 to 20]"),
        ([120.4, 130.0], "125 s [120 to 130]"),
    ],
)
def test_a_figure_has_its_spread(figure: Figure, words: str) -> None:
    assert spread(figure, seconds) == words


def test_a_part_knows_what_others_took_of_the_machine() -> None:
    clock = PartClock()
    done = 0
    while time.monotonic() - clock._start < 0.3:
        done += 1
    part = clock.part("counting", 0.0)
    assert part.seconds >= 0.3
    assert 0 <= part.others <= 1
    # A busy machine gives it less than the clock says.
    assert 0 < part.cpu_s <= part.seconds + 0.1
    # What the processes of the run took is not that of others.
    assert PartClock().part("nothing", 1e9).others == 0
    assert Part("a", 1.0, 1.0, BUSY + 0.01, 0.0).is_busy
    assert not Part("a", 1.0, 1.0, BUSY, 0.0).is_busy


def results() -> Results:
    slow: dict[str, Figure] = {
        "build_s": 2.0,
        "drawn_s": 31.4,
        "html_bytes": 264e6,
        "nodes": 797_265,
    }
    quick: dict[str, Figure] = {
        "build_s": [0.5, 0.4, 0.8],
        "drawn_s": 0.4,
        "html_bytes": 2.64e6,
        "nodes": 159,
    }
    rows = [
        Row("head", "bertviz", 12, 512, {"build_s": 9.0}, "not within 60 s"),
        Row("head", "bertviz", 12, 256, slow),
        Row("head", "head", 12, 256, quick),
    ]
    extraction = {
        "plain_s": 0.2,
        "extract_s": 0.21,
        "extract_ratio": [1.06, 1.02, 1.05],
        "plain_bytes": 4e7,
        "extract_bytes": 5e7,
    }
    drawing = {
        "1,024, as it opens": {
            "layer_ms": [14.0],
            "hover_ms": 1.25,
        }
    }
    machine = dict.fromkeys(
        ("cores", "memory", "system", "browser", "packages", "date", "load"), "told"
    )
    sections: dict[str, Any] = {"extraction": {"256": extraction}, "drawing": drawing}
    faults = {"reading": "not within 600 s"}
    parts = [Part("Head views", 300.0, 240.0, 0.01, 1.2), Part("Extraction", 60.0, 60.0, 0.02, 1.0)]
    return Results(machine, "60 s and 12 GB", rows, sections, faults, parts)


def test_figures_are_told_with_their_spread_and_their_ratio_to_attnviz() -> None:
    lines = tables(results())
    assert "| 256 | BertViz, head_view | 2.0 s (4.0x) | – | 264 MB (100x) | 31.4 s (78x) |" in lines
    # attnviz's own has no ratio to itself.
    own = "| 256 | attnviz, head view as it opens | 500 ms [400 to 800] | – | 2.6 MB | 400 ms |"
    assert own in lines
    assert "| 512 | BertViz, head_view | did not open: not within 60 s |" in lines


def test_the_longest_that_opened_is_told_beside_what_did_not() -> None:
    lines = tables(results())
    assert "| BertViz, head_view | 256 tokens | 31.4 s | 512: not within 60 s |" in lines
    assert "| attnviz, head view as it opens | 256 tokens | 400 ms | none was tried |" in lines


def test_extraction_is_told_with_its_ratio_to_the_plain_forward() -> None:
    line = "| 256 | attnviz.extract | 210 ms | 1.05x [1.02x to 1.06x] | 50.0 MB (1.25x) |"
    assert line in tables(results())


def test_the_document_names_the_machine_and_all_tables() -> None:
    text = document(results())
    for heading in ("Head views", "Longest text", "Extraction", "Drawing", "How long the run took"):
        assert f"\n## {heading}\n" in text
    assert "| 1,024 | as it opens | 14.0 ms | 1.2 ms |" in text
    assert "| Head views | 300 s | 240 s | 1% | 1.2 |\n" in text
    assert "| all | 6.0 min | 5.0 min | 1% |  |\n" in text
    # What failed says why, in place of a table.
    assert "Not measured: not within 600 s.\n" in text


def test_a_run_of_one_part_has_the_tables_of_that_part_alone() -> None:
    text = document(replace(results(), rows=[], faults={}))
    assert "## Head views" not in text
    assert "## All heads at once" not in text
    assert "## Extraction" in text


def test_the_stages_of_the_start_are_told_with_whose_they_are() -> None:
    told: dict[str, dict[str, Figure]] = {
        stage.name: {"clock_s": [0.1, 0.3, 0.2], "cpu_s": 0.1} for stage in STAGES
    }
    told["make the head view"]["sent_bytes"] = [110_000]
    lines = rows_of_start(told)
    words = {line[0]: line for line in lines}
    assert words["import torch"][1:4] == ["torch", "200 ms [100 to 300]", "100 ms"]
    assert words["make the head view"][4] == "0.1 MB"
    # import attnviz and its modules, extract, make, display: what comes again is not in it.
    assert lines[-1][2] == "1.0 s"


def test_a_busy_machine_is_named_before_all_figures() -> None:
    quiet = results()
    assert "machine was busy" not in document(quiet)
    busy = replace(quiet, parts=[*quiet.parts, Part("Drawing", 40.0, 9.0, 0.62, 6.2)])
    text = document(busy)
    assert text.index("**The machine was busy**") < text.index("## Head views")
    assert "Drawing (62%)" in text
    assert "Extraction (" not in text
    readme = "<!-- figures of make bench --><!-- end of figures -->"
    assert "machine was busy" in with_figures(readme, busy)
    assert "machine was busy" not in with_figures(readme, quiet)
    assert "**The machine was busy**" in tables(busy)


def test_growth_is_expected_to_go_on() -> None:
    # Ten times the size in a hundredfold time, and again.
    assert expected_seconds([(10, 0.5), (100, 50.0)], 1000) == pytest.approx(5000)
    # What did not grow may still be in proportion to the size; so is what is known of one alone.
    assert expected_seconds([(10, 2.0), (100, 2.0)], 200) == pytest.approx(4)
    assert expected_seconds([(12, 3.0)], 36) == pytest.approx(9)
    assert expected_seconds([], 64) == 0


def test_what_was_not_tried_is_told_so() -> None:
    known = results()
    fault = f"{NOT_TRIED}: about 99 s by how it grew until then"
    row = replace(known.rows[0], tokens=512, figures={}, fault=fault)
    told = tables(replace(known, rows=[*known.rows[1:], row]))
    assert f"| 512 | BertViz, head_view | {fault} |" in told
    assert f"512: {fault}" in told


def test_a_run_is_planned_for_sixteen_minutes() -> None:
    # The pages of all tools take the rest, where the limit is 45 s.
    assert sum(section.seconds for section in SECTIONS) <= 6.5 * 60
    names = [section.name for section in SECTIONS]
    assert len(set(names)) == len(names)
    for section in SECTIONS:
        assert importlib.util.find_spec(section.module) is not None
        assert section.words.strip().endswith(".")


def test_results_are_read_back_as_they_were_written() -> None:
    told = json.loads(json.dumps(results().to_json()))
    assert told["rows"][0]["name"] == "BertViz, head_view"
    assert Results.from_json(told) == results()


def test_the_readme_gets_its_figures_where_it_has_marks_for_them() -> None:
    readme = "Before\n<!-- figures of make bench -->\nold\n<!-- end of figures -->\nAfter\n"
    written = with_figures(readme, results())
    assert written.startswith("Before\n<!-- figures of make bench -->\n| n = 256, 12 x 12 heads |")
    assert "| BertViz, head_view | 2.0 s | 264 MB | 31.4 s | – | 797,265 |\n" in written
    assert "| attnviz, head view as it opens | 500 ms | 2.6 MB |" in written
    assert "old" not in written
    assert written.endswith("<!-- end of figures -->\nAfter\n")
    with pytest.raises(ValueError, match="lacks <!-- figures of make bench -->"):
        with_figures("Before", results())


@pytest.mark.parametrize("written", ["docs/benchmarks.md", "README.md"])
def test_what_is_published_comes_wholly_from_the_figures_of_one_run(written: str) -> None:
    told = json.loads((ROOT / "docs" / "benchmarks.json").read_text(encoding="utf-8"))
    run, text = Results.from_json(told), (ROOT / written).read_text(encoding="utf-8")
    on_page = written.startswith("docs")
    made = document(run) if on_page else with_figures(text, run)
    assert text == made, (
        "not as the report writes it: write both again with `cd tests && python -m "
        "benchmarks --from ../docs/benchmarks.json --write-docs`"
    )
