"""Chromium for the tests, and a collector of the errors of a page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from attnviz.pages.image import INSTALL_BROWSER, find_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, WebSocket

# Milliseconds. Code that waits for a cold kernel passes a longer timeout.
TIMEOUT = 20_000

FLAGS = (
    "--no-sandbox",  # Chromium refuses to run as root with it, and CI runs as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",  # the same pixels on every machine
)

# URL schemes that need no network.
LOCAL_SCHEMES = frozenset({"about", "blob", "data", "file"})


def launch(playwright: Playwright) -> Browser:
    """Start Chrome or Chromium. Fail the test, instead of skipping it, if none is installed."""
    path = find_browser()
    if path is None:
        pytest.fail(f"the browser tests need a browser, and {INSTALL_BROWSER}", pytrace=False)
    return playwright.chromium.launch(executable_path=path, args=list(FLAGS), headless=True)


@dataclass
class Watch:
    """Collector of the errors of a page and of its requests to other machines.

    Parameters
    ----------
    origin : str
        The only origin that the page may send requests to, such as
        ``"http://127.0.0.1:8888"``, or ``""`` for a page that must work without a network.
    ignored : tuple of str
        Regular expressions of problems that the host causes. They are ignored.
    """

    origin: str = ""
    ignored: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list)

    def follow(self, page: Page) -> None:
        """Start collecting the problems of a page."""
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._add(f"uncaught {error.stack or error}"))
        page.on("request", self._on_request)
        page.on("websocket", self._on_websocket)
        page.on("crash", lambda _: self._add("the page crashed"))

    def check(self) -> None:
        """Clear the collected problems. Fail with their list if there are any."""
        problems, self.problems = self.problems, []
        if problems:
            pytest.fail("The page did wrong:\n" + "\n".join(problems), pytrace=False)

    def _add(self, problem: str) -> None:
        if not any(re.search(pattern, problem) for pattern in self.ignored):
            self.problems.append(problem)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            where = message.location.get("url", "")
            self._add(f"console error: {message.text} ({where})")

    def _on_request(self, request: Request) -> None:
        self._check_address("request", request.url)

    def _on_websocket(self, socket: WebSocket) -> None:
        self._check_address("web socket", socket.url.replace("ws", "http", 1))

    def _check_address(self, kind: str, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in LOCAL_SCHEMES:
            return
        if self.origin and f"{parts.scheme}://{parts.netloc}" == self.origin:
            return
        self._add(f"{kind} to {url[:200]}")
