"""Tests of figures for papers: width, legible texts, and files for other programs."""

from __future__ import annotations

import base64
import io
import json
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cairosvg
import numpy as np
import pypdf
import pypdfium2
import pytest
import resvg_py
from PIL import Image
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect
from scipy.signal import fftconvolve

import attnviz as av
from attnviz.pages import image
from attnviz.pages.figure import parse_figure_options
from attnviz.record import PatchGrid
from browser.pages import SVG, texts
from unit.long_records import long_record
from unit.records import HOSTILE, shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from playwright.sync_api import Page

    from attnviz.views.base import View

MM = 96 / 25.4

# Measure the texts of an SVG in the page: contents, size and corners.
MEASURE_TEXTS = """(svg) => {
  const holder = document.createElement("div");
  holder.style.cssText = "position: absolute; left: 0; top: 0";
  holder.innerHTML = svg;
  document.body.append(holder);
  const root = holder.querySelector("svg");
  const origin = root.getBoundingClientRect();
  const texts = [...root.querySelectorAll("text")].map((text) => {
    const box = text.getBBox();
    const matrix = text.getScreenCTM();
    const corner = (x, y) => {
      const point = new DOMPoint(x, y).matrixTransform(matrix);
      return [point.x - origin.x, point.y - origin.y];
    };
    // Letters reach neither the top nor the bottom of their line.
    const [top, bottom] = [box.y + 0.22 * box.height, box.y + 0.85 * box.height];
    const right = box.x + box.width;
    return {
      text: text.textContent,
      size: Number(text.getAttribute("font-size")),
      corners: [
        corner(box.x, top), corner(right, top), corner(right, bottom), corner(box.x, bottom),
      ],
    };
  });
  holder.remove();
  return { width: origin.width, height: origin.height, texts };
}"""


def svg_of(page: Page, view: View, folder: Path, **figure: Any) -> str:
    """Return the figure of `to_svg` without starting another browser."""
    options = parse_figure_options(figure)
    page.add_init_script(f"globalThis.attnvizFigure = {json.dumps(options.request)}")
    page.goto(view.save(folder / "view.html").as_uri())
    expect(page.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("."))
    return str(page.evaluate("() => document.querySelector('.attnviz').attnviz.svg()"))


def texts_of(view: View, **figure: Any) -> list[str]:
    return texts(ET.fromstring(view.to_svg(**figure)))  # noqa: S314 - our own


def overlap(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two rectangles, possibly rotated, overlap beyond a tolerance."""
    for corners in (one, other):
        for edge in (corners[1] - corners[0], corners[3] - corners[0]):
            length = float(np.hypot(*edge))
            if length == 0:
                return False
            across = edge / length
            a, b = one @ across, other @ across
            if a.max() < b.min() + 0.3 or b.max() < a.min() + 0.3:
                return False
    return True


def check_texts(page: Page, svg: str, width: float, points: float) -> None:
    """Check that all texts have the requested size, are inside the figure and do not overlap."""
    measured = page.evaluate(MEASURE_TEXTS, svg)
    assert measured["width"] == pytest.approx(width, abs=0.02)
    visible = [text for text in measured["texts"] if text["text"].strip()]
    corners = [np.array(text["corners"]) for text in visible]
    for text, corner in zip(visible, corners, strict=True):
        assert text["size"] >= points * 96 / 72 - 0.01, text
        assert corner.min() >= -0.5, text
        assert corner[:, 0].max() <= measured["width"] + 0.5, text
        assert corner[:, 1].max() <= measured["height"] + 0.5, text
    for (text, a), (other_text, b) in combinations(zip(visible, corners, strict=True), 2):
        assert not overlap(a, b), (text["text"], other_text["text"])


Records = dict[str, Any]
SENTENCES = (
    "The animal didn't cross the street because it was too tired.",
    "The animal didn't cross the street because it was too wide.",
)
VIEWS: dict[str, Callable[[Records], Any]] = {
    "lines": lambda records: av.HeadView(records["minilm"], layer=3, heads=[1, 7, 9]),
    "bars of all heads": lambda records: av.HeadView(
        records["minilm"], layer=3, heads=list(range(12)), token=10
    ),
    "patches": lambda records: av.HeadView(records["picture"], layer=2, heads=[1], token=0),
    "long": lambda records: av.HeadView(records["long"], heads=[0], token=150),
    "matrix": lambda records: av.MatrixView(records["minilm"], layer=3, heads=[1], token=10, key=3),
    "frames": lambda records: av.MatrixView(records["frames"], token=7),
    "words": lambda records: av.MatrixView(records["words"], heads=[0], token=150),
    "silence": lambda records: av.MatrixView(records["silence"], query_window=[0, 900]),
    "channels": lambda records: av.MatrixView(records["channels"], token=7),
    "lines of channels": lambda records: av.HeadView(records["channels"], token=7),
    "comparison": lambda records: av.CompareView(records["comparison"], form="matrix", token=9),
    "model": lambda records: av.ModelView(records["minilm"]),
    "neuron": lambda records: av.NeuronView(records["minilm"], layer=3, heads=[1], token=10, key=3),
    "dashboard": lambda records: av.Dashboard(records["minilm"], layer=3, heads=[1, 7], token=10),
    "embedding": lambda records: av.EmbeddingView(
        [records["minilm"], records["pair"]], enlarged=True, layer=3, heads=[1], text=0, token=10
    ),
    # The plots of all heads do not fit in a column.
    "all plots": lambda records: av.EmbeddingView([records["minilm"], records["pair"]]),
}
# A column with large text, and a page with small text.
COLUMN, WHOLE_PAGE = (84, 8), (174, 7)
WIDE = (
    "bars of all heads",
    "matrix",
    "comparison",
    "model",
    "neuron",
    "dashboard",
    "embedding",
    "all plots",
)


def _uniform(tokens: list[str]) -> av.AttentionRecord:
    vectors = np.zeros((1, len(tokens), 4), np.float32)
    return av.AttentionRecord.from_qk([vectors], [vectors], tokens)


# Frames of 0.05 seconds, and 9 patches of 16 days in each of three channels.
SOUND = [
    PatchGrid(None, 0, 1, 600, unit="s", step=0.05),
    PatchGrid(None, 600, 1, 900, name="silence", unit="s", origin=30, step=0.05),
]
CHANNELS = [
    PatchGrid(None, 9 * channel, 1, 9, name=name, unit="step", step=16)
    for channel, name in enumerate(("temperature", "wind", "load"))
]
DAYS = np.datetime64("2024-01-01") + np.arange(9 * 16)
DATED = [
    f"{grid.name} {DAYS[16 * patch]} – {DAYS[16 * patch + 15]}"
    for grid in CHANNELS
    for patch in range(9)
]


@pytest.fixture(scope="module")
def records(minilm: av.AttentionRecord, checkpoint_folder: Path) -> Records:
    pair = ("The cat sat on the mat.", "It lay on the rug.")
    vision, processor = av.demos.load("vision")
    return {
        "minilm": minilm,
        "pair": av.extract(str(checkpoint_folder), pair, name="MiniLM"),
        "picture": av.extract(vision, **av.demos.example("vision"), processor=processor),
        "long": long_record(300, heads=2),
        "comparison": av.compare(checkpoint_folder, *SENTENCES),
        "frames": _uniform([f"{frame / 50:.2f}s" for frame in range(1500)]),
        "words": _uniform([f"word{index % 99}" for index in range(600)]),
        "silence": _uniform(["frame"] * 1500).with_tokens(grids=SOUND),
        "channels": _uniform(["patch"] * 27).with_tokens(DATED, grids=CHANNELS),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    [(name, COLUMN) for name in VIEWS if name != "all plots"]
    + [(name, WHOLE_PAGE) for name in WIDE],
)
def test_texts_at_the_width_of_a_column_or_a_page_are_legible(
    page: Page, tmp_path: Path, records: Records, name: str, size: tuple[int, int]
) -> None:
    width, points = size
    theme = "light" if size == COLUMN else "dark"
    look: dict[str, Any] = {"width": f"{width}mm", "font_size": points, "theme": theme}
    svg = svg_of(page, VIEWS[name](records), tmp_path, **look)
    check_texts(page, svg, width * MM, points)


@pytest.mark.parametrize("form", ["head", "matrix"])
def test_a_comparison_fits_a_page_and_keeps_the_names_of_its_panels(
    page: Page, tmp_path: Path, checkpoint_folder: Path, form: str
) -> None:
    comparison = av.compare(checkpoint_folder, *SENTENCES, names=["tired", "wide"])
    view = av.CompareView(comparison, form=form, layer=3, heads=[1])

    def panels(width: str) -> tuple[dict[str, tuple[float, float]], float]:
        svg = svg_of(page, view, tmp_path, width=width, title="")
        measured = page.evaluate(MEASURE_TEXTS, svg)
        names = ("tired", "wide", "wide − tired")
        # A name is bold, and the token of the same text is not.
        bold = {text for text in names if re.search(f'font-weight="600"[^>]*>{text}<', svg)}
        assert bold == set(names)
        corners: dict[str, tuple[float, float]] = {}
        for text in measured["texts"]:
            if text["text"] in names and text["text"] not in corners:
                corners[text["text"]] = tuple(text["corners"][0])
        legends = [text for text in texts(ET.fromstring(svg)) if text.startswith("layer 3")]  # noqa: S314
        assert len(legends) == 3 + 1  # the fourth is a row of the grid of heads
        return corners, measured["height"]

    for pin in (None, "tired→wide"):
        view.token = pin
        beside, height = panels("160mm")
        assert abs(beside["tired"][1] - beside["wide"][1]) < 1
        assert beside["tired"][0] < 80 * MM < beside["wide"][0]
        # A page of A4 has 297 mm, and 265 mm with margins of 16 mm.
        assert height < 265 * MM
    below, _ = panels("84mm")
    tops = [below[name][1] for name in ("tired", "wide", "wide − tired")]
    assert tops == sorted(tops)
    assert tops[1] - tops[0] > 40 * MM
    assert max(left for left, _ in below.values()) < 10


def test_a_figure_combines_weights_only_if_it_has_fewer_pixels(page: Page, tmp_path: Path) -> None:
    view = av.MatrixView(long_record(600, heads=2), heads=[0])
    options = parse_figure_options({"width": "84mm"})

    def cells(scale: float) -> str:
        page.add_init_script(
            f"globalThis.attnvizFigure = {json.dumps({**options.request, 'scale': scale})}"
        )
        page.goto(view.save(tmp_path / "view.html").as_uri())
        expect(page.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("."))
        svg = page.evaluate("() => document.querySelector('.attnviz').attnviz.svg()")
        return " ".join(texts(ET.fromstring(svg)))  # noqa: S314

    # The cells have about 230 of the 317 pixels at scale=1, and 690 at scale=3.
    assert "Each cell is the mean of 4 × 4 weights." in cells(1)
    assert "Each cell is one weight." in cells(3)
    svg = view.to_svg(width="84mm")
    assert "Each cell is one weight." in svg
    image = re.search(r'href="data:image/png;base64,([^"]+)"', svg)
    assert image is not None
    assert Image.open(io.BytesIO(base64.b64decode(image[1]))).size == (600, 600)


@pytest.mark.slow
def test_long_and_hostile_names_stay_inside_the_figure(page: Page, tmp_path: Path) -> None:
    tokens = [*HOSTILE, "注意力机制注意力机制", "w" * 300]
    count = len(tokens)
    weights = np.full((2, 2, count, count), 1 / count, np.float32)
    name = "organisation/" + "a-model-of-a-long-name-" * 4
    record = av.AttentionRecord.from_weights(weights, tokens, model=name)
    view = av.HeadView(record, layer=0, heads=[1], token=0)
    svg = svg_of(page, view, tmp_path, width="84mm", font_size=8)
    check_texts(page, svg, 84 * MM, 8)


@pytest.mark.slow
def test_a_figure_that_does_not_fit_is_refused_with_a_sufficient_width(
    tmp_path: Path, minilm: av.AttentionRecord
) -> None:
    view = av.ModelView(minilm)
    with pytest.raises(ValueError, match=r'Pass width="(\d+)mm" or more') as refused:
        view.save(tmp_path / "x.pdf", width="30mm", font_size=8)
    assert list(tmp_path.iterdir()) == []
    needed = re.search(r'width="(\d+mm)"', str(refused.value))
    assert needed
    # The width that the message suggests is sufficient.
    assert view.save(tmp_path / "x.pdf", width=needed[1], font_size=8).is_file()


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("head", {"token": -1}),
        ("head", {"key": "street"}),
        ("matrix", {}),
        ("matrix", {"token": -1, "key": "street"}),
        # Several figures in one. The one that needs most decides.
        ("dashboard", {}),
    ],
)
def test_a_narrow_figure_is_complete_or_refused_with_a_sufficient_width(
    page: Page, tmp_path: Path, name: str, look: dict[str, Any]
) -> None:
    model, tokenizer = av.demos.load("decoder")
    record = av.extract(model, "the dog crossed the street", tokenizer=tokenizer)
    views = {"head": av.HeadView, "matrix": av.MatrixView, "dashboard": av.Dashboard}
    view = views[name](record, layer=1, heads=[0], **look)
    refused = set()
    for width, points in [(20, 8), (30, 8), (40, 8), (50, 8), (84, 12), (84, 14), (84, 18)]:
        try:
            svg = svg_of(page, view, tmp_path, width=f"{width}mm", font_size=points)
        except PlaywrightError as error:
            refused.add((width, points))
            # Without this advice, `max` raises an error.
            width = int(max(re.findall(r'Pass width="(\d+)mm" or more', str(error))))  # noqa: PLW2901
            svg = svg_of(page, view, tmp_path, width=f"{width}mm", font_size=points)
        check_texts(page, svg, width * MM, points)
    assert (30, 8) in refused


def pixels_of(png: bytes) -> NDArray[np.float64]:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), np.float64) / 255


# Programs draw the edges of letters differently, which changes up to 3.5% of the pixels. A missing
# line or text would change many times as many.
MAX_DIFFERING = 0.035


def differing_share(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the share of the common pixels of two pictures that differ strongly."""
    rows, columns = np.minimum(a.shape, b.shape)[:2]
    return float((np.abs(a[:rows, :columns] - b[:rows, :columns]).max(-1) > 0.5).mean())


def without_blanks(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.fixture(scope="module")
def saved(minilm: av.AttentionRecord, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a figure as SVG, PDF and PNG."""
    folder = tmp_path_factory.mktemp("figures")
    view = av.HeadView(minilm, layer=3, heads=[1, 7, 9], token=10)
    for ending in ("svg", "pdf", "png"):
        view.save(folder / f"x.{ending}", width="84mm", font_size=8, dpi=300)
    return folder


@pytest.mark.slow
def test_two_other_programs_draw_the_svg_as_the_browser_does(saved: Path) -> None:
    svg = (saved / "x.svg").read_text(encoding="utf-8")
    drawn = pixels_of((saved / "x.png").read_bytes())
    scale = 300 / 96
    by_cairo = pixels_of(cairosvg.svg2png(svg.encode(), scale=scale))
    by_resvg = pixels_of(bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=scale)))
    for other in (by_cairo, by_resvg):
        # A renderer may round the size to whole pixels before scaling.
        assert np.abs(np.subtract(other.shape, drawn.shape)).max() <= np.ceil(scale / 2)
        assert differing_share(other, drawn) < MAX_DIFFERING


@pytest.mark.slow
def test_source_date_epoch_makes_pdfs_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minilm: av.AttentionRecord
) -> None:
    view = av.HeadView(minilm, layer=3, heads=[1])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    first, second = (view.save(tmp_path / name) for name in ("a.pdf", "b.pdf"))
    assert first.read_bytes() == second.read_bytes()
    metadata = pypdf.PdfReader(first).metadata
    assert metadata is not None
    date = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
    assert metadata.creation_date == metadata.modification_date == date
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(ValueError, match="SOURCE_DATE_EPOCH='today' must be a whole number"):
        view.save(first)


def test_the_pdf_is_one_page_of_vectors_and_text_with_its_fonts(saved: Path) -> None:
    [page] = pypdf.PdfReader(saved / "x.pdf").pages
    width, height = float(page.mediabox.width), float(page.mediabox.height)
    assert width == pytest.approx(84 / 25.4 * 72, abs=0.01)
    root = ET.parse(saved / "x.svg").getroot()  # noqa: S314 - our own file
    ratio = float(root.get("height", "")) / float(root.get("width", ""))
    assert height / width == pytest.approx(ratio, rel=0.0001)
    fonts = [font.get_object() for font in page["/Resources"]["/Font"].values()]  # type: ignore[index]
    assert fonts
    for font in fonts:
        [descendant] = font["/DescendantFonts"]
        assert "/FontFile2" in descendant.get_object()["/FontDescriptor"].get_object()
    assert len(page.images) == 0
    document = pypdfium2.PdfDocument(saved / "x.pdf")
    assert len(document) == 1
    by_pdfium = without_blanks(document[0].get_textpage().get_text_range())
    by_pypdf = without_blanks(page.extract_text())
    for text in map(without_blanks, texts(root)):
        assert text in by_pdfium
        assert text in by_pypdf
    printed = document[0].render(scale=300 / 72).to_pil().convert("RGB")
    drawn = pixels_of((saved / "x.png").read_bytes())
    assert differing_share(np.asarray(printed, np.float64) / 255, drawn) < MAX_DIFFERING


def kinds_of_fonts(file: Path) -> set[str]:
    """Return the kinds of fonts in a PDF: "/Type0" for an embedded font, "/Type3", ..."""
    [page] = pypdf.PdfReader(file).pages
    return {font.get_object()["/Subtype"] for font in page["/Resources"]["/Font"].values()}  # type: ignore[index]


def test_a_pdf_has_no_type_3_fonts_and_a_warning_says_if_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The font of tokens has no Hebrew letters. Another font draws them. A pinned token is bold.
    record = av.AttentionRecord.from_weights(shares(1, 1, 2, 2), ["a", "שלום"], model="m")
    view = av.HeadView(record, token=1)
    assert kinds_of_fonts(view.save(tmp_path / "x.pdf", width="84mm")) == {"/Type0"}
    # If the browser may draw bold letters that no font has, it draws them in a Type 3 font.
    monkeypatch.setattr(image, "_PRINTED", image._PRINTED.replace("font-synthesis: none;", ""))
    with pytest.warns(UserWarning, match="^font: the PDF has [-A-Za-z]+ as Type 3, which some"):
        view.save(tmp_path / "y.pdf", width="84mm")
    assert kinds_of_fonts(tmp_path / "y.pdf") == {"/Type0", "/Type3"}


@pytest.mark.slow
def test_colour_scale_and_heat_map_have_no_seams(tmp_path: Path) -> None:
    weights = np.full((1, 1, 9, 9), 0.5, np.float32)
    weights[..., ::2] = 0.6
    record = av.AttentionRecord.from_weights(weights, list("abcdefghi"), normalized=False)
    view = av.MatrixView(record)
    look: Any = {"width": "77mm", "font_size": 7}
    svg = view.to_svg(**look)
    root = ET.fromstring(svg)  # noqa: S314 - our own
    groups = root.iter(f"{SVG}g")
    cells = next(group for group in groups if group.get("shape-rendering") == "crispEdges")
    xs = [float(cell.get("x", "")) for cell in cells]
    ys = [float(cell.get("y", "")) for cell in cells]
    zoom = 3.7
    left, top = (int((min(edges) + 1) * zoom) for edges in (xs, ys))
    right, bottom = (int(max(edges) * zoom) for edges in (xs, ys))
    document = pypdfium2.PdfDocument(view.save(tmp_path / "x.pdf", **look))
    printed = document[0].render(scale=zoom * 96 / 72).to_pil().convert("RGB")
    # Some programs ignore crispEdges. Without it, a gap shows between cells that do not overlap.
    smooth = svg.replace(' shape-rendering="crispEdges"', "")
    for drawn in (
        *(pixels_of(cairosvg.svg2png(text.encode(), scale=zoom)) for text in (svg, smooth)),
        pixels_of(bytes(resvg_py.svg_to_bytes(svg_string=smooth, zoom=zoom))),
        np.asarray(printed, np.float64) / 255,
    ):
        inside = drawn[top:bottom, left:right].min(-1)
        assert inside.size > 10_000
        # The column at 40 pixels has the brighter cell colour. A gap would be brighter than that.
        assert inside.max() < np.median(inside[:, int(zoom * 40)]) + 0.02
    # The colour scale is a single gradient.
    assert len(list(root.iter(f"{SVG}linearGradient"))) == 1


@pytest.mark.parametrize("name", ["HeadView", "MatrixView", "Dashboard"])
def test_a_figure_has_the_exact_numbers_of_the_view(name: str) -> None:
    # A page stores 0.0549 as one byte, which stands for 0.0554 and would be drawn as 0.06.
    weights = np.eye(3, dtype=np.float32)
    weights[2] = [0.0549, 0.9451 - 0.4, 0.4]
    record = av.AttentionRecord.from_weights([[weights]], ["a", "b", "c"])
    view = getattr(av, name)(record, token=2, key=0)
    drawn = " ".join(texts_of(view))
    assert "0.05" in drawn
    assert "0.06" not in drawn
    assert "exact" in drawn


@pytest.mark.parametrize("run", ["after", "difference"])
def test_a_picture_of_a_changed_run_says_what_was_changed(
    run: str, page: Page, tmp_path: Path
) -> None:
    model, tokenizer = av.demos.load("decoder")
    change = av.Knockout(queries="sat", keys="cat", layers=1, heads=0)
    view = av.show_matrix_view(
        *(model, "the cat sat"), tokenizer=tokenizer, changes=[change], run=run, layer=1, heads=[0]
    )
    mark = "after: “sat” (2) → “cat” (1) cut in layer 1, head 0"
    mark = mark if run == "after" else f"difference {mark}"
    bare: dict[str, Any] = {"title": "", "caption": False, "legend": False}
    for style in ({}, bare):
        drawn = texts_of(view, **style)
        assert mark in drawn
        assert not any("exact" in text for text in drawn)
    # The page, its table, and the small pictures for readers without scripts.
    page.goto(view.save(tmp_path / "x.html").as_uri())
    expect(page.locator(".av-headline")).to_contain_text(mark)
    expect(page.locator(".av-headline")).not_to_contain_text("exact")
    csv = page.locator(".attnviz").evaluate("root => root.attnviz.csv()").split("\r\n")
    assert csv[0].endswith(",run")
    assert all(line.endswith(f',"{mark}"') for line in csv[1:])
    for still in (view._still(), view.to_html()):
        assert "after: “sat” (2) → “cat” (1) cut in layer 1, head 0</p>" in still
    view.run = "before"
    assert "after:" not in view._still()
    assert not any("after:" in text for text in texts_of(view))


def test_a_saved_changed_record_says_what_was_changed(tmp_path: Path) -> None:
    model, tokenizer = av.demos.load("decoder")
    changed = av.intervene(
        model,
        "the cat sat",
        [av.Ablate(layers=1, heads=0), av.HideTokens("cat")],
        tokenizer=tokenizer,
    )
    loaded = av.load(changed.save(tmp_path / "x.safetensors"))
    assert "after: layer 1, head 0 ablated; “cat” (1) hidden" in texts_of(
        av.HeadView(loaded), width="160mm"
    )


def test_a_failed_request_of_a_figure_is_the_error_of_the_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("no memory left")

    record = av.AttentionRecord.from_weights(np.full((1, 1, 2, 2), 0.5, np.float32), ["a", "b"])
    view = av.HeadView(record)
    monkeypatch.setattr(view._served, "reply", fail)
    with pytest.raises(MemoryError, match="no memory left"):
        view.save(tmp_path / "x.svg")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_colours_theme_font_and_background_can_be_chosen(minilm: av.AttentionRecord) -> None:
    view = av.HeadView(minilm, layer=3, heads=[1, 7], token=10)
    svg = view.to_svg(
        theme="dark", background="#000000", colors=["#ff8800", "#00aaff"], font="monospace"
    )
    root = ET.fromstring(svg)  # noqa: S314 - our own
    assert root.find(f"{SVG}rect").get("fill") == "#000000"  # type: ignore[union-attr]
    strokes = {group.get("stroke") for group in root.iter(f"{SVG}g")} - {None}
    assert strokes == {"#ff8800", "#00aaff"}
    assert {text.get("font-family") for text in root.iter(f"{SVG}text")} == {"monospace"}
    # The options do not change the view.
    assert view.theme == "auto"
    clear = ET.fromstring(view.to_svg(background="transparent"))  # noqa: S314 - our own
    assert clear.find(f"{SVG}rect[@width='100%']") is None
    with pytest.raises(ValueError, match='font: "No Such Font" is not installed'):
        view.to_svg(font="No Such Font")


EXPORTED = """async () => {
  const blob = await document.querySelector(".attnviz").attnviz.png(1);
  const bytes = new Uint8Array(await blob.arrayBuffer());
  return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
}"""


@pytest.mark.parametrize(("kind", "viewport"), [("HeadView", 1000), ("MatrixView", 700)])
def test_the_export_of_a_view_is_the_picture_on_the_screen(
    page: Page, tmp_path: Path, minilm: av.AttentionRecord, kind: str, viewport: int
) -> None:
    page.set_viewport_size({"width": viewport, "height": 900})
    view = getattr(av, kind)(minilm, layer=3, heads=[1], token=10, theme="light")
    page.goto(view.save(tmp_path / "view.html").as_uri())
    expect(page.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("."))
    # The exported picture contains the plot at an unknown offset, below its title.
    screen = pixels_of(page.locator(".av-plot").screenshot())
    exported = pixels_of(base64.b64decode(page.evaluate(EXPORTED)))
    ink = np.argwhere((screen < 0.9).any(-1))
    (top, left), (bottom, right) = ink.min(0), ink.max(0) + 1
    seen = screen[top:bottom, left:right]
    # Find the offset at which the drawn part of the screen best matches the exported picture.
    assert all(np.greater_equal(exported.shape, seen.shape))
    ink_exported, ink_seen = (1 - picture.mean(-1) for picture in (exported, seen))
    likeness = fftconvolve(ink_exported, ink_seen[::-1, ::-1], "valid")
    power = fftconvolve(ink_exported**2, np.ones_like(ink_seen), "valid")
    y, x = np.unravel_index(np.argmin(power - 2 * likeness), likeness.shape)
    rows, columns = ink_seen.shape
    difference = np.abs(exported[y : y + rows, x : x + columns] - seen).max(-1)
    assert (difference > 0.1).mean() < 0.001
