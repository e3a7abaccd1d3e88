"""Open one page in a new Chromium, and time its drawing and its responses.

    python -m benchmarks.opening VIEW TOOL PAGE.html FOLDER_OF_SCRIPTS CHROMIUM TIMES

The page is opened up to TIMES times within a limit of seconds, each in a new browser. Responses are
measured the first time.

Each figure is written as a line of JSON at once, so that the figures before a hang are kept.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from playwright.sync_api import Error, Page, Route, ViewportSize, sync_playwright

from benchmarks.tools import VIEWS, Tool

CHROMIUM_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
VIEWPORT: ViewportSize = {"width": 1000, "height": 800}

# BertViz's pages load these scripts from a CDN. jQuery 2.2.4 replaces 2.0.0, which npm lacks.
SCRIPTS = {
    "require": "requirejs/require.js",
    "d3": "d3/dist/d3.min.js",
    "jquery": "jquery/dist/jquery.min.js",
}
PACKAGES = ("requirejs@2.3.6", "d3@5.7.0", "jquery@2.2.4")

# `drawn` polls once a frame, and takes the time when the callbacks of the next frame run: then the
# picture is on the screen. `answered` acts at the start of a frame, and takes the time after the
# browser has run the handlers, laid the page out and painted. A message sent from a frame's
# callback arrives after that, so the time is not rounded up to whole frames.
WATCH = """
window.drawn = (done) => new Promise((resolve) => {
  const look = () => {
    if (done()) requestAnimationFrame(() => resolve(performance.now()));
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
});
window.answered = (act, done) => new Promise((resolve) => {
  let start;
  let seen = false;
  const channel = new MessageChannel();
  const frame = () => {
    if (start === undefined) {
      start = performance.now();
      act();
    }
    seen = done();
    channel.port2.postMessage(null);
  };
  channel.port1.onmessage = () => {
    if (seen) resolve(performance.now() - start);
    else requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
});
"""
# Resolves when the picture is drawn. Rejects with an error of the page's scripts.
FIRST = """
window.first = Promise.race([
  window.drawn(() => DRAWN),
  new Promise((_, reject) => addEventListener("error", ({ message }) => reject(message))),
]);
"""
# Pauses before a change of layer, until the neighbouring layers have loaded, and before the pointer
# moves.
_SETTLE_MS, _MOVE_MS = 300, 100
# Maximum number of changes of layer and of pointer moves, and seconds for each kind.
_MAX_CHANGES, _MAX_HOVERS = 5, 8
_MAX_SECONDS = 5.0


def _say(**figures: float | list[float]) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def serve_script(route: Route, scripts: Path) -> None:
    """Answer a request to the CDN from the packages installed in a folder."""
    path = route.request.url.rpartition("libs")[2]
    name = next(name for name in SCRIPTS if f"/{name}" in path)
    route.fulfill(path=scripts / "node_modules" / SCRIPTS[name])


def _answers(page: Page, act: str, done: str, numbers: list[int], wait_ms: float) -> list[float]:
    """Return the seconds of the actions, as many as fit into the time, at least one.

    The first of several is dropped, because it runs code for the first time.
    """
    seconds: list[float] = []
    start = time.perf_counter()
    page.wait_for_timeout(_SETTLE_MS)
    for number in numbers:
        page.wait_for_timeout(wait_ms)
        code = f"(i) => window.answered(() => {{ {act} }}, () => {done})"
        seconds.append(page.evaluate(code, number) / 1e3)
        if time.perf_counter() - start > _MAX_SECONDS:
            break
    return seconds[1:] or seconds


def main(arguments: list[str]) -> None:
    """Open the page, change its layer, move the pointer over it, and open it again."""
    view, name, path, scripts, browser_path, times = arguments
    tool = VIEWS[view][name]
    drawn: list[float] = []
    with sync_playwright() as playwright:
        while len(drawn) < int(times) and sum(drawn) < _MAX_SECONDS:
            browser = playwright.chromium.launch(
                executable_path=browser_path, args=list(CHROMIUM_FLAGS)
            )
            page = browser.new_page(viewport=VIEWPORT)
            # The parent process ends this one after its limit.
            page.set_default_timeout(0)
            page.route(
                "https://cdnjs.cloudflare.com/**", lambda route: serve_script(route, Path(scripts))
            )
            page.add_init_script(WATCH + FIRST.replace("DRAWN", tool.drawn))
            page.goto(Path(path).as_uri(), wait_until="commit")
            # The clock of performance.now() begins with the navigation.
            drawn.append(page.evaluate("() => window.first") / 1e3)
            _say(drawn_s=drawn)
            if len(drawn) == 1:
                _first_time(page, tool)
            browser.close()


def _first_time(page: Page, tool: Tool) -> None:
    _say(nodes=page.evaluate("() => document.querySelectorAll('*').length"))
    if tool.layer:
        layers = [1 - turn % 2 for turn in range(_MAX_CHANGES)]
        _say(layer_s=_answers(page, tool.layer, tool.changed, layers, _SETTLE_MS))
    if tool.hover:
        _say(hover_s=_answers(page, tool.hover, tool.lit, [*range(_MAX_HOVERS)], _MOVE_MS))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Error as error:
        sys.exit(error.message.splitlines()[0])
