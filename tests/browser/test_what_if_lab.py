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

    from playwright.sync_api import Page

    from browser.jupyter import JupyterLab, Notebook

VIEW = """
import attnviz as av
model, tokenizer = av.demos.load("decoder")
text = "the animal did not cross the street because it was too wide so the"
view = av.show_head_view(
    model, text, tokenizer=tokenizer, layer=1, heads=0, token=-1, key="street"
)
"""
MODEL_VIEW = "model_view = av.show_model_view(model, text, tokenizer=tokenizer, layer=1, heads=0)"


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([VIEW, MODEL_VIEW])
    notebook.run_all()
    return notebook


def test_the_reader_cuts_an_edge_and_exports_the_changed_run(
    notebook: Notebook, page: Page, tmp_path: Path
) -> None:
    root = notebook.output(0).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1", timeout=FIRST_PICTURE)
    what_if = root.locator(".av-what-if")
    answer = what_if.locator(".av-what-if-answer")
    pair = root.locator(".av-pinned-edge")
    expect(pair).to_contain_text(
        "Weight 0.92; share of the value norm and effect of cutting it: open"
    )
    what_if.locator("summary").press("Enter")
    expect(answer).to_contain_text("Unchanged, the next token is “street”")
    what_if.get_by_role("button", name="What if this edge were cut?").press("Enter")
    expect(answer).to_contain_text("Cut before the softmax, the next token becomes “animal”")
    expect(answer).to_contain_text("larger than the noise")
    # The rank is cheap for this model, so it is measured without another click.
    expect(answer).to_contain_text("The largest effect of all 12 heads; next is head ")
    change = notebook.evaluate("repr(view.changes[0])")
    assert change == (
        "Knockout(queries=13, keys=6, layers=1, heads=0, renormalize=True, stack='self')"
    )
    expect(pair).to_have_text(
        re.compile(
            r"Pinned: “the” \(13\) to “street”, head 1\.0 in the unchanged run\. Weight 0\.92; "
            r"share of the value norm 0\.92; effect: cut before the softmax 17\.0 to −15\.5, "
            r"larger than the noise \d[.\d]*e−\d \(logit of “street” minus logit of “animal” "
            r"after “the”\)\."
        )
    )
    # The picture shows the changed run. Switch to the difference and back.
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^head:self · after: .* cut"))
    assert notebook.evaluate("view.run") == "after"
    runs = what_if.get_by_role("group", name="The picture shows")
    runs.get_by_role("button", name="difference").press("Enter")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^head:self · difference aft"))
    expect(root.locator(".av-sentence")).to_contain_text("“street”: difference −0.92 (less).")
    notebook.execute("view.run = 'after'")
    expect(root.locator(".av-sentence")).to_contain_text("attends to “street”: 0.00")
    accessibility.check(root)
    what_if.get_by_role("button", name="Remove: “the” (13)").press("Enter")
    expect(answer).to_contain_text("Unchanged")
    notebook.becomes("view.changes", [])
    # An exported page has the answers and the weights of the displayed run.
    notebook.execute(f"view.changes, view.run = [av.{change}], 'difference'")
    path = tmp_path / "view.html"
    path.write_text(notebook.evaluate("view.to_html()"), encoding="utf-8")
    notebook.execute("view.changes, view.run = [], 'before'")
    page.goto(path.as_uri())
    tried = page.get_by_role("list", name="Tried changes").get_by_role("listitem")
    expect(tried).to_have_count(1)
    sentence = page.locator(".av-sentence")
    expect(sentence).to_contain_text("“street”: difference −0.92 (less).")
    accessibility.check(page.locator(".attnviz"))
    cut = page.get_by_role("button", name="Cut before the softmax")
    cut.click()
    expect(sentence).to_contain_text("attends to “street”: 0.92")
    cut.click()
    expect(cut).to_have_attribute("aria-pressed", "true")
    expect(sentence).to_contain_text("“street”: difference −0.92 (less).")


@pytest.mark.slow
def test_the_reader_chooses_what_is_measured(notebook: Notebook) -> None:
    root = notebook.output(1).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:1", timeout=FIRST_PICTURE)
    what_if = root.locator(".av-what-if")
    what_if.locator("summary").press("Enter")
    notebook.execute("model_view.changes = [av.Ablate(layers=1, heads=0)]")
    answer = what_if.locator(".av-what-if-answer")
    expect(answer).to_contain_text("Logit of “street” minus logit of “the”: ")
    measured = what_if.get_by_label("Measured answer")
    measured.select_option("“canal”")
    expect(answer).to_contain_text("Logit of “canal” minus logit of “street”: ")
    notebook.becomes("model_view.answer", notebook.evaluate("tokenizer('canal')['input_ids'][0]"))
    notebook.execute("model_view.answer = ('street', 'animal')")
    expect(answer).to_contain_text("Logit of “street” minus logit of “animal”: 17.0 to")
