"""Undo on exported pages: by keys, by buttons, and by the browser's Back."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser import embedding_pages

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import FrameLocator, Locator, Page

TOKENS = "The cat sat on the mat . The cat".split()


@pytest.fixture(scope="module")
def record() -> av.AttentionRecord:
    def vectors(seed: int) -> torch.Tensor:
        return torch.randn(3, 4, 9, 16, generator=torch.Generator().manual_seed(seed))

    return av.AttentionRecord.from_qk(vectors(0), vectors(1), TOKENS, causal=True)


def opened(page: Page, view: av.HeadView, folder: Path, drawn: str) -> Locator:
    page.goto(view.save(folder / "view.html").as_uri())
    root = page.locator(".attnviz").first
    expect(root).to_have_attribute("data-attnviz-drawn", drawn)
    return root


def chosen(root: Locator | FrameLocator, *heads: int) -> None:
    expect(root.locator(".av-head[aria-pressed=true]")).to_have_count(len(heads))
    for head in heads:
        button = root.get_by_role("button", name=f"Head {head}", exact=True)
        expect(button).to_have_attribute("aria-pressed", "true")


def can(root: Locator | FrameLocator, **possible: bool) -> None:
    for name, yes in possible.items():
        button = root.get_by_role("button", name=name.capitalize(), exact=True)
        expect(button).to_have_attribute("aria-disabled", "false" if yes else "true")


def test_keys_take_back_heads_layer_and_pins(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    root = opened(page, av.HeadView(record, layer=0, heads=[1]), tmp_path, "head:self:0")
    can(root, undo=False, redo=False)
    root.get_by_role("button", name="Head 3", exact=True).click()
    root.get_by_role("button", name="Layer 2").click()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:2")
    plot = root.locator(".av-plot")
    plot.press("ArrowDown")
    plot.press("Enter")
    expect(root).to_contain_text("Pinned: query “The”")
    can(root, undo=True, redo=False)
    plot.press("Control+z")
    expect(root).not_to_contain_text("Pinned")
    chosen(root, 1, 3)
    plot.press("Control+z")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    plot.press("Control+z")
    chosen(root, 1)
    can(root, undo=False, redo=True)
    # Nothing is left to take back, and nothing happens.
    plot.press("Control+z")
    chosen(root, 1)
    plot.press("Control+Shift+z")
    chosen(root, 1, 3)
    plot.press("Control+y")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:2")
    plot.press("Control+Shift+z")
    expect(root).to_contain_text("Pinned: query “The”")
    can(root, undo=True, redo=False)


def test_a_double_click_on_a_head_and_a_drag_of_a_slider_are_one_step_each(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    root = opened(page, av.HeadView(record, heads=[1, 2]), tmp_path, "head:self:0")
    root.get_by_role("button", name="Head 3", exact=True).dblclick()
    chosen(root, 3)
    slider = root.get_by_role("slider").first
    box = slider.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    for place in (0.3, 0.5, 0.7):
        page.mouse.move(box["x"] + place * box["width"], box["y"] + box["height"] / 2)
    page.mouse.up()
    assert float(slider.input_value()) > 0
    undo = root.get_by_role("button", name="Undo")
    undo.click()
    expect(slider).to_have_value("0")
    chosen(root, 3)
    undo.click()
    chosen(root, 1, 2)
    can(root, undo=False, redo=True)


def test_the_browsers_back_takes_back_a_choice_and_leaves_after_the_last(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    before = tmp_path / "before.html"
    before.write_text("<!doctype html><title>before</title>")
    page.goto(before.as_uri())
    root = opened(page, av.HeadView(record, heads=[1]), tmp_path, "head:self:0")
    root.get_by_role("button", name="Head 3", exact=True).click()
    root.get_by_role("button", name="Layer 1").click()
    # A choice that the address does not show.
    root.get_by_label("Combine").select_option("mean")
    page.go_back()
    expect(root.get_by_label("Combine")).to_have_value("separate")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    page.go_back()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    page.go_forward()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    # Undo goes the same way: the browser's Back goes on from there.
    page.keyboard.press("Control+z")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    expect(page).to_have_url(re.compile("heads=1,3"))
    page.go_back()
    chosen(root, 1)
    assert page.title() != "before"
    page.go_back()
    assert page.title() == "before"


def test_a_page_loaded_again_is_where_it_was_and_goes_back_from_there(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    root = opened(page, av.HeadView(record, heads=[1]), tmp_path, "head:self:0")
    root.get_by_role("button", name="Head 3", exact=True).click()
    root.get_by_role("button", name="Layer 1").click()
    page.reload()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    chosen(root, 1, 3)
    page.go_back()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    page.go_back()
    chosen(root, 1)


def test_a_frame_leaves_the_history_of_its_host_alone(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    exported = html.escape(av.HeadView(record, heads=[1]).to_html())
    host = tmp_path / "host.html"
    host.write_text(
        f'<!doctype html><meta charset="utf-8"><iframe sandbox="allow-scripts" width="900" '
        f'height="700" srcdoc="{exported}"></iframe>',
        encoding="utf-8",
    )
    page.goto(host.as_uri())
    frame = page.frame_locator("iframe")
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", "head:self:0")
    before = page.evaluate("() => history.length")
    frame.get_by_role("button", name="Head 3", exact=True).click()
    frame.get_by_role("button", name="Layer 2").click()
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", "head:self:2")
    assert page.evaluate("() => history.length") == before
    frame.locator(".av-plot").press("Control+z")
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", "head:self:0")
    chosen(frame, 1, 3)


def test_a_text_field_keeps_its_own_undo(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    root = opened(page, av.HeadView(record, heads=[1]), tmp_path, "head:self:0")
    root.get_by_role("button", name="Head 3", exact=True).click()
    field = root.get_by_role("searchbox")
    field.press_sequentially("cat")
    field.press("Control+z")
    expect(field).not_to_have_value("cat")
    chosen(root, 1, 3)


def test_zoom_by_the_wheel_and_a_drag_are_taken_back_whole(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    weights = torch.softmax(
        3 * torch.randn(1, 1, 400, 400, generator=torch.Generator().manual_seed(0)), -1
    )
    long = av.AttentionRecord.from_weights(weights, [f"t{i}" for i in range(400)])
    root = opened(page, av.MatrixView(long), tmp_path, "matrix:self:0")
    first = root.get_by_role("group", name="Queries").get_by_role("spinbutton").first
    last = root.get_by_role("group", name="Queries").get_by_role("spinbutton").last
    plot = root.locator(".av-plot")
    plot.hover(position={"x": 300, "y": 300})
    # At once: what is more than a moment apart is another step.
    plot.evaluate(
        """(plot) => {
          const { x, y } = plot.getBoundingClientRect();
          const at = { clientX: x + 300, clientY: y + 300, bubbles: true, cancelable: true };
          for (let i = 0; i < 6; i++) {
            plot.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: -60, ctrlKey: true }));
          }
        }"""
    )
    expect(last).not_to_have_value("399")
    near = first.input_value(), last.input_value()
    page.mouse.down()
    for by in range(10):
        page.mouse.move(400 - 10 * by, 400 - 10 * by)
    page.mouse.up()
    expect(first).not_to_have_value(near[0])
    page.keyboard.press("Control+z")
    expect(first).to_have_value(near[0])
    expect(last).to_have_value(near[1])
    page.keyboard.press("Control+z")
    expect(last).to_have_value("399")
    can(root, undo=False, redo=True)


def test_a_head_that_was_opened_is_closed_again(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    root = opened(page, av.ModelView(record), tmp_path, "model:self:0")
    root.get_by_role("gridcell", name="Layer 1, head 2", exact=False).click()
    detail = root.locator(".av-model-detail")
    expect(detail).to_be_visible()
    detail.locator(".av-plot").press("Control+z")
    expect(detail).to_have_count(0)
    # The keyboard is still in the view.
    expect(root.locator(".av-grid-box")).to_be_focused()
    page.keyboard.press("Control+Shift+z")
    expect(detail).to_be_visible()


def test_the_neuron_view_goes_back_to_the_query_before(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    root = opened(page, av.NeuronView(record, token=5), tmp_path, "neuron:self:0")
    root.locator(".av-plot").press("ArrowLeft")
    query = root.locator(".av-token[aria-pressed=true]")
    expect(query).to_have_text("the")
    root.locator(".av-plot").press("Control+z")
    expect(query).to_have_text("mat")


def test_a_dashboard_has_one_history_of_all_its_panes(
    page: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    root = opened(page, av.dashboard(record, layer=0, heads=[1]), tmp_path, "dashboard:self:0")
    # The buttons are behind one where controls are compact, and in no pane.
    for button in root.get_by_role("button", name="Controls").all():
        button.click()
        in_a_pane = button.evaluate("(element) => element.closest('.av-pane') !== null")
        expect(root.get_by_role("button", name="Undo")).to_have_count(0 if in_a_pane else 1)
        page.keyboard.press("Escape")
    head, matrix = root.locator(".av-pane-head"), root.locator(".av-pane-matrix")
    head.locator(".av-plot").press("ArrowDown")
    head.locator(".av-plot").press("Enter")
    expect(head).to_contain_text("Pinned: query “The”")
    matrix.locator(".av-plot").press("]")
    expect(root).to_have_attribute("data-attnviz-drawn", "dashboard:self:1")
    head.locator(".av-plot").press("Control+z")
    expect(root).to_have_attribute("data-attnviz-drawn", "dashboard:self:0")
    expect(head).to_contain_text("Pinned: query “The”")
    matrix.locator(".av-plot").press("Control+z")
    expect(head).not_to_contain_text("Pinned")


def test_the_embedding_view_goes_back_to_all_heads_and_to_the_camera_before(
    page: Page, tmp_path: Path
) -> None:
    root = embedding_pages.opened(page, av.EmbeddingView(embedding_pages.prose()), tmp_path)
    box = root.locator(".av-grid-box")
    box.press("ArrowRight")
    box.press("Enter")
    embedding_pages.drawn(root, 0)
    plot = root.locator(".av-plot")
    still = embedding_pages.pixels(root)
    plot.press("+")
    assert (embedding_pages.pixels(root) != still).any()
    near = embedding_pages.pixels(root)
    plot.press(".")
    expect(page).to_have_url(re.compile("heads=1"))
    embedding_pages.drawn(root, 0)
    plot.press("Control+z")
    expect(page).to_have_url(re.compile("heads=0"))
    embedding_pages.drawn(root, 0)
    assert (embedding_pages.pixels(root) == near).all()
    plot.press("Control+z")
    assert (embedding_pages.pixels(root) == still).all()
    plot.press("Control+z")
    embedding_pages.drawn(root, "all")
    expect(box).to_be_focused()
