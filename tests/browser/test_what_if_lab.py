"""Test what-if changes in JupyterLab: the reader cuts an edge and the model runs again."""

from __future__ import annotations

import re
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
    where = "tokenizer=tokenizer, layer=1, heads=0"
    views = [
        "av.HeadView(view.record, layer=1, heads=0)",
        f"panes = av.show_dashboard(model, text, {where})",
        "av.CompareView(av.compare(view.record, view.record), layer=1, heads=0)",
        f"model_view = av.show_model_view(model, text, {where})",
        f"av.show_head_view(model, text, generate=2, {where})",
        f"av.show_head_view(model, text, words=True, {where})",
        "av.HeadView(av.attribute(model, text, method='value norm', tokenizer=tokenizer), layer=1)",
    ]
    notebook = lab.open([VIEW, *views])
    notebook.run_all()
    return notebook


def panel(notebook: Notebook, output: int) -> Locator:
    root = notebook.output(output).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1", timeout=FIRST_PICTURE)
    return root.locator(".av-what-if")


def test_the_edge_that_decides_is_cut(notebook: Notebook, page: Page, tmp_path: Path) -> None:
    what_if = panel(notebook, 0)
    answer = what_if.locator(".av-what-if-answer")
    root = notebook.output(0).locator(".attnviz")
    pair = root.locator(".av-pinned-edge")
    expect(pair).to_contain_text(
        "Weight 0.92; share of the value norm and effect of cutting it: open"
    )
    # Use only the keyboard.
    what_if.locator("summary").press("Enter")
    expect(answer).to_contain_text("Unchanged, the next token is “street”")
    what_if.get_by_role("button", name="What if this edge were cut?").press("Enter")
    expect(answer).to_contain_text("Cut before the softmax, the next token becomes “animal”")
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
    expect(pair).to_have_text(
        re.compile(
            r"Pinned: “the” \(13\) to “street”, head 1\.0 in the unchanged run\. Weight 0\.92; "
            r"share of the value norm 0\.92; effect: cut before the softmax 17\.0 to −15\.5; "
            r"noise \d[.\d]*e−\d\."
        )
    )
    # The measure is named once.
    measure = "Logit of “street” minus logit of “animal”"
    expect(answer).to_contain_text(f"{measure}: 17.0 to −15.5, noise ")
    expect(root.get_by_text(measure, exact=False)).to_have_count(1)
    accessibility.check(what_if)
    # The picture shows the changed run. Switch to the difference and back.
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^head:self · after: cut"))
    assert notebook.evaluate("view.run") == "after"
    runs = what_if.get_by_role("group", name="The picture shows")
    runs.get_by_role("button", name="difference").press("Enter")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^head:self · difference aft"))
    expect(root.locator(".av-sentence")).to_contain_text("“street”: difference −0.92 (less).")
    expect(pair).to_contain_text("in the unchanged run. Weight 0.92; share")
    notebook.execute("view.run = 'after'")
    expect(root.locator(".av-sentence")).to_contain_text("attends to “street”: 0.00")
    expect(root.locator(".av-summary")).to_contain_text("after: cut before the softmax: “the” (13)")
    accessibility.check(root)
    runs.get_by_role("button", name="before").press("Enter")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    assert notebook.evaluate("view.run") == "before"
    notebook.execute("view.changes = [{'kind': 'ablate', 'layer': 1, 'head': 1}]")
    expect(answer).to_contain_text("Without head 1.1, the next token stays “street”")
    what_if.get_by_role("button", name="Remove: Without head 1.1").press("Enter")
    expect(answer).to_contain_text("Unchanged")
    assert notebook.evaluate("view.changes") == []
    # A page keeps the answers and the weights of the displayed run.
    notebook.execute(f"view.changes, view.run = [{change}], 'difference'")
    path = tmp_path / "view.html"
    path.write_text(notebook.evaluate("view.to_html()"), encoding="utf-8")
    notebook.execute("view.changes, view.run = [], 'before'")
    page.goto(path.as_uri())
    tried = page.get_by_role("list", name="Tried changes").get_by_role("listitem")
    expect(tried).to_have_count(2)
    expect(tried.filter(has_text="the next token becomes “animal”")).to_have_count(1)
    sentence = page.locator(".av-sentence")
    expect(sentence).to_contain_text("“street”: difference −0.92 (less).")
    expect(page.locator(".av-pinned-edge")).to_contain_text(
        "cut before the softmax 17.0 to −15.5 (logit of “street” minus logit of “animal” after"
    )
    accessibility.check(page.locator(".attnviz"))
    # The address contains the displayed run.
    address = page.url
    page.get_by_role("button", name="Cut before the softmax").click()
    expect(sentence).to_contain_text("attends to “street”: 0.92")
    assert "changes=&" in page.url
    assert "changes=&" not in address
    page.goto("about:blank")
    page.goto(f"{path.as_uri()}#changes=knockout.self.1.0.13.6.true&run=after")
    expect(sentence).to_contain_text("attends to “street”: 0.00")
    expect(page.get_by_role("button", name="Cut before")).to_have_attribute("aria-pressed", "true")


def unchanged_model_view(notebook: Notebook) -> tuple[Locator, Locator]:
    """Return the model view without changes, and its open panel."""
    root = notebook.output(4).locator(".attnviz")
    notebook.execute("model_view.changes, model_view.answer, model_view.run = [], None, 'before'")
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:1", timeout=FIRST_PICTURE)
    what_if = root.locator(".av-what-if")
    # Another test may have opened it.
    if what_if.get_attribute("open") is None:
        what_if.locator("summary").press("Enter")
    expect(what_if).to_have_attribute("open", "")
    return root, what_if


@pytest.mark.slow
def test_the_reader_chooses_what_is_measured(notebook: Notebook) -> None:
    _, what_if = unchanged_model_view(notebook)
    notebook.execute("model_view.changes = [{'kind': 'ablate', 'layer': 1, 'head': 0}]")
    answer = what_if.locator(".av-what-if-answer")
    expect(answer).to_contain_text("Logit of “street” minus logit of “the”: ")
    measured = what_if.get_by_label("Measured answer")
    measured.select_option("“canal”")
    expect(answer).to_contain_text("Logit of “canal” minus logit of “street”: ")
    notebook.becomes("model_view.answer", notebook.evaluate("tokenizer('canal')['input_ids'][0]"))
    # Enter an invalid and a valid token with the keyboard.
    measured.select_option("another …")
    field = what_if.get_by_label("Token to measure")
    expect(field).to_be_focused()
    keyboard = notebook.lab.page.keyboard
    keyboard.type("zebra")
    keyboard.press("Enter")
    expect(what_if.locator(".av-measured")).to_contain_text(
        "answer='zebra' is not in the vocabulary: the tokenizer reads it as '<unk>'"
    )
    expect(answer).to_contain_text("Logit of “canal”")
    accessibility.check(what_if)
    field.fill("animal")
    keyboard.press("Enter")
    expect(answer).to_contain_text("Logit of “animal” minus logit of “street”: −17.0 to")
    notebook.becomes("model_view.answer", "animal")
    expect(what_if.locator("form")).to_have_count(0)
    # Set the answer in Python.
    notebook.execute("model_view.answer = ('street', 'animal')")
    expect(answer).to_contain_text("Logit of “street” minus logit of “animal”: 17.0 to")
    # The ablated head keeps its weights, and the view says so.
    expect(what_if).to_contain_text("An ablated head keeps its weights")
    notebook.execute("model_view.layer, model_view.heads = 2, [0]")
    expect(what_if).not_to_contain_text("keeps its weights")
    notebook.execute("model_view.layer, model_view.heads = 1, [0]")
    notebook.execute("model_view.changes, model_view.answer = [], None")
    notebook.execute("model_view.run = 'before'")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "panels"),
    [(1, 0), (2, 1), (3, 0), (5, 0), (6, 0), (7, 0)],
    ids=["record", "dashboard", "compare", "generate", "words", "attribution"],
)
def test_the_panel_stands_once_where_the_model_can_run_again(
    notebook: Notebook, output: int, panels: int
) -> None:
    root = notebook.output(output).locator(".attnviz[data-attnviz-drawn]").first
    expect(root).to_be_visible(timeout=FIRST_PICTURE)
    expect(root.locator(".av-what-if")).to_have_count(panels)
