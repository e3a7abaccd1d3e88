"""How fast the head view draws once its data are in the browser.

    cd tests && python -m benchmarks.drawing 64 256 1024

12 layers of 12 heads: a change of layer (neighbouring layers are fetched ahead: warm; to one that
was not: cold) and hovering over tokens, from the input event to the last draw call, medians: as the
view opens (the mean of the heads, its strongest lines, a window of the tokens), with all heads
chosen, and with all tokens as well. Nothing here is a test: machines are noisy.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Browser, Page, sync_playwright

import attnviz as av
from attnviz.pages.image import find_browser
from benchmarks.figures import Figure, spread
from benchmarks.inputs import texts, weights
from benchmarks.opening import CHROMIUM_FLAGS
from benchmarks.section import Section

REPEATS = 6
LAYERS = 12

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
SETTLE_MS = 500


def opened(browser: Browser, path: Path) -> Page:
    """The page, drawn."""
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector("[data-attnviz-drawn]")
    # So long that the neighbours have come.
    page.wait_for_timeout(SETTLE_MS)
    return page


def figures(browser: Browser, path: Path) -> dict[str, list[float]]:
    """Milliseconds of a change of layer, warm and cold, and of hovering."""
    page = opened(browser, path)
    warm = []
    for turn in range(REPEATS):
        warm.append(page.evaluate(CHANGE_LAYER, 1 - turn % 2))
        page.wait_for_timeout(SETTLE_MS)
    places = [[320, 60 + 26 * (turn % 20)] for turn in range(REPEATS)]
    hover = [page.evaluate(HOVER, place) for place in places]
    # Far from each other and from the neighbours, and each for the first time.
    cold = [page.evaluate(CHANGE_LAYER, layer) for layer in (4, 7, 10)]
    page.close()
    return {
        "layer_warm_ms": warm[1:],
        "layer_cold_ms": cold,
        "hover_ms": hover[1:],
    }


def main(lengths: list[int]) -> None:
    """Write them, a line of JSON a case."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=list(CHROMIUM_FLAGS)
        )
        for tokens in lengths:
            record = av.AttentionRecord.from_weights(weights(LAYERS, LAYERS, tokens), texts(tokens))
            heads = list(range(LAYERS))
            window = [0, tokens]
            everything: dict[str, Any] = {"query_window": window, "key_window": window}
            cases: dict[str, dict[str, Any]] = {
                "as it opens": {},
                "all heads chosen": {"heads": heads},
                "all heads and tokens": {"heads": heads, **everything},
            }
            for case, options in cases.items():
                path = av.HeadView(record, **options).save(Path(folder) / "page.html")
                said = {f"{tokens:,}, {case}": figures(browser, path)}
                sys.stdout.write(json.dumps(said) + "\n")
                sys.stdout.flush()
        browser.close()


def rows(drawing: Mapping[str, Mapping[str, Figure]]) -> list[list[str]]:
    """The table."""
    lines = [["n", "lines", "change of layer", "to a layer that was not fetched", "hover"]]
    for case, each in drawing.items():
        tokens, _, what = case.partition(", ")
        times = (each["layer_warm_ms"], each["layer_cold_ms"], each["hover_ms"])
        lines.append([tokens, what, *(spread(time, lambda ms: f"{ms:.1f} ms") for time in times)])
    return lines


SECTION = Section(
    name="drawing",
    title="Drawing",
    words="""attnviz's head view only: from the event to the last draw call, with the data in the
browser. Neighbouring layers are prefetched; a change to a layer that was not has a column for
itself.""",
    module="benchmarks.drawing",
    rows=rows,
    runs=(("64", "256", "1024"),),
    quick=(("64",),),
    seconds=50,
)


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [64, 256, 1024])
