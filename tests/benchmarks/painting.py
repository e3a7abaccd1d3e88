"""How soon a page's first picture is there, and how soon the page answers about all of its layers.

    cd tests && python -m benchmarks.painting [PAGE.html ...]

Without pages, head views of several sizes are made. Each is opened in turns with a blank page that
has the same code: it unpacks and runs the code and draws nothing. Writes a line of JSON for each
page: seconds from the navigation of every turn, and those of the processor that the page's main
thread took until then.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.browser import Browser, started
from benchmarks.figures import multiple, seconds, spread
from benchmarks.inputs import texts, weights
from benchmarks.opening import FIRST, WATCH
from benchmarks.section import Section

#: Layers (each of as many heads) and tokens.
SIZES = ((12, 64), (12, 256), (12, 1024), (32, 64))
_TURNS = 5

_DRAWN = "document.querySelector('[data-attnviz-drawn]') !== null"
_OPENS = 'page.view.openPage(element("attnviz"), data);'
_DRAWS_NOTHING = 'element("attnviz").setAttribute("data-attnviz-drawn", "nothing");'
# Another layer, asked for at once by the page's address.
_ANOTHER = """async (layer) => {
  location.hash = `layer=${layer}`;
  const root = document.querySelector(".attnviz");
  const drawn = () => root.getAttribute("data-attnviz-drawn")?.endsWith(`:${layer}`);
  return window.drawn(drawn);
}"""
_LAYERS = re.compile(r'"layers": \[([\d, ]+)\]')


def made(layers: int, tokens: int) -> str:
    """A head view's page."""
    import attnviz as av

    given = weights(layers, layers if layers > 12 else 12, tokens)
    return av.HeadView(av.AttentionRecord.from_weights(given, texts(tokens))).to_html()


def blank(page: str) -> str:
    """The page without data, whose code is unpacked and run and draws nothing."""
    changes = (
        # Another script would not be allowed.
        (r'<meta http-equiv="Content-Security-Policy"[^>]*>', ""),
        (r'(id="attnviz-data">)[^<]*', r"\1{}"),
        (re.escape(_OPENS), _DRAWS_NOTHING),
    )
    for pattern, other in changes:
        page, count = re.subn(pattern, other, page)
        if count != 1:
            raise ValueError(f"a page has {count} of {pattern!r}")
    return re.sub(r'<template id="attnviz-\d+">[^<]*</template>\n', "", page)


def _opened(browser: Browser, path: Path, last: int | None = None) -> dict[str, float]:
    with browser.tab(WATCH + FIRST.replace("DRAWN", _DRAWN)) as tab:
        tab.go_to(path)
        figures = {"drawn_s": tab.evaluate("window.first") / 1e3}
        figures["drawn_cpu_s"] = tab.processor_seconds()
        if last is not None:
            figures["all_s"] = tab.evaluate(f"({_ANOTHER})({last})") / 1e3
        return figures


def measured(browser: Browser, pages: dict[str, str], folder: Path) -> Iterator[dict[str, Any]]:
    """Open all pages and their blank ones in turns: all figures of each."""
    files: dict[str, tuple[Path, Path]] = {}
    last: dict[str, int] = {}
    for place, (name, page) in enumerate(pages.items()):
        files[name] = folder / f"{place}.html", folder / f"{place}-blank.html"
        for file, text in zip(files[name], (page, blank(page)), strict=True):
            file.write_text(text, encoding="utf-8")
        [layers] = _LAYERS.findall(page)[:1]
        last[name] = int(layers.split(",")[-1])
    found: dict[str, dict[str, list[float]]] = {name: {} for name in pages}
    # What is opened first of all pays for the browser's own start.
    _opened(browser, next(iter(files.values()))[1])
    for _ in range(_TURNS):
        for name, (file, empty) in files.items():
            nothing = _opened(browser, empty)
            figures = _opened(browser, file, last[name])
            figures |= {f"blank_{key.removeprefix('drawn_')}": nothing[key] for key in nothing}
            figures["times"] = figures["drawn_s"] / figures["blank_s"]
            figures["cpu_times"] = figures["drawn_cpu_s"] / figures["blank_cpu_s"]
            for key, value in figures.items():
                found[name].setdefault(key, []).append(value)
    for name, turns in found.items():
        yield {name: turns}


def rows(figures: Mapping[str, Any]) -> list[list[str]]:
    """The table: a line for each page."""
    heading = ["head view", "blank page with the same code", "first picture", "multiple"]
    lines = [[*heading, "multiple in CPU time", "the last layer, asked for at once"]]
    for name, turns in figures.items():
        blank, drawn, last = (
            spread(turns[key], seconds) for key in ("blank_s", "drawn_s", "all_s")
        )
        times = [spread(turns[key], multiple) for key in ("times", "cpu_times")]
        lines.append([name, blank, drawn, *times, last])
    return lines


def main(*paths: str) -> None:
    """Measure."""
    if paths:
        pages = {path: Path(path).read_text(encoding="utf-8") for path in paths}
    else:
        pages = {f"{layers} layers, n={tokens}": made(layers, tokens) for layers, tokens in SIZES}
    with tempfile.TemporaryDirectory() as folder, started() as browser:
        for line in measured(browser, pages, Path(folder)):
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


SECTION = Section(
    name="painting",
    title="First picture of a page",
    words="""attnviz's head view, opened from a file in turns with a blank page: the same file
without data, whose code is unpacked and run and draws nothing. Seconds from the navigation; then
the last layer is asked for at once, and the last column says when it was drawn. A multiple is that
of one turn. CPU time is that of the page's main thread until the first picture.""",
    module="benchmarks.painting",
    rows=rows,
    seconds=55,
)


if __name__ == "__main__":
    main(*sys.argv[1:])
