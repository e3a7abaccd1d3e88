"""Measure attnviz's head view and model view against BertViz's: the tables in README.md.

    .venv/bin/python tests/benchmarks/against_bertviz.py            heads at 64 and 256 tokens
    .venv/bin/python tests/benchmarks/against_bertviz.py 64 128     at others

Both draw the same causal weights in the same Chromium, in one run: the head view 12 layers of 12
heads, the model view 12 x 12 and 32 x 32 heads at 64 tokens. BertViz needs several gigabytes at
256 tokens, and eleven for 32 x 32 heads. Its pages load three scripts from the network; npm fetches
the same packages here (jQuery 2.2.4 stands for 2.0.0, which npm does not have), so that no network
is in the figures.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import bertviz
import torch
from playwright.sync_api import Browser, Page, Route, sync_playwright

import attnviz as av
from attnviz.snapshot.browser import HOW_TO_GET_ONE, find_browser

HEADS = 12
# Layers, each with as many heads, and tokens of the model views.
GRIDS = ((12, 64), (32, 64))
SCRIPTS = {
    "require": "requirejs/require.js",
    "d3": "d3/dist/d3.min.js",
    "jquery": "jquery/dist/jquery.min.js",
}
PACKAGES = ("requirejs@2.3.6", "d3@5.7.0", "jquery@2.2.4")
MINUTES = 60_000.0

# Looks once a frame, and takes the time after the frame in which the picture came: the callbacks
# of the next frame run when that one is on the screen.
WATCH = """
window.drawn = (done) => new Promise((resolve) => {
  const look = () => {
    if (done()) requestAnimationFrame(() => resolve(performance.now()));
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
});
"""
CHANGE_LAYER = """async () => {
  const before = performance.now();
  CHANGE
  return await window.drawn(DRAWN) - before;
}"""


@dataclass(frozen=True)
class Side:
    """One of the two: how a page is made, when it is drawn, how its layer is changed."""

    name: str
    make: Callable[[torch.Tensor, list[str]], str]
    drawn: str
    repeats: Mapping[int, int]
    change: str | None = None
    drawn_then: str = ""


def weights(tokens: int, layers: int = HEADS) -> torch.Tensor:
    """Causal weights as a language model's: a sink, a neighbourhood, and heads of all sharpness."""
    generator = torch.Generator().manual_seed(0)
    positions = torch.arange(tokens)
    distance = (positions[:, None] - positions).float()
    shape = (layers, layers, tokens, tokens)
    sharpness = 0.5 + 3 * torch.rand(layers, layers, 1, 1, generator=generator)
    nearness = 0.3 * torch.rand(layers, layers, 1, 1, generator=generator)
    logits = sharpness * torch.randn(shape, generator=generator) - nearness * distance
    logits[..., 0] += 4
    return torch.softmax(logits.masked_fill(distance < 0, -torch.inf), dim=-1)


def page_of_bertviz(values: torch.Tensor, tokens: list[str]) -> str:
    layers = [layer[None] for layer in values]
    html: str = bertviz.head_view(layers, tokens, html_action="return").data
    return f"<!doctype html><meta charset=utf-8>{html}"


def grid_of_bertviz(values: torch.Tensor, tokens: list[str]) -> str:
    layers = [layer[None] for layer in values]
    html: str = bertviz.model_view(layers, tokens, html_action="return").data
    return f"<!doctype html><meta charset=utf-8>{html}"


def grid_of_attnviz(values: torch.Tensor, tokens: list[str]) -> str:
    return av.ModelView(av.AttentionRecord.from_weights(values, tokens)).to_html()


def grid_of_lines(values: torch.Tensor, tokens: list[str]) -> str:
    record = av.AttentionRecord.from_weights(values, tokens)
    return av.ModelView(record, thumbnails="lines").to_html()


def page_of_attnviz(values: torch.Tensor, tokens: list[str]) -> str:
    return av.HeadView(av.AttentionRecord.from_weights(values, tokens)).to_html()


def page_with_all_lines(values: torch.Tensor, tokens: list[str]) -> str:
    view = av.HeadView(
        av.AttentionRecord.from_weights(values, tokens),
        heads=list(range(HEADS)),
        top_k=None,
        query_window=[0, len(tokens)],
        key_window=[0, len(tokens)],
    )
    return view.to_html()


ATTNVIZ = {
    "drawn": "() => document.querySelector('[data-attnviz-drawn]') !== null",
    "change": "document.querySelector('[aria-label=\"Layer 1\"]').click();",
    "drawn_then": "() => document.querySelector('[data-attnviz-drawn=\"head:self:1\"]') !== null",
}
SIDES = (
    Side(
        "BertViz 1.4.1",
        page_of_bertviz,
        # The script draws in one go, and no frame comes before it is done.
        drawn="() => document.querySelector('#vis svg') !== null",
        change="const menu = document.querySelector('#layer'); menu.value = 1; "
        "menu.dispatchEvent(new Event('change'));",
        drawn_then="() => true",
        repeats={64: 3},
    ),
    Side("attnviz, the same lines", page_with_all_lines, **ATTNVIZ, repeats={64: 5, 256: 5}),
    Side("attnviz, as it opens", page_of_attnviz, **ATTNVIZ, repeats={64: 5, 256: 5}),
)


DRAWN = ATTNVIZ["drawn"]
GRID_SIDES = (
    Side("BertViz 1.4.1", grid_of_bertviz, "() => document.querySelector('#vis svg')", {12: 3}),
    Side("attnviz, as it opens", grid_of_attnviz, DRAWN, {12: 5, 32: 5}),
    Side("attnviz, lines", grid_of_lines, DRAWN, {12: 5, 32: 5}),
)


def measure(browser: Browser, side: Side, values: torch.Tensor, folder: Path) -> tuple[float, ...]:
    """Megabytes, seconds to build, seconds to the first picture, DOM nodes, to change layer."""
    texts = [f"token{place}" for place in range(values.shape[-1])]
    start = time.perf_counter()
    html = side.make(values, texts)
    build = time.perf_counter() - start
    path = folder / "page.html"
    path.write_text(html, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.set_default_timeout(5 * MINUTES)
    page.route("https://cdnjs.cloudflare.com/**", lambda route: _serve(route, folder))
    page.add_init_script(f"{WATCH} window.first = window.drawn({side.drawn});")
    page.goto(path.as_uri(), wait_until="commit")
    # On performance.now()'s own clock, which begins with the navigation.
    first = page.evaluate("() => window.first")
    nodes = page.evaluate("() => document.querySelectorAll('*').length")
    changed = _change_layer(page, side)
    page.close()
    return path.stat().st_size / 1e6, build, first / 1e3, nodes, changed / 1e3


def medians(
    browser: Browser, side: Side, values: torch.Tensor, case: int, folder: Path
) -> list[float]:
    """The same, of as many runs as the side takes in this case."""
    runs = [measure(browser, side, values, folder) for _ in range(side.repeats.get(case, 1))]
    return [statistics.median(each) for each in zip(*runs, strict=True)]


def _change_layer(page: Page, side: Side) -> float:
    if side.change is None:
        return 0.0
    code = CHANGE_LAYER.replace("CHANGE", side.change).replace("DRAWN", side.drawn_then)
    seconds: float = page.evaluate(code)
    return seconds


def _serve(route: Route, folder: Path) -> None:
    name = next(name for name in SCRIPTS if f"/{name}" in route.request.url.rpartition("libs")[2])
    route.fulfill(path=folder / "node_modules" / SCRIPTS[name])


def main(lengths: list[int]) -> None:
    """Print the tables."""
    browser_path = find_browser()
    if browser_path is None:
        sys.exit(f"the benchmark needs a browser, and {HOW_TO_GET_ONE}")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        command = ["npm", "install", "--silent", "--no-save", "--ignore-scripts", *PACKAGES]
        subprocess.run(command, cwd=folder, check=True)
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=browser_path, args=flags)
        sys.stdout.write(f"{os.cpu_count()} cores, Chromium {browser.version}\n\n")
        columns = "HTML, MB | build, s | drawn, s | DOM nodes"
        sys.stdout.write(
            f"| n | head view | {columns} | layer, s |\n|---|---|---|---|---|---|---|\n"
        )
        for tokens in lengths:
            values = weights(tokens)
            for side in SIDES:
                size, build, first, nodes, changed = medians(browser, side, values, tokens, folder)
                sys.stdout.write(
                    f"| {tokens} | {side.name} | {size:.1f} | {build:.2f} | {first:.2f} "
                    f"| {nodes:,.0f} | {changed:.3f} |\n"
                )
                sys.stdout.flush()
        sys.stdout.write(f"\n| heads | model view | {columns} |\n{'|---' * 6}|\n")
        for layers, tokens in GRIDS:
            values = weights(tokens, layers)
            for side in GRID_SIDES:
                size, build, first, nodes, _ = medians(browser, side, values, layers, folder)
                sys.stdout.write(
                    f"| {layers} x {layers} | {side.name} | {size:.1f} | {build:.2f} "
                    f"| {first:.2f} | {nodes:,.0f} |\n"
                )
                sys.stdout.flush()
        browser.close()


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [64, 256])
