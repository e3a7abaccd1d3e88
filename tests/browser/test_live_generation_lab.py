"""A generation that is watched in JupyterLab: tokens appear, the reader moves, and stops it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

# Each step of the model waits for its turn, so that what is in between can be looked at.
SETUP = """
import threading
import attnviz as av, numpy as np, torch
torch.set_num_threads(1)
model, tokenizer = av.demos.load("decoder")
text = "the animal did not cross the street because it was too wide so the"
turns = threading.Semaphore(1)
def wait_for_turn(module, args, kwargs):
    if threading.current_thread().name == "attnviz generation":
        turns.acquire(timeout=120)
handle = model.register_forward_pre_hook(wait_for_turn, with_kwargs=True)
def go(steps):
    for _ in range(steps):
        turns.release()
def error(count):
    whole = av.extract(model, text, tokenizer=tokenizer, generate=count).stack()
    assert whole.query_tokens.text == view.record.tokens.text
    return max(
        float(np.abs(whole.weights(layer=layer) - view.record.stack().weights(layer=layer)).max())
        for layer in whole.layers
    )
"""
SHOW = """
view = av.show_{}_view(model, text, tokenizer=tokenizer, generate=40, live=True, layer=1, heads=[2])
"""
# Notes what the browser asks from now on.
ASKED = """
asked, server = [], view._growing_server
def noted(name, arguments, reply=server.reply):
    asked.append(name)
    return reply(name, arguments)
server.reply = noted
"""
PROMPT = 14


@pytest.fixture
def notebook(lab: JupyterLab, request: pytest.FixtureRequest) -> Iterator[Notebook]:
    notebook = lab.open([SETUP, SHOW.format(request.param)])
    notebook.run_all()
    yield notebook
    notebook.execute("view.stop(); go(100)")
    notebook.close()


def is_drawn(root: Locator, sign: str) -> None:
    expect(root).to_have_attribute("data-attnviz-drawn", sign, timeout=FIRST_PICTURE)


@pytest.mark.parametrize("notebook", ["head"], indirect=True)
def test_the_head_view_follows_unless_the_reader_moves(notebook: Notebook) -> None:
    root = notebook.output(1).locator(".attnviz")
    answer = root.get_by_role("group", name="Answer")
    generating = root.locator(".av-generating")
    # The cell has ended, and the kernel answers, while the model generates.
    is_drawn(root, f"head:self@{PROMPT}:1")
    expect(generating).to_contain_text("Generating: 1 of at most 40 tokens")
    expect(answer).to_contain_text("1 of 1")
    notebook.execute(ASKED)
    notebook.execute("go(3)")
    is_drawn(root, f"head:self@{PROMPT + 3}:1")
    # The rows came with the tokens; the small maps are asked for from time to time.
    assert set(notebook.evaluate("asked")) <= {"maps"}
    expect(generating).to_contain_text("Generating: 4 of at most 40 tokens")
    expect(answer).to_contain_text("4 of 4")
    predicted = notebook.evaluate("view.record.tokens.predictions[3].token.text")
    expect(answer).to_contain_text(f"predicting {predicted}")
    expect(answer.get_by_role("list", name="Candidates").locator("li")).to_have_count(5)
    # While it follows, the kernel is not told where it is.
    assert notebook.evaluate("view.prediction") is None
    follow = generating.get_by_role("button", name="Follow")
    expect(follow).to_have_count(0)
    answer.get_by_role("button", name="Previous token of the answer").click()
    notebook.execute("go(2)")
    is_drawn(root, f"head:self@{PROMPT + 5}:1")
    expect(answer).to_contain_text("3 of 6")
    notebook.becomes("view.prediction, view.token", (2, PROMPT + 1))
    # Another layer is asked for; its rows come with the tokens from then on.
    notebook.execute("view.layer = 2; go(1)")
    is_drawn(root, f"head:self@{PROMPT + 6}:2")
    follow.click()
    expect(answer).to_contain_text("7 of 7")
    generating.get_by_role("button", name="Stop").click()
    notebook.becomes("view._growing.stopped", value=True)
    notebook.execute("go(3)")
    is_drawn(root, "head:self:2")
    expect(generating).to_contain_text("The generation was stopped after 8 of at most 40 tokens.")
    expect(answer).to_contain_text("8 of 8")
    notebook.becomes("view.prediction", 7)
    assert notebook.evaluate("go(9) or error(8)") < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("notebook", ["head"], indirect=True)
def test_a_tab_that_is_loaded_again_follows_on(notebook: Notebook) -> None:
    root = notebook.output(1).locator(".attnviz")
    notebook.execute("go(3)")
    is_drawn(root, f"head:self@{PROMPT + 3}:1")
    notebook.lab.load_again(notebook)
    is_drawn(root, f"head:self@{PROMPT + 3}:1")
    notebook.execute("go(2)")
    is_drawn(root, f"head:self@{PROMPT + 5}:1")
    generating = root.locator(".av-generating")
    expect(generating).to_contain_text("Generating: 6 of at most 40 tokens")
    expect(root.get_by_role("group", name="Answer")).to_contain_text("6 of 6")
    generating.get_by_role("button", name="Stop").click()
    notebook.becomes("view._growing.stopped", value=True)
    notebook.execute("go(2)")
    is_drawn(root, "head:self:1")


@pytest.mark.slow
@pytest.mark.parametrize("notebook", ["matrix", "model"], indirect=True)
def test_other_views_follow_to_the_end(notebook: Notebook) -> None:
    name = str(notebook.evaluate("view.name"))
    root = notebook.output(1).locator(".attnviz").first
    is_drawn(root, f"{name}:self@{PROMPT}:1")
    notebook.execute("go(4)")
    is_drawn(root, f"{name}:self@{PROMPT + 4}:1")
    expect(root.locator(".av-generating")).to_contain_text("Generating: 5 of at most 40 tokens")
    expect(root.get_by_role("group", name="Answer")).to_contain_text("5 of 5")
    notebook.execute("go(60)")
    is_drawn(root, f"{name}:self:1")
    expect(root.locator(".av-generating")).to_have_count(0)
    expect(root.get_by_role("group", name="Answer")).to_contain_text("40 of 40")
    assert notebook.evaluate("go(60) or error(40)") < 1e-4


@pytest.mark.parametrize("notebook", ["head"], indirect=True)
def test_an_error_of_the_model_is_said_and_raised(notebook: Notebook) -> None:
    root = notebook.output(1).locator(".attnviz")
    notebook.execute("go(2)")
    is_drawn(root, f"head:self@{PROMPT + 2}:1")
    notebook.execute(
        "def fail(*given): raise RuntimeError('out of <b>memory</b>')\n"
        "broken = model.register_forward_pre_hook(fail); go(2)"
    )
    expect(root.locator(".av-generating")).to_contain_text(
        "failed after 4 tokens: RuntimeError: out of <b>memory</b>"
    )
    notebook.execute(
        "broken.remove()\n"
        "try:\n    view.wait()\n    raised = None\nexcept RuntimeError as error_:\n"
        "    raised = str(error_)"
    )
    assert notebook.evaluate("raised") == "out of <b>memory</b>"
    # What was there stays, and is answered about.
    notebook.execute("view.layer = 0")
    is_drawn(root, f"head:self@{PROMPT + 3}:0")
