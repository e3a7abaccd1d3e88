"""Tests of the exported compare view: numbers, and operation by keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.pages import table
from unit.records import shares

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
    texts = [WORDS] * 3 if several else [WORDS, [*WORDS[:QUERY], "she", *WORDS[QUERY + 1 :]]]
    records = [
        av.AttentionRecord.from_weights(list(member), text, model="made")
        for member, text in zip(weights(), texts, strict=False)
    ]
    names = ("start", "end", "middle") if several else ("he", "she")
    return av.CompareView(av.compare(records, names=names), **traits)


def check_table(rows: list[dict[str, str]], a: Any, b: Any) -> None:
    """Check the differences in the rows, within the error of each row."""
    assert rows
    for row in rows:
        query, key = int(row["query"]), int(row["key"])
        error = float(row["largest_error"]) + 1e-9
        assert float(row["difference"]) == pytest.approx((b - a)[query, key], abs=error)


def test_labels_sentence_and_table_have_the_distances_and_differences(show: Show) -> None:
    view = made()
    root = show(view)
    first, second, _ = weights()
    distances = np.abs(second - first).sum(-1).mean(-1) / 2
    assert (view.layer, view.heads) == (1, [2])
    for layer in range(LAYERS):
        for head in range(HEADS):
            cell = root.get_by_role("gridcell", name=f"Layer {layer}, head {head},")
            distance = (
                "no difference: exactly the same"
                if (layer, head) == (0, 1)
                else f"distance {distances[layer, head]:.2f}"
            )
            expect(cell).to_have_attribute("aria-label", f"Layer {layer}, head {head}, {distance}")
    moved = "Layer 1, head 2 moved 0.75 of the attention of “he→she”, the query that changed most"
    expect(root.locator(".av-compare-side .av-sentence")).to_have_text(
        f"{moved} in this head, from “nurse” (−0.75) to “doctor” (+0.75)."
    )
    check_table(table(root), first[MOVED], second[MOVED])


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
    for pane, member in zip(panes, (first, second), strict=False):
        strongest = WORDS[int(np.argmax(member[0, 0, token]))]
        expect(pane.locator(".av-sentence")).to_contain_text(f"attends most to “{strongest}")
    changed = int(np.argmax(np.abs(second - first)[0, 0, token]))
    expect(panes[2].locator(".av-sentence")).to_contain_text(f"to “{WORDS[changed]}")
    total = np.abs(second - first)[0, 0, token].sum() / 2
    expect(root.locator(".av-compare-side .av-sentence")).to_contain_text(
        f"Layer 0, head 0 moved {total:.2f} of the attention of “{WORDS[token]}"
    )


# The first width is that of JupyterLab with its sidebar in a window of 1280 pixels.
@pytest.mark.parametrize(("width", "rows"), [(785, 2), (700, 2), (1280, 1), (480, 3)])
def test_two_panes_are_side_by_side_from_700_pixels(
    show: Show, page: Page, width: int, rows: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    root = show(made())
    panes = root.locator(".av-compare-panes > .av-pane")
    expect(panes).to_have_count(3)
    boxes: list[Any] = [pane.bounding_box() for pane in panes.all()]
    assert len({box["y"] for box in boxes}) == rows
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for plot in root.locator(".av-plot").all():
        assert plot.evaluate("(box) => box.scrollWidth <= box.clientWidth")


def test_a_slider_chooses_one_of_several_members(show: Show, page: Page) -> None:
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
    assert "member=2" in page.evaluate("() => location.hash")
    first, _, third = weights()
    check_table(table(root), first[MOVED], third[MOVED])
