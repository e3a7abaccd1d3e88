"""Tests of the head view in JupyterLab: traits in both directions, errors and long work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import drawn, view_in

if TYPE_CHECKING:
    from pathlib import Path

    from browser.jupyter import JupyterLab, Notebook

SETUP = """
import attnviz as av, torch
from transformers import AutoModel, AutoTokenizer
torch.set_num_threads(1)
model = AutoModel.from_pretrained({folder!r})
text = "The animal didn't cross the street because it was too tired."
"""
SHOW = """
view = av.show_head_view(model, text, layer=3, heads=[1, 7, 9])
view
"""
BROKEN = """
from attnviz.record.attention import QueryKeyAttention
vectors = torch.full((1, 3, 4), torch.nan)
stack = av.AttentionStack(
    "self", {0: QueryKeyAttention(vectors, vectors, scale=1.0)}, av.Tokens.of(["a", "b", "c"])
)
av.HeadView(av.AttentionRecord({"self": stack}))
"""
# A record of 300 layers. The test sets a time limit of zero, so that each reply has one layer.
SLOW = """
import threading
from attnviz.server import pending_replies
from attnviz.utils import progress
vectors = torch.randn(300, 1, 12, 4, generator=torch.Generator().manual_seed(0))
slow = av.HeadView(av.AttentionRecord.from_qk(vectors, vectors, list("abcdefghijkl")))
defaults = pending_replies.REPLY_SECONDS, progress.STEP


def note_thread(change):
    global on_main_thread
    on_main_thread = threading.current_thread() is threading.main_thread()


on_main_thread = None
slow.observe(note_thread, "heads")
slow
"""


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab, checkpoint_folder: Path) -> Notebook:
    notebook = lab.open([SETUP.format(folder=str(checkpoint_folder)), SHOW, BROKEN, SLOW])
    notebook.run_all()
    return notebook


def test_a_dark_view_in_a_light_notebook_has_placeholders_of_its_theme(notebook: Notebook) -> None:
    view = view_in(notebook, 1)
    notebook.execute('view.theme = "dark"')
    expect(view).to_have_attribute("data-theme", "dark")
    colour = "(element, part) => getComputedStyle(element, part).color"
    placeholder = view.get_by_placeholder("Find token").evaluate(colour, "::placeholder")
    assert placeholder == view.locator(".av-subtitle").evaluate(colour, None)
    notebook.execute('view.theme = "auto"')


def test_traits_change_in_both_directions(notebook: Notebook) -> None:
    view = view_in(notebook, 1)
    # A view that is created and is also the value of the cell is shown once.
    drawn(view, "head:self:3")
    expect(notebook.output(1).locator(".attnviz")).to_have_count(1)
    # Traits accept negative layers, single heads and token texts, and store indices.
    notebook.execute('view.layer, view.heads, view.token = -4, 1, "was"')
    notebook.becomes("(view.layer, view.heads, view.token)", (2, [1], 11))
    drawn(view, "head:self:2")
    expect(view).to_contain_text("Pinned: query “was”")
    for key in ("Escape", "n", "7"):
        view.locator(".av-plot").press(key)
    expect(view).to_contain_text("Layer 2, head 7")
    notebook.becomes("(view.layer, view.heads, view.token)", (2, [7], None))
    # No keyboard shortcut of the notebook has run: the number of cells is unchanged.
    assert notebook.root.locator(".jp-Cell").count() == 4


def test_an_error_in_the_kernel_is_shown_in_the_view(notebook: Notebook) -> None:
    broken = view_in(notebook, 2)
    expect(broken).to_have_attribute("data-attnviz-state", "error")
    expect(broken).to_contain_text("NaN or infinite")


@pytest.mark.slow
@pytest.mark.parametrize("subshells", ["perCommTarget", "disabled"])
def test_long_work_shows_its_progress_and_can_be_cancelled(
    notebook: Notebook, subshells: str
) -> None:
    notebook.send_comms_to(subshells)
    notebook.run_all()
    slow = view_in(notebook, 3)
    drawn(slow, "head:self:0")
    slow.locator(".av-plot").press("n")
    notebook.becomes("on_main_thread", subshells == "disabled")
    notebook.execute("pending_replies.REPLY_SECONDS, progress.STEP = 0.0, 1")
    notebook.execute("slow.order = 'previous token'")
    note = slow.locator(".av-passing")
    expect(note).to_contain_text(
        re.compile(r"The kernel computes scores, \d+%, about \d+ s left\.")
    )
    expect(note).to_be_in_viewport(ratio=1)
    note.get_by_role("button", name="Cancel").click()
    expect(note).to_have_count(0)
    expect(slow).to_contain_text("The computation was stopped.")
    notebook.execute("pending_replies.REPLY_SECONDS, progress.STEP = defaults")
    slow.get_by_role("button", name="Try again").click()
    expect(slow).to_have_attribute("data-attnviz-state", "ready")
    expect(slow.locator(".av-head").first).to_contain_text(re.compile(r"0\.\d\d"))
