"""Jupyter Notebook 7 for the tests, on the server of JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from browser.chromium import TIMEOUT, Watch
from browser.jupyter import KERNEL_TIMEOUT, KNOWN_PROBLEMS, JupyterLab, Notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser.jupyter import JupyterServer

# Regular expressions of errors that Notebook 7 causes, independent of the notebook.
KNOWN_IN_NOTEBOOK = (
    # The list of shortcuts requests the settings of a plugin that the page does not load.
    r"undefined \(reading 'schema'\)\n\s+at http\S+/static/notebook/notebook_core",
)


class JupyterNotebook(JupyterLab):
    """Notebook 7 in one browser tab, which shows one notebook.

    Notebook 7 is JupyterLab with another shell, so its page is controlled in the same way.
    """

    @classmethod
    def open_in(cls, browser: Browser, server: JupyterServer) -> Self:
        """Open an empty tab."""
        context = browser.new_context(viewport={"width": 1300, "height": 1000})
        context.set_default_timeout(TIMEOUT)
        watch = Watch(origin=server.url, ignored=KNOWN_PROBLEMS + KNOWN_IN_NOTEBOOK)
        page = context.new_page()
        watch.follow(page)
        return cls(server, context, page, watch)

    def open_file(
        self, name: str, *, kernel: bool = True, kernel_id: str | None = None
    ) -> Notebook:
        """Open a notebook in the server's folder, always with a new kernel."""
        assert kernel, "Notebook 7 starts a kernel for whatever it opens"
        assert kernel_id is None, "Notebook 7 shows one notebook"
        assert not self.opened, "the tab shows a notebook: close that first"
        self.page.goto(f"{self.server.url}/notebooks/{name}")
        self.page.wait_for_function("() => window.jupyterapp?.commands !== undefined")
        self._evaluate(
            """async ({ name }) => {
              const app = window.jupyterapp;
              await app.restored;
              const panel = [...app.shell.widgets("main")].find(
                (widget) => widget.context?.path === name,
              );
              await panel.context.ready;
              await panel.sessionContext.ready;
              await panel.sessionContext.session.kernel.info;
            }""",
            {"name": name},
            what=f"opening {name}",
            timeout=KERNEL_TIMEOUT,
        )
        notebook = Notebook(self, name)
        self.opened.append(notebook)
        return notebook
