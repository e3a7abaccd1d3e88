"""Tests of the live head view of long texts: weight outside the window, and navigation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import drawn, view_in
from browser.pages import table
from unit.long_records import NEEDLE, long_record

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

TOKENS = 20_000
LONGEST = 131_072
QUERY, KEY = (int(share * TOKENS) for share in NEEDLE)
WINDOW = (QUERY - 30, QUERY + 34)

SETUP = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
import attnviz as av
from attnviz.server.server import RecordServer
from unit.long_records import long_record
torch.set_num_threads(1)
requests = []
replies = []
answer = RecordServer.reply

def counted(self, name, arguments):
    reply = answer(self, name, arguments)
    replies.append(name)
    # The view repeats a request while its reply is pending. Count it once.
    if "pending" not in reply.header:
        requests.append((name, len(reply.data or b"")))
    return reply

RecordServer.reply = counted
"""
SHOW = f"""
view = av.HeadView(
    long_record({TOKENS}), heads=[0], query_window={list(WINDOW)}, key_window={list(WINDOW)}
)
view
"""
LONG = f"""
longest = av.HeadView(long_record({LONGEST}, heads=8))
longest
"""


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    lab.page.set_viewport_size({"width": 1300, "height": 2000})
    notebook = lab.open([SETUP, SHOW, LONG], own_kernel=True)
    notebook.run_all()
    return notebook


@pytest.fixture
def view(notebook: Notebook) -> Locator:
    """Reset the view to its initial state and return it."""
    notebook.execute(
        f"view.token = view.key = None; view.leave_out = []; view.heads = [0]\n"
        f"view.query_window = view.key_window = {list(WINDOW)}\n"
    )
    view = view_in(notebook, 1)
    drawn(view, "head:self:0")
    expect(view).to_contain_text(f"{WINDOW[0]:,}–{WINDOW[1] - 1:,} of {TOKENS:,}")
    return view


def wait_for_requests(notebook: Notebook) -> None:
    """Wait until all views have stopped sending requests, such as those for head maps."""
    num_equal, before = 0, -1
    for _ in range(400):
        now = notebook.evaluate("len(replies)")
        num_equal = num_equal + 1 if now == before else 0
        if num_equal == 4:
            return
        before = now
        notebook.lab.page.wait_for_timeout(150)
    pytest.fail("the views send requests for more than a minute")


def test_captions_state_the_weight_outside_the_window_and_of_excluded_keys(
    notebook: Notebook, view: Locator
) -> None:
    weights = long_record(TOKENS).stack().weights(layer=0, head=0, rows=slice(*WINDOW))
    weights = weights.astype("float64")
    share = weights[:, QUERY].sum() / weights.sum()
    outside = 1 - weights[:, slice(*WINDOW)].sum() / weights.sum()
    assert share < 0.005
    expect(view).to_contain_text(f"{outside:.0%} outside the window.")
    notebook.execute(f"view.leave_out = [{QUERY}, 0]")
    expect(view).to_contain_text("<1% within the window.")
    expect(view).to_contain_text(f"{outside:.0%} outside the window.")


def test_the_strongest_keys_of_the_text_are_listed_and_move_the_window(
    notebook: Notebook, view: Locator
) -> None:
    notebook.execute(f"view.token = {QUERY}")
    strongest = view.get_by_role("region", name="Strongest keys in the whole text")
    # Button 0 closes the list, so button 1 is the strongest key.
    first = strongest.get_by_role("button").nth(1)
    weight = (
        long_record(TOKENS).stack().weights(layer=0, head=0, rows=slice(QUERY, QUERY + 1))[0, KEY]
    )
    expect(first).to_have_text(f"“word{KEY}” {KEY} {weight:.2f}")
    expect(view).to_contain_text(
        f"“word{QUERY}” attends most to “word{KEY}” outside the window: {weight:.2f}."
    )
    first.press("Enter")
    notebook.becomes("view.key", KEY)
    start, stop = notebook.evaluate("view.key_window")
    assert start <= KEY < stop
    notebook.becomes("view.query_window", list(WINDOW))
    expect(view).to_contain_text(f"“word{QUERY}” attends to “word{KEY}”: {weight:.2f}.")


@pytest.mark.slow
def test_a_picture_of_131072_tokens_needs_few_requests_and_nodes(notebook: Notebook) -> None:
    view = view_in(notebook, 2)
    drawn(view, "head:self:0", timeout=120_000)
    notebook.execute("longest.heads = [3]")
    expect(view).to_contain_text("Layer 0, head 3.")
    drawn(view, "head:self:0", timeout=60_000)
    wait_for_requests(notebook)
    notebook.execute(
        "requests.clear()\n"
        "with longest.hold_sync():\n"
        "    longest.query_window = longest.key_window = [65500, 65564]"
    )
    expect(view).to_contain_text("65,500–65,563 of 131,072")
    expect(view).to_contain_text("word65500 – word65563")
    drawn(view, "head:self:0", timeout=60_000)
    # Only the weights of the window are requested.
    notebook.becomes("[(name, size < 20_000) for name, size in requests]", [("read", True)])
    drawn(view, "head:self:0", timeout=60_000)
    lines = table(view)
    assert 0 < len(lines) <= 3 * 64
    assert all(65_500 <= int(line["key"]) < 65_564 for line in lines)
    assert view.locator("*").count() < 250
    notebook.execute("requests.clear(); longest.token = 65530")
    expect(view.get_by_role("region", name="Strongest keys in the whole text")).to_be_visible()
    notebook.becomes("[name for name, _ in requests]", ["read"])
    # Moving the pointer sends no requests.
    notebook.execute("requests.clear()")
    box = view.locator(".av-plot").bounding_box()
    assert box
    for step in range(20):
        notebook.lab.page.mouse.move(box["x"] + 150, box["y"] + 150 + 13 * step)
    assert notebook.evaluate("requests") == []
