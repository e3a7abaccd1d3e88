"""Tests of exported embedding views: all heads, one head, its points and texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.embedding_pages import (
    HEADS,
    LAYERS,
    TEXTS,
    coordinates,
    inked,
    isolated,
    one_head,
    pixel_positions,
    pixels,
    prose,
)
from browser.pages import figure, says, table, texts

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.pages import Show


@pytest.fixture(scope="module")
def corpus() -> av.Corpus:
    return prose()


def tile(root: Locator, layer: int, head: int) -> Locator:
    return root.get_by_role("gridcell", name=re.compile(rf"^layer {layer}, head {head},"))


def test_all_heads_are_drawn_with_their_trust(show: Show, corpus: av.Corpus) -> None:
    view = av.EmbeddingView(corpus)
    root = show(view)
    says(root, "all 12 heads of 3 layers: queries and keys by principal components.")
    rows = table(root)
    assert root.get_by_role("gridcell").count() == len(rows) == LAYERS * HEADS
    captions = []
    for row, trust in zip(rows, view.trust(), strict=True):
        # The view shows two decimals and the minus sign U+2212.
        caption = f"r {trust['plot']:.2f}".replace("-", "−")
        label = tile(root, trust["layer"], trust["head"]).get_attribute("aria-label") or ""
        assert f"distance with q·k: {caption}" in label
        captions.append(caption)
        assert float(row["r_plot"]) == pytest.approx(trust["plot"], abs=1e-4)
    assert [text for text in texts(figure(root)) if text.startswith("r ")] == captions
    for layer in range(LAYERS):
        thumbnails = pixels(root, f".av-embedding-overview canvas[data-row='{layer}']")
        assert inked(thumbnails, "query").any()
        assert inked(thumbnails, "key").any()


def test_points_are_drawn_at_the_principal_components(show: Show, corpus: av.Corpus) -> None:
    root = show(one_head(corpus))
    expected = coordinates(corpus)
    rows = table(root)
    exported = np.array([[float(row["x"]), float(row["y"])] for row in rows])
    # A page stores coordinates as 16-bit steps of the larger side. The table has five digits.
    step = np.ptp(expected, axis=0).max() / 65535
    assert np.abs(exported - expected).max() <= step + 5e-6 * np.abs(expected).max()
    assert [row["kind"] for row in rows] == ["query"] * 24 + ["key"] * 24
    assert [row["token"] for row in rows] == " ".join(TEXTS).split(" ") * 2
    canvas = pixels(root)
    positions = pixel_positions(root, expected)
    visible = isolated(positions)
    assert len(visible) > 10
    for point in visible:
        x, y = positions[point].round().astype(int)
        kind, other_kind = ("query", "key") if point < 24 else ("key", "query")
        around = canvas[y - 9 : y + 10, x - 9 : x + 10]
        assert not inked(around, other_kind).any()
        ink = np.argwhere(inked(around, kind))
        assert np.abs(ink.mean(axis=0) - 9).max() <= 1
        # A square fills its bounding box, a disc fills pi / 4 of it.
        filled = len(ink) / np.prod(np.ptp(ink, axis=0) + 1)
        assert (filled > 0.92) == (kind == "key")


def test_the_pointer_names_a_point_and_a_click_chooses_it(show: Show, corpus: av.Corpus) -> None:
    root = show(one_head(corpus))
    plot, hint = root.locator(".av-plot"), root.locator(".av-hint")
    positions = pixel_positions(root, coordinates(corpus))
    visible = isolated(positions)
    points = corpus.points()

    def pixel(point: int) -> Any:
        x, y = positions[point]
        return {"x": float(x), "y": float(y)}

    for point in (visible[0], visible[-1]):
        kind = "query" if point < 24 else "key"
        text = int([*points.query_text, *points.key_text][point])
        position = int([*points.query_position, *points.key_position][point])
        tokens = TEXTS[text].split(" ")
        plot.hover(position=pixel(point))
        expect(hint).to_contain_text(f"{kind} “{tokens[position]}”")
        expect(hint).to_contain_text(f"position {position} of text {text}")
        plot.click(position=pixel(point))
        says(root, f"{kind.capitalize()} “{tokens[position]}”, position {position} of text {text}")
        assert root.locator(".av-running .av-token").all_text_contents() == tokens
        expect(root.locator(".av-token[aria-pressed=true]")).to_have_attribute(
            "data-at", str(position)
        )
    # A second click on the point deselects it.
    plot.click(position=pixel(visible[-1]))
    says(root, "Click a point to see its text here.")


def test_lines_of_a_query_are_its_strongest_weights(show: Show, corpus: av.Corpus) -> None:
    root = show(one_head(corpus, text=0, token=8), top_keys=3)
    weights = corpus.records[0].stack().weights(layer=1, head=2)[8]
    strongest = np.argsort(-weights)[:3]
    words = TEXTS[0].split(" ")
    listed = root.get_by_role("list", name="Strongest keys").get_by_role("listitem")
    expect(listed).to_have_count(3)
    for key, line in zip(strongest, listed.all_text_contents(), strict=True):
        parts = re.fullmatch(r"“(.+)” \((\d+)\) ([\d.]+)", line)
        assert parts is not None
        assert (parts[1], int(parts[2])) == (words[key], key)
        # A page stores a weight in two bytes, and the list shows two digits.
        assert float(parts[3]) == pytest.approx(weights[key], abs=0.005 + 1e-5)
    says(root, f"3 lines: {100 * weights[strongest].sum():.0f}% of the query’s weight.")
