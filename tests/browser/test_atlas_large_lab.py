"""Tests of the atlas of 96 x 96 heads in JupyterLab: requests and number of DOM nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE

if TYPE_CHECKING:
    from browser.jupyter import JupyterLab

HEADS = 96
# The kernel counts its replies: names and bytes.
SETUP = f"""
import attnviz as av, numpy as np
statistics = av.HeadStatistics("made", edges=4)
for number in range(6):
    weights = np.random.default_rng(number).dirichlet(np.ones(5), size=({HEADS}, {HEADS}, 5))
    record = av.AttentionRecord.from_weights(list(weights.astype(np.float32)), list("abcde"))
    statistics.add(record, number)
requests = []
view = av.AtlasView(statistics, layer=90, heads=[80])
reply = view._channel._server.reply
def counted(name, arguments):
    answer = reply(name, arguments)
    requests.append((name, len(answer.data or b"")))
    return answer
view._channel._server.reply = counted
"""
# The description is sent with the widget, so it is not requested.
OPENED = ["edges", "offsets", "statistics", "texts"]
# The compressed statistics of 9,216 heads have 0.5 MB.
MAX_BYTES = 1_000_000
# A page of 12 heads has about 700 nodes. The highlighted heads of 9,216 add about as many.
MAX_NODES = 2_000


@pytest.mark.slow
def test_thousands_of_heads_need_few_requests_and_few_nodes(lab: JupyterLab) -> None:
    notebook = lab.open([SETUP, "view"])
    notebook.run_all()
    view = notebook.output(1).locator(".attnviz").first
    expect(view).to_have_attribute("data-attnviz-drawn", "atlas:self:90", timeout=FIRST_PICTURE)
    requests = notebook.evaluate("requests")
    assert sorted(name for name, _ in requests) == OPENED
    assert max(size for _, size in requests) < MAX_BYTES
    assert view.locator("*").count() < MAX_NODES
    # A click requests only data of that head and its layer.
    notebook.execute("requests.clear()")
    grid = view.get_by_role("grid")
    row = view.get_by_text(re.compile("^(layer |L)5$"))
    box, label = grid.bounding_box(), row.bounding_box()
    assert box is not None
    assert label is not None
    middle = label["y"] + label["height"] / 2 - box["y"]
    grid.click(position={"x": label["width"] + 4, "y": middle})
    expect(view).to_have_attribute("data-attnviz-drawn", "atlas:self:5")
    notebook.becomes("(view.layer, len(view.heads))", (5, 1))
    names = notebook.evaluate("sorted(name for name, _ in requests)")
    assert names == ["edges", "offsets"]
    # Changes of colour and order need no request.
    notebook.execute("requests.clear()\nview.color, view.order = 'entropy', 'entropy'")
    expect(view.locator(".av-atlas-scale")).to_contain_text("entropy")
    expect(view).to_have_attribute("data-attnviz-drawn", "atlas:self:5")
    assert notebook.evaluate("requests") == []
