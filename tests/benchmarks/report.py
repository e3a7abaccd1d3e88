"""The tables of a run, for the terminal and for docs/benchmarks.md."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from benchmarks.extracting import WAYS
from benchmarks.tools import VIEWS


@dataclass(frozen=True)
class Case:
    """One tool at one size."""

    view: str
    tool: str
    layers: int
    tokens: int

    @property
    def name(self) -> str:
        """The tool's name."""
        return VIEWS[self.view][self.tool].name


@dataclass(frozen=True)
class Row(Case):
    """What was measured of it, or why nothing could be."""

    figures: dict[str, float]
    fault: str | None = None
    runs: int = 1


@dataclass(frozen=True)
class Results:
    """All of a run."""

    machine: dict[str, str]
    limits: str
    rows: list[Row]
    extraction: dict[str, dict[str, float]]
    drawing: dict[str, Any]
    reading: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The same, fit for JSON."""
        rows = [{"name": row.name, **asdict(row)} for row in self.rows]
        return {**asdict(self), "rows": rows}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """What `to_json` gave."""
        rows = [
            Row(**{field: value for field, value in row.items() if field != "name"})
            for row in told["rows"]
        ]
        return cls(**{**told, "rows": rows})


def _seconds(value: float) -> str:
    if value < 1:
        return f"{value * 1e3:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def _bytes(value: float) -> str:
    if value < 1e8:
        return f"{value / 1e6:.1f} MB"
    return f"{value / 1e6:.0f} MB" if value < 1e9 else f"{value / 1e9:.1f} GB"


def _count(value: float) -> str:
    return f"{value:,.0f}"


@dataclass(frozen=True)
class Column:
    """A figure: its heading and how it is written."""

    figure: str
    heading: str
    words: Callable[[float], str]


_COLUMNS = (
    Column("build_s", "build", _seconds),
    Column("build_bytes", "memory of it", _bytes),
    Column("html_bytes", "HTML", _bytes),
    Column("drawn_s", "drawn", _seconds),
    Column("layer_s", "change of layer", _seconds),
    Column("hover_s", "hover", _seconds),
    Column("nodes", "DOM nodes", _count),
    Column("tab_bytes", "memory of the tab", _bytes),
)
# Whose figures the others are divided by.
_OURS = {"head": "head", "model": "maps"}


def _cell(column: Column, row: Row, ours: Row | None) -> str:
    value = row.figures.get(column.figure)
    if value is None:
        return "–"
    words = column.words(value)
    base = ours.figures.get(column.figure) if ours else None
    if ours is None or row.tool in _ours_too(row.view) or not base or value <= 0:
        return words
    times = value / base
    return f"{words} ({times:,.0f}x)" if times >= 10 else f"{words} ({times:.1f}x)"


def _ours_too(view: str) -> set[str]:
    return {tool for tool, each in VIEWS[view].items() if each.name.startswith("attnviz")}


def _table(lines: list[list[str]]) -> str:
    head, *body = lines
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body))


def _view_table(results: Results, view: str, first: str, size: Callable[[Row], str]) -> str:
    rows = sorted(
        (row for row in results.rows if row.view == view), key=lambda row: (row.layers, row.tokens)
    )
    lines = [[first, "", *(column.heading for column in _COLUMNS)]]
    for row in rows:
        ours = next(
            (
                each
                for each in rows
                if each.tool == _OURS[view]
                and (each.layers, each.tokens) == (row.layers, row.tokens)
            ),
            None,
        )
        cells = [_cell(column, row, ours) for column in _COLUMNS]
        if row.fault:
            cells = [f"did not open: {row.fault}", *[""] * (len(_COLUMNS) - 1)]
        lines.append([size(row), row.name, *cells])
    return _table(lines)


def _longest(results: Results) -> str:
    """For every tool the longest text that opened, and the shortest that did not."""
    lines = [["", "longest that opened", "drawn", "shortest that did not"]]
    for view in ("head", "long"):
        for tool, each in VIEWS[view].items():
            mine = (row for row in results.rows if (row.view, row.tool) == (view, tool))
            rows = sorted(mine, key=lambda row: row.tokens)
            opened = [row for row in rows if not row.fault]
            failed = [row for row in rows if row.fault]
            if not rows:
                continue
            last = opened[-1] if opened else None
            words = f"{failed[0].tokens:,}: {failed[0].fault}" if failed else "none was tried"
            # An error of many words says the most important ones first.
            words = textwrap.shorten(words, 120, placeholder=" ...")
            length = f"{last.tokens:,} tokens" if last else "none"
            drawn = _seconds(last.figures["drawn_s"]) if last else "–"
            lines.append([each.name, length, drawn, words])
    return _table(lines)


_MARKS = ("<!-- figures of make bench -->", "<!-- end of figures -->")
_IN_README = ("html_bytes", "build_s", "drawn_s", "layer_s", "nodes")


def _summary(results: Results) -> str:
    """The README's tables: head views of 256 tokens, and grids."""
    chosen = [column for column in _COLUMNS if column.figure in _IN_README]
    tables = []
    sizes: tuple[tuple[str, str, Callable[[Row], str]], ...] = (
        ("head", "n = 256, 12 x 12 heads", lambda row: row.name),
        (
            "model",
            "all heads at once, n = 64",
            lambda row: f"{row.layers} x {row.layers}, {row.name}",
        ),
    )
    for view, first, name in sizes:
        columns = [each for each in chosen if view == "head" or each.figure != "layer_s"]
        lines = [[first, *(column.heading for column in columns)]]
        for row in results.rows:
            if row.view != view or (view == "head" and row.tokens != 256):
                continue
            cells = [_cell(column, row, None) for column in columns]
            if row.fault:
                cells = [f"did not open: {row.fault}", *[""] * (len(columns) - 1)]
            lines.append([name(row), *cells])
        tables.append(_table(lines))
    return "\n".join(tables)


def with_figures(readme: str, results: Results) -> str:
    """The README with the figures of a run, between the marks that it has for them."""
    before, start, rest = readme.partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not start or not end:
        raise ValueError(f"README.md lacks {_MARKS[0]} or {_MARKS[1]}: put both where figures go")
    return f"{before}{start}\n{_summary(results)}{end}{after}"


def _extraction(results: Results) -> str:
    lines = [["n", "", "time", "memory"]]
    for tokens, figures in results.extraction.items():
        for way, words in WAYS.items():
            cells = []
            for unit, write in (("s", _seconds), ("bytes", _bytes)):
                value, base = figures.get(f"{way}_{unit}"), figures.get(f"plain_{unit}")
                if value is None:
                    cells.append("–")
                elif way == "plain" or not base:
                    cells.append(write(value))
                else:
                    cells.append(f"{write(value)} ({value / base:.2f}x)")
            lines.append([f"{int(tokens):,}", words, *cells])
    return _table(lines)


def _reading(figures: Mapping[str, float]) -> str:
    texts = f"{figures['texts']:,.0f} of {figures['tokens']:,.0f} tokens in all"
    spread = f"{figures['least_ratio']:.2f} to {figures['most_ratio']:.2f}"
    return _table(
        [
            ["texts", "", "processor", "of a plain forward's throughput"],
            [texts, "plain forwards in batches of 16", _seconds(figures["plain_s"]), ""],
            [
                texts,
                "attnviz.extract_corpus",
                _seconds(figures["read_s"]),
                f"{figures['ratio']:.2f} ({spread})",
            ],
        ]
    )


def _drawing(drawing: Mapping[str, Mapping[str, float]]) -> str:
    lines = [["n", "lines", "change of layer", "to a layer that was not fetched", "hover"]]
    for case, figures in drawing.items():
        tokens, _, what = case.partition(", ")
        times = (figures["layer_warm_ms"], figures["layer_cold_ms"], figures["hover_ms"])
        lines.append([tokens, what, *(f"{each:.1f} ms" for each in times)])
    return _table(lines)


def _sections(results: Results) -> Iterator[tuple[str, str]]:
    head = _view_table(results, "head", "n", lambda row: f"{row.tokens:,}")
    yield "Head views", head
    yield "Longest text", _longest(results)
    grid = _view_table(results, "model", "heads", lambda row: f"{row.layers} x {row.layers}")
    yield "All heads at once", grid
    yield "Extraction", _extraction(results)
    if results.reading:
        yield "Reading a corpus", _reading(results.reading)
    if results.drawing:
        yield "Drawing", _drawing(results.drawing)


def tables(results: Results) -> str:
    """All tables, each under its heading."""
    return "".join(f"\n{title}\n\n{table}" for title, table in _sections(results))


_WORDS = {
    "Head views": """12 layers of 12 heads, the same causal weights, n tokens. CircuitsVis has no
layers: its figures are for the 12 heads of one layer. inspectus draws one matrix, the mean of what
is chosen, and reacts to clicks, not to the pointer. attnviz's head view opens with the mean of the
heads, three lines per token and, above 100 tokens, the first 64 of them. The row with all lines
draws every line that the page contains: up to 256 tokens all that BertViz draws, above that each
query's strongest keys (95% of the weight, which the page says). In parentheses: multiples of
attnviz's head view as it opens.""",
    "Longest text": """Lengths are doubled until a page does not open. Above 1,024 tokens there is
no tensor of weights to give to the other tools (9.7 GB at 4,096); attnviz makes these pages from
queries and keys, which an extracted record contains anyway. A live view in a notebook does not have
this limit: it requests what is in sight.""",
    "All heads at once": """n = 64. In parentheses: multiples of attnviz's model view as it opens.
inspectus does not have such a view.""",
    "Extraction": """A model of GPT-2 small's size (12 layers of 12 heads, 768 wide, random
weights, without the language-model head), one thread, one text of n tokens. Memory is the largest
growth of the process; if that is small, it depends on memory that was freed before. In parentheses:
multiples of the plain forward.""",
    "Reading a corpus": """The checkpoint of all-MiniLM-L6-v2 (6 layers of 12 heads), one thread,
texts of 5 to 60 tokens, every length as likely. Both ways take turns in one process, and seconds
are those of the processor: other work on the machine changes them less than the clock's. Plain
forwards get the texts sorted by length, in the batches that are fastest on a processor;
`extract_corpus` reads them as they come, and keeps all queries and keys. The median of the turns;
in parentheses the least and the most of them.""",
    "Drawing": """attnviz's head view only: from the event to the last draw call, with the data in
the browser. Neighbouring layers are prefetched; a change to a layer that was not has its own
column.""",
}


def document(results: Results) -> str:
    """docs/benchmarks.md."""
    machine = results.machine
    # What a reader has to know of how these figures came together.
    note = f" {machine['note']}" if "note" in machine else ""
    parts = [
        f"""# Beside BertViz, CircuitsVis and inspectus

`make bench` writes this page; [benchmarks.json](benchmarks.json) has every measurement. All are
from one run: {machine["cores"]}, {machine["memory"]} of memory (load {machine["load"]}),
{machine["system"]}, {machine["browser"]}, headless and without a GPU; {machine["packages"]};
{machine["date"]}. If the machine was busy, seconds are high and noisy; ratios are more
reliable.{note}

- **build**: from the weights to the HTML, after the tool has made a small page; **memory of it**:
  the largest growth of the process.
- **drawn**: from the navigation to the frame after the one with the picture. BertViz's three
  scripts come from the same disk, and CircuitsVis has its script in the page, so the figures
  contain no network time.
- **change of layer**, **hover**: from the event until the browser has run the handlers, done the
  layout and painted; medians without the first, 0.5 s after the picture was drawn.
- **memory of the tab**: the largest process of the browser.
- Medians of three runs, or single runs if build and drawing take more than ten seconds. Each page
  is made and opened in its own processes, which are stopped at {results.limits}.
"""
    ]
    for title, table in _sections(results):
        parts.append(f"## {title}\n\n{_WORDS[title]}\n\n{table}")
    return "\n".join(parts)
