"""Test printed views and forced colours: pictures with legends and settings, no controls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pypdfium2
import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser import embedding_pages

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
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


def printed(page: Page, folder: Path) -> tuple[str, list[NDArray[np.int64]]]:
    """Print without backgrounds. Return the text and the pixels that PDFium renders."""
    path = folder / "printed.pdf"
    page.pdf(path=path, format="A4")
    document = pypdfium2.PdfDocument(path)
    text = "\n".join(sheet.get_textpage().get_text_range() for sheet in document)
    pages = [sheet.render(scale=1.5).to_pil().convert("RGB") for sheet in document]
    document.close()
    return text, [np.asarray(picture).astype(np.int64) for picture in pages]


def coloured(pixels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the pixels that are clearly not grey."""
    mask: NDArray[np.bool_] = pixels.max(axis=-1) - pixels.min(axis=-1) > 40
    return mask


def longest_run(row: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


@pytest.mark.parametrize("name", VIEWS)
def test_paper_is_white_with_the_whole_picture_and_its_legend_in_both_themes(
    show: Show, page: Page, tmp_path: Path, name: str
) -> None:
    show(made(name, theme="light"))
    text, pages = printed(page, tmp_path)
    for control in ("Export", "Heads by", "Lines", "Find token", "Lasso", "scale to"):
        assert control not in text
    if name not in ("all heads", "one head"):
        assert "self-attention · layer 1 · head 2 · query “mat” (5) · key “cat” (1)" in text
    ink = [255 - picture.min(axis=-1) for picture in pages]
    for darkness in ink:
        # Most pixels are white, and nothing is cut off at the left and right edges of the paper.
        assert np.median(darkness) < 30
        assert darkness[:, :8].max() == 0
        assert darkness[:, -8:].max() == 0
    assert sum(coloured(picture).sum() for picture in pages) > 300
    # Below the picture is a legend with coloured swatches or a colour scale, not only a frame.
    rows = np.flatnonzero(ink[-1].max(axis=1) > 60)
    legend = slice(int(rows[-1]) - 130, int(rows[-1]) + 1)
    runs = [longest_run(row > 40) for row in ink[-1][legend]]
    assert coloured(pages[-1][legend]).sum() > 60 or sum(run > 60 for run in runs) > 5

    root = show(made(name, theme="dark"))
    _, pages_of_dark = printed(page, tmp_path)
    for light, dark in zip(pages, pages_of_dark, strict=True):
        # The edges of shapes may differ slightly between the two prints.
        assert (np.abs(dark - light).max(axis=-1) > 100).mean() < 0.002
    # Printing does not change the page on the screen.
    expect(root).to_have_attribute("data-theme", "dark")
    expect(root.get_by_role("button", name="Export").first).to_be_visible()
    assert root.locator("canvas").evaluate_all(
        "(all) => all.every((each) => each.style.display !== 'none')"
    )


def test_bars_at_the_right_end_are_on_the_paper(show: Show, page: Page, tmp_path: Path) -> None:
    """Print a picture whose bars, at the width of the screen, lie beyond the edge of the paper."""
    weights = torch.zeros(1, 3, 4, 4)
    weights[..., 3] = 1
    record = av.AttentionRecord.from_weights(weights, list("abcd"))
    view = av.HeadView(record, heads=[0, 1, 2], token=0, theme="light")
    root = show(view)
    _, pages = printed(page, tmp_path)
    colors = root.locator(".av-dash").evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each).backgroundColor.match(/\\d+/g))"
    )
    assert len(colors) == 3
    for color in colors:
        near = np.abs(pages[0] - np.array([int(part) for part in color])).max(axis=-1) < 24
        # The bar of a weight of 1 has more pixels than the dash of its colour in the legend.
        assert near.sum() > 150


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
    swatches = root.locator(".av-dash, .av-dot, .av-square, .av-patch, .av-strip-legend i")
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
