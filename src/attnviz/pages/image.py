"""Figures of a view as SVG, PNG or PDF, drawn in an installed browser.

The browser opens a page with the code of the view and without data. The server of the view answers
its requests, as it answers those of the view in a notebook, so the figure has the same numbers. The
code draws the view on the screen and the figure from the same list of shapes and texts, so the
figure looks like the view.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from xml.etree import ElementTree as ET

from attnviz.pages.figure import PNG_SCALE, FigureOptions
from attnviz.server.base import BaseServer
from attnviz.utils.host import warn_caller
from attnviz.utils.progress import show_progress

if TYPE_CHECKING:
    from playwright.sync_api import Page

_T = TypeVar("_T")

PictureKind = Literal["svg", "png", "pdf"]

# Maximum time in milliseconds to wait for a page that sends no requests. Most pages have drawn
# their view in less than a second.
_TIMEOUT_MS = 60_000
_DRAWN_OR_FAILED = "[data-attnviz-drawn], [data-attnviz-state=error]"
# Width of the browser's window in CSS pixels.
_WIDTH = 1100

# Pixels per CSS pixel (300 per inch) for which the cells of a matrix in an SVG or PDF are computed.
_VECTOR_SCALE = 300 / 96

_TITLE = "async () => (await document.querySelector('.attnviz').attnviz.figure()).title"
# If the page raises a FigureError, return its message as a value. If the exception itself reached
# Python, its message would include the browser's stack trace.
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
# HTML document with a figure in the upper left corner. It is printed as a PDF of one page, which is
# a little larger than the figure, because the browser rounds its size. `_crop` removes the rest.
# Bold text of a font without bold letters is not made bold, because it would be a Type 3 font.
_PRINTED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
@page {{ size: calc({width}px + 2px) calc({height}px + 2px); margin: 0; }}
html, body {{ margin: 0; padding: 0; background: {ground}; font-synthesis: none; }}
svg {{ display: block; width: {width}px; height: {height}px; }}
</style></head><body>{svg}</body></html>"""


# Names of the programs to search for, in this order. The headless shell is first, because it has no
# windows and draws a figure in half the time.
_NAMES = (
    "chromium-headless-shell",
    *("chromium", "google-chrome", "google-chrome-stable", "chrome"),
)
# Paths of browsers in macOS.
_APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
# Environment variables with the folders in which Chrome may be installed in Windows.
_WINDOWS_FOLDERS = ("ProgramFiles", "ProgramFiles(x86)", "LocalAppData")

INSTALL_BROWSER = (
    "no Chrome or Chromium was found. Install one (on Debian with `apt-get install chromium`, "
    "elsewhere with `python -m playwright install chromium`), or set ATTNVIZ_BROWSER to its path."
)


class Drawing(NamedTuple):
    """View to draw: a page without data, and the server that answers the requests of its view."""

    page: str
    server: BaseServer


def draw(drawing: Drawing, kind: PictureKind, options: FigureOptions) -> bytes:
    """Draw a view as a figure.

    An SVG or PDF stores texts as characters and not as shapes. By default, a PNG has two pixels per
    CSS pixel.

    Returns
    -------
    bytes
        Content of the file.

    Raises
    ------
    ValueError
        If the figure needs more width than `options` allow, or a font is not installed.
    ImportError, RuntimeError
        If Playwright or a browser is missing, or if the browser cannot draw the page.
    """
    # A printer, and a reader who enlarges a page, see more of a vector graphic than of a PNG.
    scale = options.scale if kind == "png" else max(options.scale, _VECTOR_SCALE)
    request = {**options.request, "scale": scale}
    file = _in_browser(drawing, lambda tab: _draw_in_tab(tab, kind, options.scale), request)
    fonts = _type_3_fonts(file) if kind == "pdf" else []
    if fonts:
        warn_caller(
            f"font: the PDF has {', '.join(fonts)} as Type 3, which some journals refuse. Pass "
            'TrueType fonts (.ttf), such as font=("CMU Serif", "CMU Typewriter Text"), the second '
            "one with the characters of all tokens."
        )
    return file


def _type_3_fonts(pdf: bytes) -> list[str]:
    """Return the names of the Type 3 fonts in a PDF that the browser wrote.

    Some programs cannot search the text of such fonts, and journals refuse them. Chromium uses them
    for OpenType fonts with PostScript outlines (.otf).
    """
    objects = dict(re.findall(rb"\n(\d+) 0 obj\r?\n(.+?)\nendobj", pdf, re.DOTALL))
    names = set()
    for font in objects.values():
        if b"/Subtype /Type3" in font:
            descriptor = re.search(rb"/FontDescriptor (\d+) 0 R", font)
            text = objects.get(descriptor[1], b"") if descriptor else b""
            name = re.search(rb"/FontName /(?:[A-Z]{6}\+)?(\S+)", text)
            names.add(name[1].decode("ascii", "replace") if name else "one font")
    return sorted(names)


def draw_for_notebook(drawing: Drawing) -> tuple[bytes, str]:
    """Draw a view as a PNG. Return the PNG and its description in words."""
    return _in_browser(
        drawing, lambda tab: (_draw_in_tab(tab, "png", PNG_SCALE), str(tab.evaluate(_TITLE)))
    )


def _draw_in_tab(tab: Page, kind: PictureKind, scale: float) -> bytes:
    if kind == "png":
        png = base64.b64decode(_check_result(tab.evaluate(_PNG, scale)))
        return _set_density(png, scale * 96)
    svg = _check_result(tab.evaluate(_SVG, None))
    return svg.encode() if kind == "svg" else _pdf(tab, svg)


def _check_result(result: Any) -> str:
    if isinstance(result, dict):
        raise ValueError(result["problem"])
    return str(result)


def _pdf(tab: Page, svg: str) -> bytes:
    """Print an SVG as a PDF with one page of the size of the SVG."""
    root = ET.fromstring(svg)  # noqa: S314 - our own
    title = root.findtext(f"{_SVG_NAMES}title") or ""
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    browser = tab.context.browser
    if browser is None:
        raise RuntimeError("the browser closed while it drew the figure")
    # Disable scripts, because the figure contains tokens of untrusted texts.
    printed = browser.new_context(java_script_enabled=False).new_page()
    # A PDF that `_crop` leaves unchanged has the background color of the figure at its edges.
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
    pdf = printed.pdf(prefer_css_page_size=True, print_background=True, page_ranges="1")
    return _set_dates(_crop(pdf, width, height), os.environ.get("SOURCE_DATE_EPOCH"))


def _crop(pdf: bytes, width: float, height: float) -> bytes:
    """Crop the page of a PDF at the right and below to a size in CSS pixels. Return the new PDF.

    The browser rounds the size of a page to about 1 point. The new size is as long as the text that
    it replaces, so the positions in the file's index stay right. It has room because it replaces
    the order of the tab key, too, which has no meaning in a page without links. If the browser did
    not write this order, the page stays as it is.
    """

    def cropped(match: re.Match[bytes]) -> bytes:
        top = float(match[1])
        box = f"/MediaBox [0 {top - height * 0.75:.3f} {width * 0.75:.3f} {match[1].decode()}]"
        return (box.encode() + match[2]).ljust(len(match[0]))

    pattern = rb"/MediaBox \[0 0 [\d.]+ ([\d.]+)\]([^>]*?)\n/Tabs /S"
    return re.sub(pattern, cropped, pdf, count=1)


def _set_dates(pdf: bytes, epoch: str | None) -> bytes:
    """Replace the dates in a PDF, so that two PDFs of one figure are equal. Return the new PDF.

    `epoch` is a number of seconds since 1970, as in reproducible builds, or None to keep the dates.
    """
    if epoch is None:
        return pdf
    try:
        date = datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(
            f"SOURCE_DATE_EPOCH={epoch!r} must be a whole number of seconds since 1970. Correct or "
            "remove this environment variable."
        ) from error
    # The new dates are as long as the old ones, so the positions in the file's index stay right.
    return re.sub(rb"\(D:\d{14}", b"(D:" + date.strftime("%Y%m%d%H%M%S").encode(), pdf)


def _set_density(png: bytes, dpi: float) -> bytes:
    """Add the resolution to a PNG, as a pHYs chunk. Return the new PNG.

    Other programs compute the width and height of the picture on paper from the resolution.
    """
    per_metre = max(1, round(dpi / 0.0254))
    body = b"pHYs" + struct.pack(">IIB", per_metre, per_metre, 1)
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    # Insert the chunk after the signature (8 bytes) and the IHDR chunk (25 bytes).
    header = 8 + 25
    return png[:header] + chunk + png[header:]


def check_browser() -> str:
    """Return the path of an installed browser.

    Raise ImportError if Playwright is missing, and RuntimeError if no browser is found.
    """
    try:
        import playwright.sync_api  # noqa: F401 - checked here, used in the thread
    except ImportError as error:
        raise ImportError(
            "SVG, PNG and PDF need an installed Chromium and Playwright. Install Playwright with "
            "pip install 'attnviz[image]'. (The view's Export menu needs neither.)"
        ) from error
    browser = find_browser()
    if browser is None:
        raise RuntimeError(f"SVG, PNG and PDF need a browser, but {INSTALL_BROWSER}")
    return browser


@show_progress("figure")
def _in_browser(
    drawing: Drawing, use: Callable[[Page], _T], request: dict[str, Any] | None = None
) -> _T:
    browser, answers = check_browser(), _Answers(drawing.server)
    # Use a separate thread. Playwright's synchronous interface raises an error in a thread with an
    # event loop, such as the main thread of a notebook. In a copy of the context, the thread
    # reports its progress to the same progress bars.
    with ThreadPoolExecutor(max_workers=1) as executor:
        run = partial(copy_context().run, _use_page, drawing.page, answers, browser, use, request)
        try:
            return executor.submit(run).result()
        finally:
            answers.ended = True


class _Answers:
    """Answers of a server to the requests of a page."""

    def __init__(self, server: BaseServer) -> None:
        self._server = server
        #: Number of requests so far.
        self.count = 0
        #: Error of the last request that failed.
        self.error: Exception | None = None
        #: Whether no further request is answered, because the user has interrupted the drawing.
        self.ended = False

    def __call__(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the header of a reply and its bytes in base64, or a problem."""
        self.count += 1
        if self.ended:
            return {"problem": "The drawing was interrupted."}
        try:
            reply = self._server.reply(name, arguments, complete=True)
        except Exception as error:  # noqa: BLE001 - raised in `_wait_until_drawn`
            self.error = error
            return {"problem": str(error)}
        data = None if reply.data is None else base64.b64encode(reply.data).decode("ascii")
        return {"header": reply.header, "data": data}


def _wait_until_drawn(tab: Page, answers: _Answers) -> None:
    """Wait until the page has drawn its view, as long as it sends requests."""
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    count = -1
    while True:
        try:
            tab.wait_for_selector(_DRAWN_OR_FAILED, timeout=_TIMEOUT_MS)
        except PlaywrightTimeout:
            if answers.count == count:
                raise
            count = answers.count
        else:
            if answers.error is not None:
                raise answers.error
            if answers.ended:
                raise RuntimeError("the drawing was interrupted")
            return


def _use_page(
    page: str,
    answers: _Answers,
    browser_path: str,
    use: Callable[[Page], _T],
    request: dict[str, Any] | None,
) -> _T:
    from playwright.sync_api import Error, sync_playwright

    flags = ["--disable-gpu", "--disable-background-networking", "--disable-sync"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # If the user is root, Chromium starts only without its sandbox. It needs no sandbox here,
        # because attnviz made the page, and the page cannot use the network.
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
            tab.expose_function("attnvizAnswer", answers)
            tab.goto(file.as_uri())
            _wait_until_drawn(tab, answers)
            return use(tab)
        except Error as error:
            raise RuntimeError(f"the browser could not draw the page: {error}") from error
        finally:
            browser.close()


def find_browser() -> str | None:
    """Return the path of a browser, or None if none is found.

    If the environment variable ATTNVIZ_BROWSER is set, only the path in it is tried. Otherwise,
    this function searches first for an installed Chromium or Chrome, and then for the browser that
    Playwright installed.
    """
    named = os.environ.get("ATTNVIZ_BROWSER")
    if named:
        return named if Path(named).is_file() else None
    for name in _NAMES:
        path = shutil.which(name)
        if path:
            return path
    folders = [os.environ[variable] for variable in _WINDOWS_FOLDERS if variable in os.environ]
    windows = [str(Path(folder, "Google/Chrome/Application/chrome.exe")) for folder in folders]
    for path in (*_APPLICATIONS, *windows):
        if Path(path).is_file():
            return path
    return _find_playwright_browser()


def _find_playwright_browser() -> str | None:
    code = (
        "from playwright.sync_api import sync_playwright as start\n"
        "with start() as playwright: print(playwright.chromium.executable_path)"
    )
    # Use a separate process. Playwright's synchronous interface raises an error in a thread with an
    # event loop, such as the main thread of a notebook.
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this Python, with the code above
    path = result.stdout.strip()
    return path if path and Path(path).is_file() else None
