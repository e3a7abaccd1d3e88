"""Very many lines of a live head view in JupyterLab: workers paint them there, too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from browser.jupyter import JupyterLab

pytestmark = pytest.mark.slow

MAKE = """
import torch, attnviz as av
logits = torch.randn((2, 2, 400, 400), generator=torch.Generator().manual_seed(0))
logits = logits.masked_fill(torch.ones(400, 400).triu(1).bool(), -torch.inf)
record = av.AttentionRecord.from_weights(logits.softmax(-1), [f"token{at}" for at in range(400)])
window = [0, 400]
av.HeadView(record, heads=[0, 1], top_k=None, query_window=window, key_window=window)
"""


def test_workers_paint_and_every_change_is_drawn(lab: JupyterLab) -> None:
    notebook = lab.open([MAKE])
    notebook.run_all()
    root = notebook.output(0).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^head:self:0"))
    assert len(lab.page.workers) > 0
    assert all(worker.url.startswith("blob:") for worker in lab.page.workers)
    root.locator("[aria-label='Layer 1']").click()
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^head:self:1"))
    # Every row of the picture has lines, below what is in sight too.
    empty = root.locator(".av-back").evaluate(
        """(canvas) => {
          const context = canvas.getContext("2d");
          let empty = 0;
          for (let row = 60; row < canvas.height - 60; row++)
            empty += context.getImageData(0, row, canvas.width, 1).data.every((byte) => byte === 0);
          return empty;
        }"""
    )
    assert empty == 0
    lab.close_notebooks()
