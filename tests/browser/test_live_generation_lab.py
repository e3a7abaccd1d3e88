"""Test a running generation in JupyterLab: the text grows, and the reader moves and stops it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import drawn

if TYPE_CHECKING:
    from browser.jupyter import JupyterLab, Notebook

# The model waits for `go` before each token, and every token is extracted without a pause. So the
# test can check the view after each token.
SETUP = """
import threading
import attnviz as av
from attnviz.extraction import live
model, tokenizer = av.demos.load("decoder")
text = "the animal did not cross the street because it was too wide so the"
pauses, live._MIN_PAUSE, live._MAX_SHARE = (live._MIN_PAUSE, live._MAX_SHARE), 0.0, float("inf")
turns = threading.Semaphore(1)
def wait_for_turn(module, args, kwargs):
    # Only the generation uses the cache of keys and values. Extractions run without waiting.
    if threading.current_thread().name == "attnviz generation" and kwargs.get("use_cache"):
        turns.acquire(timeout=120)
handle = model.register_forward_pre_hook(wait_for_turn, with_kwargs=True)
def go(steps):
    for _ in range(steps):
        turns.release()
def is_that_of_extract(count):
    whole = av.extract(model, text, tokenizer=tokenizer, generate=count)
    same = whole.tokens.text == view.record.tokens.text
    one, other = (each.stack().weights(layer=1) for each in (whole, view.record))
    return bool(same and (one == other).all())
"""
SHOW = """
view = av.show_head_view(
    model, text, tokenizer=tokenizer, generate=40, live=True, layer=1, heads=[2]
)
"""


@pytest.fixture
def notebook(lab: JupyterLab) -> Iterator[Notebook]:
    notebook = lab.open([SETUP, SHOW])
    notebook.run_all()
    yield notebook
    notebook.execute("view.stop(); go(100); live._MIN_PAUSE, live._MAX_SHARE = pauses")
    notebook.close()


def test_the_view_follows_unless_the_reader_moves(notebook: Notebook) -> None:
    root = notebook.output(1).locator(".attnviz")
    answer = root.get_by_role("group", name="Answer")
    generating = root.locator(".av-generating")
    # The cell has ended, and the kernel replies while the model generates.
    drawn(root, "head:self:1")
    expect(generating).to_contain_text("Generating: 1 of at most 40 tokens")
    expect(answer).to_contain_text("1 of 1")
    for step in (2, 3):
        notebook.execute("go(1)")
        drawn(root, f"head:self@{step - 1}:1")
        expect(generating).to_contain_text(f"Generating: {step} of at most 40 tokens")
        expect(answer).to_contain_text(f"{step} of {step}")
    predicted = notebook.evaluate("view.record.tokens.predictions[2].token.text")
    expect(answer).to_contain_text(f"predicting {predicted}")
    answer.get_by_role("button", name="Previous token of the answer").click()
    notebook.becomes("view.prediction", 1)
    notebook.execute("go(1)")
    drawn(root, "head:self@3:1")
    expect(answer).to_contain_text("2 of 4")
    generating.get_by_role("button", name="Stop").click()
    expect(generating).to_have_count(0)
    notebook.execute("go(1)")
    drawn(root, "head:self@4:1")
    expect(answer).to_contain_text("2 of 5")
    assert notebook.evaluate("go(9) or is_that_of_extract(5)")


@pytest.mark.slow
def test_an_error_of_the_model_is_shown_and_the_view_still_works(notebook: Notebook) -> None:
    root = notebook.output(1).locator(".attnviz")
    drawn(root, "head:self:1")
    notebook.execute(
        "def fail(*given): raise RuntimeError('out of <b>memory</b>')\n"
        "broken = model.register_forward_pre_hook(fail); go(1)"
    )
    expect(root.locator(".av-generating")).to_contain_text(
        "failed after 1 tokens: RuntimeError: out of <b>memory</b>"
    )
    notebook.execute("broken.remove(); view.layer = 0")
    drawn(root, "head:self:0")
