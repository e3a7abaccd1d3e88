"""Live views in a JupyterLab that is 150 ms away each way: a round trip for what they draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.far import far_lab, first_picture
from browser.hosts import FIRST_PICTURE, RECORD, VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from browser.jupyter import JupyterLab, JupyterServer, Notebook
    from browser.relay import Relay

pytestmark = pytest.mark.slow

LONGER = """
def longer(seed):
    return 2 * torch.randn(3, 4, 256, 16, generator=torch.Generator().manual_seed(seed))

record = av.AttentionRecord.from_qk(longer(0), longer(1), [f"token{at}" for at in range(256)])
"""
WHOLE = ["HeadView", "ModelView", "NeuronView", "MatrixView"]
CELLS = [f"{name.lower()} = av.{name}(record)\n{name.lower()}" for name in WHOLE]
OTHERS = [view for view in VIEWS if view.class_name not in WHOLE]


@pytest.fixture(scope="module")
def far(chromium: Browser, jupyter_server: JupyterServer) -> Iterator[tuple[JupyterLab, Relay]]:
    with far_lab(chromium, jupyter_server) as found:
        yield found


@pytest.fixture(scope="module")
def notebook(far: tuple[JupyterLab, Relay]) -> Notebook:
    cells = [RECORD + LONGER, *CELLS, RECORD, *(view.make for view in OTHERS)]
    cells.append("import ipywidgets\nipywidgets.HBox([av.HeadView(record), av.MatrixView(record)])")
    notebook = far[0].open(cells, own_kernel=True)
    notebook.execute(cells[0])
    return notebook


def test_the_description_came_along(notebook: Notebook) -> None:
    for at, name in enumerate(WHOLE):
        assert "describe" not in first_picture(notebook, 1 + at).asked, name
    notebook.execute(RECORD)
    for at, view in enumerate(OTHERS, 2 + len(WHOLE)):
        assert "describe" not in first_picture(notebook, at).asked, view


def test_views_in_a_box_have_their_own_descriptions(notebook: Notebook) -> None:
    cell = 2 + len(WHOLE) + len(OTHERS)
    both = "cell.querySelectorAll('.attnviz-host > [data-attnviz-drawn]').length > 1"
    assert "describe" not in first_picture(notebook, cell, both).asked
    roots = notebook.output(cell).locator(".attnviz")
    expect(roots.nth(0)).to_have_attribute("data-attnviz-drawn", "head:self:0")
    expect(roots.nth(1)).to_have_attribute("data-attnviz-drawn", "matrix:self:0")


def test_the_description_is_kept_nowhere(notebook: Notebook) -> None:
    """Neither by the kernel, nor by JupyterLab, nor in the notebook that it saves."""
    assert notebook.evaluate("headview.get_state()['_description']") is None
    state = notebook.lab.page.evaluate(
        """async (id) => {
          const { rendermime } = window.jupyterapp.shell.currentWidget.content;
          const renderer = rendermime.createRenderer("application/vnd.jupyter.widget-view+json");
          const manager = await renderer._manager.promise;
          const saved = (await manager.get_state()).state[id];
          const { _code, _esm, ...rest } = saved.state;
          return [saved.buffers?.length ?? 0, rest._description, JSON.stringify(rest).length];
        }""",
        notebook.evaluate("headview.model_id"),
    )
    assert state[:2] == [0, None]
    assert state[2] < 4_000


def test_a_browser_that_loads_the_page_again_asks(
    notebook: Notebook, far: tuple[JupyterLab, Relay]
) -> None:
    """The state of all widgets then travels in one message."""
    page, far[1].delay_s = notebook.lab.page, 0.0
    notebook.save()
    assert notebook.evaluate(
        "all(each.get_state()['_description'] is None for each in (headview, matrixview))"
    )
    # Not `reload`, which opens what the workspace has: other tabs of the server write it, too.
    page.goto(f"{notebook.lab.server.url}/lab/tree/{notebook.name}")
    root = notebook.output(1).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0", timeout=FIRST_PICTURE)
