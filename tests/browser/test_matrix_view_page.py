"""Test the matrix view on exported pages: numbers, zoom, pins, colours and exports."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

import attnviz as av
from attnviz.views.matrix import MatrixView
from browser.pages import SVG, figure, says, table, texts

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.pages import Show

CELL = 40
LONG = 700


def softmax_weights(*shape: int, causal: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(*shape, generator=generator)
    if causal:
        ahead = torch.triu(torch.ones(shape[-2:], dtype=torch.bool), 1)
        logits = logits.masked_fill(ahead, -torch.inf)
    return torch.softmax(logits, -1)


def record_of(weights: Any, tokens: list[str] | None = None, **more: Any) -> av.AttentionRecord:
    count = np.shape(weights)[-1]
    return av.AttentionRecord.from_weights(
        weights, tokens or [f"t{number}" for number in range(count)], **more
    )


@pytest.fixture(scope="module")
def minilm(checkpoint_folder: Path) -> av.AttentionRecord:
    """Return a trained BERT on a sentence in which one head attends from "it" to its referent."""
    text = "The animal didn't cross the street because it was too tired."
    return av.extract(str(checkpoint_folder), text)


@pytest.fixture(scope="module")
def long() -> av.AttentionRecord:
    """Return a causal record with more tokens than the plot has pixels."""
    return record_of(softmax_weights(1, 1, LONG, LONG, causal=True))


def corner(page: Page) -> tuple[float, float]:
    """Return the upper left corner of the cells, found by the frame around them."""
    box = page.locator(".av-plot").bounding_box()
    assert box is not None
    left, top = page.locator(".av-back").evaluate(
        """(canvas) => {
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            let [left, top] = [width, height];
            for (let i = 0; i < width * height; i++) {
                if (data[4 * i + 3] === 0) continue;
                left = Math.min(left, i % width);
                top = Math.min(top, Math.floor(i / width));
            }
            return [left + 1, top + 1];
        }"""
    )
    return box["x"] + left, box["y"] + top


def hover(page: Page, row: int, column: int) -> Locator:
    left, top = corner(page)
    page.mouse.move(left + (column + 0.5) * CELL, top + (row + 0.5) * CELL)
    return page.locator(".av-hint")


def test_every_cell_is_the_model_s_own_weight(
    show: Show, page: Page, minilm: av.AttentionRecord
) -> None:
    root = show(MatrixView(minilm, layer=3, heads=[1]))
    own = minilm.stack().weights(layer=3, head=1)
    hint = hover(page, 10, 2)
    expect(hint).to_contain_text("“it” (10) → “animal” (2)")
    match = re.search(r"weight +([\d.]+)", hint.inner_text())
    assert match is not None
    assert abs(float(match[1]) - own[10, 2]) < 0.0045
    weights = np.array([float(row["weight"]) for row in table(root)]).reshape(own.shape)
    np.testing.assert_allclose(weights, own, atol=0.004)
    # The numbers in the cells. Weights below 0.005 have none.
    numbers = [text for text in texts(figure(root)) if re.fullmatch(r"\.\d\d|1\.00", text)]
    # The table rounds weights slightly below 0.005 up to it.
    assert len(numbers) == (weights > 0.005).sum()


def test_hover_click_and_escape(show: Show, page: Page, minilm: av.AttentionRecord) -> None:
    root = show(MatrixView(minilm, layer=3, heads=[1]))
    hover(page, 10, 2)
    left, top = corner(page)
    page.mouse.click(left + 2.5 * CELL, top + 10.5 * CELL)
    says(root, "“it” attends to “animal”: 0.68.")
    says(root, "Pinned: query “it”, key “animal”")
    page.mouse.click(left + 2.5 * CELL, top + 10.5 * CELL)
    expect(root).not_to_contain_text("Pinned")
    # A click on a query label pins only the query.
    page.mouse.click(left - 12, top + 10.5 * CELL)
    says(root, "Pinned: query “it” (Esc clears)")
    page.keyboard.press("Escape")
    expect(root).not_to_contain_text("Pinned")


def test_zoom_from_all_to_single_weights_and_back(
    show: Show, page: Page, long: av.AttentionRecord
) -> None:
    root = show(MatrixView(long))
    own = long.stack().weights(layer=0, head=0)
    says(root, "Each cell is the mean of 2 × 2 weights.")
    rows = table(root)
    assert len(rows) == (LONG // 2) ** 2
    assert rows[LONG // 2]["query_stop"] == "4"
    mean = own.reshape(LONG // 2, 2, LONG // 2, 2).mean((1, 3))
    weights = np.array([float(row["weight"]) for row in rows]).reshape(LONG // 2, LONG // 2)
    np.testing.assert_allclose(weights, mean, atol=0.004)
    plot = root.locator(".av-plot")
    plot.focus()
    for _ in range(30):
        page.keyboard.press("+")
    # The largest zoom: 16 x 16 cells near the middle.
    expect(root.get_by_role("button", name="Zoom in")).to_be_disabled()
    expect(root).to_have_attribute("data-attnviz-drawn", "matrix:self:0")
    near = table(root)
    first, key = int(near[0]["query"]), int(near[0]["key"])
    assert abs(first + 8 - LONG // 2) <= 4
    says(root, f"Queries {first}–{first + 15} of 700, keys {key}–{key + 15} of 700 in sight")
    part = own[first : first + 16, key : key + 16]
    weights = np.array([float(row["weight"]) for row in near]).reshape(16, 16)
    np.testing.assert_allclose(weights, part, atol=0.004)
    page.keyboard.press("Home")
    says(root, "Each cell is the mean")


def in_sight(side: str) -> str:
    """Return a JavaScript expression for the "first" or "last" visible query."""
    label = f"Queries: {side} in the window"
    return f"""Number(document.querySelector('[aria-label="{label}"]').value)"""


def test_wheel_drag_and_double_click(show: Show, page: Page, long: av.AttentionRecord) -> None:
    root = show(MatrixView(long, query_window=[300, 400], key_window=[300, 400]))
    box = root.locator(".av-plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    scrolled = page.evaluate("() => scrollY")
    page.mouse.wheel(0, 40)
    # A wheel event without a modifier key scrolls the page.
    page.wait_for_function(f"() => scrollY > {scrolled}")
    says(root, "Queries 300–399 of 700")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    expect(root).not_to_contain_text("Queries 300–399 of 700")
    first = root.get_by_label("Queries: first in the window")
    near = int(first.input_value())
    assert 300 < near < 400
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + 60, steps=4)
    page.mouse.up()
    page.wait_for_function(f"(near) => {in_sight('first')} < near", arg=near)
    expect(root).not_to_contain_text("Pinned")
    last = root.get_by_label("Queries: last in the window")
    size = int(last.input_value()) - int(first.input_value())
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function(f"(size) => {in_sight('last')} - {in_sight('first')} < size", arg=size)


def test_rectangular_stacks(show: Show) -> None:
    record = av.AttentionRecord.from_weights(
        encoder_attentions=softmax_weights(1, 2, 900, 900),
        decoder_attentions=softmax_weights(1, 2, 2, 2, causal=True),
        cross_attentions=softmax_weights(1, 2, 2, 900),
        encoder_tokens=[f"e{number}" for number in range(900)],
        decoder_tokens=["yes", "no"],
    )
    root = show(MatrixView(record, stack="cross", heads=[1]))
    says(root, "cross-attention · 2 queries, 900 keys")
    own = record.stack("cross").weights(layer=0, head=1)
    rows = table(root)
    # Each of the two queries has its own row, although many keys share a pixel.
    assert {row["query_token"] for row in rows} == {"yes", "no"}
    keys_per_row = -(-900 // (len(rows) // 2))
    weights = np.array([float(row["weight"]) for row in rows]).reshape(2, -1)
    np.testing.assert_allclose(weights, own.reshape(2, -1, keys_per_row).mean(-1), atol=0.004)
    root.get_by_label("Stack").select_option("decoder")
    expect(root).to_have_attribute("data-attnviz-drawn", "matrix:decoder:0")


@pytest.mark.parametrize("count", [1, 15, 75, 256])
def test_every_length_fits(show: Show, page: Page, count: int) -> None:
    record = record_of(softmax_weights(1, 1, count, count))
    root = show(MatrixView(record, token=count - 1, key=0))
    for width in (360, 1000):
        page.set_viewport_size({"width": width, "height": 800})
        expect(root).to_have_attribute("data-attnviz-drawn", "matrix:self:0")
        # The picture keeps the previous width until the browser reports the new one.
        page.wait_for_function(
            "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    svg = figure(root)
    edge = float(svg.get("width", ""))
    for mark in svg.iter(f"{SVG}text"):
        assert -1 <= float(mark.get("x", "")) <= edge


def test_a_small_matrix_is_rectangles_and_a_large_one_pixels(
    show: Show, long: av.AttentionRecord
) -> None:
    weights = [[[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]]]
    root = show(MatrixView(record_of(weights, ["one", "two", "three"])))
    svg = figure(root)
    groups = [g for g in svg.iter(f"{SVG}g") if g.get("shape-rendering") == "crispEdges"]
    # Two equal neighbours share a rectangle. Cells without weight have none.
    assert len(groups[0]) == 5
    show(MatrixView(long))
    [image] = figure(root).iter(f"{SVG}image")
    head, data = image.get("href", "").split(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        pixels = np.asarray(picture.convert("RGBA"))
    cells = LONG // 2
    assert pixels.shape == (cells, cells, 4)
    # Masked cells are empty, and cells with weight are not.
    assert not pixels[..., 3][np.triu_indices(cells, 1)].any()
    mean = long.stack().weights(layer=0, head=0).reshape(cells, 2, cells, 2).mean((1, 3))
    assert pixels[..., 3][mean > 1e-5].all()
