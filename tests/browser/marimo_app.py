"""A real marimo for the tests: one notebook as an app, or open for editing, on a server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Literal, Self

from browser.chromium import TIMEOUT, Watch
from browser.jupyter import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Page

SERVER_START_SECONDS = 60
SERVER_STOP_SECONDS = 20

Theme = Literal["light", "dark", "system"]


@dataclass(frozen=True)
class Cell:
    """A cell of a marimo notebook.

    Parameters
    ----------
    code : str
        Its code; the last line is shown when it is an expression.
    reads, defines : sequence of str
        Names of other cells that it reads, and names that others read.
    """

    code: str
    reads: Sequence[str] = ()
    defines: Sequence[str] = ()

    def source(self) -> str:
        """The cell as it stands in a notebook's file."""
        returned = ", ".join(self.defines)
        body = f"{self.code.strip()}\nreturn {f'({returned},)' if returned else ''}".strip()
        return f"@app.cell\ndef _({', '.join(self.reads)}):\n{indent(body, '    ')}\n"


SETTINGS = """
[display]
theme = "{theme}"
[runtime]
auto_instantiate = true
"""


@dataclass
class Marimo:
    """A marimo server with one notebook, open in one browser tab.

    Parameters
    ----------
    page : Page
        The tab, for selectors and screenshots.
    watch : Watch
        Collects the page's errors; checked after every test.
    """

    process: subprocess.Popen[bytes]
    context: BrowserContext
    page: Page
    watch: Watch

    @classmethod
    def start(
        cls,
        browser: Browser,
        folder: Path,
        cells: Sequence[Cell],
        *,
        mode: Literal["run", "edit"] = "run",
        theme: Theme = "light",
    ) -> Self:
        """Write a notebook into an empty folder, serve it, and open it in a tab of its own."""
        parts = ["import marimo\n\napp = marimo.App()\n", *(cell.source() for cell in cells)]
        (folder / "notebook.py").write_text("\n\n".join(parts), encoding="utf-8")
        # Settings of its own: neither the developer's theme nor their plugins.
        settings = folder / "config" / "marimo" / "marimo.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS.format(theme=theme), encoding="utf-8")
        port = free_port()
        command = [
            *(sys.executable, "-m", "marimo", "--quiet", mode, "notebook.py"),
            *("--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)),
        ]
        if mode == "edit":
            command.append("--skip-update-check")
        log = folder / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_until_it_answers(url, process, log)
            context = browser.new_context(viewport={"width": 1300, "height": 1000})
            context.set_default_timeout(TIMEOUT)
            watch = Watch(origin=url)
            page = context.new_page()
            watch.follow(page)
            page.goto(url)
        except BaseException:
            _stop(process)
            raise
        return cls(process, context, page, watch)

    def close(self) -> None:
        """Close the tab and end the server, and with it the kernel."""
        self.context.close()
        _stop(self.process)


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + SERVER_START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    text = log.read_text(encoding="utf-8", errors="replace")
    message = f"marimo did not start:\n{text[-4000:]}"
    raise RuntimeError(message)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(SERVER_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
