"""Test the atlas in JupyterLab: traits and a link in both directions, the tokens of an edge."""

from __future__ import annotations

import re
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
def test_choices_reach_python_a_linked_view_and_the_tokens_of_an_edge(lab: JupyterLab) -> None:
    notebook = lab.open([SETUP, SHOW, LINKED])
    notebook.run_all()
    view, head = view_in(notebook, 1), view_in(notebook, 2)
    drawn(head, "head:self:1")
    view.get_by_role("gridcell", name="Layer 2, head 1:").click()
    notebook.becomes("(view.layer, view.heads, head.layer, head.heads)", (2, [1], 2, [1]))
    drawn(head, "head:self:2")
    head.get_by_role("button", name="Layer 1").click()
    drawn(view, "atlas:self:1")
    notebook.execute("view.color, view.offsets = 'entropy', [-2, -1]")
    expect(view.locator(".av-atlas-scale")).to_contain_text("entropy")
    expect(view.get_by_role("button", name="offset −2 to −1")).to_be_visible()

    notebook.execute("view.offsets, view.heads, view.edges = None, [0], 'strongest'")
    notebook.execute("edge = view.statistics.stack().strongest(1, 0)[1]")
    view.locator(".av-atlas-edges > ol > li > button").nth(1).click()
    notebook.becomes(
        "(view.text, view.edge)", notebook.evaluate("(edge.text, [edge.query, edge.key])")
    )
    pane = view.locator(".av-atlas-text")
    weight, *window = notebook.evaluate("(edge.weight, *[token for _, token in edge.window])")
    for token in window:
        expect(pane).to_contain_text(token.replace("Ġ", ""))
    key = pane.locator("mark.av-atlas-key")
    expect(key).to_have_attribute("title", re.compile(re.escape(f"{weight:.2f}")))
    view.get_by_role("button", name="Close the text").click()
    notebook.becomes("(view.text, view.edge)", (None, None))
