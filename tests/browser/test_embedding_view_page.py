"""The embedding view on exported pages: points lie where the vectors say, and can be reached."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

from attnviz.embedding.view import EmbeddingView
from browser.accessibility import check
from unit.made_corpora import corpus, with_vectors

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

# Uncorrelated and about zero: principal components turn them over at most.
QUERIES = np.array([(6, 0), (-6, 0), (0, 3), (0, -3), (4, 2), (-4, 2)], dtype=np.float32)
KEYS = np.array([(4, -2), (-4, -2), (1, 1), (-1, 1), (1, -1), (-1, -1)], dtype=np.float32)
AS_THEY_ARE: dict[str, Any] = {"scaling": "none", "translate": False, "lift": False}

# Dots of the canvas that points are on: their middles and their colours.
DOTS = """(canvas) => {
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const dots = [];
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] < 150) continue;
    const [x, y] = [(i / 4) % width, Math.floor(i / 4 / width)];
    let dot = dots.find((one) => Math.hypot(one.x / one.n - x, one.y / one.n - y) < 14);
    if (!dot) dots.push((dot = { x: 0, y: 0, n: 0, red: 0, blue: 0 }));
    dot.x += x; dot.y += y; dot.n += 1; dot.red += data[i]; dot.blue += data[i + 2];
  }
  const scale = width / canvas.clientWidth;
  return dots.map(({ x, y, n, red, blue }) => [x / n / scale, y / n / scale, red / n, blue / n]);
}"""

# How many pixels of a canvas have any ink.
INKED = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 3; i < data.length; i += 4) if (data[i] > 0) count += 1;
  return count;
}"""


def opened(page: Page, view: EmbeddingView, folder: Path, **options: Any) -> Locator:
    path = view.save(folder / "view.html", **options)
    page.goto(path.as_uri())
    root = page.locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^embedding:"))
    return root


def drawn(root: Locator, place: str) -> None:
    expect(root).to_have_attribute("data-attnviz-drawn", f"embedding:self:{place}")


def tile(root: Locator, layer: int, head: int) -> Locator:
    return root.get_by_role("gridcell", name=re.compile(rf"^layer {layer}, head {head}(,|$)"))


def middle(plot: Locator) -> tuple[float, float]:
    box = plot.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def plane() -> EmbeddingView:
    made = with_vectors(torch.from_numpy(QUERIES)[None], torch.from_numpy(KEYS)[None], [6])
    return EmbeddingView(made, enlarged=True, heads=[0], **AS_THEY_ARE)


def test_points_lie_as_far_apart_as_their_vectors(page: Page, tmp_path: Path) -> None:
    root = opened(page, plane(), tmp_path)
    plot = root.locator(".av-plot")
    dots = plot.locator(".av-back").evaluate(DOTS)
    assert len(dots) == 12
    box = plot.bounding_box()
    assert box is not None
    vectors, places = [], []
    for x, y, red, blue in dots:
        page.mouse.move(box["x"] + x, box["y"] + y)
        expect(root.locator(".av-hint")).to_be_visible()
        said = re.match(r"(query|key) “t(\d+)”", root.locator(".av-hint").inner_text())
        assert said is not None
        assert (red > blue) == (said[1] == "query")
        vectors.append((QUERIES if said[1] == "query" else KEYS)[int(said[2])])
        places.append((x, y))
        page.mouse.move(box["x"] + 2, box["y"] + 2)
        expect(root.locator(".av-hint")).to_have_count(0)
    assert len({tuple(each) for each in vectors}) == 12

    def apart(points: Any) -> np.ndarray:
        each = np.asarray(points, dtype=float)
        away: np.ndarray = np.hypot(*(each[:, None] - each[None]).transpose(2, 0, 1))
        return away

    between = ~np.eye(12, dtype=bool)
    scales = apart(places)[between] / apart(vectors)[between]
    # A pixel of 45 that the nearest two are apart, and 16 bits of the page.
    np.testing.assert_allclose(scales, np.median(scales), rtol=0.03)


def test_a_chosen_query_shows_its_text_and_its_lines(page: Page, tmp_path: Path) -> None:
    root = opened(page, plane(), tmp_path, top_keys=5)
    plot = root.locator(".av-plot")
    front = plot.locator(".av-front")
    before = front.evaluate(INKED)
    plot.focus()
    page.keyboard.press("ArrowRight")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(root.locator(".av-sentence")).to_contain_text("position 5 of text 0, attends most to")
    assert front.evaluate(INKED) > before + 500
    said = re.search(r"to “t(\d+)”", root.locator(".av-sentence").inner_text())
    assert said is not None
    # Query 5 sees all keys: its logits are plain products, scaled by one.
    assert int(said[1]) in np.flatnonzero(KEYS @ QUERIES[5] == (KEYS @ QUERIES[5]).max())
    check(root)
    page.keyboard.press("Escape")
    expect(root.locator(".av-sentence")).not_to_contain_text("position 5")


def test_a_lasso_takes_what_lies_in_it(page: Page, tmp_path: Path) -> None:
    root = opened(page, plane(), tmp_path)
    plot = root.locator(".av-plot")
    box = plot.bounding_box()
    assert box is not None
    half = box["x"] + box["width"] / 2 - 20
    dots = plot.locator(".av-back").evaluate(DOTS)
    left = sum(1 for x, *_ in dots if box["x"] + x < half)
    root.get_by_role("button", name="Lasso").click()
    page.mouse.move(half, box["y"] + 4)
    page.mouse.down()
    for x, y in [
        (box["x"] + 4, box["y"] + 4),
        (box["x"] + 4, box["y"] + box["height"] - 4),
        (half, box["y"] + box["height"] - 4),
    ]:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()
    expect(root.locator(".av-embedding-selected")).to_have_text(f"{left} in the lasso ×")
    plot.focus()
    page.keyboard.press("Escape")
    expect(root.locator(".av-embedding-selected")).to_have_count(0)


def test_all_heads_are_drawn_with_how_far_to_trust_them(page: Page, tmp_path: Path) -> None:
    view = EmbeddingView(corpus([30, 25, 20]))
    root = opened(page, view, tmp_path)
    drawn(root, "all")
    assert root.get_by_role("gridcell").count() == 6
    rows = root.locator(".av-grid-row canvas")
    assert rows.count() == 2
    for row in range(2):
        assert rows.nth(row).evaluate(INKED) > 300
    for trust in view.trust():
        name = tile(root, trust["layer"], trust["head"]).get_attribute("aria-label") or ""
        said = re.search(r"correlation (−?)([\d.]+)", name)
        assert said is not None
        value = float(said[2]) * (-1 if said[1] else 1)
        assert value == pytest.approx(trust["plot_allowed"], abs=0.0051)
    check(root)


def test_the_wheel_and_keys_lead_into_a_head_and_out_again(page: Page, tmp_path: Path) -> None:
    root = opened(page, EmbeddingView(corpus([30, 25, 20])), tmp_path)
    tile(root, 1, 2).hover()
    page.keyboard.down("Control")
    for _ in range(3):
        page.mouse.wheel(0, -30)
    drawn(root, "1")
    expect(root.get_by_role("heading", name="Layer 1, head 2")).to_be_visible()
    page.mouse.move(*middle(root.locator(".av-plot")))
    for _ in range(4):
        page.mouse.wheel(0, 60)
    page.keyboard.up("Control")
    drawn(root, "all")

    root.get_by_role("grid").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    drawn(root, "0")
    # The keyboard goes along.
    expect(root.locator(".av-plot")).to_be_focused()
    page.keyboard.press(",")
    expect(root.get_by_role("heading", name="Layer 0, head 1")).to_be_visible()
    page.keyboard.press("Escape")
    drawn(root, "all")
    expect(root.get_by_role("grid")).to_be_focused()


def test_a_head_without_a_plot_says_why(page: Page, tmp_path: Path) -> None:
    queries = torch.from_numpy(np.stack([QUERIES, QUERIES]))
    keys = torch.from_numpy(np.stack([KEYS, np.full_like(KEYS, np.nan)]))
    root = opened(page, EmbeddingView(with_vectors(queries, keys, [6])), tmp_path)
    words = re.compile("finite numbers")
    expect(tile(root, 0, 1)).to_have_attribute("aria-label", words)
    tile(root, 0, 1).click()
    expect(root.locator(".av-embedding-problem")).to_have_text(words)
    drawn(root, "0")


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_width_and_theme(page: Page, tmp_path: Path, width: int, theme: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    root = opened(page, EmbeddingView(corpus([30, 25, 20]), theme=theme), tmp_path)
    for place in ("all", "0"):
        drawn(root, place)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        check(root)
        if place == "all":
            tile(root, 0, 0).click()
