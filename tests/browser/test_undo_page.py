"""Test undo on exported pages: by keys, by buttons and in the history of the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.hosts import record

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.pages import Show


@pytest.fixture(autouse=True)
def _clock(page: Page) -> None:
    page.clock.install()


def pause(page: Page) -> None:
    """Advance the clock, because changes in quick succession count as one."""
    page.clock.fast_forward(1000)


def chosen(root: Locator, *heads: int) -> None:
    expect(root.locator(".av-head[aria-pressed=true]")).to_have_count(len(heads))
    for head in heads:
        button = root.get_by_role("button", name=f"Head {head}", exact=True)
        expect(button).to_have_attribute("aria-pressed", "true")


def can(root: Locator, **possible: bool) -> None:
    for name, yes in possible.items():
        button = root.get_by_role("button", name=name.capitalize(), exact=True)
        expect(button).to_have_attribute("aria-disabled", "false" if yes else "true")


def test_a_double_click_on_a_head_and_a_drag_of_a_slider_are_one_step_each(
    show: Show, page: Page
) -> None:
    root = show(av.HeadView(record(), heads=[1, 2]))
    root.get_by_role("button", name="Head 3", exact=True).dblclick()
    chosen(root, 3)
    pause(page)
    root.get_by_role("button", name="More").click()
    slider = root.get_by_role("slider").first
    box = slider.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    for fraction in (0.3, 0.5, 0.7):
        pause(page)
        page.mouse.move(box["x"] + fraction * box["width"], box["y"] + box["height"] / 2)
    page.mouse.up()
    assert float(slider.input_value()) > 0
    undo = root.get_by_role("button", name="Undo")
    undo.click()
    # The menu closed when it lost the focus.
    root.get_by_role("button", name="More").click()
    expect(slider).to_have_value("0")
    page.keyboard.press("Escape")
    chosen(root, 3)
    undo.click()
    chosen(root, 1, 2)
    can(root, undo=False, redo=True)


def test_the_address_follows_and_the_browsers_back_leaves_the_page(
    show: Show, page: Page, tmp_path: Path
) -> None:
    before = tmp_path / "before.html"
    before.write_text("<!doctype html><title>before</title>")
    page.goto(before.as_uri())
    root = show(av.HeadView(record(), heads=[1]))
    root.get_by_role("button", name="Head 3", exact=True).click()
    pause(page)
    root.get_by_role("button", name="Layer 1").click()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    page.keyboard.press("Control+z")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    page.reload()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    chosen(root, 1, 3)
    page.go_back()
    assert page.title() == "before"


def test_a_dashboard_has_one_history_of_all_its_panes(show: Show, page: Page) -> None:
    root = show(av.show_dashboard(record(), layer=0, heads=[1]))
    # In compact layout the buttons are behind "Controls". The panes have no such buttons.
    for button in root.get_by_role("button", name="Controls").all():
        button.click()
        in_a_pane = button.evaluate("(element) => element.closest('.av-pane') !== null")
        expect(root.get_by_role("button", name="Undo")).to_have_count(0 if in_a_pane else 1)
        page.keyboard.press("Escape")
    head, matrix = root.locator(".av-pane-head"), root.locator(".av-pane-matrix")
    head.locator(".av-plot").press("ArrowDown")
    head.locator(".av-plot").press("Enter")
    expect(head).to_contain_text("Pinned: query “The”")
    pause(page)
    matrix.locator(".av-plot").press("]")
    expect(root).to_have_attribute("data-attnviz-drawn", "dashboard:self:1")
    head.locator(".av-plot").press("Control+z")
    expect(root).to_have_attribute("data-attnviz-drawn", "dashboard:self:0")
    expect(head).to_contain_text("Pinned: query “The”")
    matrix.locator(".av-plot").press("Control+z")
    expect(head).not_to_contain_text("Pinned")
