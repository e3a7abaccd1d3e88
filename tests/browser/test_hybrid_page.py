"""Test that exported pages show the layers of a hybrid model together, in the model's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from playwright.sync_api import expect

import attnviz as av
from browser.accessibility import check
from browser.pages import effect_bars, figure, says, table, texts
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


def test_the_grid_has_the_layers_of_all_kinds_with_their_own_scales(show: Show) -> None:
    record = hybrid_record()
    root = show(av.ModelView(record))
    rows = root.get_by_role("rowheader")
    names = ["layer 0, linear", "layer 1", "layer 1, linear", "layer 2, linear", "layer 3"]
    assert [row.get_attribute("aria-label") for row in rows.all()] == names
    texts = [" ".join(text.split()) for text in rows.all_inner_texts()]
    assert texts == ["linear layer 0", "layer 1", "linear layer 1", "linear layer 2", "layer 3"]
    expect(root.get_by_label("Stack")).to_have_count(0)
    expect(root).to_contain_text("self-attention: 2 layers of 2 heads, exact to 0.004")
    maximum = record.stacks["linear"].maximum
    legends = root.locator(".av-legend")
    expect(legends.nth(0)).to_contain_text("self-attention0")
    expect(legends.nth(1)).to_contain_text(f"−{maximum:.2g}0+{maximum:.2g}")
    lines = table(root)
    assert len(lines) == 2 * 2 + 3 * 3
    kinds = {(line["stack"], int(line["layer"]), int(line["head"])) for line in lines}
    layers = {("linear", layer): 3 for layer in (0, 1, 2)} | {
        ("self", layer): 2 for layer in (1, 3)
    }
    assert kinds == {(*at, head) for at, heads in layers.items() for head in range(heads)}
    check(root)


def test_a_click_opens_a_head_of_either_kind(show: Show, page: Page) -> None:
    root = show(av.ModelView(hybrid_record()))
    opened = root.get_by_role("heading", level=3)
    chosen = root.locator("[aria-selected=true]")
    root.get_by_role("gridcell", name="Layer 1, head 1, linear", exact=True).click()
    expect(root).to_have_attribute("data-attnviz-drawn", "model:linear:1")
    expect(opened).to_have_text("Layer 1, head 1, linear")
    expect(chosen).to_have_count(1)
    expect(root.locator(".av-model-detail")).to_contain_text("linear weight")
    for name in ("Layer 1, head 1", "Layer 0, head 1, linear"):
        page.keyboard.press("ArrowUp")
        expect(opened).to_have_text(name)
        expect(chosen).to_have_attribute("aria-label", name)


def test_bars_and_roles_belong_to_the_heads_of_their_stacks(show: Show) -> None:
    record = hybrid_record()
    effects = {"self": [[1.0, -2.0], [0.0, 0.5]], "linear": [[0.1, -0.2, 4.0]] * 3}
    roles = {"self": {(1, 0): "sink"}, "linear": {(1, 0): "induction", (2, 2): "sink"}}
    root = show(
        av.ModelView(record, scores={"effect": effects}, roles=roles, order="number", theme="light")
    )
    names = [cell.get_attribute("aria-label") for cell in root.get_by_role("gridcell").all()]
    assert names[:8] == [
        *("Layer 0, head 0, linear, effect +0.10", "Layer 0, head 1, linear, effect −0.20"),
        *("Layer 0, head 2, linear, effect +4.00", "Layer 1, head 0, sink, effect +1.00"),
        *("Layer 1, head 1, effect −2.00", "Layer 1, head 0, linear, induction, effect +0.10"),
        *("Layer 1, head 1, linear, effect −0.20", "Layer 1, head 2, linear, effect +4.00"),
    ]
    # The bars of both kinds have one scale, which ends at 4. The effect 0 has no bar.
    widths = [
        abs(float(value)) / 4 for value in (0.1, -0.2, 4, 1, -2, 0.1, -0.2, 4, 0.1, -0.2, 4, 0.5)
    ]
    drawn_widths = np.array(effect_bars(root)[1])
    assert np.allclose(drawn_widths / drawn_widths.max(), widths, atol=0.01)
    assert root.locator(".av-role-legend").inner_text().split() == [
        "I",
        "induction",
        "1",
        "S",
        "sink",
        "2",
    ]


def test_a_list_by_score_has_one_kind(show: Show) -> None:
    root = show(av.ModelView(hybrid_record(), order="previous token"))
    assert root.get_by_role("gridcell").count() == 4
    says(root, "Heads of stack “linear” have a separate list: choose this stack.")
    assert "have a separate list." in " ".join(texts(figure(root)))
    root.get_by_label("Stack").select_option("linear")
    expect(root).to_have_attribute("data-attnviz-drawn", "model:linear:1")
    root.get_by_label("Heads by").select_option("number")
    expect(root.get_by_role("gridcell")).to_have_count(13)


def test_an_address_without_a_stack_names_a_layer_of_the_model(show: Show) -> None:
    root = show(av.MatrixView(hybrid_record()), "#layer=0")
    drawn(root, "linear", 0)
    # Both stacks have layer 1.
    root.get_by_label("Layer 1, linear", exact=True).click()
    drawn(root, "linear", 1)
