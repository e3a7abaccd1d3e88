"""Firefox and WebKit for the tests: open a page and evaluate expressions."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, Protocol
from urllib.request import Request, urlopen

import pytest
from websocket import WebSocketException, create_connection

from find_browser import missing_packages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMEOUT = 60
# The script collects errors. It runs before the page's scripts and Content-Security-Policy.
WATCH = """<script>
problems = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
  addEventListener(kind, (e) => problems.push(`${kind} ${e.message ?? e.reason ?? e.blockedURI}`));
console.error = (...all) => problems.push(`console ${all.join(" ")}`);
</script>"""
DRAWN = """new Promise((done) => {
  const look = () =>
    document.querySelector(".attnviz[data-attnviz-drawn]") || problems.length
      ? done(null) : requestAnimationFrame(look);
  look();
})"""


class Browser(Protocol):
    """One tab of a browser."""

    def go(self, url: str) -> None:
        """Open an address and wait until it is loaded."""

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page. A promise is awaited."""

    def close(self) -> None:
        """End the browser."""


def start(name: str, folder: Path) -> Browser:
    """Start a browser with a profile in `folder`, or skip the test if packages are missing."""
    missing = missing_packages(name)
    if missing:
        pytest.skip(f"tests of {name} need Debian's {' and '.join(missing)}")
    return Firefox(folder) if name == "firefox" else WebKit(folder)


def open_drawn(browser: Browser, page: Path) -> None:
    """Open an exported page, wait until it has drawn, and fail if it reports an error."""
    text = page.read_text(encoding="utf-8").replace("<head>", f"<head>{WATCH}", 1)
    page.write_text(text, encoding="utf-8")
    browser.go(page.as_uri())
    browser.evaluate(DRAWN)
    problems = browser.evaluate("problems")
    assert problems == [], problems


def _started(command: list[str], folder: Path, **more: str) -> subprocess.Popen[bytes]:
    """Start a browser with a separate home folder and process group."""
    return subprocess.Popen(
        command,
        env={**os.environ, **more, "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _once_listening(connect: Callable[[], Any]) -> Any:
    """Connect to a starting browser. Retry until it listens."""
    until = time.monotonic() + TIMEOUT
    while True:
        try:
            return connect()
        except (OSError, WebSocketException):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


class Firefox:
    """Headless Firefox, controlled through WebDriver BiDi."""

    def __init__(self, folder: Path) -> None:
        port = _free_port()
        options = ["--headless", "--profile", str(folder), "--width", "1000", "--height", "800"]
        self._process = _started(
            ["firefox-esr", *options, "--remote-debugging-port", str(port)], folder
        )
        # Firefox refuses connections with an Origin header.
        address = f"ws://127.0.0.1:{port}/session"
        self._socket = _once_listening(
            lambda: create_connection(address, TIMEOUT, suppress_origin=True)
        )
        self._sent = 0
        self._ask("session.new", capabilities={})
        self._context = self._ask("browsingContext.getTree")["contexts"][0]["context"]

    def _ask(self, method: str, **params: Any) -> Any:
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": params}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._sent:
            pass
        assert answer["type"] == "success", answer
        return answer["result"]

    def go(self, url: str) -> None:
        self._ask("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def evaluate(self, expression: str) -> Any:
        answer = self._ask(
            "script.evaluate",
            expression=f"Promise.resolve({expression}).then((value) => JSON.stringify(value))",
            target={"context": self._context},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    def close(self) -> None:
        self._socket.close()
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(TIMEOUT)


class WebKit:
    """MiniBrowser of WebKitGTK on a virtual screen, controlled through WebDriver."""

    def __init__(self, folder: Path) -> None:
        port = _free_port()
        command = ["xvfb-run", "--auto-servernum", "WebKitWebDriver", f"--port={port}"]
        # The sandbox of WebKit refuses to run as root.
        self._process = _started(command, folder, WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS="1")
        self._address = f"http://127.0.0.1:{port}/session"
        session = _once_listening(lambda: self._ask("", capabilities={}))
        self._address += "/" + session["sessionId"]
        self._ask("/window/rect", width=1000, height=800)

    def _ask(self, path: str, **body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        request = Request(self._address + path, json.dumps(body).encode(), headers)
        with urlopen(request, timeout=TIMEOUT) as answer:
            return json.load(answer)["value"]

    def go(self, url: str) -> None:
        self._ask("/url", url=url)

    def evaluate(self, expression: str) -> Any:
        script = f"Promise.resolve({expression}).then(arguments[0])"
        return self._ask("/execute/async", script=script, args=[])

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(TIMEOUT)
