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
    from collections.abc import Callable

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
def long() -> av.AttentionRecord:
    """Return a causal record of more frames of a sound than the plot has pixels."""
    weights = softmax_weights(1, 1, LONG, LONG, causal=True)
    return record_of(weights, [second(frame) for frame in range(LONG)])


def second(frame: int) -> str:
    return f"{frame / 50:.2f}s"


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
    # Each cell contains its number, except those with weights below 0.005.
    numbers = [text for text in texts(figure(root)) if re.fullmatch(r"\.\d\d|1\.00", text)]
    # The comparison is strict, because the table rounds weights slightly below 0.005 up to it.
    assert len(numbers) == (weights > 0.005).sum()


def test_a_click_pins_a_cell_or_a_query_and_escape_unpins_it(
    show: Show, page: Page, minilm: av.AttentionRecord
) -> None:
    root = show(MatrixView(minilm, layer=3, heads=[1]))
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
    mean = own.reshape(LONG // 2, 2, LONG // 2, 2).mean((1, 3))
    assert rows[LONG // 2]["query_stop"] == "4"
    # A frame has its time as its name at every zoom: in tables, captions, tooltips and at ticks.
    assert rows[LONG // 2]["query_token"] == "0.04s – 0.06s"
    # The first query has only one key, so captions skip its row.
    row, column = divmod(int(mean[1:].argmax()), LONG // 2)
    frames = [f"“{second(2 * cell)} – {second(2 * cell + 1)}”" for cell in (row + 1, column)]
    says(root, f"Strongest apart from the first query: {frames[0]} to {frames[1]}, mean")
    left, top = corner(page)
    page.mouse.move(left + 100.5, top + 200.5)
    title = page.locator(".av-hint").inner_text().split("weight")[0]
    ranges = [(int(first), int(last)) for first, last in re.findall(r"\((\d+)–(\d+)\)", title)]
    named = [f"“{second(first)} – {second(last)}” ({first}–{last})" for first, last in ranges]
    assert title.strip() == " → ".join(named)
    assert len(named) == 2
    numbers = [text for text in texts(figure(root)) if re.fullmatch(r"[\d.]+s?", text)]
    assert {"0.00s", "2.00s", "12.00s"} <= set(numbers)
    assert "200" not in numbers
    weights = np.array([float(row["weight"]) for row in rows]).reshape(LONG // 2, LONG // 2)
    np.testing.assert_allclose(weights, mean, atol=0.004)
    plot = root.locator(".av-plot")
    plot.focus()
    for _ in range(30):
        page.keyboard.press("+")
    # At the largest zoom, 16 x 16 cells near the middle are visible.
    expect(root.get_by_role("button", name="Zoom in")).to_be_disabled()
    expect(root).to_have_attribute("data-attnviz-drawn", "matrix:self:0")
    near = table(root)
    first, key = int(near[0]["query"]), int(near[0]["key"])
    assert abs(first + 8 - LONG // 2) <= 4
    queries, keys = (f"“{second(at)} – {second(at + 15)}” of 700" for at in (first, key))
    says(root, f"Queries {queries}, keys {keys} in sight")
    part = own[first : first + 16, key : key + 16]
    weights = np.array([float(row["weight"]) for row in near]).reshape(16, 16)
    np.testing.assert_allclose(weights, part, atol=0.004)
    page.keyboard.press("Home")
    says(root, "Each cell is the mean")


def test_the_wheel_zooms_only_with_ctrl_and_a_drag_moves_the_window(
    show: Show, page: Page, long: av.AttentionRecord
) -> None:
    root = show(MatrixView(long, query_window=[300, 400], key_window=[300, 400]))
    box = root.locator(".av-plot").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    scrolled = page.evaluate("() => scrollY")
    page.mouse.wheel(0, 40)
    page.wait_for_function(f"() => scrollY > {scrolled}")
    says(root, "Queries “6.00s – 7.98s” of 700")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    expect(root).not_to_contain_text("Queries “6.00s – 7.98s” of 700")
    first = root.get_by_label("Queries: first in the window")
    zoomed = int(first.input_value())
    assert 300 < zoomed < 400
    page.mouse.down()
    page.mouse.move(x, y + 60, steps=4)
    page.mouse.up()
    expect(first).not_to_have_value(str(zoomed))
    assert int(first.input_value()) < zoomed
    # The drag pins no cell.
    expect(root).not_to_contain_text("Pinned")


def test_cross_attention_has_one_row_per_query_although_keys_share_pixels(show: Show) -> None:
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
    assert {row["query_token"] for row in rows} == {"yes", "no"}
    keys_per_row = -(-900 // (len(rows) // 2))
    weights = np.array([float(row["weight"]) for row in rows]).reshape(2, -1)
    np.testing.assert_allclose(weights, own.reshape(2, -1, keys_per_row).mean(-1), atol=0.004)
    root.get_by_label("Stack").select_option("decoder")
    expect(root).to_have_attribute("data-attnviz-drawn", "matrix:decoder:0")


@pytest.mark.parametrize("pooled", ["mean", "max"])
def test_a_bar_for_several_keys_shows_the_largest_weight(
    show: Show, long: av.AttentionRecord, pooled: str
) -> None:
    token = 500
    root = show(MatrixView(long, token=token, pooled=pooled))
    weights = long.stack().weights(layer=0, head=0)[token]
    written = f"{weights.max():.2f}"
    says(root, f"attends most to “{second(int(weights.argmax()))}”: {written}.")
    bars = texts(figure(root))
    assert f"weight from “{second(token)}”: largest of 2 keys" in bars
    assert written in bars
    assert f"{weights.reshape(-1, 2).mean(1).max():.2f}" != written


def test_the_figure_of_a_large_matrix_is_an_image_with_one_pixel_per_cell(
    show: Show, long: av.AttentionRecord
) -> None:
    root = show(MatrixView(long))
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


@pytest.mark.parametrize("view", [av.MatrixView, av.HeadView, av.ModelView, av.CompareView])
def test_captions_name_no_weight_that_the_mask_forces(
    show: Show, page: Page, view: Callable[..., Any]
) -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(2, 1, 1, 9, 4)).astype(np.float32)
    record = av.AttentionRecord.from_qk(vectors[0], vectors[1], list("WORDS is."), causal=True)
    weights = record.stack().weights(layer=0, head=0)
    assert weights[0, 0] == weights.max() == 1
    query, key = divmod(int(weights[1:].argmax()), weights.shape[1])
    best = f"“{record.tokens[query + 1]}”", f"“{record.tokens[key]}”"
    other = av.AttentionRecord.from_qk(vectors[0], -vectors[1], list("WORDS is."), causal=True)
    shown = av.compare(record, other) if view is av.CompareView else record
    root = show(view(shown, layer=0, heads=[0]))
    if view is av.ModelView:
        root.get_by_role("gridcell").first.hover()
        caption = page.locator(".av-hint")
    else:
        pane = root.locator(".av-pane-a") if view is av.CompareView else root
        caption = pane.locator("footer .av-words")
    expect(caption).to_contain_text(re.compile("apart from the first query: “"))
    pair = re.search(r"query: (“.*?”)(?: \(\d+\))? to (“.*?”)", caption.inner_text())
    assert pair is not None
    assert pair.groups() == best
