"""Tests of the embedding view in JupyterLab: chosen points and projections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE, drawn, view_in

if TYPE_CHECKING:
    from browser.jupyter import JupyterLab, Notebook

SETUP = """
import time
import attnviz as av, torch
torch.set_num_threads(1)
texts = [
    "The cat sat on the mat. The cat",
    "The dog did not cross the street because it was too tired.",
    "A dog saw the cat.",
]
model, tokenizer = av.demos.load("decoder")
corpus = av.extract_corpus(model, texts, tokenizer=tokenizer)
"""
SHOW = "view = av.show_embedding_view(corpus, layer=1)"
# Enough points that a t-SNE runs longer than the test watches it.
LARGE = """
def vectors(seed):
    return torch.randn(1, 2, 3000, 16, generator=torch.Generator().manual_seed(seed))

record = av.AttentionRecord.from_qk(vectors(0), vectors(1), causal=True)
large = av.EmbeddingView([record], heads=[0], enlarged=True)
large
"""


# Number of threads of the kernel that compute projections.
WORKERS = "sum('projection' in thread.name for thread in __import__('threading').enumerate())"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([SETUP, SHOW, LARGE])
    notebook.run_all()
    return notebook


def test_a_chosen_point_reaches_python_and_shows_its_strongest_weight(notebook: Notebook) -> None:
    view = view_in(notebook, 1)
    notebook.execute("view.layer, view.heads, view.enlarged = 1, [2], True")
    drawn(view, "embedding:self:1")
    view.locator(".av-embedding-plot .av-plot").press("ArrowRight")
    # Wait for the key press, which would otherwise overwrite the values that are set below.
    notebook.becomes("(view.text is not None, view.token)", (True, 0))
    notebook.execute("view.text, view.token, view.key = 1, 8, None")
    notebook.execute("weights = corpus.records[1].stack().weights(layer=1, head=2)")
    word, best, weight = notebook.evaluate(
        "(corpus.records[1].tokens[8], int(weights[8].argmax()), float(weights[8].max()))"
    )
    expect(view).to_contain_text(f"Query “{word}”, position 8 of text 1, attends most to")
    expect(view).to_contain_text(f"({best}): {weight:.2f}.")


def test_the_last_of_quickly_changing_texts_is_shown(notebook: Notebook) -> None:
    view = view_in(notebook, 1)
    notebook.execute("view.layer, view.heads, view.enlarged = 1, [2], True")
    notebook.execute(
        "for i in range(11):\n    view.text, view.token = i % 3, i % 4\n    time.sleep(0.02)"
    )
    expect(view).to_contain_text("Query “did”, position 2 of text 1")
    expect(view.locator(".av-running .av-token[aria-pressed=true]")).to_have_text("did")


def test_a_projection_runs_in_the_background_and_can_be_cancelled(notebook: Notebook) -> None:
    view = view_in(notebook, 2)
    drawn(view, "embedding:self:0")
    notebook.execute("large.method = 'tsne'")
    progress = view.get_by_role("progressbar", name="Projection")
    expect(progress).to_have_attribute("value", re.compile("[1-9]"), timeout=FIRST_PICTURE)
    first_steps = progress.get_attribute("value") or ""
    expect(progress).not_to_have_attribute("value", first_steps)
    # The kernel is free during the projection.
    assert notebook.evaluate("6 * 7") == 42
    assert notebook.evaluate(WORKERS) == 1
    expect(progress).to_be_visible()
    view.get_by_role("button", name="Cancel").click()
    expect(view.get_by_role("button", name="Continue")).to_be_visible()
    notebook.becomes(WORKERS, 0)
