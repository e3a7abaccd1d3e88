"""Test the atlas in JupyterLab: traits and a link in both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import drawn, view_in

if TYPE_CHECKING:
    from browser.jupyter import JupyterLab

SETUP = """
import attnviz as av, ipywidgets, torch
torch.set_num_threads(1)
texts = [
    "The cat sat on the mat. The cat",
    "The dog did not cross the street because it was too tired.",
    "A dog saw the cat. The dog ran.",
    "The cat ran to the street and the dog ran to the cat.",
    "The mat was on the street. The cat sat on the mat.",
    "It was too tired to cross the street. The dog sat.",
]
model, tokenizer = av.demos.load("decoder")
"""
SHOW = (
    "view = av.show_atlas_view(model, texts, tokenizer=tokenizer, layer=1, heads=[0], "
    "progress=False)"
)
LINKED = """
head = av.HeadView(av.extract(model, texts[0], tokenizer=tokenizer), layer=1, heads=[0])
links = [ipywidgets.jslink((view, name), (head, name)) for name in ("layer", "heads")]
head
"""


@pytest.mark.slow
def test_choices_reach_python_and_a_linked_view(lab: JupyterLab) -> None:
    notebook = lab.open([SETUP, SHOW, LINKED])
    notebook.run_all()
    view, head = view_in(notebook, 1), view_in(notebook, 2)
    drawn(head, "head:self:1")
    view.get_by_role("gridcell", name="Layer 2, head 1:").click()
    notebook.becomes("(view.layer, view.heads, head.layer, head.heads)", (2, [1], 2, [1]))
    drawn(head, "head:self:2")
    head.get_by_role("button", name="Layer 1").click()
    drawn(view, "atlas:self:1")
    notebook.execute("view.color, view.edges = 'entropy', 'strongest'")
    expect(view.locator(".av-atlas-scale")).to_contain_text("entropy")
    edges = view.locator(".av-atlas-edges > ol > li")
    notebook.execute("edge = view.statistics.stack().strongest(1, 1)[1]")
    tokens = notebook.evaluate("(edge.query_token, edge.key_token)")
    for token in tokens:
        expect(edges.nth(1).locator("mark", has_text=token.replace("Ġ", ""))).to_be_visible()
