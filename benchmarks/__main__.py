"""Measure attnviz beside BertViz, CircuitsVis and inspectus, in one run.

make bench                                          everything, about 14 minutes on a quiet machine
PYTHONPATH=tests python -m benchmarks --quick            only small cases, two minutes
PYTHONPATH=tests python -m benchmarks --only Start       one part (repeat the option for more parts)
PYTHONPATH=tests python -m benchmarks --write-docs       also write docs/benchmarks.* and README.md

Every page is made and opened in separate processes, one after the other. Each process has a limit
of time and memory, and the tables name the pages that exceed it. The benchmark prints tables and
asserts nothing, because machines differ and are noisy. It also reports the CPU time of other
processes. `benchmarks.counts` compares the counts that do not depend on the machine. A new table is
a `Section`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from attnviz.pages.image import INSTALL_BROWSER, find_browser
from benchmarks import on_a_device
from benchmarks.figures import all_of
from benchmarks.growth import expected_seconds
from benchmarks.guarded import PEERS, ROOT, Limits, Outcome, guarded, put_together
from benchmarks.machine import PartClock, machine
from benchmarks.opening import PACKAGES
from benchmarks.report import (
    NOT_TRIED,
    REPEATS,
    SECTIONS,
    Case,
    Results,
    Row,
    document,
    tables,
    with_figures,
)
from benchmarks.section import Section
from benchmarks.tools import VIEWS

LAYERS = 12
#: Titles of the parts that make and open pages, and the views that they measure.
PAGES = {"Head views": "head", "Longest text": "long", "All heads at once": "model"}
_REST_S = 2.0
PARTS = (*PAGES, *(section.title for section in SECTIONS))


@dataclass(frozen=True)
class Plan:
    """Sizes, repetitions and limits of a run."""

    lengths: tuple[int, ...]
    #: Lengths between the first two, measured for tools that fail at the second.
    between: tuple[int, ...]
    long: tuple[int, ...]
    grids: tuple[int, ...]
    repeats: int
    #: Limits of making a page plus opening it.
    limits: Limits
    #: Limits for long texts, which only attnviz draws.
    long_limits: Limits
    is_quick: bool = False

    def runs(self, section: Section) -> tuple[tuple[str, ...], ...]:
        """Return the arguments of the processes of a section."""
        return section.quick if self.is_quick else section.runs


FULL = Plan(
    lengths=(64, 256, 512, 1024),
    between=(128,),
    long=(4096, 8192),
    grids=(12, 32),
    repeats=REPEATS,
    limits=Limits(45, 12 << 30),
    long_limits=Limits(120, 12 << 30),
)
_QUICK_LIMITS = Limits(60, 4 << 30, more_seconds=30)
QUICK = Plan((64,), (), (), (12,), 1, _QUICK_LIMITS, _QUICK_LIMITS, is_quick=True)


class Run:
    """One run: its folder, its browser and the results so far."""

    def __init__(self, plan: Plan, folder: Path, browser: str) -> None:
        self._plan = plan
        self._folder = folder
        self._browser = browser
        self._cpu_s = 0.0
        limits, long_limits = plan.limits.words, plan.long_limits.words
        words = limits if limits == long_limits else f"{limits}, of long texts at {long_limits}"
        self.results = Results(machine(browser), words, [], {})

    def parts(self, names: Collection[str]) -> None:
        """Measure the named parts, and the load of the machine before and after them."""
        self._timed("Before the run", time.sleep, _REST_S)
        if self.results.parts[-1].is_busy:
            _say("The machine is busy: wall-clock times will mean nothing.")
        for name, view in PAGES.items():
            if name in names:
                self._timed(name, self._pages, view)
        for section in SECTIONS:
            if section.title in names and self._plan.runs(section):
                self._timed(section.title, self._section, section)
        self._timed("After the run", time.sleep, _REST_S)

    def _timed(self, name: str, measure: Callable[[Any], None], what: Any) -> None:
        clock, before = PartClock(), self._cpu_s
        measure(what)
        part = clock.part(name, self._cpu_s - before)
        self.results.parts.append(part)
        _say(
            f"{name}: {part.seconds:.0f} s, CPU {part.cpu_s:.0f} s, "
            f"other processes {part.others:.0%} of all cores"
        )

    def _guarded(self, module: str, *arguments: str, limits: Limits) -> Outcome:
        outcome = guarded(module, *arguments, limits=limits)
        self._cpu_s += outcome.cpu_s
        return outcome

    def _pages(self, view: str) -> None:
        """Measure pages of all tools with increasing lengths or numbers of heads."""
        for layers, tokens in self._sizes(view):
            cases = [Case(view, tool, layers, tokens) for tool in VIEWS[view]]
            worth = [case for case in cases if self._is_worth_trying(case)]
            weights_path = self._weights(layers, tokens) if worth and view != "long" else ""
            for case in worth:
                self._add(self._hopeless(case) or self._measured(case, weights_path))
            if weights_path:
                Path(weights_path).unlink()

    def _section(self, section: Section) -> None:
        figures: dict[str, Any] = {}
        for arguments in self._plan.runs(section):
            done = self._guarded(section.module, *arguments, limits=section.limits)
            put_together(figures, done.figures)
            if done.fault:
                self.results.faults[section.name] = done.fault
            _say(f"{' '.join((section.title, *arguments))}: {done.fault or 'done'}")
        self.results.sections[section.name] = figures

    def _sizes(self, view: str) -> Iterator[tuple[int, int]]:
        """Yield the number of layers (equal to the heads per layer) and of tokens."""
        plan = self._plan
        lengths = {"head": plan.lengths + plan.between, "long": plan.long}
        if view in lengths:
            yield from ((LAYERS, tokens) for tokens in lengths[view])
        else:
            yield from ((layers, 64) for layers in plan.grids)

    def _is_worth_trying(self, case: Case) -> bool:
        """Return whether no smaller page failed. Lengths between are tried after a failure."""
        failed = [row.tokens for row in self._rows_before(case) if row.fault]
        if case.view == "head" and case.tokens in self._plan.between:
            return failed == [self._plan.lengths[1]]
        return not failed

    def _hopeless(self, case: Case) -> Row | None:
        """Return a row that explains the omission if the expected time exceeds the limit."""
        measured = [
            (_size(row), all_of(row.figures["build_s"])[0] + all_of(row.figures["drawn_s"])[0])
            for row in self._rows_before(case)
            if not row.fault and _size(row) < _size(case)
        ]
        expected = expected_seconds(measured, _size(case))
        if expected <= self._limits(case.view).seconds:
            return None
        fault = f"{NOT_TRIED}: about {expected:.0f} s expected from smaller sizes"
        return Row(**asdict(case), figures={}, fault=fault)

    def _rows_before(self, case: Case) -> list[Row]:
        return [row for row in self.results.rows if (row.view, row.tool) == (case.view, case.tool)]

    def _limits(self, view: str) -> Limits:
        return self._plan.long_limits if view == "long" else self._plan.limits

    def _weights(self, layers: int, tokens: int) -> str:
        path = self._folder / "weights.npy"
        arguments = (str(layers), str(tokens), str(path))
        done = self._guarded("benchmarks.inputs", *arguments, limits=self._plan.limits)
        if done.fault:
            sys.exit(f"{layers} layers of weights for {tokens} tokens were not made: {done.fault}")
        return str(path)

    def _built(self, case: Case, weights_path: str, page: Path) -> Outcome:
        sizes = (str(case.layers), str(case.tokens))
        arguments = (case.view, case.tool, *sizes, str(page), str(self._plan.repeats), weights_path)
        return self._guarded("benchmarks.building", *arguments, limits=self._limits(case.view))

    def _measured(self, case: Case, weights_path: str) -> Row:
        page = self._folder / "page.html"
        limits = self._limits(case.view)
        outcome = self._built(case, weights_path, page)
        figures, fault = outcome.figures, outcome.fault and f"building: {outcome.fault}"
        if not fault:
            which, times = (case.view, case.tool), str(self._plan.repeats)
            paths = (str(page), str(self._folder), self._browser)
            # The limit holds for making plus opening the page.
            remaining = replace(
                limits, seconds=max(1.0, limits.seconds - all_of(figures["build_s"])[0])
            )
            opened = self._guarded("benchmarks.opening", *which, *paths, times, limits=remaining)
            figures = {**figures, **opened.figures, "tab_bytes": opened.largest_bytes}
            # A page that was drawn counts as opened, even if it did not respond afterwards.
            if "drawn_s" not in figures:
                is_late = (opened.fault or "").startswith("not within")
                fault = f"not within {limits.seconds:.0f} s" if is_late else opened.fault
        page.unlink(missing_ok=True)
        return Row(**asdict(case), figures=figures, fault=fault)

    def _add(self, row: Row) -> None:
        self.results.rows.append(row)
        figures = {name: round(value, 3) for name, value in row.medians.items()}
        _say(f"{row.name}, {row.layers} layers, n={row.tokens}: {row.fault or figures}")


def _size(case: Case) -> float:
    """Return the quantity that grows within a view: tokens, or heads if all heads are drawn."""
    return float(case.tokens if case.view in ("head", "long") else case.layers**2)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--quick", action="store_true", help="measure only small cases, two minutes"
    )
    usual = ROOT / "test-results" / "benchmarks.json"
    parser.add_argument("--json", type=Path, default=usual, help="file for the figures")
    parser.add_argument(
        "--write-docs", action="store_true", help="write docs/benchmarks.* and README.md, too"
    )
    parser.add_argument(
        "--only", action="append", choices=PARTS, metavar="PART", help=f"one of {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--from", dest="known", type=Path, help="JSON of an earlier run: measure nothing"
    )
    options = parser.parse_args()
    if options.write_docs and (options.only or options.quick):
        parser.error("--write-docs needs a complete run. Omit --only and --quick.")
    if options.known:
        results = Results.from_json(json.loads(options.known.read_text(encoding="utf-8")))
    else:
        results = _measure(QUICK if options.quick else FULL, options.only or PARTS)
    sys.stdout.write(tables(results))
    written = json.dumps(results.to_json(), indent=1) + "\n"
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(written, encoding="utf-8")
    if options.write_docs:
        docs, readme = ROOT / "docs", ROOT / "README.md"
        _keep_device(results, json.loads((docs / "benchmarks.json").read_text(encoding="utf-8")))
        written = json.dumps(results.to_json(), indent=1) + "\n"
        (docs / "benchmarks.json").write_text(written, encoding="utf-8")
        (docs / "benchmarks.md").write_text(document(results), encoding="utf-8")
        figures = with_figures(readme.read_text(encoding="utf-8"), results)
        readme.write_text(figures, encoding="utf-8")


def _keep_device(results: Results, published: Mapping[str, Any]) -> None:
    """Keep the published figures of a device, which only `make gpu` measures."""
    name = on_a_device.SECTION.name
    for kept, earlier, key in (
        (results.sections, published["sections"], name),
        (results.machine, published["machine"], "device"),
    ):
        if key in earlier:
            kept[key] = earlier[key]


def _measure(plan: Plan, parts: Collection[str]) -> Results:
    browser = find_browser()
    if browser is None:
        sys.exit(f"the benchmark needs a browser, and {INSTALL_BROWSER}")
    if not PEERS.is_dir():
        sys.exit("the other tools are not installed: `make bench` does that and runs this")
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "install", "--silent", "--no-save", "--ignore-scripts", *PACKAGES]
        subprocess.run(command, cwd=folder, check=True)
        run = Run(plan, Path(folder), browser)
        run.parts(parts)
    return run.results


if __name__ == "__main__":
    main()
