"""Test views in JupyterLab whose kernel stops or is lost: they report it and keep their picture.

`test_matrix_long_lab.py` tests a kernel that dies during a request.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import ipywidgets
import nbformat
import pytest
from nbformat.sign import NotebookNotary
from playwright.sync_api import expect

import attnviz as av
from browser.hosts import RECORD, drawn, has_ink

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

pytestmark = pytest.mark.slow

SHOW = "head = av.HeadView(record, layer=0)\nhead"
EMBEDDING = "embedding = av.EmbeddingView([record, record], layer=0, enlarged=True)\nembedding"
# Longer than the 10 seconds after which a view reports that the kernel does not answer.
UNANSWERED = 60_000


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([RECORD, SHOW, EMBEDDING], own_kernel=True)
    notebook.run_all()
    return notebook


@pytest.fixture
def head(notebook: Notebook) -> Locator:
    return notebook.output(1).locator(".attnviz").first


@pytest.fixture
def embedding(notebook: Notebook) -> Locator:
    return notebook.output(2).locator(".attnviz").first


def test_a_kernel_that_stops_is_said_and_forgiven(notebook: Notebook, head: Locator) -> None:
    head.scroll_into_view_if_needed()
    drawn(head, "head:self:0")
    kernel = notebook.evaluate("__import__('os').getpid()")
    os.kill(kernel, signal.SIGSTOP)
    try:
        head.locator(".av-plot").focus()
        notebook.lab.page.keyboard.press("]")
        expect(head).to_have_attribute("data-attnviz-state", "waiting")
        expect(head).to_contain_text("Waiting for the kernel")
        expect(head).to_have_attribute("data-attnviz-state", "unanswered", timeout=UNANSWERED)
        expect(head).to_contain_text("does not answer")
        assert has_ink(head), "what was drawn must stay"
    finally:
        os.kill(kernel, signal.SIGCONT)
    drawn(head, "head:self:1")
    expect(head).to_have_attribute("data-attnviz-state", "ready")


def test_a_kernel_that_is_gone_is_said_and_the_pictures_stay(
    notebook: Notebook, head: Locator, embedding: Locator
) -> None:
    embedding.scroll_into_view_if_needed()
    drawn(embedding, "embedding:self:0")
    notebook.restart_kernel()
    # A layer that was not loaded before.
    embedding.locator(".av-embedding-plot .av-plot").focus()
    notebook.lab.page.keyboard.press("]")
    head.locator(".av-plot").focus()
    notebook.lab.page.keyboard.press("]")
    for view in (head, embedding):
        expect(view).to_have_attribute("data-attnviz-state", "unanswered", timeout=UNANSWERED)
        expect(view.get_by_role("button", name="Try again").first).to_be_visible()
        assert has_ink(view)


def test_a_view_that_its_notebook_stored_says_what_it_lacks(lab: JupyterLab) -> None:
    """Open a notebook with saved widget state whose kernel has never had the view."""
    view = av.HeadView(av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"]))
    stored = {
        model.model_id: ipywidgets.Widget._get_embed_state(model) for model in (view, view.layout)
    }
    widget = "application/vnd.jupyter.widget"
    shown = nbformat.v4.new_output(
        "display_data", data={f"{widget}-view+json": view.get_view_spec()}
    )
    state = {"version_major": 2, "version_minor": 0, "state": stored}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("view", outputs=[shown], execution_count=1)],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "widgets": {f"{widget}-state+json": state},
        },
    )
    path = lab.server.notebooks / "stored.ipynb"
    nbformat.write(notebook, path)
    # JupyterLab shows widgets only in trusted notebooks.
    notary = NotebookNotary(data_dir=str(lab.server.notebooks.parent / "data"))
    notary.sign(nbformat.read(path, as_version=4))
    notary.store.close()
    root = lab.open_file(path.name).output(0).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-state", "detached", timeout=UNANSWERED)
    expect(root).to_contain_text("stored without its kernel")
