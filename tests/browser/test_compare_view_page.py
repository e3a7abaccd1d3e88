"""Tests of the exported compare view: numbers, and operation by keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.pages import svg, table
from unit.records import shares

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from browser.pages import Show

WORDS = ["the", "doctor", "asked", "the", "nurse", "whether", "he", "sleeps"]
LAYERS, HEADS, N = 2, 3, len(WORDS)
# Head 1.2 moves the attention of the pronoun away from "nurse". Head 0.1 does not change.
MOVED, QUERY = (1, 2), 6


def weights() -> tuple[Any, Any, Any]:
    first = shares(LAYERS * HEADS, N, N).reshape(LAYERS, HEADS, N, N)
    second = 0.9 * first + 0.1 * np.roll(first, 1, axis=-1)
    second[0, 1] = first[0, 1]
    first[MOVED][QUERY] = np.eye(N)[4]
    second[MOVED][QUERY] = 0.25 * np.eye(N)[4] + 0.75 * np.eye(N)[1]
    return first, second, 0.5 * first + 0.5 * second


def made(*, several: bool = False, **traits: Any) -> av.CompareView:
    texts = (WORDS, [*WORDS[:QUERY], "she", *WORDS[QUERY + 1 :]], WORDS)
    records = [
        av.AttentionRecord.from_weights(list(each), words, model="made")
        for each, words in zip(weights(), texts, strict=True)
    ]
    if several:
        same = [
            av.AttentionRecord.from_weights(list(each), WORDS, model="made") for each in weights()
        ]
        comparison = av.compare(same, names=("start", "end", "middle"))
    else:
        comparison = av.compare(*records[:2], names=("he", "she"))
    return av.CompareView(comparison, **traits)


def left_of(element: Locator) -> tuple[float, float]:
    box = element.bounding_box()
    assert box is not None
    return box["x"], box["y"]


def test_what_a_page_says_are_the_records_numbers(show: Show) -> None:
    view = made()
    root = show(view)
    first, second, _ = weights()
    distances = np.abs(second - first).sum(-1).mean(-1) / 2
    assert (view.layer, view.heads) == (1, [2])
    for layer in range(LAYERS):
        for head in range(HEADS):
            cell = root.get_by_role("gridcell", name=f"Layer {layer}, head {head},")
            says = (
                "no difference: exactly the same"
                if (layer, head) == (0, 1)
                else f"distance {distances[layer, head]:.2f}"
            )
            expect(cell).to_have_attribute("aria-label", f"Layer {layer}, head {head}, {says}")
    moved = "Layer 1, head 2 moved 0.75 of the attention of “he→she”, the query that changed most"
    expect(root.locator(".av-compare-side .av-sentence")).to_have_text(
        f"{moved} in this head, from “nurse” (−0.75) to “doctor” (+0.75)."
    )
    # The table has all pairs with a weight, within the stated error.
    rows = table(root)
    assert len(rows) == (N - 1) * N + 2
    for row in rows:
        query, key = int(row["query"]), int(row["key"])
        error = float(row["largest_error"]) + 1e-9
        a, b = first[MOVED][query, key], second[MOVED][query, key]
        assert float(row["a"]) == pytest.approx(a, abs=error)
        assert float(row["b"]) == pytest.approx(b, abs=error)
        assert float(row["difference"]) == pytest.approx(b - a, abs=error)
        assert (row["a_name"], row["b_name"]) == ("he", "she")


def test_a_token_pinned_in_one_pane_is_pinned_in_all(show: Show, page: Page) -> None:
    root = show(made(layer=0, heads=[0]))
    panes = [root.locator(f".av-pane-{name}") for name in ("a", "b", "difference")]
    for pane, title in zip(panes, ("he", "she", "she − he"), strict=True):
        expect(pane.get_by_role("heading", name=title, exact=True)).to_be_visible()
    panes[1].locator(".av-plot").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    first, second, _ = weights()
    token = int(page.evaluate("() => new URLSearchParams(location.hash.slice(1)).get('token')"))
    for pane, of in zip(panes, (first, second), strict=False):
        strongest = WORDS[int(np.argmax(of[0, 0, token]))]
        expect(pane.locator(".av-sentence")).to_contain_text(f"attends most to “{strongest}")
    changed = int(np.argmax(np.abs(second - first)[0, 0, token]))
    expect(panes[2].locator(".av-sentence")).to_contain_text(f"to “{WORDS[changed]}")
    total = np.abs(second - first)[0, 0, token].sum() / 2
    expect(root.locator(".av-compare-side .av-sentence")).to_contain_text(
        f"Layer 0, head 0 moved {total:.2f} of the attention of “{WORDS[token]}"
    )


def test_heads_are_chosen_and_ordered_by_keyboard(show: Show, page: Page) -> None:
    root = show(made())
    root.locator(".av-grid-box").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    expect(root).to_have_attribute("data-attnviz-drawn", "compare:self:0")
    sentence = root.locator(".av-compare-side .av-sentence")
    expect(sentence).to_have_text("Layer 0, head 1 is exactly the same in he and she.")
    root.get_by_label("Heads by").select_option("distance")
    first, second, _ = weights()
    distances = np.abs(second - first).sum(-1).mean(-1) / 2
    order = np.argsort(-distances, axis=None)
    for cell, place in zip(root.get_by_role("gridcell").all(), order, strict=True):
        layer, head = np.unravel_index(place, distances.shape)
        assert (cell.get_attribute("aria-label") or "").startswith(f"Layer {layer}, head {head},")
    root.get_by_label("Head as").select_option("matrix")
    expect(root.locator(".av-pane-a .av-plot")).to_have_attribute(
        "aria-roledescription", "attention matrix"
    )
    expect(root).to_have_attribute("data-attnviz-drawn", "compare:self:0")
    page.keyboard.press("Control+z")
    expect(root.get_by_label("Head as")).to_have_value("head")


def test_a_slider_leads_through_several_members(show: Show, page: Page) -> None:
    root = show(made(several=True, layer=1, heads=[2], token=QUERY))
    sentence = root.locator(".av-compare-side .av-sentence")
    expect(sentence).to_contain_text("moved 0.75 of the attention")
    slider = root.get_by_role("slider", name="What is compared with start")
    expect(slider).to_have_attribute("aria-valuetext", "end, 1 of 2")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "middle, 2 of 2")
    # The middle member has moved half as much. Weights on a page are exact to 0.004.
    expect(sentence).to_contain_text(re.compile(r"moved 0\.3[78] of the attention"))
    expect(root.locator(".av-pane-b").get_by_role("heading", name="middle")).to_be_visible()
    expect(root.get_by_role("img", name="Distance from start by member")).to_be_visible()
    assert "member=2" in page.evaluate("() => location.hash")
    # The sentence, the table and the picture agree within their stated errors.
    first, _, third = weights()
    rows = table(root)
    assert {(row["a_name"], row["b_name"]) for row in rows} == {("start", "middle")}
    changes = {}
    for row in rows:
        at, error = (int(row["query"]), int(row["key"])), float(row["largest_error"]) + 1e-9
        a, b = first[MOVED][at], third[MOVED][at]
        assert float(row["a"]) == pytest.approx(a, abs=error)
        assert float(row["b"]) == pytest.approx(b, abs=error)
        assert float(row["difference"]) == pytest.approx(b - a, abs=error)
        changes[at] = float(row["difference"])
    lost, gained = (f"{changes[QUERY, key]:+.2f}".replace("-", "−") for key in (4, 1))
    expect(sentence).to_contain_text(f"from “nurse” ({lost}) to “doctor” ({gained})")
    expect(root.locator(".av-pane-difference .av-sentence")).to_contain_text(gained)


@pytest.mark.parametrize("width", [360, 1000])
def test_panes_stand_beside_each_other_where_there_is_room(
    show: Show, page: Page, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    root = show(made())
    corners = [left_of(root.locator(f".av-pane-{name}")) for name in ("a", "b", "difference")]
    beside = width == 1000
    assert [len({round(x) for x, _ in corners}), len({round(y) for _, y in corners})] == (
        [3, 1] if beside else [1, 3]
    )
    # The plots have the same vertical position, so that tokens align.
    if beside:
        plots = [left_of(root.locator(f".av-pane-{name} .av-plot")) for name in ("a", "b")]
        assert plots[0][1] == plots[1][1]


def test_a_picture_has_the_grid_all_panes_and_the_sentence(show: Show) -> None:
    root = show(made())
    picture = svg(root)
    for said in ("layer 1", "head 2", "moved 0.75", "she − he", "hatched", "rounding"):
        assert said in picture
