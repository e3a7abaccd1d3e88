"""Test undo in JupyterLab: Python sees the changes, and the notebook keeps its own undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import RECORD, drawn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

VIEW = "view = av.HeadView(record, heads=[1])\nview"


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([RECORD, VIEW, "'below'"])
    notebook.run_all()
    return notebook


@pytest.fixture
def root(notebook: Notebook) -> Locator:
    notebook.execute("view.layer, view.heads, view.token = 0, [1], None")
    root = notebook.output(1).locator(".attnviz")
    drawn(root, "head:self:0")
    chosen(root, 1)
    return root


def chosen(root: Locator, *heads: int) -> None:
    expect(root.locator(".av-head[aria-pressed=true]")).to_have_count(len(heads))
    for head in heads:
        button = root.get_by_role("button", name=f"Head {head}", exact=True)
        expect(button).to_have_attribute("aria-pressed", "true")


def test_what_python_sets_is_no_step_of_its_own(notebook: Notebook, root: Locator) -> None:
    root.get_by_role("button", name="Head 3", exact=True).click()
    chosen(root, 1, 3)
    notebook.becomes("view.heads", [1, 3])
    notebook.execute("view.layer = 1")
    drawn(root, "head:self:1")
    root.locator(".av-plot").press("Control+z")
    chosen(root, 1)
    drawn(root, "head:self:0")
    notebook.becomes("view.layer, view.heads", (0, [1]))


@pytest.fixture
def bound(lab: JupyterLab) -> Iterator[None]:
    """Bind Ctrl-Z to undo in the notebook, as readers can in JupyterLab's settings."""
    lab.page.evaluate(
        """() => {
          const binding = { command: "notebook:undo-cell-action", keys: ["Accel Z"] };
          window.bound = window.jupyterapp.commands.addKeyBinding({
            ...binding, selector: ".jp-Notebook",
          });
        }"""
    )
    yield
    lab.page.evaluate("() => window.bound.dispose()")


@pytest.mark.slow
@pytest.mark.usefixtures("bound")
def test_the_notebooks_own_undo_does_not_run(notebook: Notebook, root: Locator) -> None:
    cells = notebook.root.locator(".jp-Cell")
    before = cells.count()
    # Add a cell that the undo of the notebook would remove.
    cells.nth(2).locator(".jp-InputPrompt").click()
    notebook.lab.page.keyboard.press("b")
    expect(cells).to_have_count(before + 1)
    root.get_by_role("button", name="Head 3", exact=True).click()
    for _ in range(3):
        root.locator(".av-plot").press("Control+z")
    chosen(root, 1)
    expect(cells).to_have_count(before + 1)
    # The undo runs when the notebook has the focus, so the shortcut is active.
    cells.nth(2).locator(".jp-InputPrompt").click()
    notebook.lab.page.keyboard.press("Control+z")
    expect(cells).to_have_count(before)
