"""Tests of exported head views: lines, pointer, windows and stacks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.pages import SVG, figure, says, svg, table
from unit.records import shares

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show


def test_the_mean_of_all_heads_is_the_default_above_four(
    show: Show, minilm: av.AttentionRecord
) -> None:
    root = show(av.HeadView(minilm, layer=3))
    says(root, "16 tokens · exact to 0.004")
    says(root, "mean of 12 heads")
    mean = minilm.stack().weights(layer=3).mean(axis=0)
    lines = table(root)
    assert {line["layer"] for line in lines} == {"3"}
    drawn = {(int(line["query"]), int(line["key"])): float(line["weight"]) for line in lines}
    assert len(drawn) == len(lines) > len(mean)
    for pair, weight in drawn.items():
        assert weight == pytest.approx(mean[pair], abs=0.004)
    # All weights that are not drawn are smaller than the drawn ones.
    hidden = [float(mean[pair]) for pair in np.ndindex(mean.shape) if pair not in drawn]
    assert max(hidden, default=0) <= min(drawn.values()) + 0.004


def test_the_pointer_describes_a_token_and_a_click_pins_it(
    show: Show, page: Page, minilm: av.AttentionRecord
) -> None:
    root = show(av.HeadView(minilm, layer=3, heads=[1]))
    position = pixel_of(page, "“it”, query 10")
    page.mouse.move(*position)
    says(root, "“it” attends most to “animal”: 0.68")
    page.mouse.click(*position)
    page.mouse.move(1, 1)
    says(root, "Pinned: query “it”")
    page.mouse.click(*position)
    page.mouse.move(1, 1)
    expect(root).not_to_contain_text("Pinned")


def pixel_of(page: Page, title: str) -> tuple[float, float]:
    """Move the pointer until the hint starts with `title`, and return its position."""
    box = page.locator(".av-plot").bounding_box()
    assert box is not None
    side = title.split()[-2]
    hint = page.locator(".av-hint")

    def hint_at(x: float, y: float) -> str:
        page.mouse.move(box["x"] + x, box["y"] + y)
        return " ".join(hint.all_text_contents())

    middle = box["height"] / 2
    for x in range(4, int(box["width"]), 12):
        if any(f", {side} " in hint_at(x, middle + offset) for offset in (0, 9)):
            for y in range(4, int(box["height"]), 6):
                if hint_at(x, y).startswith(title):
                    # A few pixels further into the row, which is about 26 pixels high.
                    return box["x"] + x, box["y"] + y + 8
    pytest.fail(f"no token with the hint {title!r}")


# Returns the edges in pixels of each given part of a text: of a node of the page, or of a text of
# an SVG.
_EDGES = """(root, [selector, parts]) => {
  const texts = [...root.querySelectorAll(selector)];
  const holds = (text) => parts.every((part) => text.includes(part));
  const sentence = texts.find(({ textContent }) => holds(textContent));
  const walker = document.createTreeWalker(sentence, NodeFilter.SHOW_TEXT);
  let node = walker.nextNode();
  while (!holds(node.data)) node = walker.nextNode();
  return parts.map((part) => {
    const range = document.createRange();
    const start = node.data.indexOf(part);
    range.setStart(node, start);
    range.setEnd(node, start + part.length);
    const { left, right } = range.getBoundingClientRect();
    return [left, right];
  });
}"""


@pytest.mark.parametrize("tokens", [("שלום", "עולם"), ("سلام", "٣")])
def test_numbers_follow_tokens_that_are_written_from_right_to_left(
    show: Show, page: Page, tokens: tuple[str, str]
) -> None:
    weights = np.array([[0.1, 0.9], [0.25, 0.75]], np.float32)[None, None]
    root = show(av.HeadView(av.AttentionRecord.from_weights(weights, tokens), heads=[0], token=0))
    page.evaluate("svg => document.body.insertAdjacentHTML('beforeend', svg)", svg(root))
    page.mouse.move(*pixel_of(page, f"“\u2068{tokens[0]}\u2069”, query 0"))
    for selector, parts in [
        (".av-sentence", [*tokens, "0.90"]),
        ("svg text", [*tokens, "0.90"]),
        (".av-hint *", [tokens[0], "query 0"]),
    ]:
        edges = page.locator("body").evaluate(_EDGES, [selector, parts])
        for (_, right), (left, _) in pairwise(edges):
            assert right <= left + 0.5
    # A cell of a table has one token, which needs no isolate.
    assert {row["key_token"] for row in table(root)} == {*tokens}


def test_a_pinned_combining_mark_has_a_box_with_a_dotted_circle(show: Show) -> None:
    record = av.AttentionRecord.from_weights(shares(1, 1, 3, 3), ["a", "\u0301", "b"])
    root = show(av.HeadView(record, heads=[0], token=1))
    says(root, "Pinned: query “◌\u0301”")
    picture = figure(root)
    [label, _] = [mark for mark in picture.iter(f"{SVG}text") if mark.text == "◌\u0301"]
    right, y = float(label.get("x", "")), float(label.get("y", ""))
    boxes = [
        float(box.get("width", ""))
        for box in picture.iter(f"{SVG}rect")
        if box.get("rx")
        and 0 < y - float(box.get("y", "")) < float(box.get("height", ""))
        and 0 < right - float(box.get("x", "")) < float(box.get("width", ""))
    ]
    # The circle has half the size of the text, 14 pixels.
    assert min(boxes) >= 7 + 8
