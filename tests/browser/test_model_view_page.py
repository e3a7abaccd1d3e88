"""Test the model view on exported pages: which heads it shows and whether their data are right."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from attnviz.views.model import ModelView
from browser.pages import SVG, table, texts
from unit.records import encoder_decoder_record, shares, words

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.pages import Show

# Error of a weight in one byte plus the rounding of a hint to two digits.
CLOSE = 0.004 + 0.005
RAGGED = {0: 3, 4: 1, 9: 5}


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
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:0")
    expect(root).to_contain_text("3 layers of 1 to 5 heads · 6 tokens · exact to 0.004")
    assert root.get_by_role("rowheader").all_text_contents() == ["layer 0", "layer 4", "layer 9"]
    assert root.get_by_role("gridcell").count() == 9
    boxes = {
        (layer, head): cell(root, layer, head).bounding_box()
        for layer, heads in RAGGED.items()
        for head in range(heads)
    }
    for (_, head), box in boxes.items():
        column = boxes[9, head]
        assert box is not None
        assert column is not None
        assert box["x"] == column["x"]
    expect(cell(root, 4, 1)).to_have_count(0)


def test_hover_says_the_strongest_weight_and_its_tokens(show: Show) -> None:
    record = ragged_record()
    root = show(ModelView(record))
    hint = root.locator(".av-hint")
    for layer, heads in RAGGED.items():
        for head in range(heads):
            cell(root, layer, head).hover()
            expect(hint).to_contain_text(f"Layer {layer}, head {head}")
            weights = record.stack().weights(layer=layer, head=head)
            match = re.search(r"“t(\d+)” to “t(\d+)”, ([\d.]+)", hint.text_content() or "")
            assert match is not None
            # One-byte codes cannot order weights that are closer than this.
            assert abs(weights[int(match[1]), int(match[2])] - weights.max()) <= 2 * 0.004
            assert abs(float(match[3]) - weights.max()) <= CLOSE


def test_thumbnails_have_the_ink_of_the_weights(show: Show, page: Page) -> None:
    weights = np.zeros((2, 2, 4, 4), np.float32)
    weights[..., 0] = 1
    weights[1, 1] = np.eye(4)
    weights[1, 1, 1] = (0.75, 0.25, 0, 0)
    root = show(ModelView(av.AttentionRecord.from_weights(weights, list("abcd"))))
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
    assert root.get_by_role("gridcell").count() == 4


def test_a_click_opens_a_head_and_arrows_walk_to_its_neighbours(show: Show, page: Page) -> None:
    root = show(ModelView(ragged_record()))
    page.evaluate(
        "() => { window.heard = []; "
        "document.addEventListener('keydown', (event) => window.heard.push(event.key)); }"
    )
    cell(root, 9, 2).click()
    chosen = root.locator("[aria-selected=true]")
    expect(chosen).to_have_attribute("aria-label", "Layer 9, head 2")
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:9")
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
    assert "layer=9&heads=3" in page.evaluate("() => location.hash")
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(0)
    assert page.evaluate("() => window.heard") == []


def test_the_detail_stands_beside_the_grid_or_below_it(show: Show, page: Page) -> None:
    root = show(ModelView(ragged_record(), layer=4, heads=[0]))
    grid, detail = root.get_by_role("grid"), root.locator(".av-model-detail")
    one, other = grid.bounding_box(), detail.bounding_box()
    assert one is not None
    assert other is not None
    assert one["x"] + one["width"] <= other["x"]
    page.set_viewport_size({"width": 700, "height": 800})
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:4")
    page.wait_for_function(
        """() => document.querySelector("[role=grid]").getBoundingClientRect().bottom
          <= document.querySelector(".av-model-detail").getBoundingClientRect().top"""
    )
    detail.get_by_role("button", name="Close the detail").click()
    expect(detail).to_have_count(0)
    expect(grid).to_be_focused()


@pytest.mark.slow
def test_numbers_of_the_detail_are_the_weights(show: Show, page: Page) -> None:
    record = ragged_record()
    root = show(ModelView(record, layer=0, heads=[1]))
    cell(root, 9, 2).click()
    expect(root.get_by_role("heading", name="Layer 9, head 2")).to_be_visible()
    plot = root.locator(".av-model-detail .av-plot")
    weights = record.stack().weights(layer=9, head=2)
    hint = root.locator(".av-model-detail .av-hint")
    box = plot.bounding_box()
    assert box is not None
    seen: dict[tuple[int, int], float] = {}
    for y in range(10, int(box["height"]), 18):
        for x in range(10, int(box["width"]), 30):
            page.mouse.move(box["x"] + x, box["y"] + y)
            for text in hint.all_text_contents():
                match = re.search(r"“t(\d)” \(\d\) → “t(\d)” \(\d\).*?([\d.]+) ± 0\.004$", text)
                if match:
                    seen[int(match[1]), int(match[2])] = float(match[3])
    assert len(seen) >= 6
    for (query, key), weight in seen.items():
        assert abs(weight - weights[query, key]) <= 0.0045


def test_keys_in_the_detail_keep_one_head_open(show: Show, page: Page) -> None:
    root = show(ModelView(ragged_record(), layer=9, heads=[2]))
    root.locator(".av-model-detail .av-plot").focus()
    chosen = root.locator("[aria-selected=true]")
    page.keyboard.press("n")
    page.keyboard.press("4")
    expect(chosen).to_have_attribute("aria-label", "Layer 9, head 4")
    page.keyboard.press("7")
    expect(chosen).to_have_attribute("aria-label", "Layer 9, head 4")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    # The first press removes the pin. The second closes the detail.
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(1)
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(0)


def test_the_summary_names_the_five_strongest_weights(show: Show) -> None:
    record = ragged_record()
    root = show(ModelView(record, layer=9, heads=[2]))
    weights = record.stack().weights(layer=9, head=2)
    summary = root.locator(".av-summary")
    expect(summary).to_contain_text("3 layers of 1 to 5 heads. self-attention. Layer 9, head 2.")
    strongest = re.findall(r"“t(\d)” to “t(\d)”, ([\d.]+\d)", summary.text_content() or "")
    assert len(strongest) == 5
    strongest_five = np.sort(weights.ravel())[::-1][:5]
    for (query, key, weight), expected in zip(strongest, strongest_five, strict=True):
        assert abs(float(weight) - expected) <= CLOSE
        assert abs(weights[int(query), int(key)] - expected) <= 2 * 0.004


def test_several_heads_from_another_view_are_outlined(show: Show) -> None:
    root = show(ModelView(ragged_record(), layer=9, heads=[3, 0]))
    expect(root.locator("[aria-selected=true]")).to_have_count(2)
    expect(root.get_by_role("heading", name="Layer 9, head 3")).to_be_visible()


def test_one_side_of_a_pair(show: Show) -> None:
    weights = np.zeros((1, 1, 5, 5), np.float32)
    weights[0, 0, :3, :3], weights[0, 0, :3, 3], weights[0, 0, 3:, 0] = 0.3, 0.1, 1
    record = av.AttentionRecord.from_weights(weights, words(5), sentence_b_start=3)
    root = show(ModelView(record))
    cell(root, 0, 0).hover()
    expect(root.locator(".av-hint")).to_contain_text("“t3” to “t0”, 1.00")
    root.get_by_label("Sentences").select_option("a-b")
    cell(root, 0, 0).hover(position={"x": 8, "y": 8})
    expect(root.locator(".av-hint")).to_contain_text("“t0” to “t3”, 0.10")


def test_every_stack_is_shown(show: Show) -> None:
    root = show(ModelView(encoder_decoder_record()))
    for name, cells, size in (
        ("encoder self-attention", 6, "6 tokens"),
        ("decoder self-attention", 6, "4 tokens"),
        ("cross-attention", 6, "4 queries, 6 keys"),
    ):
        root.get_by_label("Stack").select_option(label=name)
        expect(root).to_contain_text(f"{name} · ")
        expect(root).to_contain_text(size)
        expect(root.get_by_role("gridcell")).to_have_count(cells)
    cell(root, 1, 4).click()
    expect(root.locator(".av-sentence")).to_contain_text("Layer 1, head 4. Strongest: “d")


def test_many_heads_scroll_and_only_those_in_sight_are_there(show: Show, page: Page) -> None:
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
    expect(root.locator(".av-sentence")).to_contain_text("Layer 63, head 63.")
    # The selected head stays visible while the arrow keys move.
    for _ in range(30):
        page.keyboard.press("ArrowUp")
    expect(cell(root, 33, 63)).to_be_in_viewport()


def test_an_address_opens_a_head_far_down(show: Show) -> None:
    weights = shares(40 * 2, 3, 3).reshape(40, 2, 3, 3)
    view = ModelView(av.AttentionRecord.from_weights(weights, words(3)))
    root = show(view, "#layer=38&heads=1")
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:38")
    expect(cell(root, 38, 1)).to_be_in_viewport()


def test_lines_instead_of_heat_maps(show: Show, page: Page) -> None:
    root = show(ModelView(ragged_record(40)))
    pixels = "document.querySelector('.av-grid-row canvas').toDataURL()"
    before = page.evaluate(pixels)
    root.get_by_label("Thumbnails").select_option("lines")
    expect(root).to_contain_text("opacity = weight")
    expect(root).to_contain_text("strongest weights per head, at least 0.03")
    # The thumbnails are painted after the text changes.
    page.wait_for_function(f"(before) => {pixels} !== before", arg=before)


def test_pooled_thumbnails_say_so(show: Show, page: Page) -> None:
    weights = shares(2, 2, 150, 150)
    weights[1, 1] *= 0.5
    weights[1, 1, 140, 20] = 1
    record = av.AttentionRecord.from_weights(weights, words(150), normalized=False)
    root = show(ModelView(record))
    expect(root).to_contain_text("Thumbnails are pooled by maximum to 64 × 64.")
    cell(root, 1, 1).hover()
    # Cell 59 has queries 138 and 139, because floor(59 * 150 / 64) = 138 and floor(60 * 150 / 64) =
    # 140. Query 140 is the first of cell 60.
    expect(root.locator(".av-hint")).to_contain_text(
        "strongest: 1.00, between queries 140 to 141 and keys 18 to 20"
    )
    rows = table(root)
    assert [rows[3][name] for name in ("strongest_weight", "query", "key")] == ["1", "140", "20"]


def test_the_table_has_every_head_with_its_strongest_weight(show: Show) -> None:
    record = ragged_record()
    root = show(ModelView(record))
    rows = table(root)
    assert [(int(row["layer"]), int(row["head"])) for row in rows] == [
        (layer, head) for layer, heads in RAGGED.items() for head in range(heads)
    ]
    for row in rows:
        weights = record.stack().weights(layer=int(row["layer"]), head=int(row["head"]))
        assert abs(float(row["strongest_weight"]) - weights.max()) <= 0.004
        assert row["query_token"] == f"t{row['query']}"
        assert abs(weights[int(row["query"]), int(row["key"])] - weights.max()) <= 2 * 0.004


def test_given_scores_make_a_gallery(show: Show, page: Page) -> None:
    scores = [[0.1, 0.9, np.nan], [0.5], [0.2, 0.3, 0.4, 0.6, 0.7]]
    view = ModelView(ragged_record(), scores={"<mine>": scores}, min_score=0.4)
    root = show(view)
    names = root.get_by_role("gridcell").evaluate_all(
        "(cells) => cells.map((cell) => cell.getAttribute('aria-label'))"
    )
    assert names == [
        "Layer 0, head 1, <mine> 0.90",
        "Layer 9, head 4, <mine> 0.70",
        "Layer 9, head 3, <mine> 0.60",
        "Layer 4, head 0, <mine> 0.50",
        "Layer 9, head 2, <mine> 0.40",
    ]
    expect(root).to_contain_text("5 of 9 heads, with at least 0.4")
    cell(root, 4, 0).click()
    expect(root.locator(".av-sentence")).to_contain_text("Layer 4, head 0.")
    page.keyboard.press("ArrowLeft")
    expect(root.locator(".av-sentence")).to_contain_text("Layer 9, head 3.")


def test_a_pattern_makes_a_gallery(show: Show) -> None:
    weights = np.full((3, 2, 5, 5), 0.2, np.float32)
    weights[2, 1] = np.eye(5, k=-1, dtype=np.float32)
    weights[2, 1, 0, 0] = 1
    record = av.AttentionRecord.from_weights(weights, words(5))
    root = show(ModelView(record))
    root.get_by_label("Heads by").select_option("previous token")
    first = root.get_by_role("gridcell").first
    expect(first).to_have_attribute("aria-label", "Layer 2, head 1, previous token 1.00")
    root.get_by_label("Heads by").select_option("number")
    expect(root.get_by_role("rowheader")).to_have_count(3)


def test_heads_to_offer(show: Show) -> None:
    root = show(ModelView(ragged_record(), include_heads={9: [1, 4], 0: [1]}))
    expect(root).to_contain_text("3 of 9 heads included")
    assert root.get_by_role("gridcell").count() == 3
    assert root.get_by_role("rowheader").all_text_contents() == ["layer 0", "layer 9"]
    expect(cell(root, 9, 4)).to_be_visible()


def test_the_svg_has_a_cell_for_every_head_and_real_text(tmp_path: Path) -> None:
    weights = np.zeros((30, 2, 2, 2), np.float32)
    weights[..., 0] = 1
    record = av.AttentionRecord.from_weights(weights, ["a", "b"], model="thirty")
    svg = ET.parse(ModelView(record).save(tmp_path / "x.svg")).getroot()  # noqa: S314 - our own file
    # The picture has all thirty layers, although the page does not show them at once.
    labels = texts(svg)
    for text in ("thirty", "layer 0", "layer 29", "head 0", "head 1", "ink = √weight"):
        assert text in labels
    frames = [
        mark
        for mark in svg.iter(f"{SVG}rect")
        if mark.get("fill") == "none" and mark.get("width") == mark.get("height")
    ]
    assert len(frames) == 60
    lines = ModelView(record, thumbnails="lines").save(tmp_path / "lines.svg")
    drawn = ET.parse(lines).getroot()  # noqa: S314 - our own file
    assert len(list(drawn.iter(f"{SVG}path"))) == 120


def test_one_token_is_enough(show: Show) -> None:
    record = av.AttentionRecord.from_weights(
        [np.ones((heads, 1, 1)) for heads in (2, 1)], ["alone"]
    )
    root = show(ModelView(record))
    cell(root, 0, 0).click()
    expect(root.locator(".av-sentence")).to_contain_text("Strongest: “alone” to “alone”, 1.00")
    root.get_by_label("Thumbnails").select_option("lines")
    expect(root).to_contain_text("opacity = weight")
