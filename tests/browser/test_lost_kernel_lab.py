"""Test views in JupyterLab whose kernel stops or is lost: they report it and keep their picture.

`test_matrix_long_lab.py` tests a kernel that dies during a request.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import RECORD, VIEW_IDS, VIEWS, drawn, has_ink, view_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator

    from browser.hosts import HostedView
    from browser.jupyter import JupyterLab, Notebook

pytestmark = pytest.mark.slow

SHOW = "head = av.HeadView(record, layer=0)\nhead"
EMBEDDING = "embedding = av.EmbeddingView([record, record], layer=0, enlarged=True)\nembedding"
# Longer than the 10 seconds after which a view reports that the kernel does not answer.
UNANSWERED = 60_000
# The embedding view also chooses a head with the layer.
STILL_SHOWN = re.compile(
    r"Still shown: the picture before the last change\. The new picture (has|did) not arrived?\."
)
# Whether an ancestor of every picture and caption of a view is dimmed.
DIMMED = """(view) => [...view.querySelectorAll(".av-plot, .av-footer")].every((part) => {
  for (let at = part; at !== view; at = at.parentElement)
    if (getComputedStyle(at).opacity < 0.5) return true;
  return false;
})"""


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


@contextmanager
def stopped_kernel(notebook: Notebook) -> Iterator[None]:
    kernel = notebook.evaluate("__import__('os').getpid()")
    os.kill(kernel, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(kernel, signal.SIGCONT)


@pytest.fixture(scope="module")
def views(lab: JupyterLab) -> Notebook:
    notebook = lab.open([RECORD, *(view.make for view in VIEWS)], own_kernel=True)
    notebook.run_all()
    return notebook


# The last view is the atlas, which removes the numbers of another head until the new ones arrive.
@pytest.mark.parametrize("hosted", VIEWS[:-1], ids=VIEW_IDS[:-1])
def test_a_picture_of_an_earlier_choice_is_dimmed_and_named(
    views: Notebook, hosted: HostedView
) -> None:
    view = view_in(views, 1 + VIEWS.index(hosted))
    page = views.lab.page
    hosted.drawn(view, 0)
    expect(view.locator(".av-old")).to_have_count(0)
    with stopped_kernel(views):
        hosted.press(page, view, hosted.next_layer)
        expect(view).to_contain_text(STILL_SHOWN)
        page.wait_for_function(DIMMED, arg=view.element_handle())
        expect(view).to_contain_text("did not arrive", timeout=UNANSWERED)
        expect(view).to_contain_text(STILL_SHOWN)
        # The numbers of the earlier choice are there.
        hosted.press(page, view, hosted.previous_layer)
        expect(view.locator(".av-old")).to_have_count(0)
        expect(view).not_to_contain_text("Still shown")
    hosted.drawn(view, 0)


def test_a_view_reports_a_stopped_kernel_and_continues_when_it_runs_again(
    notebook: Notebook, head: Locator
) -> None:
    head.scroll_into_view_if_needed()
    drawn(head, "head:self:0")
    with stopped_kernel(notebook):
        head.locator(".av-plot").focus()
        notebook.lab.page.keyboard.press("]")
        expect(head).to_have_attribute("data-attnviz-state", "waiting")
        expect(head).to_contain_text("Waiting for the kernel")
        expect(head).to_have_attribute("data-attnviz-state", "unanswered", timeout=UNANSWERED)
        expect(head).to_contain_text("does not answer")
        assert has_ink(head), "the previous picture is gone"
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
