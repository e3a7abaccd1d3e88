"""Test the model view on exported pages: its heads, their numbers, and choosing by keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import expect

import attnviz as av
from attnviz.views.model import ModelView
from browser.pages import table
from unit.records import shares, words

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from browser.pages import Show

RAGGED = {0: 3, 4: 1, 9: 5}
# Largest error of a weight that a page stores in one byte.
ROUNDED = 0.004


def ragged_record(num_tokens: int = 6) -> av.AttentionRecord:
    """Return a record with gaps in the layer numbers and different numbers of heads."""
    return av.AttentionRecord.from_weights(
        [shares(heads, num_tokens, num_tokens, seed=layer) for layer, heads in RAGGED.items()],
        words(num_tokens),
        layers=list(RAGGED),
        model="ragged",
    )


def cell(root: Locator, layer: int, head: int) -> Locator:
    return root.get_by_role("gridcell", name=re.compile(rf"^Layer {layer}, head {head}(,|$)"))


def test_ragged_heads_are_drawn_under_their_own_numbers(show: Show) -> None:
    root = show(ModelView(ragged_record()))
    expect(root).to_contain_text("3 layers of 1 to 5 heads · 6 tokens · exact to 0.004")
    assert root.get_by_role("rowheader").all_text_contents() == ["layer 0", "layer 4", "layer 9"]
    assert root.get_by_role("gridcell").count() == 9
    lefts = {
        (layer, head): cell(root, layer, head).evaluate("cell => cell.getBoundingClientRect().x")
        for layer, heads in RAGGED.items()
        for head in range(heads)
    }
    for (_, head), left in lefts.items():
        assert left == lefts[9, head]


def test_hints_have_the_strongest_weight_of_each_head(show: Show) -> None:
    record = ragged_record()
    root = show(ModelView(record))
    hint = root.locator(".av-hint")
    for row in table(root):
        layer, head = int(row["layer"]), int(row["head"])
        weights = record.stack().weights(layer=layer, head=head)
        cell(root, layer, head).hover()
        expect(hint).to_contain_text(f"Layer {layer}, head {head}")
        strongest = re.search("“t(\\d+)” to “t(\\d+)”, ([\\d.]+)", hint.inner_text())
        assert strongest is not None
        assert abs(float(strongest[3]) - weights.max()) <= ROUNDED + 0.005
        # The page cannot order weights that are closer than this.
        assert abs(weights[int(strongest[1]), int(strongest[2])] - weights.max()) <= 2 * ROUNDED


def test_thumbnails_have_the_ink_of_the_weights(show: Show, page: Page) -> None:
    weights = np.zeros((2, 2, 4, 4), np.float32)
    weights[..., 0] = 1
    weights[1, 1] = np.eye(4)
    weights[1, 1, 1] = (0.75, 0.25, 0, 0)
    show(ModelView(av.AttentionRecord.from_weights(weights, list("abcd"))))
    pixels = page.evaluate(
        """() => {
          const canvas = document.querySelectorAll(".av-grid-row canvas")[1];
          const side = canvas.height;
          const left = canvas.width - side;
          const image = canvas.getContext("2d").getImageData(left, 0, side, side).data;
          const middle = (i) => Math.floor((i + 0.5) * side / 4);
          return [0, 1, 2, 3].map((row) => [0, 1, 2, 3].map(
            (column) => image[(middle(row) * side + middle(column)) * 4 + 3]));
        }"""
    )
    expected = 255 * np.sqrt(weights[1, 1])
    assert np.abs(np.array(pixels) - expected).max() <= 1


def test_a_click_opens_a_head_and_arrows_choose_its_neighbours(show: Show, page: Page) -> None:
    root = show(ModelView(ragged_record()))
    page.evaluate(
        "() => { window.heard = []; "
        "document.addEventListener('keydown', (event) => window.heard.push(event.key)); }"
    )
    cell(root, 9, 2).click()
    chosen = root.locator("[aria-selected=true]")
    expect(chosen).to_have_attribute("aria-label", "Layer 9, head 2")
    for key, name in (
        ("ArrowRight", "Layer 9, head 3"),
        # Layer 4 has only head 0.
        ("ArrowUp", "Layer 4, head 0"),
        ("ArrowDown", "Layer 9, head 0"),
        ("End", "Layer 9, head 4"),
        ("ArrowLeft", "Layer 9, head 3"),
    ):
        page.keyboard.press(key)
        expect(chosen).to_have_attribute("aria-label", name)
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(0)
    expect(root.get_by_role("grid")).to_be_focused()
    # No key reached the listener of the page around the view.
    assert page.evaluate("() => window.heard") == []


def test_keys_in_the_detail_keep_one_head_open(show: Show, page: Page) -> None:
    root = show(ModelView(ragged_record(), layer=9, heads=[2]))
    root.locator(".av-model-detail .av-plot").focus()
    chosen = root.locator("[aria-selected=true]")
    # Layer 9 has no head 7.
    for key in ("n", "4", "7"):
        page.keyboard.press(key)
    expect(chosen).to_have_attribute("aria-label", "Layer 9, head 4")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    # The first press removes the pin. The second closes the detail.
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(1)
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(0)


def test_many_heads_scroll_and_only_those_in_view_have_nodes(show: Show, page: Page) -> None:
    weights = shares(64 * 64, 16, 16).reshape(64, 64, 16, 16)
    root = show(ModelView(av.AttentionRecord.from_weights(weights, words(16))))
    count = "() => document.querySelectorAll('*').length"
    nodes = page.evaluate(count)
    assert nodes < 64 * 64 / 2
    grid = root.get_by_role("grid")
    corner = root.locator(".av-grid-corner").bounding_box()
    grid.evaluate("(box) => box.scrollTo(box.scrollWidth, box.scrollHeight)")
    last = cell(root, 63, 63)
    expect(last).to_be_visible()
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:0")
    assert page.evaluate(count) < 1.2 * nodes
    # The labels did not move.
    assert root.locator(".av-grid-corner").bounding_box() == corner
    box, label = last.bounding_box(), root.get_by_role("rowheader").last.bounding_box()
    head = root.get_by_role("columnheader", name="head 63", exact=True).bounding_box()
    assert box is not None
    assert label is not None
    assert head is not None
    assert abs(box["y"] - label["y"]) < 3
    assert abs(box["x"] - head["x"]) < 3
    last.click()
    # The selected head stays visible while the arrow keys move.
    for _ in range(30):
        page.keyboard.press("ArrowUp")
    expect(cell(root, 33, 63)).to_be_in_viewport()


def test_an_address_opens_a_head_far_down(show: Show) -> None:
    weights = shares(40 * 2, 3, 3).reshape(40, 2, 3, 3)
    view = ModelView(av.AttentionRecord.from_weights(weights, words(3)))
    root = show(view, "#layer=38&heads=1")
    expect(cell(root, 38, 1)).to_be_in_viewport()
