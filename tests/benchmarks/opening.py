"""Opens one page in a new Chromium: when it is drawn, how quickly it answers.

    cd tests && python -m benchmarks.opening VIEW TOOL PAGE.html FOLDER_OF_SCRIPTS CHROMIUM TIMES

It is opened so many times, each in a new browser, or as often as fits into some seconds; how it
answers is measured the first time.

Writes a line of JSON for every figure as soon as it is there, so that who ends a page that hangs
keeps what was measured until then.
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

# BertViz's pages ask a CDN for them; jQuery 2.2.4 stands for 2.0.0, which npm does not have.
SCRIPTS = {
    "require": "requirejs/require.js",
    "d3": "d3/dist/d3.min.js",
    "jquery": "jquery/dist/jquery.min.js",
}
PACKAGES = ("requirejs@2.3.6", "d3@5.7.0", "jquery@2.2.4")

# `drawn` looks once a frame, and takes the time when the callbacks of the next frame run: then the
# picture is on the screen. `answered` acts at the start of a frame and takes the time when the
# browser has run the handlers, laid the page out and painted: a message that is sent from a
# frame's callback comes after that. So it is not rounded up to whole frames.
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
# Resolves when the picture is there, and is rejected by what the page's scripts throw.
FIRST = """
window.first = Promise.race([
  window.drawn(() => DRAWN),
  new Promise((_, reject) => addEventListener("error", ({ message }) => reject(message))),
]);
"""
# Before a change of layer, so long that the neighbours have come, and before the pointer moves.
_SETTLE_MS, _MOVE_MS = 300, 100
# Of each: as many as come within the time.
_MOST_CHANGES, _MOST_HOVERS = 5, 8
_MOST_SECONDS = 5.0


def _say(**figures: float | list[float]) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def serve_script(route: Route, scripts: Path) -> None:
    """Answer a request to the CDN from the packages that are installed in a folder."""
    path = route.request.url.rpartition("libs")[2]
    name = next(name for name in SCRIPTS if f"/{name}" in path)
    route.fulfill(path=scripts / "node_modules" / SCRIPTS[name])


def _answers(page: Page, act: str, done: str, places: list[int], wait_ms: float) -> list[float]:
    """Seconds of each, as many as come within the time, and at least one.

    Of several without the first, in which code is run for the first time.
    """
    seconds: list[float] = []
    start = time.perf_counter()
    page.wait_for_timeout(_SETTLE_MS)
    for place in places:
        page.wait_for_timeout(wait_ms)
        code = f"(i) => window.answered(() => {{ {act} }}, () => {done})"
        seconds.append(page.evaluate(code, place) / 1e3)
        if time.perf_counter() - start > _MOST_SECONDS:
            break
    return seconds[1:] or seconds


def main(arguments: list[str]) -> None:
    """Open the page, change its layer, move the pointer over it; then open it again."""
    view, name, path, scripts, browser_path, times = arguments
    tool = VIEWS[view][name]
    drawn: list[float] = []
    with sync_playwright() as playwright:
        while len(drawn) < int(times) and sum(drawn) < _MOST_SECONDS:
            browser = playwright.chromium.launch(
                executable_path=browser_path, args=list(CHROMIUM_FLAGS)
            )
            page = browser.new_page(viewport=VIEWPORT)
            # Whoever started this ends it when it takes too long.
            page.set_default_timeout(0)
            page.route(
                "https://cdnjs.cloudflare.com/**", lambda route: serve_script(route, Path(scripts))
            )
            page.add_init_script(WATCH + FIRST.replace("DRAWN", tool.drawn))
            page.goto(Path(path).as_uri(), wait_until="commit")
            # On performance.now()'s own clock, which begins with the navigation.
            drawn.append(page.evaluate("() => window.first") / 1e3)
            _say(drawn_s=drawn)
            if len(drawn) == 1:
                _first_time(page, tool)
            browser.close()


def _first_time(page: Page, tool: Tool) -> None:
    _say(nodes=page.evaluate("() => document.querySelectorAll('*').length"))
    if tool.layer:
        places = [1 - turn % 2 for turn in range(_MOST_CHANGES)]
        _say(layer_s=_answers(page, tool.layer, tool.changed, places, _SETTLE_MS))
    if tool.hover:
        _say(hover_s=_answers(page, tool.hover, tool.lit, [*range(_MOST_HOVERS)], _MOVE_MS))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Error as error:
        sys.exit(error.message.splitlines()[0])
