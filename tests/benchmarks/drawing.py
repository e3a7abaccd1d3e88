"""How fast the head view draws once its data are in the browser.

    cd tests && python -m benchmarks.drawing 64 256 1024

12 layers of 12 heads: a change of layer (neighbouring layers are fetched ahead: warm; to one that
was not: cold) and hovering over tokens, from the event until the browser has painted, medians: as
the view opens (the mean of the heads, its strongest lines, a window of the tokens), with all heads
chosen, with all tokens as well, and with all lines too. Of very many lines the strongest in sight
make a first picture, and the picture is complete when all are painted, also those out of sight.
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
from playwright.sync_api import Browser, Page, sync_playwright

import attnviz as av
from attnviz.pages.image import find_browser
from benchmarks.figures import Figure, spread
from benchmarks.inputs import texts, weights
from benchmarks.opening import CHROMIUM_FLAGS, VIEWPORT, WATCH
from benchmarks.section import Section

REPEATS = 6
LAYERS = 12

# Milliseconds until the first picture of a layer, until all in sight, and until all is painted.
CHANGE_LAYER = """async (layer) => {
  const root = document.querySelector(".attnviz");
  const place = `head:self:${layer}`;
  const complete = () => root.dataset.attnvizDrawn === place;
  const has = (sign) => root.querySelector(`[${sign}="${place}"]`) !== null;
  const inSight = () => complete() || has("data-in-sight");
  const shown = () => inSight() || has("data-strongest");
  const click = () => root.querySelector(`[aria-label="Layer ${layer}"]`).click();
  // The click comes last in its frame: all three take the time from before it.
  const nothing = () => {};
  return await Promise.all(
    [answered(nothing, shown), answered(nothing, inSight), answered(click, complete)]);
}"""
HOVER = """([x, y]) => answered(() => {
  const plot = document.querySelector(".av-plot");
  const box = plot.getBoundingClientRect();
  const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
  plot.dispatchEvent(new PointerEvent("pointermove", at));
}, () => true)"""
SETTLE_MS = 500


def opened(browser: Browser, path: Path) -> Page:
    """The page, drawn."""
    page = browser.new_page(viewport=VIEWPORT)
    page.add_init_script(WATCH)
    page.goto(path.as_uri())
    page.wait_for_selector("[data-attnviz-drawn]")
    # So long that the neighbours have come.
    page.wait_for_timeout(SETTLE_MS)
    return page


def figures(browser: Browser, path: Path) -> dict[str, list[float]]:
    """Milliseconds of a change of layer, warm and cold, and of hovering."""
    page = opened(browser, path)
    first: list[float] = []
    in_sight: list[float] = []
    warm: list[float] = []
    for turn in range(REPEATS):
        for times, took in zip(
            (first, in_sight, warm), page.evaluate(CHANGE_LAYER, 1 - turn % 2), strict=True
        ):
            times.append(took)
        page.wait_for_timeout(SETTLE_MS)
    places = [[320, 60 + 26 * (turn % 20)] for turn in range(REPEATS)]
    hover = [page.evaluate(HOVER, place) for place in places]
    # Far from each other and from the neighbours, and each for the first time.
    cold = [page.evaluate(CHANGE_LAYER, layer) for layer in (4, 7, 10)]
    page.close()
    return {
        "layer_first_ms": first[1:],
        "layer_in_sight_ms": in_sight[1:],
        "layer_warm_ms": warm[1:],
        "layer_cold_first_ms": [shown for shown, _, _ in cold],
        "layer_cold_ms": [complete for _, _, complete in cold],
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
                "all heads and tokens": {"heads": heads, **everything},
                "all heads, tokens and lines": {"heads": heads, "top_k": None, **everything},
            }
            for case, options in cases.items():
                path = av.HeadView(record, **options).save(Path(folder) / "page.html")
                said = {f"{tokens:,}, {case}": figures(browser, path)}
                sys.stdout.write(json.dumps(said) + "\n")
                sys.stdout.flush()
        browser.close()


def rows(drawing: Mapping[str, Mapping[str, Figure]]) -> list[list[str]]:
    """The table."""
    times = {
        "layer_first_ms": "first picture of a layer",
        "layer_in_sight_ms": "all in sight",
        "layer_warm_ms": "complete",
        "layer_cold_first_ms": "first picture of one not fetched",
        "layer_cold_ms": "complete, of one not fetched",
        "hover_ms": "hover",
    }
    lines = [["n", "lines", *times.values()]]
    for case, each in drawing.items():
        tokens, _, what = case.partition(", ")
        # What is published may be of a run that did not measure all of them.
        told = (
            spread(each[time], lambda ms: f"{ms:.1f} ms") if time in each else "–" for time in times
        )
        lines.append([tokens, what, *told])
    return lines


SECTION = Section(
    name="drawing",
    title="Drawing",
    words="""attnviz's head view only, with the data in the browser: from the event until the
browser has painted. Of more than 25,000 lines the strongest in sight make the first picture; then
come all in sight, and it is complete when those out of sight are painted, too. Neighbouring layers
are prefetched, and their lines found while the browser rests; a change to a layer that was not has
columns for itself.""",
    module="benchmarks.drawing",
    rows=rows,
    runs=(("64", "256", "1024"),),
    quick=(("64",),),
    seconds=55,
)


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [64, 256, 1024])
