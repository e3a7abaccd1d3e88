"""Test keys that were not chosen on exported pages: hatching, tooltips, captions, tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from playwright.sync_api import expect

import attnviz as av
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, ChosenMask, PackedMask
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from browser.accessibility import check
from browser.pages import says, svg, table

if TYPE_CHECKING:
    from browser.pages import Show

TOKENS = ["he", "saw", "the", "nurse"]
# All logits are 0. The last query may attend to four keys, of which it has chosen two.
CHOSEN = torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]]], dtype=torch.bool)
LAYER = QueryKeyAttention(
    torch.zeros(1, 4, 2),
    torch.zeros(1, 4, 2),
    1.0,
    ChosenMask(PackedMask.pack(CHOSEN), BandMask(None, 0)),
)
RECORD = av.AttentionRecord({"self": AttentionStack("self", {0: LAYER}, Tokens.of(TOKENS))})
LOST = "Keys that were not chosen would have 50.0% of the weight."
WHY = "the key was not chosen, so the softmax did not score it."


def test_the_matrix_view_says_why_a_cell_has_no_weight(show: Show) -> None:
    root = show(av.MatrixView(RECORD, token=3, key=2))
    says(root, f"“nurse” does not attend to “the”: {WHY}")
    says(
        root,
        "Hatched: keys that were not chosen, so the softmax did not score them. Blank: masked.",
    )
    says(root, LOST)
    expect(root.locator(".av-ramp-sample")).to_have_text("not chosen")
    reasons = {(row["query"], row["key"]): row["not_scored"] for row in table(root)}
    assert [reasons["2", key] for key in "0123"] == ["not chosen", "", "", "masked"]
    assert ">not chosen<" in svg(root)
    plot = root.locator(".av-plot").first
    box = plot.bounding_box()
    assert box is not None
    tips = set()
    for left in range(0, int(box["width"]), 30):
        plot.hover(position={"x": left, "y": box["height"] * 0.6})
        tips |= set(root.locator(".av-hint").all_inner_texts())
    assert any("not chosen: the softmax did not score this key" in tip for tip in tips), tips
    assert any("masked: this query may not attend to this key" in tip for tip in tips), tips
    check(root)


def test_the_head_view_and_the_neuron_view_say_the_same(show: Show) -> None:
    head = show(av.HeadView(RECORD, token=3, key=0))
    says(head, f"“nurse” does not attend to “he”: {WHY}")
    says(head, LOST)
    neuron = show(av.NeuronView(RECORD, token=2, key=0))
    says(neuron, f"“the” does not attend to “he”: {WHY}")
    says(neuron, "1 of 4 keys are masked, 1 not chosen.")
    says(neuron, "Keys that were not chosen would have 33.3% of the weight.")
    assert svg(neuron).count(">not chosen<") == 1
