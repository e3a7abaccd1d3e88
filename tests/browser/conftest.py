"""Fixtures of the browser tests.

``page``
    An empty page for one test, cut off from the network: open an exported file in it with
    ``page.goto(path.as_uri())``. Console errors, uncaught errors and requests fail the test.
``show``
    Exports a view, opens its page in ``page``, and gives the view's root once it has drawn.
``phone``
    An empty page on a small screen that is touched. ``browser.touch`` has several fingers.
``lab``
    A real JupyterLab, one tab for the whole run: ``lab.open([...cells...])`` gives a notebook. Its
    kernel is shared with the notebooks of other files, one after another; what ends or changes a
    kernel asks for ``own_kernel=True``. Share one notebook among the tests of a file (a module's
    fixture).
``notebook7``
    Jupyter Notebook 7 on the same server: ``notebook7.open([...cells...])``, one notebook a file.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from browser.chromium import TIMEOUT, Watch, launch
from browser.jupyter import LAB_VIEWPORT, JupyterLab, JupyterServer
from browser.notebook7 import JupyterNotebook
from browser.pages import open_view

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Page

    from browser.pages import Show

# On a busy machine a kernel's answer may take longer than Playwright's five seconds.
expect.set_options(timeout=TIMEOUT)
# How often a test failed so far, also one that is run again.
FAILED = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything in this folder."""
    for item in items:
        if "tests/browser/" in item.path.as_posix():
            item.add_marker("browser")
            if config.getoption("second_try"):
                item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Count what fails."""
    if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        item.session.stash[FAILED] = item.session.stash.get(FAILED, 0) + 1


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One Chromium for the whole run."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def offline(chromium: Browser) -> Iterator[BrowserContext]:
    """A profile without network: another for each test costs as much as the page that it opens."""
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
    """An empty page without network; exported pages store nothing that the next could find."""
    yield from _watched(offline)


@pytest.fixture
def show(page: Page, tmp_path: Path) -> Show:
    """Open the exported page of a view."""

    return partial(open_view, page, tmp_path)


@pytest.fixture
def phone(chromium: Browser) -> Iterator[Page]:
    """A small screen that is touched, without network."""
    context = chromium.new_context(
        viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True, offline=True
    )
    context.set_default_timeout(TIMEOUT)
    yield from _watched(context)
    context.close()


@pytest.fixture(scope="session")
def jupyter_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """One JupyterLab server for the whole run, with settings and files of its own."""
    folder: Path = tmp_path_factory.mktemp("jupyter")
    server = JupyterServer.start(folder)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def lab_tab(chromium: Browser, jupyter_server: JupyterServer) -> Iterator[JupyterLab]:
    """JupyterLab in a browser tab, for the whole run."""
    lab = JupyterLab.open_in(chromium, jupyter_server)
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest, lab_tab: JupyterLab) -> Iterator[JupyterLab]:
    """JupyterLab with nothing open; what a test file opens is closed at its end."""
    failed_before = request.session.stash.get(FAILED, 0)
    lab_tab.page.set_viewport_size(LAB_VIEWPORT)
    yield lab_tab
    if request.session.stash.get(FAILED, 0) > failed_before:
        # What is left is not known: the next file starts again.
        lab_tab.start_again()
    else:
        lab_tab.close_notebooks()


@pytest.fixture(scope="module")
def notebook7(chromium: Browser, jupyter_server: JupyterServer) -> Iterator[JupyterNotebook]:
    """Notebook 7 in a browser tab of its own; its kernel ends with the test file."""
    host = JupyterNotebook.open_in(chromium, jupyter_server)
    yield host
    host.close()


@pytest.fixture(autouse=True)
def _host_is_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test during which the page of a live host reported an error."""
    yield
    for name in ("lab", "notebook7", "marimo"):
        if name in request.fixturenames:
            request.getfixturevalue(name).watch.check()
