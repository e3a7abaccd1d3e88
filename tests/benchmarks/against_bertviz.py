"""Measure attnviz's head view against BertViz's: the table in README.md.

    .venv/bin/python tests/benchmarks/against_bertviz.py            at 64 and 256 tokens
    .venv/bin/python tests/benchmarks/against_bertviz.py 64 128     at others

Both draw the same causal weights (12 layers of 12 heads) in the same Chromium, in one run. BertViz
needs several gigabytes at 256 tokens. Its pages load three scripts from the network; npm fetches
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

LAYERS = HEADS = 12
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
    change: str
    drawn_then: str
    repeats: Mapping[int, int]


def weights(tokens: int) -> torch.Tensor:
    """Causal weights as a language model's: a sink, a neighbourhood, and heads of all sharpness."""
    generator = torch.Generator().manual_seed(0)
    positions = torch.arange(tokens)
    distance = (positions[:, None] - positions).float()
    shape = (LAYERS, HEADS, tokens, tokens)
    sharpness = 0.5 + 3 * torch.rand(LAYERS, HEADS, 1, 1, generator=generator)
    nearness = 0.3 * torch.rand(LAYERS, HEADS, 1, 1, generator=generator)
    logits = sharpness * torch.randn(shape, generator=generator) - nearness * distance
    logits[..., 0] += 4
    return torch.softmax(logits.masked_fill(distance < 0, -torch.inf), dim=-1)


def page_of_bertviz(values: torch.Tensor, tokens: list[str]) -> str:
    layers = [layer[None] for layer in values]
    html: str = bertviz.head_view(layers, tokens, html_action="return").data
    return f"<!doctype html><meta charset=utf-8>{html}"


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


def measure(browser: Browser, side: Side, tokens: int, folder: Path) -> tuple[float, ...]:
    """Megabytes, seconds to build, seconds to the first picture, to change layer, DOM nodes."""
    values, texts = weights(tokens), [f"token{place}" for place in range(tokens)]
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
    return path.stat().st_size / 1e6, build, first / 1e3, changed / 1e3, nodes


def _change_layer(page: Page, side: Side) -> float:
    code = CHANGE_LAYER.replace("CHANGE", side.change).replace("DRAWN", side.drawn_then)
    seconds: float = page.evaluate(code)
    return seconds


def _serve(route: Route, folder: Path) -> None:
    name = next(name for name in SCRIPTS if f"/{name}" in route.request.url.rpartition("libs")[2])
    route.fulfill(path=folder / "node_modules" / SCRIPTS[name])


def main(lengths: list[int]) -> None:
    """Print the table."""
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
        sys.stdout.write("| n | | HTML, MB | build, s | drawn, s | layer, s | DOM nodes |\n")
        sys.stdout.write("|---|---|---|---|---|---|---|\n")
        for tokens in lengths:
            for side in SIDES:
                times = side.repeats.get(tokens, 1)
                runs = [measure(browser, side, tokens, folder) for _ in range(times)]
                size, build, first, changed, nodes = map(statistics.median, zip(*runs, strict=True))
                sys.stdout.write(
                    f"| {tokens} | {side.name} | {size:.1f} | {build:.2f} | {first:.2f} "
                    f"| {changed:.3f} | {nodes:,.0f} |\n"
                )
                sys.stdout.flush()
        browser.close()


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [64, 256])
