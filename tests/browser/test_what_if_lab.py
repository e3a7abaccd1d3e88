"""A reader of a view in JupyterLab cuts an edge, and the model answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser import accessibility
from browser.hosts import FIRST_PICTURE

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.jupyter import JupyterLab, Notebook

VIEW = """
import attnviz as av
model, tokenizer = av.demos.load("decoder")
text = "the animal did not cross the street because it was too wide so the"
view = av.show_head_view(
    model, text, tokenizer=tokenizer, layer=1, heads=0, token=-1, key="street"
)
"""


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    without = [f"av.{name}(view.record, layer=1, heads=0)" for name in ("HeadView", "Dashboard")]
    two = "av.CompareView(av.compare(view.record, view.record), layer=1, heads=0)"
    notebook = lab.open([VIEW, *without, two])
    notebook.run_all()
    return notebook


def panel(notebook: Notebook, output: int) -> Locator:
    root = notebook.output(output).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1", timeout=FIRST_PICTURE)
    return root.locator(".av-what-if")


def test_the_edge_that_decides_is_cut(notebook: Notebook, page: Page, tmp_path: Path) -> None:
    what_if = panel(notebook, 0)
    answer = what_if.get_by_role("status")
    # By the keyboard alone.
    what_if.locator("summary").press("Enter")
    expect(answer).to_contain_text("Unchanged, the next token is 'street'")
    what_if.get_by_role("button", name="What if this edge were cut?").press("Enter")
    expect(answer).to_contain_text("Cut before the softmax, the next token becomes 'animal'")
    [change] = notebook.evaluate("view.changes")
    assert change == {
        "kind": "knockout",
        "stack": "self",
        "layer": 1,
        "head": 0,
        "query": 13,
        "key": 6,
        "renormalize": True,
    }
    accessibility.check(what_if)
    notebook.execute("view.changes = [{'kind': 'ablate', 'layer': 1, 'head': 1}]")
    expect(answer).to_contain_text("Without head 1.1, the next token stays 'street'")
    what_if.get_by_role("button", name="Take back: Without head 1.1").press("Enter")
    expect(answer).to_contain_text("Unchanged")
    assert notebook.evaluate("view.changes") == []
    # What was answered goes along into a page.
    path = tmp_path / "view.html"
    path.write_text(notebook.evaluate("view.to_html()"), encoding="utf-8")
    page.goto(path.as_uri())
    tried = page.get_by_role("list", name="Changes that were tried").get_by_role("listitem")
    expect(tried).to_have_count(2)
    expect(tried.first).to_contain_text("the next token becomes 'animal'")
    expect(page.locator(".av-what-if button")).to_have_count(0)
    accessibility.check(page.locator(".av-what-if"))


def test_a_view_without_a_model_says_what_to_do(notebook: Notebook) -> None:
    what_if = panel(notebook, 1)
    what_if.locator("summary").click()
    expect(what_if.get_by_role("status")).to_have_text(
        "Make the view with show_head_view(model, text) to try it."
    )
    expect(what_if.get_by_role("button")).to_have_count(0)


@pytest.mark.parametrize(("output", "panels"), [(2, 1), (3, 0)], ids=["dashboard", "compare"])
def test_the_panel_stands_once_where_a_record_may_have_its_model(
    notebook: Notebook, output: int, panels: int
) -> None:
    root = notebook.output(output).locator(".attnviz[data-attnviz-drawn]").first
    expect(root).to_be_visible(timeout=FIRST_PICTURE)
    expect(root.locator(".av-what-if")).to_have_count(panels)
