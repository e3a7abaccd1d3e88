"""Tests of generated text in linked views in JupyterLab."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser.hosts import drawn
from browser.jupyter import JupyterLab

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
TRAITS = (
    "[getattr(view, name) for view in (head, matrix) "
    "for name in ('token', 'prediction', 'as_query')]"
)


@pytest.mark.slow
def test_linked_views_and_python_have_the_same_generated_token(lab: JupyterLab) -> None:
    notebook = lab.open([SETUP, LINKED])
    notebook.run_all()
    roots = notebook.output(1).locator(".attnviz")
    head, matrix = roots.nth(0), roots.nth(1)

    def expect_both(text: str, token: int | None, prediction: int | None, as_query: bool) -> None:
        for root in (head, matrix):
            expect(root.get_by_role("group", name="Answer")).to_contain_text(text)
        notebook.becomes(TRAITS, [token, prediction, as_query] * 2)

    drawn(head, "head:self:0")
    drawn(matrix, "matrix:self:0")
    # Set the trait from Python first: a pending message of the widget could overwrite it.
    notebook.execute("head.prediction = 4")
    expect_both("predicting in", 17, 4, False)
    matrix.get_by_role("checkbox", name="as query").check()
    expect_both("in as query", 18, 4, True)
    head.get_by_role("button", name="Next token of the answer").click()
    expect_both("6 of 8", 19, 5, True)
    matrix.get_by_role("checkbox", name="as query").uncheck()
    expect_both("6 of 8", 18, 5, False)
    head.locator(".av-plot").focus()
    notebook.lab.page.keyboard.press("Escape")
    expect_both("8 tokens", None, None, False)
