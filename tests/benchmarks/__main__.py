"""Measure attnviz beside BertViz, CircuitsVis and inspectus, in one run.

make bench                                          everything, some twenty minutes
cd tests && python -m benchmarks --quick            its small cases, two minutes
cd tests && python -m benchmarks --write-docs       and docs/benchmarks.*, README.md

Every page is made and opened in processes of its own, one after the other, under a limit of time
and memory: what hangs or eats memory is told as such. Prints tables; asserts nothing, as machines
differ and are noisy. `benchmarks.counts` compares what does not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from attnviz.pages.image import HOW_TO_GET_ONE, find_browser
from benchmarks.extracting import WAYS
from benchmarks.guarded import PEERS, ROOT, Limits, guarded
from benchmarks.machine import machine
from benchmarks.opening import PACKAGES
from benchmarks.report import Case, Results, Row, document, tables, with_figures
from benchmarks.tools import VIEWS

LAYERS = 12
DRAWN_LENGTHS = (64, 256, 1024)
# What takes less is measured twice more, for a median.
_QUICK_S = 10.0
# Ways take turns there, seven of each.
_EXTRACTION_LIMITS = Limits(300, 12 << 30)
_READING_LIMITS = Limits(1200, 12 << 30)
_DRAWING_LIMITS = Limits(120, 12 << 30, more_seconds=600)


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    lengths: tuple[int, ...]
    #: Between the first two lengths, for tools whose second is too long.
    between: tuple[int, ...]
    long: tuple[int, ...]
    grids: tuple[int, ...]
    extracted: tuple[int, ...]
    repeats: int
    limits: Limits
    #: Texts of a corpus.
    texts: int


FULL = Plan(
    lengths=(64, 256, 512, 1024),
    between=(128,),
    long=(2048, 4096, 8192),
    grids=(12, 32),
    extracted=(256, 1024),
    repeats=3,
    limits=Limits(120, 12 << 30),
    texts=2000,
)
QUICK = Plan((64,), (), (), (12,), (256,), 1, Limits(60, 4 << 30, more_seconds=30), 200)


class Run:
    """One run: its folder, its browser, and what was measured until now."""

    def __init__(self, plan: Plan, folder: Path, browser: str) -> None:
        self._plan = plan
        self._folder = folder
        self._browser = browser
        self.results = Results(machine(browser), plan.limits.words, [], {}, {})

    def pages(self) -> None:
        """Head views, longer and longer, and grids of all heads."""
        for view, layers, tokens in self._cases():
            given = self._weights(layers, tokens) if view != "long" else ""
            for tool in VIEWS[view]:
                if self._is_worth_trying(view, tool, tokens):
                    self._add(self._measured(Case(view, tool, layers, tokens), given))
            if given:
                Path(given).unlink()

    def extraction(self) -> None:
        """Time and memory of a forward."""
        for tokens in self._plan.extracted:
            figures: dict[str, float] = {}
            for what in ("time", *WAYS):
                done = guarded(
                    "benchmarks.extracting", what, str(tokens), limits=_EXTRACTION_LIMITS
                )
                _say(f"extraction, n={tokens}, {what}: {done.fault or done.figures}")
                figures.update(done.figures)
            self.results.extraction[str(tokens)] = figures

    def reading(self) -> None:
        """How fast a corpus is read."""
        count = str(self._plan.texts)
        done = guarded("benchmarks.reading", count, limits=_READING_LIMITS)
        _say(f"reading, {count} texts: {done.fault or done.figures}")
        self.results.reading.update(done.figures)

    def drawing(self) -> None:
        """How fast attnviz's views draw once their data are in the browser."""
        lengths = [str(tokens) for tokens in DRAWN_LENGTHS if tokens in self._plan.lengths]
        done = guarded("benchmarks.drawing", *lengths, limits=_DRAWING_LIMITS)
        _say(f"drawing: {done.fault or 'done'}")
        self.results.drawing.update(done.figures)

    def _cases(self) -> Iterator[tuple[str, int, int]]:
        yield from (("head", LAYERS, tokens) for tokens in self._plan.lengths)
        yield from (("head", LAYERS, tokens) for tokens in self._plan.between)
        yield from (("long", LAYERS, tokens) for tokens in self._plan.long)
        yield from (("model", layers, 64) for layers in self._plan.grids)

    def _is_worth_trying(self, view: str, tool: str, tokens: int) -> bool:
        """Not what is larger than what did not open, nor what lies between lengths that opened."""
        before = [row for row in self.results.rows if (row.view, row.tool) == (view, tool)]
        failed = [row.tokens for row in before if row.fault]
        if view == "head" and tokens in self._plan.between:
            return failed == [self._plan.lengths[1]]
        return not failed

    def _weights(self, layers: int, tokens: int) -> str:
        path = self._folder / "weights.npy"
        arguments = (str(layers), str(tokens), str(path))
        done = guarded("benchmarks.inputs", *arguments, limits=self._plan.limits)
        if done.fault:
            sys.exit(f"{layers} layers of weights of {tokens} tokens were not made: {done.fault}")
        return str(path)

    def _measured(self, case: Case, given: str) -> Row:
        row = self._once(case, given, "all")
        seconds = row.figures.get("build_s", 0) + row.figures.get("drawn_s", 0)
        if row.fault or seconds > _QUICK_S:
            return row
        again = [self._once(case, given, "drawn") for _ in range(self._plan.repeats - 1)]
        rows = [row, *(each for each in again if not each.fault)]
        figures = {
            name: statistics.median(each.figures[name] for each in rows if name in each.figures)
            for name in row.figures
        }
        return Row(**asdict(case), figures=figures, runs=len(rows))

    def _once(self, case: Case, given: str, what: str) -> Row:
        page = self._folder / "page.html"
        sizes = (str(case.layers), str(case.tokens), str(page), given)
        limits = self._plan.limits
        made = guarded("benchmarks.building", case.view, case.tool, *sizes, limits=limits)
        figures, fault = made.figures, made.fault and f"building: {made.fault}"
        if not fault:
            paths = (str(page), str(self._folder), self._browser)
            opened = guarded(
                "benchmarks.opening", case.view, case.tool, *paths, what, limits=limits
            )
            figures = {**figures, **opened.figures, "tab_bytes": opened.largest_bytes}
            # One that was drawn has opened, though it may have answered to nothing after that.
            if "drawn_s" not in figures:
                fault = opened.fault
        page.unlink(missing_ok=True)
        return Row(**asdict(case), figures=figures, fault=fault)

    def _add(self, row: Row) -> None:
        self.results.rows.append(row)
        figures = {name: round(value, 3) for name, value in row.figures.items()}
        _say(f"{row.name}, {row.layers} layers, n={row.tokens}: {row.fault or figures}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="the small cases, two minutes")
    usual = ROOT / "test-results" / "benchmarks.json"
    parser.add_argument("--json", type=Path, default=usual, help="where the figures go")
    parser.add_argument(
        "--write-docs", action="store_true", help="write docs/benchmarks.* and README.md, too"
    )
    parser.add_argument("--from", dest="known", type=Path, help="a run's JSON: measure nothing")
    options = parser.parse_args()
    if options.known:
        results = Results.from_json(json.loads(options.known.read_text(encoding="utf-8")))
    else:
        results = _measure(QUICK if options.quick else FULL)
    sys.stdout.write(tables(results))
    written = json.dumps(results.to_json(), indent=1) + "\n"
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(written, encoding="utf-8")
    if options.write_docs:
        docs, readme = ROOT / "docs", ROOT / "README.md"
        (docs / "benchmarks.json").write_text(written, encoding="utf-8")
        (docs / "benchmarks.md").write_text(document(results), encoding="utf-8")
        figures = with_figures(readme.read_text(encoding="utf-8"), results)
        readme.write_text(figures, encoding="utf-8")


def _measure(plan: Plan) -> Results:
    browser = find_browser()
    if browser is None:
        sys.exit(f"the benchmark needs a browser, and {HOW_TO_GET_ONE}")
    if not PEERS.is_dir():
        sys.exit("the other tools are not installed: `make bench` does that and runs this")
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "install", "--silent", "--no-save", "--ignore-scripts", *PACKAGES]
        subprocess.run(command, cwd=folder, check=True)
        run = Run(plan, Path(folder), browser)
        run.pages()
        run.extraction()
        run.reading()
        run.drawing()
    return run.results


if __name__ == "__main__":
    main()
