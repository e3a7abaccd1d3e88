"""Pictures of a view: its own page, opened in an installed browser, hands them out.

The page draws from one list of marks; the SVG and the PNG are painted from the same list, so that
what Python saves is what the reader saw.
"""

from __future__ import annotations

import base64
import html
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from xml.etree import ElementTree as ET

from attnviz.pages.figure import FigureOptions

if TYPE_CHECKING:
    from playwright.sync_api import Page

_T = TypeVar("_T")

__all__ = [
    "HOW_TO_GET_ONE",
    "Picture",
    "PictureKind",
    "check_browser",
    "draw",
    "draw_for_notebook",
    "find_browser",
]

PictureKind = Literal["svg", "png", "pdf"]

# A page with 200 million weights on a slow machine; a usual one is drawn within a second.
_TIMEOUT_MS = 60_000
_WIDTH = 1100
_PNG_SCALE = 2

# The width of a notebook's cell: what stands beside each other in the page may stand below there.
_CELL_WIDTH = 860

_TITLE = "async () => (await document.querySelector('.attnviz').attnviz.figure()).title"
_HEIGHT = """() => {
  const { bottom } = document.querySelector(".attnviz").getBoundingClientRect();
  return Math.ceil(bottom + scrollY);
}"""
# What a figure cannot be comes back as words: an error would bring the browser's own with it.
_WITH_PROBLEM = """async (scale) => {
  try { return await (%s)(scale); }
  catch (error) {
    if (error.name !== "FigureError") throw error;
    return { problem: error.message };
  }
}"""
_SVG = _WITH_PROBLEM % "() => document.querySelector('.attnviz').attnviz.svg()"
_PNG = (
    _WITH_PROBLEM
    % """async (scale) => {
  const blob = await document.querySelector('.attnviz').attnviz.png(scale);
  const reader = new FileReader();
  const read = new Promise((resolve) => { reader.onload = () => resolve(reader.result); });
  reader.readAsDataURL(blob);
  return (await read).split(',')[1];
}"""
)
_SVG_NAMES = "{http://www.w3.org/2000/svg}"
# One page as large as the figure. Without a font of its own a page has metrics of another.
_PRINTED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
@page {{ size: {width}px {height}px; margin: 0; }}
html, body {{ margin: 0; padding: 0; background: {ground}; }}
svg {{ display: block; width: {width}px; height: {height}px; }}
</style></head><body>{svg}</body></html>"""


# The first draws as the others do, in half their time: it makes no window for a page.
_NAMES = (
    "chromium-headless-shell",
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
)
_APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_WINDOWS_PLACES = ("ProgramFiles", "ProgramFiles(x86)", "LocalAppData")

HOW_TO_GET_ONE = (
    "no Chrome or Chromium was found: install one (on Debian `apt-get install chromium`, anywhere "
    "else `python -m playwright install chromium`), or set ATTNVIZ_BROWSER to the path of one"
)


def draw(page: str, kind: PictureKind, options: FigureOptions | None = None) -> bytes:
    """Draw an exported page: as vectors with real text, or as pixels (twice the page's own).

    Returns
    -------
    bytes
        The file's content.

    Raises
    ------
    ValueError
        If the picture cannot be as `options` ask: what it shows needs more width.
    """
    asked = options or FigureOptions()
    return _in_browser(page, lambda tab: _picture(tab, kind, asked), asked.request())


@dataclass(frozen=True)
class Picture:
    """A page as a picture, and what is said of it.

    Attributes
    ----------
    png : bytes
        The picture.
    title : str
        What it shows, in words.
    height : int
        Pixels that the page itself takes in a notebook's cell.
    """

    png: bytes
    title: str
    height: int


def draw_for_notebook(page: str) -> Picture:
    """Draw an exported page as a picture, and measure it."""

    def made(tab: Page) -> Picture:
        png = _picture(tab, "png", FigureOptions())
        title = str(tab.evaluate(_TITLE))
        # High enough for all controls: below 600 pixels they are compact.
        tab.set_viewport_size({"width": _CELL_WIDTH, "height": 800})
        # Drawn anew for the narrower page, and laid out.
        tab.evaluate("() => new Promise((done) => setTimeout(done, 300))")
        tab.wait_for_selector("[data-attnviz-drawn]", timeout=_TIMEOUT_MS)
        return Picture(png, title, int(tab.evaluate(_HEIGHT)))

    return _in_browser(page, made)


def _picture(tab: Page, kind: PictureKind, options: FigureOptions) -> bytes:
    if kind == "png":
        png = base64.b64decode(_answer(tab.evaluate(_PNG, options.scale)))
        return _with_density(png, options.scale * 96)
    svg = _answer(tab.evaluate(_SVG, None))
    return svg.encode() if kind == "svg" else _pdf(tab, svg)


def _answer(said: Any) -> str:
    if isinstance(said, dict):
        raise ValueError(said["problem"])
    return str(said)


def _pdf(tab: Page, svg: str) -> bytes:
    """A figure as one page of its own size, printed by the browser that made it."""
    root = ET.fromstring(svg)  # noqa: S314 - our own
    title = root.findtext(f"{_SVG_NAMES}title") or ""
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    browser = tab.context.browser
    if browser is None:
        raise RuntimeError("the browser has gone away while it drew")
    # Of its own, without scripts: what is printed holds tokens of any text.
    printed = browser.new_context(java_script_enabled=False).new_page()
    # A page has a whole number of its own units: what is left at its edges has the same colour.
    ground = root.find(f"{_SVG_NAMES}rect[@width='100%']")
    printed.set_content(
        _PRINTED.format(
            title=html.escape(title),
            width=width,
            height=height,
            ground="none" if ground is None else ground.attrib["fill"],
            svg=svg,
        )
    )
    return printed.pdf(prefer_css_page_size=True, print_background=True, page_ranges="1")


def _with_density(png: bytes, dpi: float) -> bytes:
    """The same PNG with the number of its pixels to the metre, by which programs place it."""
    per_metre = max(1, round(dpi / 0.0254))
    body = b"pHYs" + struct.pack(">IIB", per_metre, per_metre, 1)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    # Behind the header, which is the first chunk: 8 bytes of signature, 25 of it.
    header = 8 + 25
    return png[:header] + chunk + png[header:]


def check_browser() -> str:
    """The browser that draws; an error, with the way to get one, before anything is computed."""
    try:
        import playwright.sync_api  # noqa: F401 - found out here, used in the thread
    except ImportError as error:
        raise ImportError(
            "SVG, PNG and PDF are drawn by an installed Chromium, which attnviz drives with "
            "Playwright: pip install 'attnviz[image]'. (The view's Export menu needs neither.)"
        ) from error
    browser = find_browser()
    if browser is None:
        raise RuntimeError(f"an SVG, PNG or PDF is drawn by a browser, and {HOW_TO_GET_ONE}")
    return browser


def _in_browser(page: str, use: Callable[[Page], _T], request: dict[str, Any] | None = None) -> _T:
    browser = check_browser()
    # In a thread of its own: Playwright refuses to run inside a notebook's event loop.
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(_opened, page, browser, use, request).result()


def _opened(
    page: str,
    browser_path: str,
    use: Callable[[Page], _T],
    request: dict[str, Any] | None,
) -> _T:
    from playwright.sync_api import Error, sync_playwright

    flags = ["--disable-gpu", "--disable-background-networking", "--disable-sync"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Chromium refuses to run as root with its sandbox; the page is our own and sees no network.
        flags.append("--no-sandbox")
    with (
        tempfile.TemporaryDirectory(prefix="attnviz-") as folder,
        sync_playwright() as playwright,
    ):
        file = Path(folder, "page.html")
        file.write_text(page, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=browser_path, args=flags)
        try:
            tab = browser.new_page(viewport={"width": _WIDTH, "height": 800})
            if request is not None:
                tab.add_init_script(f"globalThis.attnvizFigure = {json.dumps(request)}")
            tab.goto(file.as_uri())
            tab.wait_for_selector("[data-attnviz-drawn]", timeout=_TIMEOUT_MS)
            return use(tab)
        except Error as error:
            raise RuntimeError(f"the browser could not draw the page: {error}") from error
        finally:
            browser.close()


def find_browser() -> str | None:
    """The Chrome that ATTNVIZ_BROWSER names, else the machine's, else Playwright's own."""
    named = os.environ.get("ATTNVIZ_BROWSER")
    if named:
        return named if Path(named).is_file() else None
    for name in _NAMES:
        path = shutil.which(name)
        if path and _runs(path):
            return path
    folders = [os.environ[place] for place in _WINDOWS_PLACES if place in os.environ]
    windows = [str(Path(folder, "Google/Chrome/Application/chrome.exe")) for folder in folders]
    for path in (*_APPLICATIONS, *windows):
        if Path(path).is_file():
            return path
    return _playwrights_own()


def _runs(path: str) -> bool:
    """Whether it starts: Ubuntu's `chromium-browser` may be a note about a snap."""
    try:
        command = [path, "--version"]
        answer = subprocess.run(command, capture_output=True, timeout=60, check=False)  # noqa: S603 - a path that shutil.which found
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.returncode == 0


def _playwrights_own() -> str | None:
    code = (
        "from playwright.sync_api import sync_playwright as start\n"
        "with start() as playwright: print(playwright.chromium.executable_path)"
    )
    # In a process of its own: Playwright cannot be started twice in one.
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this Python, with the code above
    path = answer.stdout.strip()
    return path if path and Path(path).is_file() else None
