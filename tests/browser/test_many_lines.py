"""Very many lines of the head view: what is painted when, and that it is what one by one gives."""

from __future__ import annotations

import base64
import html
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.chromium import TIMEOUT, Watch
from marks import slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from playwright.sync_api import Browser, Locator, Page

    Open = Callable[..., Page]

LAYERS, HEADS = 3, 8
DRAWN = re.compile("^head:")

# Counts the calls that paint, and holds back what is to go on in another task while `held` is an
# array. What the page does first must not be held, so it is null at the start.
WATCH = """
window.painted = [];
window.strokes = 0;
window.fronts = 0;
window.measured = 0;
window.held = null;
const { clearRect, measureText, putImageData, stroke } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.clearRect = function (...area) {
  if (this.canvas.className === "av-front") window.fronts++;
  return clearRect.apply(this, area);
};
CanvasRenderingContext2D.prototype.measureText = function (text) {
  window.measured++;
  return measureText.call(this, text);
};
CanvasRenderingContext2D.prototype.putImageData = function (image, x, y) {
  if (this.canvas.className === "av-back") window.painted.push([x, y, image.width, image.height]);
  return putImageData.call(this, image, x, y);
};
CanvasRenderingContext2D.prototype.stroke = function (...path) {
  if (this.canvas.className === "av-back") window.strokes++;
  return stroke.apply(this, path);
};
const { postMessage } = MessagePort.prototype;
MessagePort.prototype.postMessage = function (...message) {
  if (window.held) window.held.push(() => postMessage.apply(this, message));
  else postMessage.apply(this, message);
};
// Neither the timer that stands in for a frame.
const { setTimeout } = window;
window.setTimeout = (run, wait, ...rest) =>
  window.held && wait === 50 ? 0 : setTimeout(run, wait, ...rest);
window.release = () => {
  const all = window.held;
  window.held = null;
  for (const each of all) each();
};
"""
# One worker brings the parts in the order in which they are wanted.
ONE_WORKER = """
Object.defineProperty(Navigator.prototype, "hardwareConcurrency", { get: () => 1 });
"""
# Workers are counted, and what they send is held back while `kept` is an array.
WORKERS = """
window.workers = [];
window.kept = null;
window.Worker = class extends Worker {
  constructor(...address) {
    super(...address);
    window.workers.push(this);
  }
  set onmessage(run) {
    super.onmessage = (message) => {
      if (window.kept) window.kept.push(() => run(message));
      else run(message);
    };
  }
};
"""
NO_WORKERS = "delete window.Worker;"
REFUSED = """
window.Worker = class { constructor() { throw new DOMException("no", "SecurityError"); } };
"""
FAILING = """
window.Worker = class extends Worker {
  constructor() {
    super(URL.createObjectURL(new Blob(["throw new Error('no worker')"])));
  }
};
"""
FORBIDDEN = """
window.Worker = class extends Worker {
  constructor() { super("data:text/javascript,0"); }
};
"""
# A worker that waits is ended at once, and not after seconds.
SOON = """
const { setTimeout: after } = window;
window.setTimeout = (run, wait, ...rest) => after(run, wait === 10_000 ? 0 : wait, ...rest);
"""
HIDDEN = """
Object.defineProperty(Document.prototype, "hidden", { get: () => true });
window.requestAnimationFrame = () => 0;
"""
# The lines as they are exported, each painted by the browser on a canvas in half precision: on one
# of bytes, every line rounds what is there, and faint ones nearly vanish.
ONE_BY_ONE = """async (background) => {
  const root = document.querySelector(".attnviz");
  const canvas = root.querySelector(".av-back");
  const { scene } = await root.attnviz.figure();
  const marks = scene.back.filter(({ kind }) => kind === "curves");
  const scale = devicePixelRatio;
  const blank = document.createElement("canvas");
  [blank.width, blank.height] = [canvas.width, canvas.height];
  const context = blank.getContext("2d", { colorType: "float16" });
  // Where the figure has the picture, by whole pixels: the heading of the queries stands at known
  // places in it, and the first pixel with a line is where lines begin, rounded down.
  const own = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const upright = marks[0].columns === "vertical";
  let first = Infinity;
  for (let i = 3; i < own.length; i += 4) {
    const at = (i - 3) / 4;
    const place = upright ? at % canvas.width : Math.floor(at / canvas.width);
    if (own[i] > 0 && place < first) first = place;
  }
  const heading = scene.front.find((mark) => mark.kind === "text" && mark.text === "query");
  const across = upright ? marks[0].x0[0] : marks[0].y0[0];
  const moved = Math.floor(across - first / scale + 1e-3);
  const along = upright ? heading.y - 30 : heading.x - 8;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.translate(...(upright ? [-moved, -along] : [-along, -moved]));
  let count = 0;
  for (const mark of marks) {
    context.strokeStyle = mark.color;
    for (let i = 0; i < mark.count; i++) {
      const [x0, y0, x1, y1] = [mark.x0[i], mark.y0[i], mark.x1[i], mark.y1[i]];
      // In steps, of which the faintest has one.
      context.globalAlpha = Math.max(1, Math.round(mark.opacity[i] * 192)) / 192;
      context.lineWidth = mark.width[i];
      context.beginPath();
      context.moveTo(x0, y0);
      if (upright) context.bezierCurveTo((x0 + x1) / 2, y0, (x0 + x1) / 2, y1, x1, y1);
      else context.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
      context.stroke();
      count++;
    }
  }
  const there = context.getImageData(0, 0, canvas.width, canvas.height).data;
  const over = (data, i, c) => background[c] + ((data[i + c] - background[c]) * data[i + 3]) / 255;
  // Of each pixel, and of squares of pixels: where in a pixel an edge is, browsers round.
  const differences = (side) => {
    const across = Math.ceil(canvas.width / side);
    const sums = new Float64Array(3 * across * Math.ceil(canvas.height / side));
    const inked = new Uint8Array(sums.length);
    for (let y = 0, i = 0; y < canvas.height; y++)
      for (let x = 0; x < canvas.width; x++, i += 4) {
        if (own[i + 3] === 0 && there[i + 3] === 0) continue;
        const at = 3 * (Math.floor(y / side) * across + Math.floor(x / side));
        for (let c = 0; c < 3; c++) {
          sums[at + c] += (over(own, i, c) - over(there, i, c)) / side / side;
          inked[at + c] = 1;
        }
      }
    const off = sums.filter((_, i) => inked[i]).map(Math.abs).sort();
    const mean = off.reduce((a, b) => a + b, 0) / off.length;
    return { count: off.length, mean, usual: off[Math.floor(0.99 * off.length)] };
  };
  return { count, pixels: differences(1), squares: differences(6) };
}"""


def record(tokens: int) -> av.AttentionRecord:
    """Causal weights, some sharp and most faint."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((LAYERS, HEADS, tokens, tokens), generator=generator)
    distance = (torch.arange(tokens)[:, None] - torch.arange(tokens)).float()
    logits = (logits - 0.02 * distance).masked_fill(distance < 0, -torch.inf)
    texts = [f"token{place}" for place in range(tokens)]
    return av.AttentionRecord.from_weights(torch.softmax(logits, -1), texts)


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The page of so many tokens with all lines of all heads, made once."""
    made: dict[tuple[object, ...], Path] = {}

    def page_of(tokens: int, heads: int = HEADS, **options: Any) -> Path:
        key = (tokens, heads, *sorted(options.items()))
        if key not in made:
            window = [0, tokens]
            everything: dict[str, Any] = {"query_window": window, "key_window": window}
            view = av.HeadView(
                record(tokens), heads=list(range(heads)), top_k=None, **everything, **options
            )
            made[key] = view.save(tmp_path_factory.mktemp("lines") / "page.html")
        return made[key]

    return page_of


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Open]:
    """Opens a page on a screen of so many pixels to one of CSS, watched."""
    contexts = []
    watch = Watch()

    def open_page(
        path: Path,
        scale: float = 1,
        script: str = WATCH,
        known: str = "",
        frame: str = "",
        **options: Any,
    ) -> Page:
        if known:
            watch.known += (known,)
        context = chromium.new_context(
            viewport={"width": 1000, "height": 640},
            device_scale_factor=scale,
            offline=True,
            **options,
        )
        context.set_default_timeout(TIMEOUT)
        contexts.append(context)
        page = context.new_page()
        watch.follow(page)
        page.add_init_script(script)
        page.goto(path.as_uri())
        root = page.frame_locator(frame) if frame else page
        expect(root.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", DRAWN)
        return page

    yield open_page
    for context in contexts:
        context.close()
    watch.check()


def pixels(page: Page) -> NDArray[np.uint8]:
    """What is on the canvas of all lines."""
    values = page.locator(".av-back").evaluate(
        """(canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          let text = "";
          for (let i = 0; i < data.length; i += 8192)
            text += String.fromCharCode(...data.subarray(i, i + 8192));
          return btoa(text);
        }"""
    )
    return np.frombuffer(base64.b64decode(values), np.uint8)


def rows_of(root: Locator) -> int:
    """How many pixels high the canvas is."""
    return int(root.locator(".av-back").evaluate("(canvas) => canvas.height"))


@pytest.mark.parametrize(
    ("size", "scale", "look"),
    [
        ((200, 2), 1, ("light", "vertical")),
        slow((150, 3), 1.25, ("light", "horizontal")),
        slow((150, 3), 2, ("dark", "vertical")),
    ],
)
def test_the_picture_is_that_of_lines_painted_one_by_one(
    open_page: Open,
    page_of: Callable[..., Path],
    size: tuple[int, int],
    scale: float,
    look: tuple[str, str],
) -> None:
    theme, orientation = look
    page = open_page(page_of(*size, theme=theme, orientation=orientation), scale)
    assert page.evaluate("strokes") == 0, "the canvas painted lines itself"
    background = [255, 255, 255] if theme == "light" else [23, 25, 30]
    found = page.evaluate(ONE_BY_ONE, background)
    assert found["count"] > 25_000
    # Steps of 255. Chromium itself is off from a line's exact shape by a dozen steps on average.
    assert found["pixels"]["count"] > 500_000
    assert found["pixels"]["mean"] < 3
    assert found["squares"]["mean"] < 1
    assert found["squares"]["usual"] < 4


def test_what_is_in_sight_comes_first_and_scrolling_brings_the_rest(
    open_page: Open, page_of: Callable[..., Path]
) -> None:
    page = open_page(page_of(400, 2), script=WATCH + ONE_WORKER, reduced_motion="reduce")
    root = page.locator(".attnviz")
    height = rows_of(root)
    top = page.locator(".av-back").evaluate("(canvas) => canvas.getBoundingClientRect().top")
    page.evaluate("held = []; painted = []; fronts = 0; measured = 0")
    # Not by the mouse, which would change the front on its way.
    page.locator("[aria-label='Layer 1']").evaluate("(button) => button.click()")
    back = page.locator(".av-back")
    expect(back).to_have_attribute("data-strongest", "head:self:1")
    assert root.get_attribute("data-attnviz-drawn") is None
    # The tokens are painted for the new layer alone, and are as wide as before.
    assert page.evaluate("[fronts, measured]") == [1, 0]
    # The first picture: the parts in sight and no other.
    coarse = page.evaluate("painted")
    in_sight = 640 - top
    assert [y for _, y, _, _ in coarse] == sorted(y for _, y, _, _ in coarse)
    assert all(y < in_sight for _, y, _, _ in coarse)
    assert coarse[-1][1] + coarse[-1][3] >= in_sight
    # The layer of before is gone where this one is not yet painted.
    below = coarse[-1][1] + coarse[-1][3]
    rows = pixels(page).reshape(height, -1, 4)
    assert rows[:below, :, 3].any()
    assert not rows[below:, :, 3].any()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait_for_function("scrollY > 0")
    page.evaluate("painted = []; release()")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    expect(back).not_to_have_attribute("data-strongest", re.compile("."))
    refined = page.evaluate("painted")
    # Every part once, those that were scrolled to first.
    assert refined[0][1] > coarse[-1][1]
    assert len({y for _, y, _, _ in refined}) == len(refined)
    assert sum(high for *_, high in refined) >= height - 2 * 60
    assert page.evaluate("strokes") == 0


@pytest.mark.slow
def test_another_layer_ends_what_is_under_way(
    open_page: Open, page_of: Callable[..., Path]
) -> None:
    page = open_page(page_of(400, 2))
    root = page.locator(".attnviz")
    page.evaluate("held = []")
    page.locator("[aria-label='Layer 1']").click()
    expect(page.locator(".av-back")).to_have_attribute("data-strongest", "head:self:1")
    page.locator("[aria-label='Layer 2']").click()
    expect(page.locator(".av-back")).to_have_attribute("data-strongest", "head:self:2")
    page.evaluate("painted = []; release()")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:2")
    refined = page.evaluate("painted")
    assert len({y for _, y, _, _ in refined}) == len(refined), "a part was painted for both"
    other = open_page(page_of(400, 2, layer=2))
    assert (pixels(page) == pixels(other)).all()


@pytest.mark.slow
def test_paper_gets_the_whole_picture_at_once(
    open_page: Open, page_of: Callable[..., Path]
) -> None:
    page = open_page(page_of(400, 2))
    root = page.locator(".attnviz")
    page.evaluate("held = []")
    page.locator("[aria-label='Layer 1']").click()
    expect(page.locator(".av-back")).to_have_attribute("data-strongest", "head:self:1")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert root.get_attribute("data-attnviz-drawn") == "head:self:1"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    other = open_page(page_of(400, 2, layer=1))
    assert (pixels(page) == pixels(other)).all()
    # A picture that is painted for the paper: in another theme.
    dark = open_page(page_of(400, 2, theme="dark"))
    dark.evaluate("held = []")
    dark.emulate_media(media="print")
    expect(dark.locator(".attnviz")).to_have_attribute("data-theme", "light")
    assert dark.locator(".attnviz").get_attribute("data-attnviz-drawn") == "head:self:0"


def test_the_pointer_paints_no_line_anew(open_page: Open, page_of: Callable[..., Path]) -> None:
    page = open_page(page_of(400, 2))
    page.evaluate("painted = []")
    box = page.locator(".av-plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 120)
    expect(page.locator(".av-hint")).to_be_visible()
    assert page.evaluate("painted") == []


def test_a_hidden_tab_gets_the_whole_picture(open_page: Open, page_of: Callable[..., Path]) -> None:
    shown = open_page(page_of(400, 2))
    hidden = open_page(page_of(400, 2), script=WATCH + HIDDEN)
    assert (pixels(shown) == pixels(hidden)).all()


@pytest.mark.parametrize("orientation", ["vertical", slow("horizontal")])
def test_workers_paint_what_the_page_itself_would(
    open_page: Open, page_of: Callable[..., Path], orientation: str
) -> None:
    path = page_of(400, 2, orientation=orientation)
    by_workers = open_page(path, script=WATCH + WORKERS)
    assert by_workers.evaluate("workers.length") == by_workers.evaluate(
        "Math.min(4, navigator.hardwareConcurrency)"
    )
    alone = open_page(path, script=WATCH + NO_WORKERS)
    assert (pixels(by_workers) == pixels(alone)).all()
    # Another layer, with the same workers.
    for page in (by_workers, alone):
        page.locator("[aria-label='Layer 1']").click()
        expect(page.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", "head:self:1")
    assert len(by_workers.workers) == by_workers.evaluate("workers.length")
    assert (pixels(by_workers) == pixels(alone)).all()


@pytest.mark.parametrize(
    ("workers", "says"),
    [(REFUSED, ""), slow(FAILING, ""), (FORBIDDEN, "worker.*violates.*Content Security Policy")],
)
def test_where_workers_are_refused_the_page_paints_all(
    open_page: Open, page_of: Callable[..., Path], workers: str, says: str
) -> None:
    page = open_page(page_of(400, 2), script=WATCH + workers, known=says)
    assert page.workers == []
    other = open_page(page_of(400, 2))
    assert (pixels(page) == pixels(other)).all()


def test_what_workers_bring_too_late_is_left(open_page: Open, page_of: Callable[..., Path]) -> None:
    page = open_page(page_of(400, 2), script=WATCH + WORKERS)
    root = page.locator(".attnviz")
    page.evaluate("kept = []")
    page.locator("[aria-label='Layer 1']").click()
    page.wait_for_function("() => kept.length === workers.length")
    assert root.get_attribute("data-attnviz-drawn") is None
    # Paper does not wait for them.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert root.get_attribute("data-attnviz-drawn") == "head:self:1"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.evaluate("painted = []; for (const run of kept.splice(0)) run()")
    assert page.evaluate("painted") == []
    # Nor does another layer, whose parts come after those that are under way.
    page.locator("[aria-label='Layer 2']").click()
    page.wait_for_function("() => kept.length === workers.length")
    page.locator("[aria-label='Layer 0']").click()
    page.wait_for_function("() => document.querySelector('[data-strongest=\"head:self:0\"]')")
    page.evaluate("painted = []; { const late = kept; kept = null; for (const run of late) run() }")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    refined = page.evaluate("painted")
    assert len({y for _, y, _, _ in refined}) == len(refined)
    assert (pixels(page) == pixels(open_page(page_of(400, 2)))).all()


def test_workers_end_when_they_have_nothing_to_do(
    open_page: Open, page_of: Callable[..., Path]
) -> None:
    page = open_page(page_of(400, 2), script=WATCH + WORKERS + SOON)
    page.wait_for_function("() => workers.length > 0")
    for layer in (1, 2):
        page.locator(f"[aria-label='Layer {layer}']").click()
        expect(page.locator(".attnviz")).to_have_attribute(
            "data-attnviz-drawn", f"head:self:{layer}"
        )
        while page.workers:
            page.wait_for_timeout(50)
    assert page.evaluate("workers.length") > page.evaluate("navigator.hardwareConcurrency")


def test_a_worker_reaches_no_network(open_page: Open, page_of: Callable[..., Path]) -> None:
    page = open_page(page_of(50, 2), known="example\\.invalid|violates.*Content Security Policy")
    script = """
    const broken = [];
    addEventListener("securitypolicyviolation", (event) => {
      broken.push(event.effectiveDirective);
      if (broken.length === 3) postMessage(broken.sort());
    });
    fetch("https://example.invalid/").catch(() => {});
    for (const run of [() => importScripts("https://example.invalid/code.js"), () => eval("1")])
      try { run(); } catch {}
    """
    found = page.evaluate(
        """(script) => new Promise((resolve) => {
          const worker = new Worker(URL.createObjectURL(new Blob([script])));
          worker.onmessage = ({ data }) => resolve(data);
        })""",
        script,
    )
    assert found == ["connect-src", "script-src", "script-src-elem"]


@pytest.mark.slow
def test_workers_paint_in_a_sandbox(
    open_page: Open, page_of: Callable[..., Path], tmp_path: Path
) -> None:
    path = page_of(400, 2)
    host = tmp_path / "host.html"
    text = html.escape(path.read_text(encoding="utf-8"))
    host.write_text(
        f'<iframe sandbox="allow-scripts" srcdoc="{text}" height="600"></iframe>', encoding="utf-8"
    )
    page = open_page(host, script=WATCH + WORKERS, frame="iframe")
    assert page.frames[1].evaluate("workers.length") > 0
    assert len(page.workers) > 0
