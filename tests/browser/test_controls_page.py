"""Tests of controls in small frames and of hidden controls, on exported pages and live."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.accessibility import check
from browser.vscode import THEMES, VSCode
from marks import slow

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page, ViewportSize

TOKENS = "[CLS] The quick brown fox jumps over the lazy dog because it is very fast [SEP]".split()
# Size of a panel of an experiment tracker, and the maximum distance of a picture from its top.
PANEL: ViewportSize = {"width": 360, "height": 420}
FROM_TOP = 120
PICTURES = {
    "HeadView": ".av-plot",
    "MatrixView": ".av-plot",
    "NeuronView": ".av-plot",
    "ModelView": ".av-grid-box",
    "Dashboard": ".av-panes",
    "EmbeddingView": ".av-grid-box",
}
each_view = pytest.mark.parametrize("name", PICTURES)


def made(name: str, **traits: Any) -> Any:
    queries, keys = (
        torch.randn(3, 12, len(TOKENS), 8, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    )
    record = av.AttentionRecord.from_qk(queries, keys, TOKENS, model="a-model-with-a-long-name")
    shown = [record, record] if name == "EmbeddingView" else record
    return getattr(av, name)(shown, layer=1, **traits)


def opened(
    page: Page, folder: Path, name: str, size: ViewportSize = PANEL, **traits: Any
) -> Locator:
    page.set_viewport_size(size)
    page.goto(made(name, **traits).save(folder / "view.html").as_uri())
    root = page.locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("."))
    return root


def top(root: Locator, name: str) -> float:
    box = root.locator(PICTURES[name]).first.bounding_box()
    assert box is not None
    return box["y"]


@pytest.mark.slow
@each_view
def test_the_picture_is_in_view_in_a_low_frame(page: Page, tmp_path: Path, name: str) -> None:
    root = opened(page, tmp_path, name)
    expect(root).to_have_attribute("data-controls", "compact")
    assert top(root, name) < FROM_TOP
    # The page does not overflow to the right.
    assert page.evaluate("() => document.documentElement.scrollWidth") == PANEL["width"]
    # Captions that do not fit above the picture are below it.
    assert re.search(r"exact|\d+ (tokens|points)", root.inner_text())
    root.get_by_role("button", name="Controls").first.click()
    panel = root.get_by_role("dialog", name="Controls")
    expect(panel).to_be_visible()
    box = panel.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PANEL["width"]
    check(root)
    # A larger frame shows all controls, except in the dashboard, whose panes need the space.
    if name == "Dashboard":
        return
    page.set_viewport_size({"width": 700, "height": 900})
    expect(root).to_have_attribute("data-controls", "full")
    expect(panel).to_have_count(0)
    assert root.get_by_role("button", name="Controls").count() == 0


def test_compact_controls_work_by_keyboard(page: Page, tmp_path: Path) -> None:
    root = opened(page, tmp_path, "HeadView")
    button = root.get_by_role("button", name="Controls")
    page.keyboard.press("Tab")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    panel = root.get_by_role("dialog", name="Controls")
    # The first enabled control has the focus.
    expect(panel.get_by_role("button", name="all", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(root.locator(".av-head[aria-pressed=true]")).to_have_count(12)
    # The pressed button keeps the focus, although it has nothing more to do.
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    expect(button).to_be_focused()
    # The panel also closes when the focus leaves it, and at a click beside it.
    button.click()
    expect(panel).to_be_visible()
    root.get_by_role("combobox", name="Layer").focus()
    expect(panel).to_have_count(0)
    button.click()
    expect(panel).to_be_visible()
    page.mouse.click(180, 410)
    expect(panel).to_have_count(0)


@pytest.mark.parametrize("name", ["HeadView", *map(slow, list(PICTURES)[1:])])
def test_hidden_controls_leave_the_picture_its_words_and_its_keys(
    page: Page, tmp_path: Path, name: str
) -> None:
    root = opened(page, tmp_path, name, {"width": 1000, "height": 900}, controls=False)
    expect(root).to_have_attribute("data-controls", "none")
    expect(root.locator(".av-title")).to_have_text("a-model-with-a-long-name")
    expect(root.locator(".av-sentence").first).to_be_visible()
    expect(root.locator(".av-legends").first).to_be_visible()
    # The footer is excluded, because its legend keeps a switch.
    controls = root.locator(
        ":is(select, input, .av-step, .av-head, .av-actions button):not(.av-footer *)"
    )
    assert controls.count() == 0
    check(root)
    if name == "HeadView":
        root.locator(".av-plot").focus()
        page.keyboard.press("]")
        expect(root).to_have_attribute("data-attnviz-drawn", "head:self:2")
        page.keyboard.press("?")
        expect(root.locator(".av-keys")).to_be_visible()


def test_a_live_view_is_compact_only_on_request(page: Page, tmp_path: Path) -> None:
    page.set_viewport_size(PANEL)
    with VSCode(page, THEMES[1], tmp_path) as vscode:
        view = vscode.show(lambda: made("HeadView"))
        root = vscode.root
        expect(root).to_have_attribute("data-controls", "full")
        for form, buttons in (("compact", 1), ("none", 0)):
            view.controls = form
            vscode.deliver()
            expect(root).to_have_attribute("data-controls", form)
            expect(root.get_by_role("button", name="Controls")).to_have_count(buttons)
