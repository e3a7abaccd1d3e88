"""How fast the head view draws once its data are in the browser.

    cd tests && python -m benchmarks.drawing 64 256 1024

12 layers of 12 heads: a change to a layer that was not shown before and hovering over tokens, from
the event until the browser has painted, medians: as the view opens (the mean of the heads, its
strongest lines, a window of the tokens), with all heads chosen, with all tokens as well, and with
the strongest 20,000 lines too.
Nothing here is a test: machines are noisy.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Browser, sync_playwright

import attnviz as av
from attnviz.pages.image import find_browser
from benchmarks.figures import Figure, spread
from benchmarks.inputs import texts, weights
from benchmarks.opening import CHROMIUM_FLAGS, VIEWPORT, WATCH
from benchmarks.section import Section

REPEATS = 6
LAYERS = 12

# Milliseconds until a layer is drawn.
CHANGE_LAYER = """(layer) => {
  const root = document.querySelector(".attnviz");
  const drawn = () => root.dataset.attnvizDrawn === `head:self:${layer}`;
  return answered(() => root.querySelector(`[aria-label="Layer ${layer}"]`).click(), drawn);
}"""
HOVER = """([x, y]) => answered(() => {
  const plot = document.querySelector(".av-plot");
  const box = plot.getBoundingClientRect();
  const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
  plot.dispatchEvent(new PointerEvent("pointermove", at));
}, () => true)"""


def figures(browser: Browser, path: Path) -> dict[str, list[float]]:
    """Milliseconds of a change of layer, each to another, and of hovering."""
    page = browser.new_page(viewport=VIEWPORT)
    page.add_init_script(WATCH)
    page.goto(path.as_uri())
    page.wait_for_selector("[data-attnviz-drawn]")
    changes = [page.evaluate(CHANGE_LAYER, layer) for layer in range(1, REPEATS + 1)]
    places = [[320, 60 + 26 * (turn % 20)] for turn in range(REPEATS)]
    hover = [page.evaluate(HOVER, place) for place in places]
    page.close()
    return {"layer_ms": changes[1:], "hover_ms": hover[1:]}


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
                "all heads and tokens": {"heads": heads, **everything},
                "all heads and tokens, 20,000 lines": {"heads": heads, "top_k": None, **everything},
            }
            for case, options in cases.items():
                path = av.HeadView(record, **options).save(Path(folder) / "page.html")
                said = {f"{tokens:,}, {case}": figures(browser, path)}
                sys.stdout.write(json.dumps(said) + "\n")
                sys.stdout.flush()
        browser.close()


def rows(drawing: Mapping[str, Mapping[str, Figure]]) -> list[list[str]]:
    """The table."""
    times = {"layer_ms": "another layer", "hover_ms": "hover"}
    lines = [["n", "lines", *times.values()]]
    for case, each in drawing.items():
        tokens, _, what = case.partition(", ")
        told = (spread(each[time], lambda ms: f"{ms:.1f} ms") for time in times)
        lines.append([tokens, what, *told])
    return lines


SECTION = Section(
    name="drawing",
    title="Drawing",
    words="""attnviz's head view only, with the data in the browser: from the event until the
browser has painted. The other layer was not shown before.""",
    module="benchmarks.drawing",
    rows=rows,
    runs=(("64", "256", "1024"),),
    quick=(("64",),),
    seconds=55,
)


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [64, 256, 1024])
