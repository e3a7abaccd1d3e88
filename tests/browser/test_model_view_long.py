"""Test the live model view of a text that is too long for complete attention maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE

if TYPE_CHECKING:
    from browser.jupyter import JupyterLab

LIVE = """
import torch, attnviz as av
from attnviz.server.server import RecordServer
from attnviz.record.masks import BandMask
from attnviz.record.record import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.attention import QueryKeyAttention

asked, answer = [], RecordServer.reply
def reply(self, name, arguments):
    response = answer(self, name, arguments)
    # A request whose reply is pending is repeated, and counts once.
    if "pending" not in response.header:
        asked.append(
            [name, arguments.get("layer"), arguments.get("heads"), len(response.data or b"")]
        )
    return response
RecordServer.reply = reply

torch.manual_seed(0)
queries, keys = torch.randn(64, 8192, 8).bfloat16(), torch.randn(8, 8192, 8).bfloat16()
mask = BandMask(None, 0)
layers = {n: QueryKeyAttention(queries, keys, 0.01 * n, mask=mask) for n in range(64)}
tokens = Tokens.of([f"t{index}" for index in range(8192)])
record = av.AttentionRecord({"self": AttentionStack("self", layers, tokens)}, model="64 by 64")
view = av.ModelView(record)
view
"""


@pytest.mark.slow
def test_only_the_maps_of_visible_heads_are_requested(lab: JupyterLab) -> None:
    # Start a new kernel, because the cell replaces a method of `RecordServer`.
    notebook = lab.open([LIVE], own_kernel=True)
    notebook.run_all()
    root = notebook.output(0).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:0", timeout=FIRST_PICTURE)
    expect(root.locator("footer")).to_contain_text("each row is one query, 32 of 8,192")
    root.get_by_role("gridcell").first.hover()
    # Layer 0 is uniform, so the second query of the sample has the largest weights after the first.
    caption = (
        "strongest of 32 queries apart from the first query: 0.01, between “t128” and “t0 – t255”"
    )
    expect(root.locator(".av-hint")).to_contain_text(caption)
    shown = set(
        root.get_by_role("gridcell").evaluate_all(
            "cells => cells.map((cell) => cell.getAttribute('aria-label'))"
        )
    )
    asked = notebook.evaluate("asked")
    maps = [request for request in asked if request[0] == "read"]
    assert {request[0] for request in asked} == {"describe", "read"}
    names = [f"Layer {layer}, head {head}" for _, layer, heads, _ in maps for head in heads]
    assert len(names) == len(set(names))
    assert set(names) == shown
    assert len(shown) < 64 * 64 / 3
    # One byte per cell of 32 x 32 cells.
    assert sum(request[3] for request in maps) == 32 * 32 * len(names)
    assert root.evaluate("root => root.querySelectorAll('*').length") < 1100
