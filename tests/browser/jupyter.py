"""JupyterLab for the tests: a server, and notebooks that are controlled through the page."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import nbformat
from playwright.sync_api import Error as PlaywrightError

from browser import servers
from browser.chromium import TIMEOUT, Watch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Locator, Page, ViewportSize

# Milliseconds: a cold kernel imports torch on two busy cores.
KERNEL_TIMEOUT = 90_000
# A change is sent to the kernel only after the previous one was acknowledged.
SYNC_SECONDS = 30

# Cleanup code for a kernel that the next notebook uses.
CLEAN_KERNEL = """
import ipywidgets
ipywidgets.Widget.close_all()
get_ipython().reset()
__import__("gc").collect()
"""
LAB_VIEWPORT: ViewportSize = {"width": 1300, "height": 1000}

# Regular expressions of errors that JupyterLab causes, independent of the notebook.
KNOWN_PROBLEMS = (
    # JupyterLab requests a kernel that a test has ended.
    r"status of 404 .*/api/(kernels|sessions)/",
    # The debugger or the completer sends a request to a kernel that a test ends.
    r"Canceled future for \w+ message",
    # The status bar fails when a kernel restarts after a change of theme.
    r"'removeChild' on 'Node'.*\n\s+at http\S+/static/lab/jlab_core",
    # The widget manager requests the kernel of a notebook that was opened without one.
    r"null \(reading 'kernel'\)\n\s+at \S+ \(http\S+/jupyterlab-manager/",
    # On a busy machine Notebook 7 opens a path before it has registered the command.
    r"'filebrowser:open-path' not registered\.\n\s+at \S+ \(http\S+/static/notebook/notebook_core",
)

# User settings of JupyterLab: no news pop-up, no recovery, a fixed theme.
SETTINGS: dict[str, dict[str, Any]] = {
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "apputils-extension/themes": {"theme": "JupyterLab Light", "adaptive-theme": False},
    "docmanager-extension/plugin": {"autosave": False},
}


def private_environment(folder: Path) -> dict[str, str]:
    """Return an environment in which Jupyter keeps all of its files in `folder`."""
    return {
        **os.environ,
        "HOME": str(folder),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }


def notebook_of(cells: Sequence[str]) -> nbformat.NotebookNode:
    """Return a notebook with these code cells."""
    notebook: nbformat.NotebookNode = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )
    return notebook


@dataclass
class JupyterServer:
    """A JupyterLab server on a free port of this machine.

    Parameters
    ----------
    url : str
        Address without a trailing slash.
    notebooks : Path
        Folder that the server serves.
    """

    url: str
    notebooks: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, folder: Path) -> Self:
        """Start a server that keeps all of its files in `folder`, and wait until it responds."""
        notebooks = folder / "notebooks"
        notebooks.mkdir()
        settings = folder / "settings"
        for name, values in SETTINGS.items():
            path = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values), encoding="utf-8")
        environment = {
            **private_environment(folder),
            "JUPYTERLAB_SETTINGS_DIR": str(settings),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "JUPYTER_PREFER_ENV_PATH": "1",
        }
        port = servers.free_port()
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"),
            "--ServerApp.port_retries=0",
            "--IdentityProvider.token=",
            "--ServerApp.disable_check_xsrf=True",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
            "--LabApp.collaborative=False",
            "--LabApp.extension_manager=readonly",
            f"--ServerApp.root_dir={notebooks}",
        ]
        log = folder / "server.log"
        process = servers.start(command, notebooks, environment, log)
        url = f"http://127.0.0.1:{port}"
        servers.wait_until_it_answers(f"{url}/api/status", process, log)
        return cls(url, notebooks, process)

    def stop(self) -> None:
        """End the server, which ends its kernels."""
        servers.stop(self.process)


@dataclass
class JupyterLab:
    """JupyterLab in one browser tab.

    Parameters
    ----------
    page : Page
        The tab, for selectors and screenshots.
    watch : Watch
        Collector of the page's errors, checked after every test.
    """

    server: JupyterServer
    context: BrowserContext
    page: Page
    watch: Watch
    opened: list[Notebook] = field(default_factory=list)
    made: int = 0
    #: Id of the kernel that notebooks share one after another, or None before the first notebook.
    shared_kernel: str | None = None

    @classmethod
    def open_in(cls, browser: Browser, server: JupyterServer) -> Self:
        """Open a tab with an empty JupyterLab."""
        context = browser.new_context(viewport=LAB_VIEWPORT)
        context.set_default_timeout(TIMEOUT)
        watch = Watch(origin=server.url, ignored=KNOWN_PROBLEMS)
        page = context.new_page()
        watch.follow(page)
        lab = cls(server, context, page, watch)
        lab.load()
        return lab

    def load(self) -> None:
        """Load the page with an empty workspace and wait until JupyterLab has restored itself."""
        self.page.goto(f"{self.server.url}/lab?reset")
        self.page.wait_for_function("() => window.jupyterapp?.commands !== undefined")
        self.page.evaluate("() => window.jupyterapp.restored")
        self.command("application:set-mode", {"mode": "single-document"})

    def close_notebooks(self) -> None:
        """Close all notebooks and end the kernels that are not shared."""
        for notebook in list(self.opened):
            notebook.close()

    def start_again(self) -> None:
        """End the kernels and reload the page: a failed test leaves an unknown state."""
        for notebook in self.opened:
            with suppress(TimeoutError, PlaywrightError):
                notebook.shut_down_kernel()
        self.opened.clear()
        self.shared_kernel = None
        self.load()
        self.watch.problems.clear()

    def close(self) -> None:
        """End the kernels of this tab's notebooks and close the tab."""
        for notebook in self.opened:
            notebook.shut_down_kernel()
        self.context.close()

    def command(self, name: str, arguments: dict[str, Any] | None = None) -> None:
        """Run a command of JupyterLab and wait until it has finished."""
        self._evaluate(
            "async ({ name, args }) => { await window.jupyterapp.commands.execute(name, args); }",
            {"name": name, "args": arguments or {}},
            what=f"the command {name}",
        )

    def set_theme(self, theme: str) -> None:
        """Change the theme to ``"light"`` or ``"dark"`` and wait until it is applied."""
        self.command("apputils:change-theme", {"theme": f"JupyterLab {theme.capitalize()}"})
        is_light = "true" if theme == "light" else "false"
        self.page.wait_for_selector(f'body[data-jp-theme-light="{is_light}"]', state="attached")

    def open(
        self, cells: Sequence[str], name: str | None = None, *, own_kernel: bool = False
    ) -> Notebook:
        """Write a new notebook with these code cells and open it.

        Notebooks share one kernel, one after another, because a cold kernel takes seconds to
        import torch. Pass `own_kernel=True` if a test ends, stops or changes the kernel.
        """
        self.made += 1
        name = name or f"{id(self)}-{self.made}.ipynb"
        nbformat.write(notebook_of(cells), self.server.notebooks / name)
        if own_kernel:
            return self.open_file(name)
        is_shared = any(notebook.shares_kernel for notebook in self.opened)
        assert not is_shared, "another notebook uses the shared kernel: ask for one of your own"
        opened = self.open_file(name, kernel_id=self.shared_kernel)
        opened.shares_kernel = True
        self.shared_kernel = opened.kernel_id()
        return opened

    def open_file(
        self, name: str, *, kernel: bool = True, kernel_id: str | None = None
    ) -> Notebook:
        """Open a notebook in the server's folder with a new kernel, a running one, or none."""
        self._show_file(name, kernel=kernel, kernel_id=kernel_id)
        notebook = Notebook(self, name)
        self.opened.append(notebook)
        return notebook

    def load_again(self, notebook: Notebook) -> None:
        """Save a notebook, reload the page, and open the notebook with its running kernel."""
        kernel_id = notebook.kernel_id()
        notebook.save()
        self.load()
        self._show_file(notebook.name, kernel=True, kernel_id=kernel_id)

    def _show_file(self, name: str, *, kernel: bool, kernel_id: str | None) -> None:
        self._evaluate(
            """async ({ name, kernel, kernelId }) => {
              const app = window.jupyterapp;
              const options = { path: name, factory: "Notebook" };
              if (kernelId) options.kernel = { id: kernelId };
              if (!kernel) {
                options.kernelPreference = { shouldStart: false, autoStartDefault: false };
              }
              const panel = await app.commands.execute("docmanager:open", options);
              await panel.context.ready;
              await panel.revealed;
              if (kernel) {
                await panel.sessionContext.ready;
                await panel.sessionContext.session.kernel.info;
              }
            }""",
            {"name": name, "kernel": kernel, "kernelId": kernel_id},
            what=f"opening {name}",
            timeout=KERNEL_TIMEOUT,
        )

    def reopen(self, notebook: Notebook, *, trusted: bool = True) -> Notebook:
        """Save a notebook, close it, and open it again without a kernel."""
        notebook.save()
        notebook.close()
        name = notebook.name
        if not trusted:
            path = self.server.notebooks / name
            document = json.loads(path.read_text(encoding="utf-8"))
            # A change outside JupyterLab invalidates the signature of the notebook.
            document["metadata"]["from"] = "a stranger"
            name = f"untrusted-{name}"
            (self.server.notebooks / name).write_text(json.dumps(document), encoding="utf-8")
        return self.open_file(name, kernel=False)

    def _evaluate(self, script: str, argument: object, *, what: str, timeout: int = TIMEOUT) -> Any:
        """Run a script in the page with a timeout, because a promise may never settle."""
        answer = self.page.evaluate(
            f"""async ({{ argument, timeout }}) => {{
              const work = (async () => ({{ value: await ({script})(argument) }}))();
              let timer;
              const late = new Promise((resolve) => {{
                timer = setTimeout(() => resolve({{ late: true }}), timeout);
              }});
              const answer = await Promise.race([work, late]);
              clearTimeout(timer);
              return answer;
            }}""",
            {"argument": argument, "timeout": timeout},
        )
        if answer.get("late"):
            message = f"JupyterLab: {what} did not end within {timeout / 1000:.0f} s"
            raise TimeoutError(message)
        return answer.get("value")


# The panel of the notebook by its path, because another panel may be active.
PANEL = """
  const panel = [...window.jupyterapp.shell.widgets("main")].find(
    (widget) => widget.context?.path === name,
  );
  const { context, sessionContext } = panel;
"""


@dataclass
class Notebook:
    """An open notebook.

    Parameters
    ----------
    name : str
        File name in the server's folder.
    """

    lab: JupyterLab
    name: str
    shares_kernel: bool = False

    @property
    def root(self) -> Locator:
        """Element of the notebook on the page."""
        return self.lab.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def output(self, cell: int) -> Locator:
        """Return the output area of a cell."""
        return self.root.locator(".jp-Cell").nth(cell).locator(".jp-Cell-outputArea")

    def run_all(self, timeout: int = KERNEL_TIMEOUT) -> None:
        """Run all cells and wait until they have finished. Fail if a cell raises an error."""
        self._run(
            """await context.ready;
               await sessionContext.ready;
               await sessionContext.session.kernel.info;
               window.jupyterapp.shell.activateById(panel.id);
               await window.jupyterapp.commands.execute("notebook:run-all-cells");""",
            what="running all cells",
            timeout=timeout,
        )
        for output in self.outputs():
            assert output["output_type"] != "error", "\n".join(output["traceback"])

    def select(self, cell: int) -> None:
        """Activate a cell and deselect all others."""
        self._run(
            """panel.content.deselectAll();
               panel.content.activeCellIndex = extra;""",
            what=f"selecting cell {cell}",
            extra=cell,
        )

    def outputs(self) -> list[dict[str, Any]]:
        """Return the outputs of all cells in the format of the notebook file."""
        cells = self._run("return context.model.toJSON().cells;", what="reading the outputs")
        return [output for cell in cells for output in cell.get("outputs", [])]

    def execute(self, code: str, timeout: int = KERNEL_TIMEOUT) -> None:
        """Run code in the kernel, outside of the cells, and wait until it has finished."""
        reply = self._request(code, {}, timeout)
        assert reply["status"] == "ok", "\n".join(reply.get("traceback", [str(reply)]))

    def evaluate(self, expression: str, timeout: int = KERNEL_TIMEOUT) -> Any:
        """Return the value of an expression in the kernel, such as a number, string or list."""
        reply = self._request("", {"value": expression}, timeout)
        value = reply["user_expressions"]["value"]
        assert value["status"] == "ok", "\n".join(value.get("traceback", [str(value)]))
        return ast.literal_eval(value["data"]["text/plain"])

    def becomes(self, expression: str, value: object) -> None:
        """Wait until an expression in the kernel equals `value`."""
        end = time.monotonic() + SYNC_SECONDS
        while (now := self.evaluate(expression)) != value and time.monotonic() < end:
            self.lab.page.wait_for_timeout(50)
        assert now == value

    def kernel_id(self) -> str:
        """Return the id of the kernel on the server."""
        return str(self._run("return sessionContext.session.kernel.id;", what="the kernel's id"))

    def send_comms_to(self, subshells: str) -> None:
        """Set which threads of the kernel handle the messages of widgets that are created later.

        `subshells` is a value of JupyterLab's setting ``commsOverSubshells``. ``"disabled"`` sends
        them to the main thread, and ``"perCommTarget"``, the default, to one other thread.
        """
        self._run(
            "sessionContext.session.kernel.commsOverSubshells = extra;",
            what="setting the threads of comms",
            extra=subshells,
        )

    def restart_kernel(self) -> None:
        """Restart the kernel and wait until it responds."""
        self._run(
            """await sessionContext.restartKernel();
               await sessionContext.session.kernel.info;""",
            what="restarting the kernel",
            timeout=KERNEL_TIMEOUT,
        )

    def shut_down_kernel(self) -> None:
        """End the kernel without closing the notebook."""
        self._run("if (panel) await sessionContext.shutdown();", what="ending the kernel")

    def save(self) -> None:
        self._run("await context.save();", what="saving")

    def close(self) -> None:
        """Close the notebook. End its kernel, or clean it for the next notebook if it is shared."""
        if self.shares_kernel:
            self.execute(CLEAN_KERNEL)
        else:
            self.shut_down_kernel()
        self._run("panel.dispose();", what="closing")
        self.lab.opened.remove(self)

    def _request(self, code: str, expressions: dict[str, str], timeout: int) -> dict[str, Any]:
        reply: dict[str, Any] = self._run(
            """const future = sessionContext.session.kernel.requestExecute({
                 code: extra.code,
                 user_expressions: extra.expressions,
                 store_history: false,
                 stop_on_error: false,
               });
               return (await future.done).content;""",
            what=f"running {code or expressions}",
            timeout=timeout,
            extra={"code": code, "expressions": expressions},
        )
        return reply

    def _run(self, script: str, *, what: str, timeout: int = TIMEOUT, extra: object = None) -> Any:
        return self.lab._evaluate(
            f"async ({{ name, extra }}) => {{ {PANEL} {script} }}",
            {"name": self.name, "extra": extra},
            what=f"{what} in {self.name}",
            timeout=timeout,
        )
