"""The neuron view in a real JupyterLab: vectors from a running kernel, both-way traits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

SETUP = """
import attnviz as av, torch
from attnviz.views.neuron import NeuronView
torch.set_num_threads(1)
text = "The animal didn't cross the street because it was too tired."
record = av.extract({folder!r}, text)
view = NeuronView(record, layer=3, heads=[1], token=10)
view
"""
BROKEN = """
from attnviz.record.attention import QueryKeyAttention
vectors = torch.full((1, 3, 4), torch.nan)
stack = av.AttentionStack(
    "self", {0: QueryKeyAttention(vectors, vectors, scale=1.0)}, av.Tokens.of(["a", "b", "c"])
)
NeuronView(av.AttentionRecord({"self": stack}))
"""


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab, checkpoint_folder: Path) -> Notebook:
    notebook = lab.open([SETUP.format(folder=str(checkpoint_folder)), BROKEN])
    notebook.run_all()
    return notebook


def view_in(notebook: Notebook, cell: int) -> Locator:
    return notebook.output(cell).locator(".attnviz")


def test_the_kernel_sends_what_adds_up(notebook: Notebook) -> None:
    view = view_in(notebook, 0)
    expect(view).to_have_attribute("data-attnviz-drawn", "neuron:self:3", timeout=60_000)
    expect(view.locator(".av-sentence")).to_contain_text(
        "“it” gives 0.68 of its attention to “animal”: q·k / √32 = +3.83, dimensions 25, 0, 6"
    )


def test_traits_go_both_ways(notebook: Notebook) -> None:
    view = view_in(notebook, 0)
    view.get_by_label("tired, query 13").click()
    notebook.becomes("view.token", 13)
    view.get_by_label("Sort dimensions by share").uncheck()
    notebook.becomes("view.sort_dimensions", value=False)
    view.get_by_role("button", name="Head 4", exact=True).click()
    notebook.becomes("list(view.heads)", [4])
    notebook.evaluate("view.set_trait('key', 2)")
    expect(view.locator(".av-sentence")).to_contain_text("“tired” gives")
    expect(view.locator(".av-sentence")).to_contain_text("to “animal”")
    notebook.evaluate("view.set_trait('layer', 5)")
    expect(view).to_have_attribute("data-attnviz-drawn", "neuron:self:5")


def test_numbers_that_are_none_are_said(notebook: Notebook) -> None:
    view = view_in(notebook, 1)
    expect(view).to_have_attribute("data-attnviz-state", "error")
    expect(view.locator(".av-error")).to_contain_text(re.compile("NaN or infinite"))
