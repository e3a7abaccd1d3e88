"""Test undo in JupyterLab: changes from Python are undone together with the reader's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from browser.hosts import RECORD, drawn

if TYPE_CHECKING:
    from browser.jupyter import JupyterLab

VIEW = "view = av.HeadView(record, layer=0, heads=[1])\nview"


def test_undo_reverts_a_choice_and_what_python_set_after_it_in_one_step(lab: JupyterLab) -> None:
    notebook = lab.open([RECORD, VIEW])
    notebook.run_all()
    root = notebook.output(1).locator(".attnviz")
    drawn(root, "head:self:0")
    chosen = root.locator(".av-head[aria-pressed=true]")
    root.get_by_role("button", name="Head 3", exact=True).click()
    expect(chosen).to_have_count(2)
    notebook.becomes("view.heads", [1, 3])
    notebook.execute("view.layer = 1")
    drawn(root, "head:self:1")
    root.locator(".av-plot").press("Control+z")
    expect(chosen).to_have_count(1)
    drawn(root, "head:self:0")
    notebook.becomes("view.layer, view.heads", (0, [1]))
