"""Test that exported pages show the layers of a hybrid model together, in the model's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

import attnviz as av
from browser.accessibility import check
from browser.pages import table
from unit.records import hybrid_record

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from browser.pages import Show


def drawn(root: Locator, stack: str, layer: int) -> None:
    expect(root).to_have_attribute("data-attnviz-drawn", f"matrix:{stack}:{layer}")


def test_one_control_chooses_among_layers_of_all_kinds(show: Show, page: Page) -> None:
    root = show(av.MatrixView(hybrid_record(), layer=3, heads=[1], token=2))
    layers = root.get_by_role("group", name="Layer", exact=True).get_by_role("button")
    names = ["Layer 0, linear", "Layer 1", "Layer 1, linear", "Layer 2, linear", "Layer 3"]
    assert [layer.get_attribute("aria-label") for layer in layers.all()] == names
    expect(root.locator(".av-kinds")).to_have_text("linear")
    expect(root.get_by_label("Stack")).to_have_count(0)
    drawn(root, "self", 3)
    page.keyboard.press("Tab")
    root.locator(".av-plot").first.focus()
    page.keyboard.press("[")
    drawn(root, "linear", 2)
    # The heads and the pin stay.
    expect(root).to_contain_text("Layer 2, head 1.")
    expect(root).to_contain_text("Pinned: query “t2”")
    assert {row["stack"] for row in table(root)} == {"linear"}
    check(root)
    for name, stack in (("Layer 1", "self"), ("Layer 1, linear", "linear")):
        layers.and_(root.get_by_label(name, exact=True)).click()
        drawn(root, stack, 1)


def test_compact_controls_name_the_kind(show: Show) -> None:
    root = show(av.MatrixView(hybrid_record(), controls="compact"))
    choice = root.get_by_role("combobox", name="Layer")
    assert choice.locator("option").all_inner_texts() == [
        *("0 · linear", "1", "1 · linear", "2 · linear", "3")
    ]
    choice.select_option("2 · linear")
    drawn(root, "linear", 2)
    expect(choice).to_have_value("2 · linear")
