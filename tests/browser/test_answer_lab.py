"""Generated text, live in JupyterLab: the walk goes both ways, and views that are linked follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE

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
#: Widgets hold a change back while the kernel answers their last one, and send it after that. What
#: the kernel is told between the two would be undone by it.
HELD_BACK_MILLISECONDS = 1500


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([SETUP, LINKED])
    notebook.run_all()
    return notebook


@pytest.fixture
def views(notebook: Notebook) -> tuple[Locator, Locator]:
    roots = notebook.output(1).locator(".attnviz")
    for root, name in ((roots.nth(0), "head"), (roots.nth(1), "matrix")):
        expect(root).to_have_attribute(
            "data-attnviz-drawn", f"{name}:self:0", timeout=FIRST_PICTURE
        )
    return roots.nth(0), roots.nth(1)


def place(token: int | None, prediction: int | None, *, as_query: bool) -> list[object]:
    return [token, prediction, as_query] * 2


def test_the_walk_goes_both_ways(notebook: Notebook, views: tuple[Locator, Locator]) -> None:
    where = (
        "[getattr(view, name) for view in (head, matrix) "
        "for name in ('token', 'prediction', 'as_query')]"
    )
    head, matrix = views
    head.get_by_role("button", name="Next token of the answer").click()
    for root in views:
        expect(root.get_by_role("group", name="Answer")).to_contain_text("predicting street")
    notebook.becomes(where, place(13, 0, as_query=False))
    matrix.get_by_role("checkbox", name="as query").check()
    for root in views:
        expect(root.get_by_role("group", name="Answer")).to_contain_text("street as query")
    notebook.becomes(where, place(14, 0, as_query=True))
    notebook.lab.page.wait_for_timeout(HELD_BACK_MILLISECONDS)
    notebook.execute("head.prediction = 4")
    for root in views:
        expect(root.get_by_role("group", name="Answer")).to_contain_text("5 of 8")
    notebook.becomes(where, place(18, 4, as_query=True))
    notebook.lab.page.wait_for_timeout(HELD_BACK_MILLISECONDS)
    notebook.execute("matrix.as_query = False")
    expect(head.get_by_role("group", name="Answer")).to_contain_text("predicting in")
    notebook.becomes(where, place(17, 4, as_query=False))
    head.locator(".av-plot").focus()
    notebook.lab.page.keyboard.press("Escape")
    for root in views:
        expect(root.get_by_role("group", name="Answer")).to_contain_text("8 tokens")
    notebook.becomes(where, place(None, None, as_query=False))


def test_where_a_token_came_from_is_the_same_as_in_python(
    notebook: Notebook, views: tuple[Locator, Locator]
) -> None:
    head, _ = views
    # After what another test did.
    notebook.lab.page.wait_for_timeout(HELD_BACK_MILLISECONDS)
    notebook.execute("head.prediction = 2")
    panel = head.locator(".av-sources")
    panel.get_by_text("Where it came from, over all heads").click()
    expect(panel.get_by_role("listitem")).to_have_count(8)
    found = "record.sources(int(record.stack().query_tokens.predictions[2].row))"
    keys = notebook.evaluate(f"{found}.top(8).tolist()")
    means = notebook.evaluate(f"[float(mean) for mean in {found}.means]")
    expect(panel.locator("li .av-source-number:nth-of-type(1)")).to_have_text(
        [str(key) for key in keys]
    )
    for place, key in enumerate(keys):
        expect(panel.get_by_role("listitem").nth(place)).to_contain_text(f"{means[key]:.2f}")
