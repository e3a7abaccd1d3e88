"""Tests of the head view in JupyterLab: transport, traits in both directions, theme.

Behaviour without a kernel is tested on exported pages, which open ten times as fast.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import drawn

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator

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
SECOND = """
weights = torch.softmax(torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(0)), -1)
second = av.HeadView(av.AttentionRecord.from_weights(weights, list("abcde")))
second
"""
BROKEN = """
from attnviz.record.attention import QueryKeyAttention
vectors = torch.full((1, 3, 4), torch.nan)
stack = av.AttentionStack(
    "self", {0: QueryKeyAttention(vectors, vectors, scale=1.0)}, av.Tokens.of(["a", "b", "c"])
)
av.HeadView(av.AttentionRecord({"self": stack}))
"""
# One layer per reply, on fast machines, too.
SLOW = """
from attnviz.server import pending_replies
from attnviz.utils import progress
vectors = torch.randn(300, 1, 12, 4, generator=torch.Generator().manual_seed(0))
slow = av.HeadView(av.AttentionRecord.from_qk(vectors, vectors, list("abcdefghijkl")))
usual = pending_replies.REPLY_SECONDS, progress.STEP
slow
"""
# Controls that a note covers.
COVERED = """(note, narrow) => {
  const under = note.getBoundingClientRect();
  const all = note.closest(".attnviz").querySelectorAll("button, select, input, .av-plot");
  return [...all].filter((one) => {
    const box = one.getBoundingClientRect();
    const apart = box.right <= under.left || box.left >= under.right
      || box.bottom <= under.top || box.top >= under.bottom;
    // On a narrow screen it lies over undo and export, which can wait.
    return !apart && !note.contains(one) && !(narrow && one.closest(".av-actions"));
  }).map((one) => one.outerHTML);
}"""


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab, checkpoint_folder: Path) -> Notebook:
    notebook = lab.open([SETUP.format(folder=str(checkpoint_folder)), SHOW, SECOND, BROKEN, SLOW])
    notebook.run_all()
    return notebook


def view_in(notebook: Notebook, cell: int) -> Locator:
    return notebook.output(cell).locator(".attnviz")


def test_the_view_shows_once_though_it_is_also_the_last_expression(notebook: Notebook) -> None:
    view = view_in(notebook, 1)
    drawn(view, "head:self:3")
    assert view.count() == 1
    expect(view).to_contain_text("16 tokens")
    expect(view).to_contain_text("Layer 3, heads 1, 7, 9")


def test_python_moves_the_view_and_the_view_moves_python(notebook: Notebook) -> None:
    view = view_in(notebook, 1)
    notebook.execute("view.token = 11")
    expect(view).to_contain_text("Pinned: query “was”")
    notebook.execute("view.layer = 2")
    drawn(view, "head:self:2")
    view.get_by_role("button", name=re.compile(r"^(layer )?3$", re.IGNORECASE)).first.click()
    drawn(view, "head:self:3")
    notebook.becomes("view.layer", 3)
    view.locator(".av-plot").focus()
    for key in ("Escape", "n", "1"):
        notebook.lab.page.keyboard.press(key)
    expect(view).to_contain_text("Layer 3, head 1")
    notebook.becomes("view.heads", [1])
    notebook.becomes("view.token", None)
    # No keyboard shortcut of the notebook has run: the number of cells is unchanged.
    assert notebook.root.locator(".jp-Cell").count() == 5


def test_a_pinned_row_is_exact(notebook: Notebook) -> None:
    view = view_in(notebook, 1)
    # Traits accept negative layers, single heads and token texts, and store indices.
    notebook.execute('view.layer, view.heads, view.token = -3, 1, "it"')
    for trait, number in (("layer", 3), ("heads", [1]), ("token", 10)):
        notebook.becomes(f"view.{trait}", number)
    expect(view).to_contain_text("“it” attends most to “animal”: 0.68.")
    weight = notebook.evaluate(
        'round(float(view.record.stacks["self"].weights(layer=3, head=1)[10, 2]), 2)'
    )
    assert weight == 0.68


def test_two_views_on_one_page_are_two(notebook: Notebook) -> None:
    first, second = view_in(notebook, 1), view_in(notebook, 2)
    second.scroll_into_view_if_needed()
    drawn(second, "head:self:0")
    notebook.execute("second.layer = 1")
    drawn(second, "head:self:1")
    drawn(first, "head:self:3")
    page = notebook.lab.page
    ids = page.eval_on_selector_all(".attnviz [id]", "all => all.map((one) => one.id)")
    assert len(ids) == len(set(ids))


def test_an_error_in_the_kernel_is_shown_in_the_view(notebook: Notebook) -> None:
    broken = view_in(notebook, 3)
    broken.scroll_into_view_if_needed()
    expect(broken).to_have_attribute("data-attnviz-state", "error")
    expect(broken).to_contain_text("NaN or infinite")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "pattern"), [("360px", "previous token"), ("100%", "first token")]
)
def test_what_takes_long_says_how_far_it_is_and_is_given_up(
    notebook: Notebook, width: str, pattern: str
) -> None:
    slow = view_in(notebook, 4)
    slow.scroll_into_view_if_needed()
    drawn(slow, "head:self:0")
    notebook.execute(f"slow.layout.width = {width!r}")
    notebook.execute("pending_replies.REPLY_SECONDS, progress.STEP = 0.0, 1")
    notebook.execute(f"slow.order = {pattern!r}")
    note = slow.locator(".av-passing")
    expect(note).to_contain_text(
        re.compile(r"The kernel computes scores, \d+%, about \d+ s left\.")
    )
    assert note.evaluate(COVERED, width == "360px") == []
    expect(note).to_be_in_viewport(ratio=1)
    note.get_by_role("button", name="Cancel").click()
    expect(note).to_have_count(0)
    expect(slow).to_contain_text("The computation was stopped.")
    notebook.execute("pending_replies.REPLY_SECONDS, progress.STEP = usual")
    slow.get_by_role("button", name="Try again").click()
    expect(slow).to_have_attribute("data-attnviz-state", "ready")
    expect(slow.locator(".av-head").first).to_contain_text(re.compile(r"0\.\d\d"))
    notebook.execute("slow.order = 'number'")


def test_the_theme_follows_jupyterlab(lab: JupyterLab, notebook: Notebook) -> None:
    view = view_in(notebook, 1)
    view.scroll_into_view_if_needed()
    expect(view).to_have_attribute("data-theme", "light")
    lab.set_theme("dark")
    expect(view).to_have_attribute("data-theme", "dark")
    notebook.execute('view.theme = "light"')
    expect(view).to_have_attribute("data-theme", "light")
    notebook.execute('view.theme = "auto"')
    lab.set_theme("light")
    expect(view).to_have_attribute("data-theme", "light")
