"""Test views in VS Code's widget manager: transport, traits, and contrast of text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.accessibility import check
from browser.hosts import VIEWS, record
from browser.vscode import THEMES, VSCode

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from browser.vscode import Theme


@pytest.fixture
def vscode(page: Page, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[VSCode]:
    with VSCode(page, getattr(request, "param", THEMES[0]), tmp_path) as vscode:
        yield vscode


def test_a_live_view_is_drawn_and_traits_change_in_both_directions(vscode: VSCode) -> None:
    view = vscode.show(lambda: av.HeadView(record(), layer=0))
    root = vscode.root
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    expect(root).to_have_attribute("data-attnviz-state", "ready")
    assert {"describe", "read"} <= set(vscode.requested), vscode.requested
    root.get_by_role("button", name="Layer 2").click()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:2")
    assert view.layer == 2
    view.layer = 1
    vscode.deliver()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    expect(root.get_by_role("button", name="Layer 1")).to_have_attribute("aria-pressed", "true")


BY_NAME = {view.class_name: view for view in VIEWS}
# One view in every theme, and other views in the theme with the most demanding colours.
CASES = [("HeadView", theme) for theme in THEMES] + [
    (name, THEMES[0]) for name in ("MatrixView", "ModelView", "NeuronView", "AtlasView")
]


@pytest.mark.parametrize(
    ("name", "vscode"),
    CASES,
    indirect=["vscode"],
    ids=[f"{name} {theme.kind}" for name, theme in CASES],
)
def test_texts_are_legible_in_every_theme(vscode: VSCode, name: str) -> None:
    theme: Theme = vscode.theme
    vscode.show(lambda: BY_NAME[name].widget(record(), layer=0))
    root = vscode.root
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("self:0"))
    expect(root).to_have_attribute("data-theme", "dark" if theme.is_dark else "light")
    check(root)
    # The background is that of the editor, not the white of the extension.
    red, green, blue = (int(theme.background[i : i + 2], 16) for i in (1, 3, 5))
    expect(root).to_have_css("background-color", f"rgb({red}, {green}, {blue})")
