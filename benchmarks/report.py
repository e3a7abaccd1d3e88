"""Tables of a run, for the terminal and for docs/benchmarks.md."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from benchmarks import (
    extracting,
    generating,
    on_a_device,
    reading,
    starting,
)
from benchmarks.figures import (
    Figure,
    count,
    median,
    megabytes,
    multiple,
    seconds,
    share,
    spread,
    table,
)
from benchmarks.machine import BUSY, Part
from benchmarks.section import Section
from benchmarks.tools import VIEWS

#: Sections in the order of the page.
SECTIONS: tuple[Section, ...] = (
    starting.SECTION,
    extracting.SECTION,
    generating.SECTION,
    reading.SECTION,
)


@dataclass(frozen=True)
class Case:
    """One tool at one size."""

    view: str
    tool: str
    layers: int
    tokens: int

    @property
    def name(self) -> str:
        """Name of the tool."""
        return VIEWS[self.view][self.tool].name


@dataclass(frozen=True)
class Row(Case):
    """Measurements of a case, or the reason why there are none."""

    figures: dict[str, Figure]
    fault: str | None = None

    @property
    def medians(self) -> dict[str, float]:
        """Return the median of each figure."""
        return {name: median(figure) for name, figure in self.figures.items()}


@dataclass(frozen=True)
class Results:
    """All results of a run."""

    machine: dict[str, str]
    limits: str
    rows: list[Row]
    #: Figures of each section, by its name.
    sections: dict[str, dict[str, Any]]
    #: Why the process of a section failed, by the section's name.
    faults: dict[str, str] = field(default_factory=dict)
    #: The parts in the order in which they ran, with their times and the load by other processes.
    parts: list[Part] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        rows = [{"name": row.name, **asdict(row)} for row in self.rows]
        return {**asdict(self), "rows": rows}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Return the results that `to_json` wrote."""
        rows = [
            Row(**{field: value for field, value in row.items() if field != "name"})
            for row in saved["rows"]
        ]
        parts = [Part(**part) for part in saved["parts"]]
        return cls(**{**saved, "rows": rows, "parts": parts})


@dataclass(frozen=True)
class Column:
    """A column of figures: its heading and its format."""

    figure: str
    heading: str
    words: Callable[[float], str]


_COLUMNS = (
    Column("build_s", "build", seconds),
    Column("build_bytes", "memory of it", megabytes),
    Column("html_bytes", "HTML", megabytes),
    Column("drawn_s", "drawn", seconds),
    Column("layer_s", "change of layer", seconds),
    Column("hover_s", "hover", seconds),
    Column("nodes", "DOM nodes", count),
    Column("tab_bytes", "memory of the tab", megabytes),
)
#: Beginning of the fault of a case that was not run.
NOT_TRIED = "not tried"
#: Maximum number of times that a page is made and opened.
REPEATS = 3
# The tools by whose figures the others are divided.
_OURS = {"head": "head", "model": "maps"}


def _cell(column: Column, row: Row, ours: Row | None) -> str:
    """Return the median with its spread and its ratio to attnviz's figure."""
    figure = row.figures.get(column.figure)
    if figure is None:
        return "–"
    words, value = spread(figure, column.words), median(figure)
    base = ours.medians.get(column.figure) if ours else None
    if ours is None or row.tool in _ours_too(row.view) or not base or value <= 0:
        return words
    return f"{words} ({multiple(value / base)})"


def _median(column: Column, row: Row) -> str:
    figure = row.figures.get(column.figure)
    return "–" if figure is None else column.words(median(figure))


def _ours_too(view: str) -> set[str]:
    return {tool for tool, entry in VIEWS[view].items() if entry.name.startswith("attnviz")}


def _view_table(results: Results, view: str, first: str, size: Callable[[Row], str]) -> str:
    rows = sorted(
        (row for row in results.rows if row.view == view), key=lambda row: (row.layers, row.tokens)
    )
    lines = [[first, "", *(column.heading for column in _COLUMNS)]]
    for row in rows:
        ours = next(
            (
                other
                for other in rows
                if other.tool == _OURS[view]
                and (other.layers, other.tokens) == (row.layers, row.tokens)
            ),
            None,
        )
        cells = [_cell(column, row, ours) for column in _COLUMNS]
        if row.fault:
            cells = [_why_not(row), *[""] * (len(_COLUMNS) - 1)]
        lines.append([size(row), row.name, *cells])
    return table(lines)


def _longest(results: Results) -> str:
    """Return a table with the longest text that opened and the shortest that failed, by tool."""
    lines = [["", "longest that opened", "drawn", "shortest that did not"]]
    for view in ("head", "long"):
        for tool, entry in VIEWS[view].items():
            mine = (row for row in results.rows if (row.view, row.tool) == (view, tool))
            rows = sorted(mine, key=lambda row: row.tokens)
            opened = [row for row in rows if not row.fault]
            failed = [row for row in rows if row.fault]
            if not rows:
                continue
            last = opened[-1] if opened else None
            words = f"{failed[0].tokens:,}: {failed[0].fault}" if failed else "none was tried"
            # A long error message begins with the most important words.
            words = textwrap.shorten(words, 120, placeholder=" ...")
            length = f"{last.tokens:,} tokens" if last else "none"
            drawn = spread(last.figures["drawn_s"], seconds) if last else "–"
            lines.append([entry.name, length, drawn, words])
    return table(lines)


def _why_not(row: Row) -> str:
    fault = row.fault or ""
    return fault if fault.startswith(NOT_TRIED) else f"did not open: {fault}"


_MARKS = ("<!-- figures of make bench -->", "<!-- end of figures -->")
_TOOLS_IN_README = ("bertviz", "circuitsvis", "inspectus", "head", "matrix")
_IN_README = ("html_bytes", "build_s", "drawn_s", "layer_s", "nodes")


def _summary(results: Results) -> str:
    """Return the README's table: one page of each tool with the same 256 tokens."""
    columns = [column for column in _COLUMNS if column.figure in _IN_README]
    lines = [["n = 256, 12 x 12 heads", *(column.heading for column in columns)]]
    for row in results.rows:
        if row.view != "head" or row.tokens != 256 or row.tool not in _TOOLS_IN_README:
            continue
        cells = [_median(column, row) for column in columns]
        if row.fault:
            cells = [_why_not(row), *[""] * (len(columns) - 1)]
        lines.append([row.name, *cells])
    note = "The machine was busy during the run: seconds are too high.\n"
    return "\n".join([table(lines), note] if warning(results) else [table(lines)])


def with_figures(readme: str, results: Results) -> str:
    """Return the README with the figures of a run between its marks."""
    before, start, remainder = readme.partition(_MARKS[0])
    _, end, after = remainder.partition(_MARKS[1])
    if not start or not end:
        raise ValueError(
            f"README.md lacks {_MARKS[0]} or {_MARKS[1]}. Put both around the figures."
        )
    return f"{before}{start}\n{_summary(results)}{end}{after}"


def _sections(results: Results) -> Iterator[tuple[str, str, str]]:
    """Yield the heading, the text and the table of each section."""
    views = {row.view for row in results.rows}
    if "head" in views:
        head = _view_table(results, "head", "n", lambda row: f"{row.tokens:,}")
        yield "Head views", _HEAD, head
        yield "Longest text", _LONGEST, _longest(results)
    if "model" in views:
        grid = _view_table(results, "model", "heads", lambda row: f"{row.layers} x {row.layers}")
        yield "All heads at once", _GRID, grid
    for section in SECTIONS:
        figures, fault = results.sections.get(section.name), results.faults.get(section.name)
        if fault:
            yield section.title, section.words, f"Not measured: {fault}.\n"
        elif figures:
            yield section.title, section.words, table(section.rows(figures))
    on_device, device = on_a_device.SECTION, results.machine.get("device")
    words = f"{on_device.words} It was run on {device}." if device else on_device.words
    lines = on_device.rows(results.sections.get(on_device.name, {}))
    yield on_device.title, words, table(lines)
    if results.parts:
        yield "How long the run took", _PARTS, _parts(results.parts)


def _parts(parts: list[Part]) -> str:
    lines = [["part", "took", "CPU time", "other processes", "load after it"]]
    for part in parts:
        busy = " (busy)" if part.is_busy else ""
        times = (seconds(part.seconds), seconds(part.cpu_s))
        lines.append([part.name, *times, share(part.others) + busy, f"{part.load:.1f}"])
    whole, cpu = (sum(getattr(part, name) for part in parts) for name in ("seconds", "cpu_s"))
    others = sum(part.others * part.seconds for part in parts) / whole if whole else 0.0
    in_all = (f"{whole / 60:.1f} min", f"{cpu / 60:.1f} min")
    lines.append(["all", *in_all, share(others), ""])
    return table(lines)


def warning(results: Results) -> str:
    """Return a warning if the machine was busy, else an empty string."""
    busy = [part for part in results.parts if part.is_busy]
    if not busy:
        return ""
    names = ", ".join(f"{part.name} ({share(part.others)})" for part in busy)
    return (
        f"**The machine was busy**: other processes took more than {share(BUSY)} of all cores "
        f"while these parts were measured: {names}. Their wall-clock times mean nothing. "
        "Counts, bytes, CPU time and ratios of alternating runs are valid."
    )


def tables(results: Results) -> str:
    """Return all tables, each below its heading."""
    sections = "".join(f"\n{title}\n\n{lines}" for title, _, lines in _sections(results))
    note = warning(results)
    return f"{sections}\n{note}\n" if note else sections


_HEAD = """All tools draw the same causal weights of 12 layers of 12 heads and n tokens. Multiples
in parentheses are relative to attnviz's head view as it opens.

- CircuitsVis has no layers. Its figures are for the 12 heads of one layer.
- inspectus draws one matrix, the mean of the chosen heads. It has no hover.
- attnviz's head view opens with the mean of the heads and three lines per token. Above 100 tokens
  it shows the first 64."""
_LONGEST = """The table shows the longest text whose page opens. Each length is twice the one
before. The other tools need the weights, which have 9.7 GB at 4,096 tokens. attnviz makes
long pages from the queries and keys of a record. A live view in a notebook has no
such limit, because it requests only the weights that it draws."""
_GRID = """The text has 64 tokens. Multiples in parentheses are relative to attnviz's model view as
it opens. inspectus has no such view."""
_PARTS = f"""The share of other processes is their part of the CPU time of all cores. Above
{share(BUSY)}, the machine counts as busy. Load is the system's average of the last minute."""


def document(results: Results) -> str:
    """Return the text of docs/benchmarks.md."""
    machine = results.machine
    note = warning(results)
    parts = [
        f"""# Beside BertViz, CircuitsVis and inspectus

This page compares time, memory and file sizes of attnviz with those of three other tools.
[benchmarks.json](benchmarks.json) has all measurements. They are from one run of `make bench`:
{machine["cores"]}, {machine["memory"]} of memory (load {machine["load"]}),
{machine["system"]}, {machine["browser"]}, headless and without a GPU; {machine["packages"]};
{machine["date"]}.
"""
    ]
    if note:
        parts.append(note + "\n")
    parts.append(
        f"""A figure is the median of up to {REPEATS} runs, with the smallest and the largest value
in brackets. A figure without brackets was measured once, or was always the same.

| Column | Meaning |
| --- | --- |
| build | from the weights to the HTML, after the tool has made a small page |
| memory of it | the largest growth of the process |
| drawn | from the navigation to the picture, in a new browser, without network time |
| change of layer, hover | from the event to the painted picture |
| memory of the tab | the largest process of the browser |

A tool was stopped at {results.limits}. Larger sizes that it would not finish in this time, as
estimated from smaller ones, were not tried.
"""
    )
    for title, words, lines in _sections(results):
        parts.append(f"## {title}\n\n{words}\n\n{lines}")
    return "\n".join(parts)
