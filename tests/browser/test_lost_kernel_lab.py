"""Views in a real JupyterLab whose kernel stops or is gone: they say so and keep their picture.

That a kernel dies in the middle of its work is tested in `test_matrix_long_lab.py`.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE, RECORD

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

pytestmark = pytest.mark.slow

SHOW = "head = av.HeadView(record, layer=0)\nhead"
EMBEDDING = "embedding = av.EmbeddingView([record, record], layer=0, enlarged=True)\nembedding"
# Longer than the ten seconds after which a view calls a kernel unanswering.
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


def drawn(view: Locator, place: str) -> None:
    expect(view).to_have_attribute("data-attnviz-drawn", place, timeout=FIRST_PICTURE)


def painted(view: Locator) -> bool:
    """Whether any pixel of the view's canvases is not transparent."""
    return bool(
        view.evaluate(
            """(root) => [...root.querySelectorAll(".av-plot canvas")].some((canvas) =>
              canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
                .some((value) => value > 0))"""
        )
    )


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
        assert painted(head), "what was drawn must stay"
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
    # What was not shown before: another layer.
    embedding.locator(".av-embedding-plot .av-plot").focus()
    notebook.lab.page.keyboard.press("]")
    head.locator(".av-plot").focus()
    notebook.lab.page.keyboard.press("]")
    for view in (head, embedding):
        expect(view).to_have_attribute("data-attnviz-state", "unanswered", timeout=UNANSWERED)
        expect(view.get_by_role("button", name="Try again").first).to_be_visible()
        assert painted(view)
