"""Make docs/images/head-view.webp, an animation of the head view of the README's example.

In the animation, a pointer clicks on a layer, on three heads and on the token "it". The weights of
this token then appear as bars.

.venv/bin/python scripts/make_animation.py
"""

from __future__ import annotations

import io
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import Locator, Page, sync_playwright

import attnviz as av
from attnviz.pages.image import INSTALL_BROWSER, find_browser
from make_pictures import IMAGES, TEXT, minilm

TOKEN, LAYER, HEADS = "it", 3, (1, 7, 9)
WIDTH = 820
MAX_BYTES = 1_500_000
# Durations of frames in milliseconds: during a movement, after a click, and at the end.
STEP, HOLD, END = 60, 900, 3200
# Number of frames in one movement of the pointer.
STEPS = 9
# Outline of the pointer, in pixels from its tip.
ARROW = ((0, 0), (0, 17), (4, 13), (7, 19.5), (9.8, 18.3), (6.9, 12), (12.3, 12))
# Factor by which the pointer is drawn too large. Scaling it down makes its edges smooth.
FINER = 4


@dataclass
class Film:
    """Frames of an animation: screenshots of a page, with a drawn pointer."""

    page: Page
    # Position of the pointer, at first beside the title, because the plot would show a tooltip.
    at: tuple[float, float] = (WIDTH - 260, 48)
    frames: list[Image.Image] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)

    def take(self, duration: int) -> None:
        """Add a screenshot that is shown for `duration` milliseconds, after the page has drawn."""
        self.page.wait_for_selector("[data-attnviz-drawn]")
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        frame = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        with_pointer(frame, self.at)
        if self.frames and frame.tobytes() == self.frames[-1].tobytes():
            self.durations[-1] += duration
        else:
            self.frames.append(frame)
            self.durations.append(duration)

    def move(self, to: tuple[float, float]) -> None:
        """Move the pointer in `STEPS` frames, more slowly at the start and at the end."""
        (x, y), (right, below) = self.at, to
        for step in range(1, STEPS + 1):
            way = step / STEPS
            way = way * way * (3 - 2 * way)
            self.at = (x + way * (right - x), y + way * (below - y))
            self.page.mouse.move(*self.at)
            self.take(STEP)

    def click(self, hold: int = HOLD) -> None:
        self.take(STEP * 3)
        self.page.mouse.click(*self.at)
        self.take(hold)

    def press(self, element: Locator, hold: int = HOLD) -> None:
        """Move the pointer to an element and click it."""
        box = element.bounding_box()
        if box is None:
            sys.exit(f"{element} is not in sight")
        self.move((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
        self.click(hold)

    def save(self, path: Path) -> None:
        """Write the animation with the best quality that needs less than `MAX_BYTES` bytes."""
        first, *rest = self.frames
        for quality in (90, 80, 70, 60, 50):
            content = io.BytesIO()
            first.save(
                content,
                "WEBP",
                save_all=True,
                append_images=rest,
                duration=self.durations,
                loop=0,
                quality=quality,
                method=6,
            )
            if content.tell() < MAX_BYTES:
                path.write_bytes(content.getvalue())
                return
        sys.exit(f"the animation takes {content.tell():,} bytes, more than {MAX_BYTES:,}")


def with_pointer(frame: Image.Image, at: tuple[float, float]) -> None:
    """Draw the pointer into a screenshot, in place."""
    size = 24 * FINER
    arrow = Image.new("RGBA", (size, size))
    points = [((x + 1.5) * FINER, (y + 1.5) * FINER) for x, y in ARROW]
    draw = ImageDraw.Draw(arrow)
    draw.polygon(points, fill="#1c1f26")
    draw.line([*points, points[0], points[1]], fill="#ffffff", width=int(1.4 * FINER))
    small = arrow.resize((24, 24), Image.Resampling.LANCZOS)
    frame.paste(small, (round(at[0] - 1.5), round(at[1] - 1.5)), small)


def place_of(page: Page, position: int) -> tuple[float, float]:
    """Find the position of a query's label on the page, by clicks that pin queries."""
    plot = page.locator(".av-plot").bounding_box()
    if plot is None:
        sys.exit("the head view has no picture")
    # Clicks left of a label also pin its token, so the last click in a row that pins it is on the
    # label.
    last_match: tuple[float, float] | None = None
    left, top = int(plot["x"]) + 20, int(plot["y"]) + 20
    for y in range(top, int(plot["y"] + plot["height"]), 8):
        for x in range(left, int(plot["x"] + plot["width"] / 2), 10):
            page.mouse.click(x, y)
            address = str(page.evaluate("() => location.hash"))
            page.keyboard.press("Escape")
            if f"token={position}" in address and "key=" not in address:
                last_match = (x - 8, y + 5)
            elif last_match is not None:
                return last_match
            elif "token=" in address and "key=" not in address:
                # The row belongs to another query.
                break
    sys.exit(f"no query {position} in the picture")


def play(page: Page, position: int) -> Film:
    """Perform the clicks of a reader on the open page, and record them."""
    view = page.url
    page.goto(f"{view}#layer={LAYER}&heads={','.join(map(str, HEADS))}")
    page.wait_for_selector("[data-attnviz-drawn]")
    # Make the window high enough for the longest captions and for the bars of three heads.
    height = page.evaluate("() => document.documentElement.scrollHeight")
    page.set_viewport_size({"width": WIDTH, "height": height + 40})
    token = place_of(page, position)
    page.goto("about:blank")
    page.goto(view)
    page.wait_for_selector("[data-attnviz-drawn]")
    page.mouse.move(*Film(page).at)
    film = Film(page)
    film.take(HOLD)
    film.press(page.get_by_role("button", name=f"Layer {LAYER}", exact=True))
    for head in HEADS:
        film.press(page.get_by_role("button", name=f"Head {head}", exact=True), HOLD // 2)
    film.move(token)
    # Leave the pointer on the token, because it would open tooltips elsewhere.
    film.click(END)
    return film


def main() -> None:
    """Record the example of the README and write the animation."""
    path = find_browser()
    if path is None:
        sys.exit(f"the animation is drawn by a browser, and {INSTALL_BROWSER}")
    record = av.extract(minilm(), TEXT)
    # The view's title is the name of the model. The folder's name would not be informative.
    record.model = "all-MiniLM-L6-v2"
    position = record.tokens.text.index(TOKEN)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = av.HeadView(record, theme="light", heads=[]).save(Path(folder, "view.html"))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 800})
        page.goto(page_file.as_uri())
        film = play(page, position)
        browser.close()
    target = IMAGES / "head-view.webp"
    film.save(target)
    seconds = sum(film.durations) / 1000
    print(f"{target}: {len(film.frames)} frames, {seconds:.0f} s, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
