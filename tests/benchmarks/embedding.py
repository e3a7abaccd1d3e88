"""How long the embedding view takes: all heads at once, many points, layouts, pages.

    cd tests && ../.venv/bin/python -m benchmarks.embedding [--quick] [--write]

Queries and keys are made up, of 64 components, in texts of 100 tokens. Live views are at work in a
Chromium without a notebook (`benchmarks.live`): what a notebook's own messages cost is not in the
figures. Beside the time stand seconds of the processor, which other
work on the machine changes less. Prints a table; --write puts it into docs/embedding.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Browser, Page, sync_playwright
from transformers import GPT2Config, GPT2Model

import attnviz as av
from attnviz.embedding.placement import Placing
from attnviz.embedding.server.plots import EmbeddingAnswers
from attnviz.pages.image import HOW_TO_GET_ONE, find_browser
from attnviz.utils.progress import completed
from attnviz.utils.threads import torch_threads
from benchmarks.clock import Clock, Row, in_words
from benchmarks.corpora import TEXT_TOKENS, made
from benchmarks.guarded import ROOT
from benchmarks.live import LiveView
from benchmarks.machine import machine
from benchmarks.opening import CHROMIUM_FLAGS, VIEWPORT

MARKS = ("<!-- figures of benchmarks.embedding -->", "<!-- end of figures -->")
_REPEATS = 20
_TURNS = 3
_TIMEOUT_MS = 600_000
_WAY = Placing()

# When pictures were drawn last, and how long it takes from an event until all is painted: handlers
# and, from its begin on, the frame that follows. Frames begin when the screen is ready for them;
# that wait is nobody's work and left out.
_WATCH = """
window.drawnLast = 0;
for (const name of ["putImageData", "drawImage", "fill", "stroke", "clearRect"]) {
  const draw = CanvasRenderingContext2D.prototype[name];
  CanvasRenderingContext2D.prototype[name] = function (...given) {
    draw.apply(this, given);
    window.drawnLast = performance.now();
  };
}
window.painted = (act) => new Promise((resolve) => {
  const channel = new MessageChannel();
  let begin = 0;
  let handled = 0;
  channel.port1.onmessage = () => resolve(handled + performance.now() - begin);
  requestAnimationFrame(() => {
    begin = performance.now();
    channel.port2.postMessage(null);
  });
  const start = performance.now();
  act();
  handled = performance.now() - start;
});
window.settled = async (act, place) => {
  const start = performance.now();
  act();
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    const drawn = document.querySelector(".attnviz").dataset.attnvizDrawn;
    const still = performance.now() - window.drawnLast > 400 && window.drawnLast > start;
    if (still && drawn?.startsWith(place)) return window.drawnLast - start;
  }
};
"""
_CHOOSE = """([label, value, place]) => {
  const fields = [...document.querySelectorAll("label")];
  const select = fields.find((each) => each.textContent.startsWith(label)).querySelector("select");
  return window.settled(() => {
    select.value = value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  }, place);
}"""
_ENTER = """() => {
  const grid = document.querySelector('[role="grid"]');
  grid.focus();
  const press = (key) => grid.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  press("ArrowDown");
  return window.settled(() => press("Enter"), "embedding:self:");
}"""
_ZOOM = """(turn) => window.painted(() => {
  const plot = document.querySelector(".av-plot");
  const box = plot.getBoundingClientRect();
  const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
  const deltaY = turn % 10 < 5 ? -30 : 30;
  const more = { deltaY, ctrlKey: true, bubbles: true, cancelable: true };
  plot.dispatchEvent(new WheelEvent("wheel", { ...at, ...more }));
})"""
_PAN = """(turn) => window.painted(() => {
  const key = turn % 10 < 5 ? "ArrowLeft" : "ArrowRight";
  const event = new KeyboardEvent("keydown", { key, shiftKey: true, bubbles: true });
  document.querySelector(".av-plot").dispatchEvent(event);
})"""
_HOVER = """(turn) => window.painted(() => {
  const plot = document.querySelector(".av-plot");
  const box = plot.getBoundingClientRect();
  const [x, y] = [box.width * (0.4 + 0.01 * turn), box.height / 2];
  const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
  plot.dispatchEvent(new PointerEvent("pointermove", at));
})"""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    layers: int
    points: int
    page_points: int
    many_points: int
    layout_points: int
    read_texts: int


FULL = Sizes(12, 10_000, 5_000, 200_000, 10_000, 20)
QUICK = Sizes(4, 2_000, 1_000, 20_000, 1_000, 3)


@contextmanager
def _page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport=VIEWPORT)
    page.set_default_timeout(_TIMEOUT_MS)
    page.add_init_script(_WATCH)
    yield page
    page.close()


def _wait(page: Page, place: str) -> None:
    page.wait_for_selector(f'[data-attnviz-drawn^="embedding:self:{place}"]', state="attached")


def _typical(page: Page, act: str) -> float:
    """Median milliseconds, without the first, in which code is run for the first time."""
    times: list[float] = []
    for turn in range(_REPEATS + 1):
        times.append(page.evaluate(act, turn))
        page.wait_for_timeout(50)
    return statistics.median(times[1:])


def _choose(page: Page, label: str, value: str, place: str) -> float:
    return float(page.evaluate(_CHOOSE, [label, value, f"embedding:self:{place}"])) / 1e3


def overview(browser: Browser, sizes: Sizes) -> Iterator[Row]:
    """All heads, live."""
    corpus = made(sizes.points, sizes.layers, sizes.layers)
    name = f"{sizes.layers**2} heads x {sizes.points:,} points"
    answers, clock = EmbeddingAnswers(corpus), Clock()
    for layer in corpus.stack().layers:
        heads = corpus.stack().kept_heads(layer)
        completed(answers.plots(corpus.stack().name, layer, heads, _WAY))
    yield clock.row(f"{name}: placing and PCA, in Python")
    with _page(browser) as page:
        clock = Clock()
        live = LiveView(page, av.EmbeddingView(corpus), rest=False)
        _wait(page, "all")
        yield clock.row(f"{name}: from `EmbeddingView(corpus)` until all are drawn")
        live.rest()
        # Until the last answer, and not until it was quiet for a while.
        quiet = page.evaluate("performance.now() - window.answeredLast()") / 1e3
        yield clock.row("... until the trust in all of them is told", clock.seconds - quiet)
        counted = live.count()
        requests = sum(times for what, times in counted.items() if what.startswith("requests"))
        yield Row("... answers to its requests", f"{counted['bytes received'] / 1e6:.1f} MB")
        yield Row("... requests", str(requests))
        nodes = page.evaluate("document.querySelectorAll('*').length")
        yield Row("... DOM nodes", f"{nodes:,}")
        clock = Clock()
        took = _choose(page, "Colour", "position", "all")
        yield clock.row("... another colour", took)
        clock = Clock()
        took = page.evaluate(_ENTER) / 1e3
        yield clock.row("... into one head", took)
        clock = Clock()
        took = _choose(page, "Show", "aggregate", "")
        yield clock.row("... its mean weight by position", took)


def many(browser: Browser, sizes: Sizes) -> Iterator[Row]:
    """One head of many points, live."""
    corpus = made(sizes.many_points, 1, 1)
    name = f"1 head x {sizes.many_points:,} points"
    with _page(browser) as page:
        clock = Clock()
        live = LiveView(page, av.EmbeddingView(corpus, enlarged=True), rest=False)
        _wait(page, "0")
        yield clock.row(f"{name}: until it is drawn")
        live.rest()
        for what, act in (("zoom", _ZOOM), ("pan", _PAN), ("pointer over a point", _HOVER)):
            yield Row(f"... {what}, a frame", f"{_typical(page, act):.0f} ms")


def layouts(browser: Browser, sizes: Sizes) -> Iterator[Row]:
    """t-SNE and UMAP of one head, live, with nothing kept from before."""
    corpus = made(sizes.layout_points, 1, 1)
    for method, name in (("tsne", "t-SNE"), ("umap", "UMAP")):
        moments = _Moments()
        with _page(browser) as page:
            clock = moments.clock = Clock()
            view = av.EmbeddingView(corpus, enlarged=True, method=method)
            LiveView(page, view, heard=moments.hear, rest=False)
            while moments.last is None and clock.seconds < _TIMEOUT_MS / 1e3:
                page.wait_for_timeout(20)
            done = clock.row("... its end", moments.last)
        what = f"{name} of 1 head x {sizes.layout_points:,} points: first frame"
        yield Row(what, "–" if moments.first is None else in_words(moments.first))
        yield done if moments.words is None else Row("... its end", moments.words)


@dataclass
class _Moments:
    """When a layout had its first frame, and when it was done."""

    clock: Clock = field(default_factory=Clock)
    first: float | None = None
    last: float | None = None
    words: str | None = None

    def hear(self, request: dict[str, Any], answer: dict[str, Any]) -> None:
        work = answer.get("header", {}).get("work") if request.get("name") == "projection" else None
        if work is None:
            return
        if self.first is None and work["done"] > 0:
            self.first = self.clock.seconds
        if self.last is None and work["state"] != "running":
            self.last = self.clock.seconds
            self.words = None if work["state"] == "done" else work["words"]


def pages(browser: Browser, sizes: Sizes, folder: Path) -> Iterator[Row]:
    """Exported pages of all heads."""
    name = f"page of {sizes.layers**2} heads x {sizes.page_points:,} points"
    path = folder / "page.html"
    for top_keys in (0, 5):
        # What the last one computed is no help.
        view = av.EmbeddingView(made(sizes.page_points, sizes.layers, sizes.layers))
        clock = Clock()
        view.save(path, top_keys=top_keys)
        built = clock.row("... build")
        of = f"{name}, {top_keys} keys a query" if top_keys else name
        yield Row(of, f"{path.stat().st_size / 1e6:.2f} MB")
        yield built
        with _page(browser) as page:
            clock = Clock()
            page.goto(path.as_uri(), wait_until="commit")
            _wait(page, "all")
            yield clock.row("... opened until all are drawn")


def reading(sizes: Sizes) -> Iterator[Row]:
    """A corpus from a model of GPT-2 small's size, beside plain forwards of the same texts."""
    torch.manual_seed(0)
    model: Any = GPT2Model(GPT2Config()).eval()
    texts = [
        {"input_ids": torch.randint(0, 50_000, (1, TEXT_TOKENS))} for _ in range(sizes.read_texts)
    ]

    @torch.inference_mode()
    def plain() -> None:
        for text in texts:
            model(**text)

    ways: dict[str, Callable[[], Any]] = {
        "plain forwards": plain,
        "`extract_corpus`": lambda: av.extract_corpus(model, texts, points=10**6, progress=False),
    }
    quickest: dict[str, tuple[float, Row]] = {}
    # In turns, so that what else the machine does falls on both; the first loads what is needed.
    for turn in range(_TURNS + 1):
        for what, run in ways.items():
            clock = Clock()
            with torch_threads(1):
                run()
            row = clock.row(f"{len(texts)} texts of {TEXT_TOKENS} tokens, GPT-2 small: {what}")
            if turn and clock.seconds < quickest.get(what, (float("inf"),))[0]:
                quickest[what] = clock.seconds, row
    yield from (row for _, row in quickest.values())


def table(rows: list[Row], browser: str) -> str:
    """All rows, and what they were measured on."""
    told = machine(browser)
    lines = [
        "| | | processor: kernel | browser and workers |",
        "|---|---|---|---|",
    ]
    for row in rows:
        spent = ["" if each is None else in_words(each) for each in (row.kernel_s, row.browser_s)]
        lines.append(f"| {row.what} | {row.figure} | {' | '.join(spent)} |")
    note = (
        f"{told['cores']}, {told['memory']} of memory (load {_load()} meanwhile), "
        f"{told['system']}, {told['browser']}, headless and without a GPU, torch with "
        f"{torch.get_num_threads()} threads (in the last two rows with one); {told['date']}. "
        "Where the machine has other work to do times are high; the seconds of the processor are "
        "those of the work itself."
    )
    return "\n".join([*lines, "", note, ""])


def _load() -> str:
    return f"{os.getloadavg()[1]:.1f}"


def written(document: str, figures: str) -> str:
    """A document with the figures between the marks that it has for them."""
    before, start, rest = document.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not start or not end:
        raise ValueError(f"docs/embedding.md lacks {MARKS[0]} or {MARKS[1]}: put both in")
    return f"{before}{start}\n\n{figures}\n{end}{after}"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedding", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small cases, half a minute")
    parser.add_argument("--write", action="store_true", help="into docs/embedding.md, too")
    parts = ("overview", "many", "layouts", "pages", "reading")
    parser.add_argument("--only", nargs="*", choices=parts, default=parts, help="some of it")
    options = parser.parse_args()
    if options.write and set(options.only) != set(parts):
        parser.error("--write puts the whole table into the document: leave --only out")
    path = find_browser()
    if path is None:
        sys.exit(f"the benchmark needs a browser, and {HOW_TO_GET_ONE}")
    sizes = QUICK if options.quick else FULL
    # A layout that was computed before would be no layout.
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        measured: dict[str, Callable[[], Iterator[Row]]] = {
            "overview": lambda: overview(browser, sizes),
            "many": lambda: many(browser, sizes),
            "layouts": lambda: layouts(browser, sizes),
            "pages": lambda: pages(browser, sizes, Path(folder)),
            "reading": lambda: reading(sizes),
        }
        for part in options.only:
            for row in measured[part]():
                sys.stderr.write(f"{row}\n")
                rows.append(row)
        browser.close()
    figures = table(rows, path)
    sys.stdout.write(figures)
    if options.write:
        document = ROOT / "docs" / "embedding.md"
        text = document.read_text(encoding="utf-8")
        document.write_text(written(text, figures), encoding="utf-8")


if __name__ == "__main__":
    main()
