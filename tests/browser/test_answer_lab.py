"""Tests of generated text in JupyterLab: traits in both directions and linked views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import drawn

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

SETUP = """
import attnviz as av, ipywidgets, torch
torch.set_num_threads(1)
model, tokenizer = av.demos.load("decoder")
text = "the animal did not cross the street because it was too wide so the"
record = av.extract(model, text, tokenizer=tokenizer, generate=8)
"""
LINKED = """
head, matrix = av.HeadView(record, layer=0), av.MatrixView(record, layer=0)
links = [
    ipywidgets.jslink((head, name), (matrix, name)) for name in ("as_query", "prediction", "token")
]
ipywidgets.VBox([head, matrix])
"""
ALONE = "alone = av.HeadView(record, layer=0)\nalone"
WHERE = (
    "[getattr(view, name) for view in (head, matrix) "
    "for name in ('token', 'prediction', 'as_query')]"
)


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([SETUP, LINKED, ALONE])
    notebook.run_all()
    return notebook


def answers(root: Locator) -> Locator:
    return root.get_by_role("group", name="Answer")


@pytest.mark.slow
def test_the_walk_goes_both_ways(notebook: Notebook) -> None:
    def are_at(said: str, token: int | None, prediction: int | None, *, as_query: bool) -> None:
        for root in (head, matrix):
            expect(answers(root)).to_contain_text(said)
        notebook.becomes(WHERE, [token, prediction, as_query] * 2)

    roots = notebook.output(1).locator(".attnviz")
    head, matrix = roots.nth(0), roots.nth(1)
    drawn(head, "head:self:0")
    drawn(matrix, "matrix:self:0")
    # Set the trait from Python first: a pending message of the widget could overwrite it.
    notebook.execute("head.prediction = 4")
    are_at("predicting in", 17, 4, as_query=False)
    matrix.get_by_role("checkbox", name="as query").check()
    are_at("in as query", 18, 4, as_query=True)
    head.get_by_role("button", name="Next token of the answer").click()
    are_at("6 of 8", 19, 5, as_query=True)
    matrix.get_by_role("checkbox", name="as query").uncheck()
    are_at("6 of 8", 18, 5, as_query=False)
    head.locator(".av-plot").focus()
    notebook.lab.page.keyboard.press("Escape")
    are_at("8 tokens", None, None, as_query=False)
