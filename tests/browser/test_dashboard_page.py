"""Tests of the exported dashboard: visible panes and their synchronization."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from unit.records import shares, words

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from browser.pages import Show

PICTURES = (".av-pane-model .av-grid", ".av-pane-head .av-plot", ".av-pane-matrix .av-plot")
Rect = dict[str, float]


@pytest.fixture(autouse=True)
def _wide(page: Page) -> None:
    page.set_viewport_size({"width": 1300, "height": 900})


def record() -> av.AttentionRecord:
    weights = shares(6 * 12, 16, 16).reshape(6, 12, 16, 16)
    return av.AttentionRecord.from_weights(weights, words(16), model="six")


def rect(element: Locator) -> Rect:
    corners: Rect = element.evaluate(
        """(element) => {
          const { left, top, right, bottom } = element.getBoundingClientRect();
          return { left, top, right, bottom };
        }"""
    )
    return corners


@pytest.mark.parametrize("size", [(1300, 900), (920, 780)])
def test_all_pictures_fit_side_by_side(show: Show, page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    root = show(av.Dashboard(record(), layer=3, heads=[1], token=2))
    pictures = [rect(root.locator(selector)) for selector in PICTURES]
    for picture in pictures:
        assert picture["left"] >= 0
        assert picture["right"] <= size[0]
        assert picture["bottom"] <= size[1]
    model, head, matrix = pictures
    assert model["right"] <= head["left"]
    assert head["right"] <= matrix["left"]
    # All heads are inside the visible part of the grid.
    cells = [rect(cell) for cell in root.get_by_role("gridcell").all()]
    assert len(cells) == 72
    assert max(cell["right"] for cell in cells) <= model["right"] + 1
    # The headers of the panes do not overflow.
    for pane in root.locator(".av-pane").all():
        button = rect(pane.get_by_role("button", name="Export"))
        assert button["right"] <= rect(pane)["right"] + 1


def test_a_choice_in_one_pane_is_shown_in_the_others(show: Show, page: Page) -> None:
    root = show(av.Dashboard(record()))
    root.get_by_role("gridcell", name="Layer 4, head 7", exact=True).click()
    for pane in ("model", "head", "matrix"):
        expect(root.locator(f".av-pane-{pane} .av-sentence")).to_contain_text("Layer 4, head 7.")
    weights = record().stack().weights(layer=4, head=7)
    root.locator(".av-pane-head .av-plot").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("() => new URLSearchParams(location.hash.slice(1)).has('token')")
    token = int(page.evaluate("() => new URLSearchParams(location.hash.slice(1)).get('token')"))
    strongest = int(np.argmax(weights[token]))
    sentence = f"“t{token}” attends most to “t{strongest}”"
    expect(root.locator(".av-pane-head .av-sentence")).to_contain_text(sentence)
    # The matrix has this sentence only as the accessible name of its picture.
    expect(root.locator(".av-pane-matrix .av-sentence")).to_have_text("Layer 4, head 7.")
    expect(root.locator(".av-pane-matrix .av-plot")).to_have_accessible_name(re.compile(sentence))


@pytest.mark.parametrize("width", [360, 800])
def test_narrow_screens_stack_the_panes(show: Show, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    root = show(av.Dashboard(record()))
    model, head, matrix = (rect(root.locator(selector)) for selector in PICTURES)
    assert model["bottom"] <= min(head["top"], matrix["top"])
    assert (head["bottom"] <= matrix["top"]) == (width == 360)
