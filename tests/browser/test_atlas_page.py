"""Tests of the exported atlas: numbers, and operation by keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.pages import svg, table

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.pages import Show

VOCABULARY = ["the", "cat", "dog", "saw", "it", ",", "ran", "a"]
KINDS = {"the": "DET", "a": "DET", "cat": "NOUN", "dog": "NOUN", "it": "PRON", ",": "PUNCT"}
LAYERS, HEADS, TEXTS = 2, 3, 24
# Head 0.1 attends to the previous token, head 1.2 to the first one. The others are random.
PREVIOUS, FIRST = (0, 1), (1, 2)


def words(number: int) -> list[str]:
    generator = np.random.default_rng(number)
    return list(generator.choice(VOCABULARY, size=8 + number % 7))


def weights(number: int, layers: int = LAYERS, heads: int = HEADS) -> Any:
    """Return causal weights of a text, shape (layers, heads, tokens, tokens)."""
    length = len(words(number))
    generator = np.random.default_rng(1000 + number)
    made = np.tril(generator.random((layers, heads, length, length)) ** 6 + 1e-6)
    made[PREVIOUS] = np.eye(length, k=-1)
    made[PREVIOUS][0, 0] = 1
    made[FIRST] = 0
    made[FIRST][:, 0] = 1
    return (made / made.sum(axis=-1, keepdims=True)).astype(np.float32)


def measured(layers: int = LAYERS, heads: int = HEADS, texts: int = TEXTS) -> av.HeadStatistics:
    statistics = av.HeadStatistics(columns=["pos"], edges=60)
    for number in range(texts):
        tokens = words(number)
        given = weights(number, layers, heads)
        record = av.AttentionRecord.from_weights(list(given), tokens, model="made")
        kinds = [KINDS.get(token, "VERB") for token in tokens]
        statistics.add(record, number, columns={"pos": kinds})
    return statistics


@pytest.fixture(scope="module")
def statistics() -> av.HeadStatistics:
    return measured()


def drawn(root: Locator, layer: int) -> None:
    expect(root).to_have_attribute("data-attnviz-drawn", f"atlas:self:{layer}")


def cell(root: Locator, layer: int, head: int) -> Locator:
    return root.get_by_role("gridcell", name=re.compile(rf"^Layer {layer}, head {head}:"))


def field(root: Locator, end: str) -> Locator:
    return root.get_by_role("combobox", name=end, exact=True)


def edges(root: Locator) -> Locator:
    return root.locator(".av-atlas-edges > ol > li > button")


def test_heads_have_their_roles_and_the_chosen_one_its_numbers(
    show: Show, statistics: av.HeadStatistics
) -> None:
    root = show(av.AtlasView(statistics, layer=0, heads=[1]))
    assert root.get_by_role("gridcell").count() == LAYERS * HEADS
    for (layer, head), name in ((PREVIOUS, "previous token"), (FIRST, "first token")):
        label = cell(root, layer, head).get_attribute("aria-label")
        assert label is not None
        assert f"{name} 1.00 ± 0.00 (baseline " in label
        assert label.endswith(f", {TEXTS} texts")
    stack = statistics.stack()
    for layer in range(LAYERS):
        for head in range(HEADS):
            roles = stack.roles().of(layer, head)
            says = re.compile(f": {re.escape(roles[0].name)} " if roles else ": none of ")
            expect(cell(root, layer, head)).to_have_attribute("aria-label", says)
    expect(root.locator(".av-atlas-head")).to_contain_text("previous token 1.00 ± 0.00")
    cell(root, 1, 0).click()
    drawn(root, 1)
    expect(root.locator(".av-atlas-head h2")).to_have_text("Layer 1, head 0")
    rows = root.locator(".av-atlas-figures tbody").first.locator("tr")
    assert rows.count() == len(stack.score_names)
    for name, row in zip(stack.score_names, rows.all(), strict=True):
        expect(row.get_by_role("rowheader")).to_have_text(name)
        mean = stack.mean(name)[1][0]
        shown = row.get_by_role("cell").first.inner_text()
        if np.isnan(mean):
            assert shown == "not defined"
        else:
            assert float(shown.replace("−", "-").split(" ")[0]) == pytest.approx(mean, abs=0.006)


def test_offsets_are_those_of_the_statistics_and_a_drag_filters_edges(
    show: Show, page: Page, statistics: av.HeadStatistics
) -> None:
    root = show(av.AtlasView(statistics, layer=1, heads=[0]))
    plot = root.locator(".av-atlas-profile .av-plot")
    plot.focus()
    stack = statistics.stack()
    page.keyboard.press("ArrowLeft")
    weight = stack.offsets(1)[0][stack.offset_labels.index("-1")]
    expect(root.locator(".av-atlas-profile .av-unseen")).to_have_text(
        f"offset −1: mean weight {weight:.2f}"
    )
    box = plot.bounding_box()
    assert box is not None
    sampled = [edge.key - edge.query for edge in stack.sampled(1, 0)]
    assert len(sampled) == 60
    y = box["y"] + 60
    page.mouse.move(box["x"] + box["width"] * 0.3, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, y, steps=4)
    page.mouse.up()
    listed = root.locator(".av-atlas-listed")
    # The URL is updated shortly after the drag.
    for _ in range(100):
        offsets = re.search(r"offsets=(-?\d+),(-?\d+)", page.evaluate("location.href"))
        first, last = map(int, offsets.groups()) if offsets else (0, 0)
        found = sum(first <= offset <= last for offset in sampled)
        if first < last and f"{found} of 60 sampled edges" in listed.inner_text():
            break
        page.wait_for_timeout(100)
    else:
        raise AssertionError(page.evaluate("location.href"), listed.inner_text())
    # A drag is one undo step.
    page.keyboard.press("Control+z")
    expect(root.locator(".av-atlas-listed")).to_have_text("60 sampled edges")


def test_a_search_counts_over_all_heads(show: Show, statistics: av.HeadStatistics) -> None:
    root = show(av.AtlasView(statistics))
    field(root, "Query").fill("pos:NOUN")
    field(root, "Key").fill('"the"')
    counts = {}
    for layer in range(LAYERS):
        for head in range(HEADS):
            found = 0
            for edge in statistics.stack().sampled(layer, head):
                text = words(edge.text)
                found += text[edge.query] in ("cat", "dog") and text[edge.key] == "the"
            counts[layer, head] = found
            label = re.compile(rf"^Layer {layer}, head {head}: {found} of 60 sampled edges \(")
            expect(root.get_by_role("gridcell", name=label)).to_be_attached()
    assert len(set(counts.values())) > 1
    listed = root.locator(".av-atlas-found li")
    best = max(counts, key=lambda head: counts[head])
    expect(listed.first).to_contain_text(f"{counts[best]} of 60 (")
    listed.first.get_by_role("button").click()
    expect(root.locator(".av-atlas-listed")).to_contain_text(f"{counts[best]} of 60")
    field(root, "Query").fill("pos:NOPE")
    expect(root).to_contain_text("No pos is “NOPE”. Choose one of")


def test_an_edge_opens_its_text_with_what_the_page_has(
    show: Show, page: Page, statistics: av.HeadStatistics
) -> None:
    root = show(av.AtlasView(statistics, layer=0, heads=[1]))
    edge = edges(root).nth(3)
    number = int(edge.locator(".av-unseen").inner_text().strip(": ").rsplit(" ", 1)[1])
    edge.click()
    pane = root.locator(".av-atlas-text")
    expect(pane).to_contain_text("Only the tokens around stored edges")
    expect(pane).to_contain_text(f"Text {number}, layer 0, head 1")
    kept = statistics.stack().text_tokens(number)[1]
    shown = re.sub(r"[…\s]+", "", pane.locator(".av-atlas-kept").inner_text())
    assert shown == "".join(kept)
    page.keyboard.press("Escape")
    expect(pane).to_have_count(0)


def test_colours_orders_and_the_address(
    show: Show, page: Page, statistics: av.HeadStatistics
) -> None:
    root = show(av.AtlasView(statistics))
    root.get_by_label("Colour").select_option("first token")
    expect(root.locator(".av-atlas-scale")).to_contain_text("first token")
    expect(cell(root, *FIRST)).to_have_attribute(
        "aria-label", re.compile("first token 1.00 ± 0.00")
    )
    root.get_by_label("Heads by").select_option("first token")
    first = root.get_by_role("gridcell").first
    expect(first).to_have_attribute("aria-label", re.compile("^Layer 1, head 2:"))
    expect(root.locator(".av-atlas-caption").first).to_have_text("1.21.00")
    assert "color=first%20token" in page.url
    assert "order=first%20token" in page.url
    root.locator(".av-grid-box").focus()
    page.keyboard.press("Home")
    drawn(root, 1)
    page.reload()
    drawn(root, 1)
    expect(root.locator(".av-atlas-head h2")).to_have_text("Layer 1, head 2")
    expect(root.get_by_label("Heads by")).to_have_value("first token")


def test_the_table_and_the_picture(show: Show, statistics: av.HeadStatistics) -> None:
    root = show(av.AtlasView(statistics, layer=0, heads=[1]))
    rows = table(root)
    assert len(rows) == LAYERS * HEADS
    stack = statistics.stack()
    for row in rows:
        layer, head = int(row["layer"]), int(row["head"])
        roles = stack.roles().of(layer, head)
        assert row["role"] == (roles[0].name if roles else "none")
        for name in stack.score_names:
            mean = stack.mean(name)[layer][head]
            given = float(row[name]) if row[name] else np.nan
            assert given == pytest.approx(mean, rel=1e-4, nan_ok=True)
    picture = svg(root)
    for words in ("made", "Layer 0, head 1", "previous token", "mean weight by offset", "none"):
        assert words in picture


def test_a_thousand_heads_are_few_nodes_and_take_the_keyboard(page: Page, tmp_path: Path) -> None:
    statistics = measured(32, 32, texts=3)
    path = av.AtlasView(statistics, layer=5, heads=[7]).save(tmp_path / "large.html")
    assert path.stat().st_size < 5_000_000
    page.goto(path.as_uri())
    root = page.locator(".attnviz")
    drawn(root, 5)
    assert root.locator("*").count() < 900
    grid = root.get_by_role("grid")
    expect(grid).to_have_attribute("aria-rowcount", "33")
    grid.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    drawn(root, 6)
    expect(root.locator(".av-atlas-head h2")).to_have_text("Layer 6, head 8")
    # The active cell exists, so that a screen reader can read it.
    active = grid.get_attribute("aria-activedescendant")
    expect(root.locator(f"#{active}")).to_have_attribute(
        "aria-label", re.compile("^Layer 6, head 8: ")
    )
    # A click selects the head at its position.
    box = root.locator(f"#{active}").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 2.5 * box["width"], box["y"] + box["height"] / 2)
    expect(root.locator(".av-atlas-head h2")).to_have_text(re.compile("^Layer 6, head (9|10)$"))
