"""Test views in the pages of other programs: Streamlit, Gradio, Panel, Dash, a static site.

Each program runs in its own environment (`make .hosts/installed`), because its dependencies
conflict with those of the tests. It receives the frame as HTML. Dash receives the page.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect

import attnviz as av
from browser import servers
from browser.hosts import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Frame, Page

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".hosts" / "bin" / "python"

# The apps of docs/web-pages.md. They read the output of `to_iframe` from a file.
READ = "from pathlib import Path\nframe = Path('frame.html').read_text(encoding='utf-8')\n"
STREAMLIT = "import streamlit as st\nst.title('An app')\nst.iframe(frame)\n"
GRADIO = """
import gradio as gr, os
with gr.Blocks() as app:
    gr.Markdown("# An app")
    gr.HTML(frame)
app.launch(server_port=int(os.environ["PORT"]), quiet=True)
"""
PANEL = """
import panel as pn
pn.extension()
page = pn.pane.HTML(frame, sizing_mode="stretch_width")
pn.Column("# An app", page, sizing_mode="stretch_width").servable()
"""
DASH = """
import os
from dash import Dash, html
app = Dash()
shown = html.Iframe(
    srcDoc=frame,
    sandbox="allow-scripts allow-downloads",
    style={"width": "100%", "height": "900px", "border": "0"},
)
app.layout = html.Div([html.H1("An app"), shown])
app.run(host="127.0.0.1", port=int(os.environ["PORT"]))
"""
COMMANDS = {
    "streamlit": (
        STREAMLIT,
        *("streamlit", "run", "app.py", "--server.headless=true", "--server.port={port}"),
        *("--server.address=127.0.0.1", "--browser.gatherUsageStats=false"),
    ),
    "gradio": (GRADIO, "app"),
    "panel": (PANEL, "panel", "serve", "app.py", "--port={port}", "--address=127.0.0.1"),
    "dash": (DASH, "app"),
}
PATHS = {"streamlit": "/", "gradio": "/", "panel": "/app", "dash": "/"}


def view() -> Any:
    return av.HeadView(record(), layer=0)


@contextmanager
def served(host: str, folder: Path, text: str) -> Iterator[str]:
    """Run an app that shows the HTML text and return its address."""
    if not PYTHON.exists():
        pytest.fail(f"{host} is not installed: run `make .hosts/installed`", pytrace=False)
    app, *module = COMMANDS[host]
    (folder / "frame.html").write_text(text, encoding="utf-8")
    (folder / "app.py").write_text(READ + app, encoding="utf-8")
    port = servers.free_port()
    environment = {**os.environ, "HOME": str(folder), "PORT": str(port)}
    environment |= {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1", "no_proxy": "*"}
    environment.pop("PYTHONPATH", None)
    log = folder / "server.log"
    command = [str(PYTHON), "-m", *(part.format(port=port) for part in module)]
    process = servers.start(command, folder, environment, log)
    url = f"http://127.0.0.1:{port}{PATHS[host]}"
    try:
        servers.wait_until_it_answers(url, process, log)
        yield url
    finally:
        servers.stop(process)


def is_drawn_in(frame: Frame) -> bool:
    try:
        return frame.locator(".attnviz[data-attnviz-drawn]").count() > 0
    except PlaywrightError:
        # A program that rebuilds its page may detach the frame during this check.
        if frame.is_detached():
            return False
        raise


def frame_of(page: Page) -> Frame:
    """Return the frame of the view, once it is drawn and no longer replaced."""
    before = None
    for _ in range(300):
        candidate = next(filter(is_drawn_in, page.frames), None)
        if candidate is not None and candidate is before:
            return candidate
        before = candidate
        page.wait_for_timeout(200)
    raise AssertionError([frame.url for frame in page.frames])


# Whether a frame is as high as its content.
FITS = """() => Math.abs(
  innerHeight - document.documentElement.getBoundingClientRect().height
) < 2"""


def follows_its_content(frame: Frame) -> None:
    """Check that the frame keeps the height of its content."""
    frame.wait_for_function(FITS)
    before = frame.evaluate("() => innerHeight")
    assert frame.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    # Opening the list of keys makes the content higher. Closing it restores the height.
    root = frame.locator(".attnviz")
    root.get_by_role("button", name="Keys").click()
    frame.wait_for_function("(before) => innerHeight > before + 40", arg=before)
    root.get_by_role("button", name="Keys").click()
    frame.wait_for_function("(before) => Math.abs(innerHeight - before) < 2", arg=before)


def works(frame: Frame) -> None:
    root = frame.locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    root.get_by_role("button", name="Layer 2").click()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:2")


@pytest.mark.slow
@pytest.mark.parametrize("host", sorted(COMMANDS))
def test_a_view_in_an_app(host: str, local_page: Page, tmp_path: Path) -> None:
    text = view().to_html() if host == "dash" else view().to_iframe()
    with served(host, tmp_path, text) as url:
        local_page.goto(url)
        frame = frame_of(local_page)
        works(frame)
        assert frame.evaluate("() => innerWidth") > 500
        if host == "dash":
            # The app sets this height, because Dash accepts no HTML text.
            assert frame.evaluate("() => innerHeight") == 900
            return
        follows_its_content(frame)
        # The page of the program can be scrolled to the end of the frame.
        bottom, page_height = frame.frame_element().evaluate(
            "(frame) => [frame.getBoundingClientRect().bottom,"
            " document.documentElement.scrollHeight]"
        )
        assert bottom <= page_height + 1
        if host == "streamlit":
            outer = frame.parent_frame
            assert outer is not None
            outer.wait_for_function(
                "() => innerHeight + 2 >= document.documentElement.scrollHeight"
            )


def test_the_documentation_shows_what_is_tested() -> None:
    text = (ROOT / "docs" / "web-pages.md").read_text(encoding="utf-8")
    for line in (
        STREAMLIT.splitlines()[-1],
        "gr.HTML(frame)",
        'pn.pane.HTML(frame, sizing_mode="stretch_width")',
    ):
        assert line.replace("(frame", "(view.to_iframe()") in text
    shown = DASH[DASH.index("html.Iframe(") : DASH.index("app.layout")].strip()
    assert shown.replace("srcDoc=frame", "srcDoc=view.to_html()") in text


def static_page(folder: Path, text: str) -> str:
    path = folder / "index.html"
    path.write_text(
        f"<!doctype html><meta charset='utf-8'><h1>A page</h1>{text}<p>below</p>", encoding="utf-8"
    )
    return path.as_uri()


def test_a_view_in_a_static_page(page: Page, tmp_path: Path) -> None:
    page.goto(static_page(tmp_path, view().to_iframe()))
    frame = frame_of(page)
    works(frame)
    follows_its_content(frame)
    # A narrower page is higher.
    before = frame.evaluate("() => innerHeight")
    page.set_viewport_size({"width": 400, "height": 800})
    frame.wait_for_function("(before) => innerHeight > before + 40", arg=before)
    frame.wait_for_function(FITS)
    expect(frame.locator(".attnviz")).to_have_attribute("data-controls", "full")
    page.set_viewport_size({"width": 1000, "height": 800})


def test_a_stated_height_stays_and_a_low_frame_is_compact(page: Page, tmp_path: Path) -> None:
    page.goto(static_page(tmp_path, view().to_iframe(height=420)))
    frame = frame_of(page)
    expect(frame.locator(".attnviz")).to_have_attribute("data-controls", "compact")
    frame.get_by_role("combobox", name="Layer").select_option("1")
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", "head:self:1")
    assert frame.evaluate("() => innerHeight") == 420


def test_a_frame_sends_its_height_only_to_a_page_that_asked(page: Page, tmp_path: Path) -> None:
    silent = re.sub(r' onload="[^"]*"', "", view().to_iframe())
    listener = "<script>heard = []; onmessage = (event) => heard.push(event.data)</script>"
    page.goto(static_page(tmp_path, listener + silent))
    works(frame_of(page))
    assert page.evaluate("() => heard") == []


def test_hostile_messages_do_nothing(page: Page, tmp_path: Path) -> None:
    page.goto(static_page(tmp_path, view().to_iframe()))
    frame = frame_of(page)
    follows_its_content(frame)
    before = frame.evaluate("() => innerHeight")
    # The page ignores messages from other windows than the frame, and invalid heights.
    page.evaluate("() => postMessage({ attnviz: 'height', height: 5 }, '*')")
    for height in ("'1px;position:fixed'", "null", "-1", "NaN", "{}"):
        frame.evaluate(f"() => parent.postMessage({{ attnviz: 'height', height: {height} }}, '*')")
    page.evaluate("() => new Promise((done) => setTimeout(done))")
    style = page.locator("iframe").get_attribute("style") or ""
    assert "fixed" not in style
    [height] = re.findall(r"height: ([\d.]+)px", style)
    assert 60 <= float(height) <= before + 1


GROUND = "() => getComputedStyle(document.documentElement).backgroundColor"
WHITE, BLACK = "rgb(255, 255, 255)", "rgb(23, 25, 30)"


def send_to_frame(page: Page, message: object) -> None:
    page.evaluate(
        "(message) => document.querySelector('iframe').contentWindow.postMessage(message, '*')",
        message,
    )


def test_a_frame_follows_theme_messages_of_the_page_around_it(page: Page, tmp_path: Path) -> None:
    page.goto(static_page(tmp_path, view().to_iframe()))
    frame = frame_of(page)
    root = frame.locator(".attnviz")
    for theme, ground in (("dark", BLACK), ("light", WHITE), ("dark", BLACK)):
        send_to_frame(page, {"type": "attnviz-theme", "theme": theme})
        expect(root).to_have_attribute("data-theme", theme)
        assert frame.evaluate(GROUND) == ground
    # Invalid messages change nothing.
    for message in ({"type": "attnviz-theme", "theme": "blue"}, {"theme": "light"}, "light", None):
        send_to_frame(page, message)
    # Messages from a window other than the parent change nothing. The frame itself sends this one.
    frame.evaluate("() => postMessage({ type: 'attnviz-theme', theme: 'light' }, '*')")
    frame.evaluate("() => new Promise((done) => setTimeout(done))")
    expect(root).to_have_attribute("data-theme", "dark")
    assert frame.evaluate(GROUND) == BLACK
