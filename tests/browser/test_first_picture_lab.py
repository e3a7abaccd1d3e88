"""Tests that views in JupyterLab receive their description with the widget.

This saves a request, which matters if the kernel is remote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE, RECORD, VIEWS
from browser.jupyter import JupyterLab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from browser.jupyter import JupyterServer, Notebook

pytestmark = pytest.mark.slow

LONGER = """
def longer(seed):
    return 2 * torch.randn(3, 4, 256, 16, generator=torch.Generator().manual_seed(seed))

record = av.AttentionRecord.from_qk(longer(0), longer(1), [f"t{token}" for token in range(256)])
"""
WHOLE = ["HeadView", "ModelView", "NeuronView", "MatrixView"]
CELLS = [f"{name.lower()} = av.{name}(record)\n{name.lower()}" for name in WHOLE]
OTHERS = [view for view in VIEWS if view.class_name not in WHOLE]


# Log the requests of all widgets. JupyterLab sends messages as text in binary frames.
WATCH = """() => {
  const { send } = WebSocket.prototype;
  window.sent = [];
  WebSocket.prototype.send = function (data) {
    const text = typeof data === "string" ? data : new TextDecoder().decode(data);
    const request = text.match(/"attnviz":"request","id":"[^"]*","name":"([^"]*)"/);
    if (request) window.sent.push(request[1]);
    send.call(this, data);
  };
}"""


@pytest.fixture(scope="module")
def notebook(chromium: Browser, jupyter_server: JupyterServer) -> Iterator[Notebook]:
    """Open a notebook in a new tab and run its first cell."""
    lab = JupyterLab.open_in(chromium, jupyter_server)
    lab.page.evaluate(WATCH)
    cells = [RECORD + LONGER, *CELLS, RECORD, *(view.make for view in OTHERS)]
    cells.append("import ipywidgets\nipywidgets.HBox([av.HeadView(record), av.MatrixView(record)])")
    notebook = lab.open(cells, own_kernel=True)
    notebook.execute(cells[0])
    yield notebook
    lab.close()


def requests_of(notebook: Notebook, cell: int, views: int = 1) -> list[str]:
    """Run a cell and return the requests that were sent until its views were drawn."""
    page = notebook.lab.page
    notebook.select(cell)
    page.evaluate("() => { window.sent = []; }")
    notebook.lab.command("notebook:run-cell")
    drawn = notebook.output(cell).locator(".attnviz-host > [data-attnviz-drawn]")
    expect(drawn).to_have_count(views, timeout=FIRST_PICTURE)
    sent: list[str] = page.evaluate("() => window.sent")
    assert sent
    return sent


def test_descriptions_come_with_a_view_and_are_requested_after_a_reload(notebook: Notebook) -> None:
    for cell, name in enumerate(WHOLE, 1):
        assert "describe" not in requests_of(notebook, cell), name
    notebook.execute(RECORD)
    for cell, view in enumerate(OTHERS, 2 + len(WHOLE)):
        assert "describe" not in requests_of(notebook, cell), view
    cell = 2 + len(WHOLE) + len(OTHERS)
    assert "describe" not in requests_of(notebook, cell, views=2)
    # After a reload, one message has the state of all widgets, without descriptions.
    page = notebook.lab.page
    notebook.save()
    # The kernel does not keep descriptions.
    assert notebook.evaluate(
        "all(view.get_state()['_description'] is None for view in (headview, matrixview))"
    )
    # `reload` would open the workspace, which other tabs of the server change, too.
    page.goto(f"{notebook.lab.server.url}/lab/tree/{notebook.name}")
    root = notebook.output(1).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0", timeout=FIRST_PICTURE)
