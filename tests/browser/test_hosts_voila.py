"""Test views in Voila, which shows the outputs of a notebook with a running kernel."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import nbformat
import pytest
from playwright.sync_api import expect

from browser import servers
from browser.chromium import TIMEOUT, Watch
from browser.hosts import FIRST_PICTURE, RECORD, VIEW_IDS, VIEWS
from browser.jupyter import notebook_of, private_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from browser.hosts import HostedView

pytestmark = pytest.mark.slow

# A label that follows the view and a button that moves it. Voila shows only outputs.
BESIDE = """
import ipywidgets
def beside(name, view):
    label = ipywidgets.Label(f"{name}: {view.layer}")
    view.observe(lambda change: setattr(label, "value", f"{name}: {change.new}"), "layer")
    button = ipywidgets.Button(description=f"{name} to 1")
    button.on_click(lambda _: setattr(view, "layer", 1))
    return ipywidgets.HBox([label, button])
"""
# Errors that Voila causes in every notebook.
KNOWN = (
    # Voila loads icons from a CDN, which is not available.
    r"fontawesome",
    r"ERR_(NAME_NOT_RESOLVED|INTERNET_DISCONNECTED|FAILED|CONNECTION)",
    # Voila loads extensions of Notebook 7 that need parts of JupyterLab that it lacks.
    r"getter for the shared module is not a function",
    # Voila requests the Jupyter logo, which the server has under another path.
    r"favicon",
)


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch(ignored=KNOWN)


@pytest.fixture(scope="module")
def voila(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory, watch: Watch
) -> Iterator[Page]:
    """Open a notebook with every view in Voila's dark theme."""
    folder: Path = tmp_path_factory.mktemp("voila")
    cells = [RECORD, BESIDE]
    for view in VIEWS:
        name = view.class_name
        cells += [f"{name} = {view.make}\n{name}", f"beside({name!r}, {name})"]
    nbformat.write(notebook_of(cells), folder / "views.ipynb")
    port = servers.free_port()
    log = folder / "server.log"
    watch.origin = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "-m", "voila", "views.ipynb", "--no-browser", "--theme=dark"),
        *(f"--port={port}", "--Voila.ip=127.0.0.1"),
    ]
    process = servers.start(command, folder, private_environment(folder), log)
    context = chromium.new_context(viewport={"width": 1000, "height": 900})
    context.set_default_timeout(TIMEOUT)
    try:
        # Wait for a static file, because a request for the page would run the notebook.
        servers.wait_until_it_answers(f"{watch.origin}/voila/static/voila.js", process, log)
        page = context.new_page()
        watch.follow(page)
        page.goto(watch.origin, wait_until="commit", timeout=FIRST_PICTURE)
        yield page
    finally:
        context.close()
        servers.stop(process)


@pytest.mark.parametrize("view", VIEWS, ids=VIEW_IDS)
def test_a_live_view_is_drawn_and_traits_change_in_both_directions(
    voila: Page, watch: Watch, view: HostedView
) -> None:
    root = voila.locator(f".attnviz[data-attnviz-drawn^='{view.name}:']").first
    root.wait_for(timeout=FIRST_PICTURE)
    root.scroll_into_view_if_needed()
    view.drawn(root, 0)
    expect(root).to_have_attribute("data-theme", "dark")
    voila.get_by_role("button", name=f"{view.class_name} to 1", exact=True).click()
    view.drawn(root, 1)
    view.press(voila, root, view.previous_layer)
    view.drawn(root, 0)
    expect(voila.get_by_text(f"{view.class_name}: 0", exact=True)).to_be_visible()
    watch.check()
