"""A Chromium that is watched as little as possible.

Playwright has a browser keep all bytes of a page for its tools: of a page of 5 MB that takes a
tenth of the time until its first picture, which readers do not wait for.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from websocket import WebSocket, create_connection

from attnviz.pages.image import find_browser
from benchmarks.opening import CHROMIUM_FLAGS, VIEWPORT

_ADDRESS = re.compile(r"ws://\S+")
# Seconds.
_MOST, _AT_REST = 60, 0.8


class Tab:
    """A tab of the browser, by Chrome's DevTools protocol."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def send(self, method: str, **arguments: Any) -> Any:
        """Call a method of the protocol."""
        return self._browser.send(method, arguments, self._session)

    def go_to(self, path: Path) -> None:
        """Open a file."""
        self.send("Page.navigate", url=path.as_uri())
        while not self.evaluate("location.protocol === 'file:'"):
            time.sleep(0.005)

    def evaluate(self, expression: str) -> Any:
        """What an expression, or the promise that it gives, comes to."""
        found = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def processor_seconds(self) -> float:
        """What the tab's main thread has taken of the processor."""
        told = self.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in told if each["name"] == "TaskDuration"))


class Browser:
    """A Chromium, and the connection to it."""

    def __init__(self, connection: WebSocket) -> None:
        self._connection = connection
        self._count = 0

    def send(self, method: str, arguments: dict[str, Any], session: str | None = None) -> Any:
        """Call a method and wait for its answer; events are passed over."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": arguments}
        if session is not None:
            message["sessionId"] = session
        self._connection.send(json.dumps(message))
        while True:
            answer = json.loads(self._connection.recv())
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    @contextmanager
    def tab(self, first: str) -> Iterator[Tab]:
        """A new tab, whose pages run the script `first` before their own."""
        context = self.send("Target.createBrowserContext", {})["browserContextId"]
        place = {"url": "about:blank", "browserContextId": context}
        target = self.send("Target.createTarget", place)["targetId"]
        attached = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = Tab(self, attached["sessionId"])
        tab.send("Page.enable")
        tab.send("Performance.enable", timeDomain="threadTicks")
        tab.send(
            "Emulation.setDeviceMetricsOverride", **VIEWPORT, deviceScaleFactor=1, mobile=False
        )
        tab.send("Page.addScriptToEvaluateOnNewDocument", source=first)
        # With each tab Chromium loads pages of its own window, which takes half a second of both
        # processors.
        time.sleep(_AT_REST)
        yield tab
        self.send("Target.disposeBrowserContext", {"browserContextId": context})


@contextmanager
def started() -> Iterator[Browser]:
    """A Chromium without pages, which ends with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
        options += ["--no-first-run", "--no-startup-window", *CHROMIUM_FLAGS]
        command = [find_browser() or "chromium", *options]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                said = iter(process.stderr or ())
                address = next(found for found in map(_ADDRESS.search, said) if found)
                connection = create_connection(address[0], suppress_origin=True, timeout=_MOST)
                yield Browser(connection)
                connection.close()
            finally:
                # What is on the path may be a script that has the browser as its child.
                for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                    with suppress(psutil.Error):
                        each.terminate()
