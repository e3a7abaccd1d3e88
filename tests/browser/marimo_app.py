"""marimo for the tests: a server with one notebook, as an app or in the editor, and a page."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Literal, Self

from browser import servers
from browser.chromium import TIMEOUT, Watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Page

Theme = Literal["light", "dark", "system"]


@dataclass(frozen=True)
class Cell:
    """A cell of a marimo notebook.

    Parameters
    ----------
    code : str
        Code. The last line is displayed if it is an expression.
    reads, defines : sequence of str
        Names that the cell reads from other cells, and names that other cells read from it.
    """

    code: str
    reads: Sequence[str] = ()
    defines: Sequence[str] = ()

    def source(self) -> str:
        """Return the source of the cell in the notebook file."""
        returned = ", ".join(self.defines)
        body = f"{self.code.strip()}\nreturn {f'({returned},)' if returned else ''}".strip()
        return f"@app.cell\ndef _({', '.join(self.reads)}):\n{indent(body, '    ')}\n"


def write_notebook(folder: Path, cells: Sequence[Cell]) -> None:
    """Write the notebook notebook.py into a folder."""
    parts = ["import marimo\n\napp = marimo.App()\n", *(cell.source() for cell in cells)]
    (folder / "notebook.py").write_text("\n\n".join(parts), encoding="utf-8")


def export_page(folder: Path, cells: Sequence[Cell]) -> Path:
    """Run a notebook in an empty folder, and return the page that marimo exports."""
    write_notebook(folder, cells)
    command = [sys.executable, "-m", "marimo", "export", "html", "notebook.py", "-o", "page.html"]
    environment = os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdin=subprocess.DEVNULL)
    return folder / "page.html"


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
        Collector of the page's errors, checked after every test.
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
        """Write a notebook into an empty folder, serve it, and open it in a new tab."""
        write_notebook(folder, cells)
        # Separate settings, so that the developer's theme and plugins have no effect.
        settings = folder / "config" / "marimo" / "marimo.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS.format(theme=theme), encoding="utf-8")
        port = servers.free_port()
        command = [
            *(sys.executable, "-m", "marimo", "--quiet", mode, "notebook.py"),
            *("--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)),
        ]
        if mode == "edit":
            command.append("--skip-update-check")
        log = folder / "server.log"
        environment = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
        process = servers.start(command, folder, os.environ | environment, log)
        url = f"http://127.0.0.1:{port}"
        try:
            servers.wait_until_it_answers(f"{url}/health", process, log)
            context = browser.new_context(viewport={"width": 1300, "height": 1000})
            context.set_default_timeout(TIMEOUT)
            watch = Watch(origin=url)
            page = context.new_page()
            watch.follow(page)
            page.goto(url)
        except BaseException:
            servers.stop(process)
            raise
        return cls(process, context, page, watch)

    def close(self) -> None:
        """Close the tab and end the server, which ends the kernel."""
        self.context.close()
        servers.stop(self.process)
