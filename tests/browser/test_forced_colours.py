"""Test forced colours: legends keep their colours, and choices have outlines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser import embedding_pages

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show

TOKENS = "The cat sat on the mat . The cat".split()
VIEWS = ["head", "matrix", "model", "neuron", "dashboard", "compare", "one head", "all heads"]


def made(name: str, **traits: Any) -> Any:
    def vectors(seed: int) -> torch.Tensor:
        return 2 * torch.randn(3, 4, 9, 16, generator=torch.Generator().manual_seed(seed))

    if name == "one head":
        corpus = embedding_pages.prose()
        return av.EmbeddingView(corpus, layer=1, heads=[2], enlarged=True, **traits)
    if name == "all heads":
        return av.EmbeddingView(embedding_pages.prose(), **traits)
    record = av.AttentionRecord.from_qk(vectors(0), vectors(1), TOKENS, causal=True, model="made")
    views: dict[str, Any] = {
        "head": av.HeadView,
        "matrix": av.MatrixView,
        "model": av.ModelView,
        "neuron": av.NeuronView,
        "dashboard": av.show_dashboard,
        "compare": av.CompareView,
    }
    shown = av.compare(record, record) if name == "compare" else record
    return views[name](shown, layer=1, heads=[2], token=5, key=1, **traits)


FORCED = """(element) => {
  const style = getComputedStyle(element);
  return { background: style.backgroundColor, image: style.backgroundImage, ink: style.color,
           outline: style.outlineStyle, width: parseFloat(style.outlineWidth) };
}"""


@pytest.mark.parametrize("name", VIEWS)
def test_forced_colours_keep_legends_and_outline_choices(show: Show, page: Page, name: str) -> None:
    page.emulate_media(forced_colors="active", color_scheme="dark")
    root = show(made(name, theme="light"))
    expect(root).to_have_attribute("data-theme", "dark")
    canvas = page.evaluate(
        "() => { document.body.style.background = 'Canvas';"
        " return getComputedStyle(document.body).backgroundColor }"
    )
    swatches = root.locator(".av-dash, .av-dot, .av-square, .av-patch")
    scales = root.locator(".av-ramp")
    assert swatches.count() + scales.count() > 0
    for swatch in swatches.all():
        assert swatch.evaluate(FORCED)["background"] != canvas
    for scale in scales.all():
        assert "gradient" in scale.evaluate(FORCED)["image"]
    # A chosen control differs from the others by an outline or a background, not only by bold type.
    pairs = {
        ".av-head[aria-pressed=true] canvas": ".av-head[aria-pressed=false] canvas",
        ".av-step[aria-pressed=true]": ".av-step[aria-pressed=false]",
        ".av-token[aria-pressed=true]": ".av-token[aria-pressed=false]",
        ".av-segments [aria-pressed=true]": ".av-segments [aria-pressed=false]",
        ".av-grid-cell[aria-selected=true]": ".av-grid-cell:not([aria-selected])",
    }
    num_pairs = 0
    for chosen, other in pairs.items():
        if root.locator(chosen).count() == 0 or root.locator(other).count() == 0:
            continue
        num_pairs += 1
        one, two = (root.locator(each).first.evaluate(FORCED) for each in (chosen, other))
        outlined = one["outline"] == "solid" and one["width"] >= 2 and two["outline"] == "none"
        assert outlined or one["background"] != two["background"], (chosen, one, two)
    assert num_pairs > 0 or name == "all heads"
