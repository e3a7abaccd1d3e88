"""Test replacing the record of a view in JupyterLab: the picture changes, the selection stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import drawn

if TYPE_CHECKING:
    from browser.jupyter import JupyterLab

SETUP = """
import attnviz as av
model, tokenizer = av.demos.load("decoder")
def extract(text):
    return av.extract(model, text, tokenizer=tokenizer)
short = extract("the animal did not cross the street")
long = extract("the animal did not cross the street because it was too wide")
"""
SHOW = "view = av.show_head_view(short, layer=1, heads=[2], token=3)"


@pytest.mark.slow
def test_the_picture_follows_the_record_and_the_choices_stay(lab: JupyterLab) -> None:
    notebook = lab.open([SETUP, SHOW])
    notebook.run_all()
    root = notebook.output(1).locator(".attnviz")
    drawn(root, "head:self:1")
    layer = root.get_by_role("button", name="Layer 1")
    layer.focus()
    notebook.execute("view.record = long")
    drawn(root, "head:self@1:1")
    expect(root).to_contain_text("12 tokens")
    expect(layer).to_be_focused()
    assert notebook.evaluate("view.layer, view.heads, view.token") == (1, [2], 3)
    # A token index that only the new record has.
    notebook.execute("view.token = 11")
    expect(root).to_contain_text("Pinned: query “wide”")
    notebook.execute("view.record = short")
    drawn(root, "head:self@2:1")
    expect(root).not_to_contain_text("Pinned:")
    assert notebook.evaluate("view.layer, view.heads, view.token") == (1, [2], None)
    # The reader can choose another layer, and a reloaded page draws it.
    root.get_by_role("button", name="Layer 0").click()
    drawn(root, "head:self@2:0")
    notebook.becomes("view.layer", 0)
    notebook.lab.load_again(notebook)
    drawn(notebook.output(1).locator(".attnviz"), "head:self@2:0")
