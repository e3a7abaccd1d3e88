"""Test views in VS Code's widget manager: transport, traits, and contrast of text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.hosts import VIEWS, record
from browser.vscode import THEMES, VSCode

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.vscode import Theme

# Minimum contrast of WCAG 2 (level AA) for text of this size.
MIN_CONTRAST = 4.5


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the WCAG 2 contrast ratio of two RGB colours with channels from 0 to 255."""

    def luminance(color: tuple[float, ...]) -> float:
        linear = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for c in (channel / 255 for channel in color)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.fixture
def vscode(page: Page, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[VSCode]:
    with VSCode(page, getattr(request, "param", THEMES[0]), tmp_path) as vscode:
        yield vscode


def test_a_live_view_is_drawn_and_traits_change_in_both_directions(vscode: VSCode) -> None:
    view = vscode.show(lambda: av.HeadView(record(), layer=0))
    root = vscode.root
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    expect(root).to_have_attribute("data-attnviz-state", "ready")
    assert {"describe", "block"} <= set(vscode.requested), vscode.requested
    root.get_by_role("button", name="Layer 2").click()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:2")
    assert view.layer == 2
    view.layer = 1
    vscode.deliver()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    expect(root.get_by_role("button", name="Layer 1")).to_have_attribute("aria-pressed", "true")


# Every text in the view with its colour and its background, blended from transparent layers.
COLOURS = r"""(root) => {
  const behind = (element) => {
    const [red, green, blue, opacity = 1] = getComputedStyle(element)
      .backgroundColor.match(/[\d.]+/g).map(Number);
    const above = opacity < 1 ? element.parentElement : null;
    const below = above ? behind(above) : [255, 255, 255];
    return [red, green, blue].map((value, i) => value * opacity + below[i] * (1 - opacity));
  };
  const words = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const texts = [];
  for (let node = words.nextNode(); node; node = words.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("style, option, .av-unseen, :disabled")) continue;
    if (!element.checkVisibility()) continue;
    texts.push([node.data.trim(), getComputedStyle(element).color, `rgb(${behind(element)})`]);
  }
  return texts;
}"""

# The 40 most frequent opaque colours of a canvas.
PIXELS = """(canvas) => {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const counts = new Map();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] !== 255) continue;
    const color = [data[i], data[i + 1], data[i + 2]].join();
    counts.set(color, (counts.get(color) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, 40).map(([color]) => color);
}"""


def rgb(text: str) -> tuple[float, ...]:
    return tuple(float(channel) for channel in re.findall(r"[\d.]+", text)[:3])


def pale_texts(root: Locator) -> list[str]:
    """Return the texts of a view whose contrast with their background is too low."""
    colours = root.evaluate(COLOURS)
    assert len(colours) > 10
    return [text for text, ink, ground in colours if contrast(rgb(ink), rgb(ground)) < MIN_CONTRAST]


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
    assert not pale_texts(root)
    # The background is that of the editor, not the white of the extension.
    ground = rgb(root.evaluate("(root) => getComputedStyle(root).backgroundColor"))
    assert ground == tuple(int(theme.background[i : i + 2], 16) for i in (1, 3, 5))
    # The strongest painted colour, such as that of the tokens, contrasts with the background.
    painted = root.locator("canvas.av-back, canvas").first.evaluate(PIXELS)
    assert max(contrast(rgb(color), ground) for color in painted) >= MIN_CONTRAST


@pytest.mark.parametrize(
    ("vscode", "theme", "background"),
    [(THEMES[0], "light", "rgb(255, 255, 255)"), (THEMES[1], "dark", "rgb(23, 25, 30)")],
    indirect=["vscode"],
    ids=["light", "dark"],
)
def test_the_theme_of_the_view_overrides_that_of_the_host(
    vscode: VSCode, theme: str, background: str
) -> None:
    vscode.show(lambda: av.HeadView(record(), layer=0, theme=theme))
    expect(vscode.root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    assert not pale_texts(vscode.root)
    expect(vscode.root).to_have_css("background-color", background)
