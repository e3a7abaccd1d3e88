"""Test views in JupyterLab whose kernel stops or is lost: they report it and keep their picture.

`test_matrix_long_lab.py` tests a kernel that dies during a request.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

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


def test_a_view_reports_a_stopped_kernel_and_continues_when_it_runs_again(
    notebook: Notebook, head: Locator
) -> None:
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
        assert has_ink(head), "the previous picture is gone"
    finally:
        os.kill(kernel, signal.SIGCONT)
    drawn(head, "head:self:1")
    expect(head).to_have_attribute("data-attnviz-state", "ready")


def test_views_report_a_restarted_kernel_and_keep_their_pictures(
    notebook: Notebook, head: Locator, embedding: Locator
) -> None:
    embedding.scroll_into_view_if_needed()
    drawn(embedding, "embedding:self:0")
    notebook.restart_kernel()
    # Open layers that were not loaded before, so that the views need the kernel.
    embedding.locator(".av-embedding-plot .av-plot").focus()
    notebook.lab.page.keyboard.press("]")
    head.locator(".av-plot").focus()
    notebook.lab.page.keyboard.press("]")
    for view in (head, embedding):
        expect(view).to_have_attribute("data-attnviz-state", "unanswered", timeout=UNANSWERED)
        expect(view.get_by_role("button", name="Try again").first).to_be_visible()
        assert has_ink(view)
