"""Measure how fast views draw once their data are in the browser, and from the kernel.

    .venv/bin/python tests/benchmarks/drawing.py              as a table
    .venv/bin/python tests/benchmarks/drawing.py --json FILE  and as JSON

Head view, 12 layers of 12 heads, default lines: a change of layer (neighbouring layers are fetched
ahead: warm; to a layer that was not: cold) and hovering over tokens, from the input event to the
last draw call, median of 30. Model view, 32 layers of 32 heads at 64 tokens: from opening the page
to the last draw call, median of 5. Nothing here is a test: machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Browser, Page, sync_playwright

import attnviz as av
from attnviz.snapshot.browser import HOW_TO_GET_ONE, find_browser

REPEATS = 30

# Clicks a layer and waits for the sign of being drawn, which is set after the last draw call.
CHANGE_LAYER = """async (layer) => {
  const root = document.querySelector(".attnviz");
  const button = root.querySelector(`[aria-label="Layer ${layer}"]`);
  const start = performance.now();
  const drawn = new Promise((resolve) => {
    const watch = new MutationObserver(() => {
      if (!root.dataset.attnvizDrawn?.endsWith(`:${layer}`)) return;
      watch.disconnect();
      resolve(performance.now());
    });
    watch.observe(root, { attributes: true });
  });
  button.click();
  return await drawn - start;
}"""
# Whatever follows the pointer is drawn before the event's handlers return.
HOVER = """([x, y]) => {
  const plot = document.querySelector(".av-plot");
  const box = plot.getBoundingClientRect();
  const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
  const start = performance.now();
  plot.dispatchEvent(new PointerEvent("pointermove", at));
  return performance.now() - start;
}"""
SETTLE_MS = 400


def weights(layers: int, heads: int, tokens: int) -> torch.Tensor:
    """Causal weights with a sink and a neighbourhood, like a language model's."""
    generator = torch.Generator().manual_seed(0)
    positions = torch.arange(tokens)
    distance = (positions[:, None] - positions).float()
    logits = 2 * torch.randn((layers, heads, tokens, tokens), generator=generator) - distance / 8
    logits[..., 0] += 4
    return torch.softmax(logits.masked_fill(distance < 0, -torch.inf), dim=-1)


def record_of(layers: int, heads: int, tokens: int) -> av.AttentionRecord:
    """A record with those weights."""
    texts = [f"token{place}" for place in range(tokens)]
    return av.AttentionRecord.from_weights(weights(layers, heads, tokens), texts)


def opened(browser: Browser, view: Any, folder: Path) -> Page:
    """The view's page, drawn."""
    path = view.save(folder / "page.html")
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector("[data-attnviz-drawn]")
    return page


def head_view(browser: Browser, tokens: int, folder: Path) -> dict[str, float]:
    """Milliseconds of a change of layer, warm and cold, and of hovering."""
    page = opened(browser, av.HeadView(record_of(12, 12, tokens)), folder)
    warm, cold = [], []
    for turn in range(REPEATS):
        # So long that the neighbours have come.
        page.wait_for_timeout(SETTLE_MS)
        warm.append(page.evaluate(CHANGE_LAYER, 1 if turn % 2 == 0 else 0))
    page.close()
    for layer in (3, 6, 9, 11):
        # Each page anew: what was drawn once is kept.
        page = opened(browser, av.HeadView(record_of(12, 12, tokens)), folder)
        cold.append(page.evaluate(CHANGE_LAYER, layer))
        page.close()
    page = opened(browser, av.HeadView(record_of(12, 12, tokens)), folder)
    places = [[320, 60 + 26 * (turn % 20)] for turn in range(REPEATS)]
    hover = [page.evaluate(HOVER, place) for place in places]
    page.close()
    return {
        "layer_warm_ms": statistics.median(warm),
        "layer_cold_ms": statistics.median(cold),
        "hover_ms": statistics.median(hover),
    }


def model_view(browser: Browser, folder: Path) -> dict[str, float]:
    """Milliseconds from the navigation to the picture, DOM nodes and megabytes."""
    path = av.ModelView(record_of(32, 32, 64)).save(folder / "page.html")
    watch = """window.drawn = new Promise((resolve) => {
      new MutationObserver((_, watch) => {
        if (!document.querySelector("[data-attnviz-drawn]")) return;
        watch.disconnect();
        resolve(performance.now());
      }).observe(document, { subtree: true, childList: true, attributes: true });
    });"""
    times = []
    nodes = 0
    for _ in range(5):
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.add_init_script(watch)
        page.goto(path.as_uri(), wait_until="commit")
        times.append(page.evaluate("() => window.drawn"))
        nodes = page.evaluate("() => document.querySelectorAll('*').length")
        page.close()
    return {
        "drawn_ms": statistics.median(times),
        "dom_nodes": nodes,
        "megabytes": path.stat().st_size / 1e6,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write them there, too")
    options = parser.parse_args()
    browser_path = find_browser()
    if browser_path is None:
        sys.exit(f"the benchmark needs a browser, and {HOW_TO_GET_ONE}")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=browser_path, args=flags)
        folder = Path(name)
        figures: dict[str, Any] = {"cores": os.cpu_count(), "chromium": browser.version}
        for tokens in (64, 256):
            figures[f"head view, n={tokens}"] = head_view(browser, tokens, folder)
        figures["model view, 32 x 32 heads, n=64"] = model_view(browser, folder)
        browser.close()
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
