"""Test image patches as token labels and weights over the image on exported pages."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pypdf
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from playwright.sync_api import expect

import attnviz as av
from attnviz.record import PatchGrid
from attnviz.record.attention import StoredWeights
from browser.pages import SVG, figure, overflow, texts
from unit.records import shares

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page, Position

    from browser.pages import Show

ROWS, COLUMNS = 2, 3
# A distinct colour for each patch that no other part of the page has.
COLORS = np.array(
    [
        [(250, 30, 60), (20, 130, 250), (40, 170, 30)],
        [(250, 190, 10), (150, 40, 220), (10, 200, 200)],
    ],
    np.uint8,
)
# Weights from [CLS] to itself and to the patches, row by row.
WEIGHTS = np.array([0.3, 0.25, 0.0, 0.05, 0.1, 0.2, 0.1], np.float32)
FIRST_HEAD = (0xB8, 0x48, 0x12)
# An opacity in a figure is one of 256 numbers, rounded to three digits.
ROUNDING = 0.5 / 255 + 0.0005
# A page also rounds a weight, and the largest weight 0.25, to 256 numbers from 0 to 1.
PAGE_ROUNDING = ROUNDING + 2 * 0.9 * (0.5 / 255) / 0.25


def small_record(image: NDArray[np.uint8]) -> av.AttentionRecord:
    """Return a record of [CLS] and 2 x 3 patches with fixed weights of [CLS] and random others."""
    names = ["[CLS]", *(f"{row},{column}" for row in range(ROWS) for column in range(COLUMNS))]
    tokens = av.Tokens(
        text=tuple(names),
        special=(True, *[False] * 6),
        sequence=(None, *[0] * 6),
        grids=(PatchGrid(image=0, start=1, rows=ROWS, columns=COLUMNS),),
    )
    weights = shares(2, 7, 7)
    weights[:, 0] = WEIGHTS
    stack = av.AttentionStack("self", {0: StoredWeights(torch.from_numpy(weights))}, tokens)
    return av.AttentionRecord({"self": stack}, model="patches", images=[image])


@pytest.fixture(scope="module")
def colored() -> av.AttentionRecord:
    """Return a record whose patches have distinct colours."""
    return small_record(COLORS.repeat(20, axis=0).repeat(20, axis=1))


def pixels_of(canvas: Locator) -> NDArray[np.uint8]:
    """Return the RGBA pixels of a canvas as an array of shape (height, width, 4)."""
    # Base64 is faster than an array of millions of numbers, which would take seconds.
    height, width, values = canvas.evaluate(
        """canvas => {
          const { width, height } = canvas;
          const { buffer } = canvas.getContext("2d").getImageData(0, 0, width, height).data;
          return [height, width, new Uint8Array(buffer).toBase64()];
        }"""
    )
    return np.frombuffer(base64.b64decode(values), np.uint8).reshape(height, width, 4)


def panel(root: Locator) -> Locator:
    return root.locator(".av-image .av-plot")


def says(root: Locator, text: str) -> None:
    """Check the accessible name of the panel, which repeats the text on its canvas."""
    expect(panel(root)).to_have_attribute("aria-label", re.compile(re.escape(text)))


def image_box(root: Locator) -> tuple[int, int, int, int]:
    """Return the left, top, right and bottom of the first image: the opaque part of the panel."""
    opaque = pixels_of(root.locator(".av-image .av-front"))[:, :, 3] == 255
    # No row of text has fifty opaque pixels side by side.
    top = int(np.flatnonzero(opaque[:, 3:53].all(axis=1))[0])
    bottom = top + first_gap(opaque[top:, 20])
    # The outer half pixel of the frame is not opaque.
    return 0, top, 3 + first_gap(opaque[(top + bottom) // 2, 3:]), bottom


def first_gap(line: NDArray[np.bool_]) -> int:
    return int(np.argmin(np.append(line, False)))


def middle_of_patch(root: Locator, row: int, column: int) -> tuple[float, float]:
    left, top, right, bottom = image_box(root)
    x = left + (column + 0.5) * (right - left) / COLUMNS
    return x, top + (row + 0.5) * (bottom - top) / ROWS


def at_patch(root: Locator, row: int, column: int) -> Position:
    x, y = middle_of_patch(root, row, column)
    return {"x": x, "y": y}


def test_both_columns_show_the_patches_in_the_order_of_the_tokens(
    show: Show, colored: av.AttentionRecord
) -> None:
    root = show(av.HeadView(colored))
    canvas = pixels_of(root.locator(".av-plot").first.locator(".av-front"))
    across, along = 1, 0
    centers = []
    for color in COLORS.reshape(-1, 3):
        pixels = np.argwhere((canvas[:, :, :3] == color).all(-1) & (canvas[:, :, 3] == 255))
        middle = pixels[:, across].mean()
        sides = [pixels[pixels[:, across] < middle], pixels[pixels[:, across] > middle]]
        # Both labels have the same size, at least 20 x 20 pixels.
        assert [len(side) for side in sides] == [len(sides[0])] * 2
        assert len(sides[0]) >= 400
        assert_allclose(sides[0][:, along].mean(), sides[1][:, along].mean(), atol=0.5)
        centers.append(sides[0][:, along].mean())
    steps = np.diff(centers)
    assert (steps > 20).all()
    assert_allclose(steps, steps[0], atol=1)


def test_opacity_over_the_image_follows_the_weight(show: Show) -> None:
    picture = np.full((40, 60, 3), (90, 160, 40), np.uint8)
    root = show(av.HeadView(small_record(picture), heads=[0], token=0))
    canvas = pixels_of(root.locator(".av-image .av-front"))
    # The grey value of the colour by Rec. 709, drawn with 22% of its contrast on white.
    luma = 0.2126 * 90 + 0.7152 * 160 + 0.0722 * 40
    grey = 0.22 * luma + 0.78 * 255
    for patch, weight in enumerate(WEIGHTS[1:]):
        x, y = middle_of_patch(root, *divmod(patch, COLUMNS))
        opacity = 0.9 * weight / 0.25
        expected = [(1 - opacity) * grey + opacity * color for color in FIRST_HEAD]
        assert_allclose(canvas[int(y), int(x), :3], expected, atol=3)
    says(root, "70% on the image, 30% on “[CLS]”. Most on “patch 0,0”, 0.25")


def test_a_click_or_a_key_on_a_patch_chooses_it_as_the_query(
    show: Show, page: Page, colored: av.AttentionRecord
) -> None:
    root = show(av.HeadView(colored, heads=[1]))
    says(root, "Attention received: the mean over all 7 queries")
    panel(root).click(position=at_patch(root, 1, 1))
    expect(page).to_have_url(re.compile("token=5"))
    says(root, "Weights of “patch 1,1” on the image")
    expect(root.locator(".av-sentence")).to_contain_text("“patch 1,1” attends most to")
    panel(root).click(position=at_patch(root, 1, 1))
    says(root, "Attention received")
    # The first key press only shows the cursor. The cursor stops at the edges.
    panel(root).focus()
    for key in ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "Enter"]:
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("token=6"))


def test_a_matrix_has_patches_on_both_sides_and_shows_the_row_under_the_pointer(
    show: Show, page: Page, colored: av.AttentionRecord
) -> None:
    root = show(av.MatrixView(colored, heads=[0]))
    plot = root.locator(".av-plot").first
    canvas = pixels_of(plot.locator(".av-front"))
    boxes = []
    for color in COLORS.reshape(-1, 3):
        pixels = np.argwhere((canvas[:, :, :3] == color).all(-1) & (canvas[:, :, 3] == 255))
        above, beside = pixels[pixels[:, 0] < pixels[:, 0].mean()], pixels
        beside = pixels[pixels[:, 0] > above[:, 0].max()]
        assert min(len(above), len(beside)) >= 400
        boxes.append((above[:, 1].mean(), beside[:, 0].mean()))
    across, down = np.diff(np.array(boxes), axis=0).T
    assert_allclose(across, 40, atol=1)
    assert_allclose(down, 40, atol=1)
    # The cell of query [CLS] and key "patch 0,2".
    plot.hover(position={"x": boxes[2][0], "y": boxes[0][1] - 40})
    says(root, "Weights of “[CLS]” on the image")
    panel(root).click(position=at_patch(root, 1, 0))
    expect(page).to_have_url(re.compile("token=4"))


@pytest.mark.parametrize("view", ["HeadView", "MatrixView"])
def test_figures_contain_the_patches_and_vector_weights_over_the_image(
    show: Show, colored: av.AttentionRecord, view: str
) -> None:
    root = show(getattr(av, view)(colored, heads=[0], token=0))
    svg = figure(root)
    images = svg.findall(f".//{SVG}image")
    # One picture per patch on each side, the grey image below the weights, and the image itself.
    assert len(images) == 2 * ROWS * COLUMNS + 2
    assert all(image.get("href", "").startswith("data:image/png;base64,") for image in images)
    assert "Weights of “[CLS]” on the image" in texts(svg)
    # Weights are vector shapes that an editor can change: one per patch with weight.
    heat = [shape for shape in svg.iter(f"{SVG}rect") if shape.get("fill-opacity")]
    color = f"rgb({','.join(map(str, FIRST_HEAD))})" if view == "HeadView" else None
    opacities = [float(shape.get("fill-opacity", 0)) for shape in heat if heat_of(shape, color)]
    expected = [0.9 * weight / 0.25 for weight in WEIGHTS[1:] if weight > 0]
    assert_allclose(sorted(opacities)[: len(expected)], sorted(expected), atol=PAGE_ROUNDING)


def heat_of(rect: ET.Element, color: str | None) -> bool:
    """Return whether a rectangle is a patch. Steps of the colour scale are only 9 pixels high."""
    return float(rect.get("height", 0)) > 20 and color in (None, rect.get("fill"))


def heats_of(svg: ET.Element, rows: int, columns: int) -> NDArray[np.float64]:
    """Return the opacity over each patch of the maps of an SVG, shape (map, row, column)."""
    groups = [g for g in svg.iter(f"{SVG}g") if g.get("shape-rendering") == "crispEdges"]
    images = [*svg.iter(f"{SVG}image")]
    # Rows of small maps begin with the image in its own colours.
    grey = images[-1].get("href")
    images = [image for image in images if image.get("href") == grey]
    heats = np.zeros((len(images), rows, columns))
    for heat, image, group in zip(heats, images, groups, strict=True):
        x, y, width, height = (float(image.get(name, "")) for name in ("x", "y", "width", "height"))
        for rect in group:
            left, top, wide = (float(rect.get(name, "")) for name in ("x", "y", "width"))
            # One rectangle covers neighbours in a row that have the same opacity.
            start, stop = (round((at - x) / width * columns) for at in (left, left + wide))
            heat[round((top - y) / height * rows), start:stop] = float(rect.get("fill-opacity", ""))
    return heats


@pytest.mark.parametrize("content", ["image", "layers"])
@pytest.mark.parametrize("pins", [{"token": 0}, {"key": 10}, {}], ids=["query", "key", "mean"])
def test_a_figure_of_the_image_has_a_row_of_heads_with_the_weights_of_the_model(
    content: Literal["image", "layers"], pins: dict[str, int]
) -> None:
    model, processor = av.demos.load("vision")
    inputs = av.demos.example("vision")["inputs"]
    record = av.extract(model, inputs, processor=processor)
    heads = [1, 3]
    view = av.HeadView(record, layer=2, heads=heads, **pins)
    svg = ET.fromstring(view.to_svg(content=content, width="84mm"))  # noqa: S314 - our own
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attention = model(**processor(inputs, return_tensors="pt"), output_attentions=True)
    layers = [2] if content == "image" else list(range(len(attention.attentions)))
    weights = np.stack([attention.attentions[layer][0, heads].numpy() for layer in layers], axis=1)
    # Token 0 is [CLS]. The others are the patches, row by row.
    if "key" in pins:
        on_patches = weights[..., 1:, 10]
    else:
        on_patches = (weights[..., 0, :] if pins else weights.mean(-2))[..., 1:]
    opacities = 0.9 * on_patches / on_patches.max()
    # The weights equal those of the model to 1e-4.
    atol = ROUNDING + 2 * 1e-4 / on_patches.max()
    assert_allclose(heats_of(svg, 8, 8), opacities.reshape(-1, 8, 8), atol=atol)
    names = [f"head {head}" for head in heads]
    if content == "layers":
        names = [f"layer {layer}, {name}" for layer in layers for name in names]
        # The caption names the map with the largest weight.
        head, layer, patch = np.unravel_index(on_patches.argmax(), on_patches.shape)
        row, column = divmod(int(patch), 8)
        named = f"layer {layer}, head {heads[head]}, “patch {row},{column}”"
        assert f"Largest weight: {named}, {on_patches.max():.3f}." in words(svg)
    assert all(name in words(svg) for name in names)
    # Without the plot, there are no labels of its columns.
    assert not {"query", "key"} & {*texts(svg)}


def words(svg: ET.Element) -> str:
    """Return all texts of an SVG as one line."""
    return " ".join(" ".join(texts(svg)).split())


WORDS = ["<start>", "red", "cat", "<end>"]
#: Weights of each patch on the words, row by row.
ON_WORDS = np.array(
    [
        [0.5, 0.1, 0.3, 0.1],
        [0.4, 0.4, 0.1, 0.1],
        [0.3, 0.1, 0.5, 0.1],
        [0.6, 0.2, 0.1, 0.1],
        [0.1, 0.1, 0.7, 0.1],
        [0.2, 0.6, 0.1, 0.1],
    ],
    np.float32,
)


@pytest.fixture(scope="module")
def words_record() -> av.AttentionRecord:
    """Return a record whose queries are patches and whose keys are words."""
    grid = PatchGrid(image=0, start=0, rows=ROWS, columns=COLUMNS)
    patches = av.Tokens(text=grid.names(), special=(False,) * 6, sequence=(0,) * 6, grids=(grid,))
    keys = av.Tokens(
        text=tuple(WORDS), special=(True, False, False, True), sequence=(None, 0, 0, None)
    )
    # The second head has the same weights in the opposite order of words.
    weights = np.stack([ON_WORDS, ON_WORDS[:, ::-1]])
    layers = {0: StoredWeights(torch.from_numpy(weights.copy()))}
    stack = av.AttentionStack("cross", layers, patches, keys)
    image = COLORS.repeat(20, axis=0).repeat(20, axis=1)
    return av.AttentionRecord({"cross": stack}, model="diffusion", images=[image])


@pytest.mark.parametrize("kind", [av.HeadView, av.MatrixView])
def test_words_have_a_map_of_the_patches_that_attend_to_them(
    show: Show, page: Page, words_record: av.AttentionRecord, kind: type[av.HeadView]
) -> None:
    root = show(kind(words_record, heads=[0]))
    # Without a chosen word there is a map of each word that is not special.
    says(root, "Weights on each word from each patch. Largest weight: “cat”, “patch 1,1”, 0.")
    panel(root).focus()
    for key in ["ArrowRight", "ArrowRight", "Enter"]:
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("key=2"))
    says(root, "Weights on “cat” from each patch. Most from “patch 1,1”, 0.")
    # The image of the words begins at the left, as one large map does.
    panel(root).click(position=at_patch(root, 1, 2))
    expect(page).to_have_url(re.compile("token=5"))
    says(root, "Weights on “cat” from each patch")
    panel(root).press("Escape")
    says(root, "Weights on each word from each patch")


@pytest.mark.parametrize("width", ["84mm", "160mm"])
@pytest.mark.parametrize(
    ("options", "names", "columns"),
    [
        ({}, ["red", "cat"], [(0, 1), (0, 2)]),
        ({"key": "cat"}, ["head 0"], [(0, 2)]),
        ({"key": "cat", "maps": "heads"}, ["head 0", "head 1"], [(0, 2), (1, 2)]),
    ],
    ids=["words", "word", "heads"],
)
def test_a_figure_of_words_has_the_weights_of_patches_on_them(
    words_record: av.AttentionRecord,
    options: dict[str, Any],
    names: list[str],
    columns: list[tuple[int, int]],
    width: str,
) -> None:
    view = av.HeadView(words_record, heads=[0], **options)
    svg = ET.fromstring(view.to_svg(content="image", width=width))  # noqa: S314 - our own
    weights = words_record.stack().weights(layer=0)
    expected = np.stack([weights[head, :, word] for head, word in columns])
    opacities = 0.9 * expected / expected.max()
    assert_allclose(
        heats_of(svg, ROWS, COLUMNS), opacities.reshape(-1, ROWS, COLUMNS), atol=ROUNDING
    )
    shown = texts(svg)
    assert [name for name in shown if name in names] == names


def test_the_joined_tiles_are_open_if_a_small_picture_is_first(show: Show) -> None:
    small = PatchGrid(image=0, start=0, rows=1, columns=2, name="small")
    tiles = PatchGrid(image=1, start=2, rows=ROWS, columns=COLUMNS, gap=1)
    names = [*small.names(), "0,0", "0,1", "0,2", "[newline]", "1,0", "1,1", "1,2", "word"]
    tokens = av.Tokens(
        text=tuple(names), special=(False,) * 10, sequence=(0,) * 10, grids=(small, tiles)
    )
    layers = {0: StoredWeights(torch.from_numpy(shares(1, 10, 10)))}
    images = [np.full((20, 40, 3), 90, np.uint8), np.full((40, 60, 3), 160, np.uint8)]
    stack = av.AttentionStack("self", layers, tokens)
    record = av.AttentionRecord({"self": stack}, model="tiles", images=images)
    root = show(av.MatrixView(record, token=9))
    expect(root.get_by_role("combobox", name="Image")).to_have_value("1")
    says(root, "Weights of “word” on image 1")


def test_a_click_on_a_small_map_chooses_its_head(show: Show, page: Page) -> None:
    record = small_record(np.full((40, 60, 3), 128, np.uint8))
    root = show(av.HeadView(record, heads=[0], token=0, maps="heads"))
    says(root, "Weights of “[CLS]” on the image. Between")
    box = panel(root).bounding_box()
    assert box
    # The image in its own colours is first, then the maps of heads 0 and 1.
    panel(root).click(position={"x": box["width"] - 20, "y": 70})
    expect(page).to_have_url(re.compile("heads=1(&|$)"))
    root.get_by_label("Maps").select_option("chosen heads")
    says(root, "70% on the image, 30% on “[CLS]”")


@pytest.mark.parametrize("form", ["head", "matrix"])
def test_a_comparison_draws_both_members_and_their_difference_over_the_image(
    show: Show, form: str
) -> None:
    records = [small_record(np.full((40, 60, 3), grey, np.uint8)) for grey in (90, 160)]
    changed = shares(2, 7, 7)
    changed[:, 0] = WEIGHTS[::-1]
    tokens = records[1].tokens
    layers = {0: StoredWeights(torch.from_numpy(changed))}
    stack = av.AttentionStack("self", layers, tokens)
    other = av.AttentionRecord({"self": stack}, model="patches", images=list(records[1].images))
    comparison = av.compare(records[0], other, names=("dark", "bright"))
    root = show(av.CompareView(comparison, layer=0, heads=[0], token=0, form=form))
    panels = root.locator(".av-image .av-plot")
    expect(panels).to_have_count(3)
    change = WEIGHTS[::-1] - WEIGHTS
    patch = int(np.abs(change[1:]).argmax())
    sign, way = ("+", "more") if change[1 + patch] > 0 else ("−", "less")
    named = f"“patch {patch // COLUMNS},{patch % COLUMNS} of image 0”"
    largest = f"{named}, {sign}{abs(change[1 + patch]):.3f} ({way})"
    expect(panels.nth(2)).to_have_attribute("aria-label", re.compile(re.escape(largest)))
    expect(root).to_contain_text("Differences are drawn over the image of dark.")


def test_a_figure_of_all_layers_draws_at_most_100_images(colored: av.AttentionRecord) -> None:
    layers = {layer: StoredWeights(torch.from_numpy(shares(7, 7, 7))) for layer in range(15)}
    stack = av.AttentionStack("self", layers, colored.tokens)
    record = av.AttentionRecord({"self": stack}, images=list(colored.images))
    with pytest.raises(ValueError, match="105 images, more than 100"):
        av.HeadView(record, heads=list(range(7)), token=0).to_svg(content="layers")


@pytest.mark.parametrize("size", [(1200, 800), (300, 900)])
@pytest.mark.parametrize("width", [84, 160])
def test_images_of_a_figure_have_their_aspect_ratio_and_fit_its_width(
    size: tuple[int, int], width: int
) -> None:
    across, down = size
    record = small_record(np.full((down, across, 3), 128, np.uint8))
    view = av.MatrixView(record, heads=[0], token=0)
    svg = ET.fromstring(view.to_svg(content="image", width=f"{width}mm"))  # noqa: S314 - our own
    [image] = svg.iter(f"{SVG}image")
    wide, high = (float(image.get(side, "")) for side in ("width", "height"))
    assert wide / high == pytest.approx(across / down, rel=1e-3)
    room = width / 25.4 * 96
    # A portrait is at most 600 layout pixels high, each a tenth of the text size (8 points).
    most = room if across > down else min(room, 600 / 10 * 8 * 96 / 72 * across / down)
    assert 0.97 * most < wide <= most
    # Row by row, the weights of [CLS] on the patches.
    assert_allclose(heats_of(svg, ROWS, COLUMNS).ravel(), 0.9 * WEIGHTS[1:] / 0.25, atol=ROUNDING)


def test_a_pdf_of_the_image_is_one_page_with_a_picture(
    tmp_path: Path, colored: av.AttentionRecord
) -> None:
    view = av.HeadView(colored, heads=[0, 1], token=0)
    look: dict[str, Any] = {"content": "image", "width": "84mm"}
    [page] = pypdf.PdfReader(view.save(tmp_path / "x.pdf", **look)).pages
    assert float(page.mediabox.width) == pytest.approx(84 / 25.4 * 72, abs=0.2)
    # Both heads use one grey image.
    assert len(page.images) == 1
    words = " ".join(page.extract_text().split())
    assert "Weights of “[CLS]” on the image" in words
    assert "70% on the image, 30% on “[CLS]”" in words
    assert view.save(tmp_path / "x.png", **look).read_bytes()[:4] == b"\x89PNG"


def test_a_figure_of_the_image_needs_an_image(colored: av.AttentionRecord) -> None:
    text = av.AttentionRecord.from_weights(shares(1, 1, 3, 3), list("abc"), model="m")
    layers = {0: StoredWeights(torch.from_numpy(shares(1, 7, 7)))}
    vision = av.AttentionStack("vision", layers, colored.tokens)
    stacks = {"vision": vision, "self": text.stack()}
    both = av.AttentionRecord(stacks, images=list(colored.images))
    for view, words in [
        (av.HeadView(text), "the record has none. Pass a model and inputs with an image"),
        (av.MatrixView(both, stack="self"), r'stack="self" has none. Pass stack="vision"'),
        (av.ModelView(colored), "for show_head_view and show_matrix_view"),
    ]:
        with pytest.raises(ValueError, match=f'content="image" .*{words}'):
            view.to_svg(content="image")


def test_the_export_menu_has_the_image_if_weights_are_shown_over_it(
    show: Show, page: Page, colored: av.AttentionRecord
) -> None:
    root = show(av.MatrixView(colored, heads=[0], token=0))
    root.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Picture of the image, SVG").click()
    svg = ET.parse(download.value.path()).getroot()  # noqa: S314 - our own
    assert len([*svg.iter(f"{SVG}image")]) == 1
    assert_allclose(
        heats_of(svg, ROWS, COLUMNS).ravel(), 0.9 * WEIGHTS[1:] / 0.25, atol=PAGE_ROUNDING
    )
    text = av.AttentionRecord.from_weights(shares(1, 1, 3, 3), list("abc"))
    root = show(av.MatrixView(text))
    root.get_by_role("button", name="Export").click()
    expect(page.get_by_role("menuitem", name="Picture, SVG")).to_be_visible()
    expect(page.get_by_role("menuitem", name="Picture of the image, SVG")).to_have_count(0)


@pytest.mark.parametrize("kind", [av.HeadView, av.MatrixView])
@pytest.mark.parametrize(("width", "is_beside"), [(640, False), (785, True), (1280, True)])
def test_the_image_is_at_least_400_pixels_wide_and_beside_a_legible_plot(
    show: Show, page: Page, width: int, is_beside: bool, kind: type[av.HeadView | av.MatrixView]
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    photo = np.full((800, 1200, 3), 128, np.uint8)
    root = show(kind(small_record(photo), heads=[0], token=0))
    left, top, right, bottom = image_box(root)
    assert right - left >= 400
    assert (right - left) / (bottom - top) == pytest.approx(1200 / 800, rel=0.01)
    assert overflow(root) == 0
    plot = root.locator(".av-plot").first.bounding_box()
    panel = root.locator(".av-image").bounding_box()
    assert plot
    assert panel
    assert (panel["x"] >= plot["x"] + plot["width"]) == is_beside
    assert plot["width"] >= 270
