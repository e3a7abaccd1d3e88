"""Fixtures of the browser tests.

``page``
    An empty page for one test, without network access. Open an exported file with
    ``page.goto(path.as_uri())``. Console errors, uncaught errors and requests fail the test.
``show``
    A function that exports a view, opens it in ``page``, and returns its root once it has drawn.
``minilm``
    A record of a trained model, in which one head resolves the pronoun "it".
``phone``
    An empty page on a small touch screen. ``browser.touch`` provides gestures of several fingers.
``local_page``
    An empty page that can reach servers on this machine, for pages of other programs.
``lab``
    JupyterLab in one tab for the whole run. ``lab.open([...cells...])`` returns a notebook. The
    notebooks of all files use the same kernel, one after another. Pass ``own_kernel=True`` if a
    test ends or changes its kernel. Share one notebook among the tests of a file with a module
    fixture.
``notebook7``
    Jupyter Notebook 7 on the same server. Open one notebook per file with
    ``notebook7.open([...cells...])``.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from attnviz import extract
from browser.chromium import TIMEOUT, Watch, launch
from browser.jupyter import LAB_VIEWPORT, JupyterLab, JupyterServer
from browser.notebook7 import JupyterNotebook
from browser.pages import open_view

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Page

    from attnviz import AttentionRecord
    from browser.pages import Show

# On a busy machine a kernel may take longer to reply than Playwright's default of five seconds.
expect.set_options(timeout=TIMEOUT)
# Number of failures so far, including those of tests that are run again.
FAILED = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker("browser")
            if config.getoption("second_try"):
                item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Count the failures."""
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.session.stash[FAILED] = item.session.stash.get(FAILED, 0) + 1


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Start one Chromium for the whole run."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def offline(chromium: Browser) -> Iterator[BrowserContext]:
    """Create one profile without network for all tests.

    A new profile takes as long as opening a page.
    """
    context = chromium.new_context(viewport={"width": 1000, "height": 800}, offline=True)
    context.set_default_timeout(TIMEOUT)
    yield context
    context.close()


def _watched(context: BrowserContext) -> Iterator[Page]:
    """Open a page, close it after the test, and fail if it reported a problem."""
    watch = Watch()
    page = context.new_page()
    watch.follow(page)
    yield page
    page.close()
    watch.check()


@pytest.fixture
def page(offline: BrowserContext) -> Iterator[Page]:
    """Open an empty page without network. Exported pages store nothing in the shared profile."""
    yield from _watched(offline)


@pytest.fixture(scope="session")
def minilm(checkpoint_folder: Path) -> AttentionRecord:
    """Return a record of MiniLM. Head 1 of layer 3 attends from "it" to "animal"."""
    text = "The animal didn't cross the street because it was too tired."
    return extract(str(checkpoint_folder), text, name="MiniLM")


@pytest.fixture
def show(page: Page, tmp_path: Path) -> Show:
    """Return a function that exports a view and opens its page."""

    return partial(open_view, page, tmp_path)


@pytest.fixture
def phone(chromium: Browser) -> Iterator[Page]:
    """Open an empty page on a small touch screen, without network."""
    context = chromium.new_context(
        viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True, offline=True
    )
    context.set_default_timeout(TIMEOUT)
    yield from _watched(context)
    context.close()


@pytest.fixture
def local_page(chromium: Browser) -> Iterator[Page]:
    """Open an empty page that can reach only this machine. Its errors do not fail the test."""
    context = chromium.new_context(viewport={"width": 1100, "height": 900})
    context.set_default_timeout(TIMEOUT)
    local = re.compile(r"^((http|ws)://127\.0\.0\.1|about:|blob:|data:|file:)")
    context.route(lambda url: not local.match(url), lambda route: route.abort())
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def jupyter_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """Start one JupyterLab server for the whole run, with separate settings and files."""
    folder: Path = tmp_path_factory.mktemp("jupyter")
    server = JupyterServer.start(folder)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def lab_tab(chromium: Browser, jupyter_server: JupyterServer) -> Iterator[JupyterLab]:
    """Open JupyterLab in one tab for the whole run."""
    lab = JupyterLab.open_in(chromium, jupyter_server)
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest, lab_tab: JupyterLab) -> Iterator[JupyterLab]:
    """Return JupyterLab without open notebooks, and close those of a test file at its end."""
    failed_before = request.session.stash.get(FAILED, 0)
    lab_tab.page.set_viewport_size(LAB_VIEWPORT)
    yield lab_tab
    if request.session.stash.get(FAILED, 0) > failed_before:
        # A failed test leaves an unknown state: reload for the next file.
        lab_tab.start_again()
    else:
        lab_tab.close_notebooks()


@pytest.fixture(scope="module")
def notebook7(chromium: Browser, jupyter_server: JupyterServer) -> Iterator[JupyterNotebook]:
    """Open Notebook 7 in a separate tab, and end its kernel after the test file."""
    host = JupyterNotebook.open_in(chromium, jupyter_server)
    yield host
    host.close()


@pytest.fixture(autouse=True)
def _host_is_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test during which the page of a live host reported an error.

    A second try starts with a reloaded JupyterLab, because the first left its notebook open.
    """
    if "lab" in request.fixturenames and getattr(request.node, "execution_count", 1) > 1:
        request.getfixturevalue("lab").start_again()
    yield
    for name in ("lab", "notebook7", "marimo"):
        if name in request.fixturenames:
            request.getfixturevalue(name).watch.check()
