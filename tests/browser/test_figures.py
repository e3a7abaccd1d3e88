"""Tests of figures for papers: width, legible texts, and files for other programs."""

from __future__ import annotations

import base64
import io
import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import cairosvg
import numpy as np
import pypdf
import pypdfium2
import pytest
import resvg_py
from PIL import Image
from playwright.sync_api import expect
from scipy.signal import fftconvolve

import attnviz as av
from attnviz.pages.figure import parse_figure_options
from unit.long_records import long_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray
    from playwright.sync_api import Page

    from attnviz.views.base import View

SVG = "{http://www.w3.org/2000/svg}"
MM = 96 / 25.4
TEXT = "The animal didn't cross the street because it was too tired."

# Measure the texts of an SVG in the page: contents, size and corners.
TEXTS = """(svg) => {
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
      const at = new DOMPoint(x, y).matrixTransform(matrix);
      return [at.x - origin.x, at.y - origin.y];
    };
    // Letters reach neither the top nor the bottom of their line.
    const [top, bottom] = [box.y + 0.22 * box.height, box.y + 0.85 * box.height];
    const right = box.x + box.width;
    return {
      text: text.textContent,
      size: Number(text.getAttribute("font-size")),
      family: text.getAttribute("font-family"),
      corners: [
        corner(box.x, top), corner(right, top), corner(right, bottom), corner(box.x, bottom),
      ],
    };
  });
  holder.remove();
  return { width: origin.width, height: origin.height, texts };
}"""


@pytest.fixture(scope="module")
def minilm(checkpoint_folder: Path) -> av.AttentionRecord:
    """Return a record of MiniLM, in which one head resolves the pronoun "it"."""
    return av.extract(str(checkpoint_folder), TEXT, name="MiniLM")


@pytest.fixture(scope="module")
def pair(checkpoint_folder: Path) -> av.AttentionRecord:
    texts = ("The cat sat on the mat.", "It lay on the rug.")
    return av.extract(str(checkpoint_folder), texts, name="MiniLM")


@pytest.fixture(scope="module")
def picture() -> av.AttentionRecord:
    """Return a record of a vision model."""
    model, processor = av.demos.load("vision")
    record: av.AttentionRecord = av.extract(
        model, **av.demos.example("vision"), processor=processor
    )
    return record


@pytest.fixture(scope="module")
def answer() -> av.AttentionRecord:
    model, tokenizer = av.demos.load("decoder")
    return av.extract(model, "the cat sat on the", tokenizer=tokenizer, generate=12)


def svg_of(page: Page, view: View, folder: Path, **figure: Any) -> str:
    """Return the figure of `to_svg` without starting another browser."""
    options = parse_figure_options(figure)
    page.add_init_script(f"globalThis.attnvizFigure = {json.dumps(options.request())}")
    page.goto(view.save(folder / "view.html").as_uri())
    expect(page.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("."))
    return str(page.evaluate("() => document.querySelector('.attnviz').attnviz.svg()"))


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


def check_texts(page: Page, svg: str, width: float, points: float) -> list[dict[str, Any]]:
    """Check that all texts have the requested size, are inside the figure and do not overlap."""
    measured = page.evaluate(TEXTS, svg)
    assert measured["width"] == pytest.approx(width, abs=0.02)
    texts: list[dict[str, Any]] = [each for each in measured["texts"] if each["text"].strip()]
    corners = [np.array(each["corners"]) for each in texts]
    for text, at in zip(texts, corners, strict=True):
        assert text["size"] >= points * 96 / 72 - 0.01, text
        assert at.min() >= -0.5, text
        assert at[:, 0].max() <= measured["width"] + 0.5, text
        assert at[:, 1].max() <= measured["height"] + 0.5, text
    for i, one in enumerate(corners):
        for j in range(i):
            assert not overlap(one, corners[j]), (texts[i]["text"], texts[j]["text"])
    return texts


Records = dict[str, av.AttentionRecord]
VIEWS: dict[str, Callable[[Records], Any]] = {
    "lines": lambda of: av.HeadView(of["minilm"], layer=3, heads=[1, 7, 9]),
    "bars": lambda of: av.HeadView(of["minilm"], layer=3, heads=[1, 7, 9], token=10),
    "both pins": lambda of: av.HeadView(of["minilm"], layer=3, heads=[1], token=10, key=3),
    "all heads": lambda of: av.HeadView(of["minilm"], layer=3, heads=list(range(12)), token=10),
    "lying": lambda of: av.HeadView(
        of["minilm"], layer=3, heads=[1], token=10, orientation="horizontal"
    ),
    "pair": lambda of: av.HeadView(of["pair"], layer=3, heads=[1], pair="a-b"),
    "answer": lambda of: av.HeadView(of["answer"], layer=1, heads=[0, 2], prediction=2),
    "patches": lambda of: av.HeadView(of["picture"], layer=2, heads=[1], token=0),
    "long": lambda of: av.HeadView(of["long"], heads=[0], token=150),
    "matrix": lambda of: av.MatrixView(of["minilm"], layer=3, heads=[1], token=10, key=3),
    "matrix of patches": lambda of: av.MatrixView(of["picture"], layer=2, heads=[1], token=20),
    "matrix of an answer": lambda of: av.MatrixView(of["answer"], layer=1, heads=[0]),
    "long matrix": lambda of: av.MatrixView(of["long"], heads=[0], token=150, key=20),
    "model": lambda of: av.ModelView(of["minilm"]),
    "model's lines": lambda of: av.ModelView(of["minilm"], thumbnails="lines"),
    "model by score": lambda of: av.ModelView(of["minilm"], order="previous token"),
    "neuron": lambda of: av.NeuronView(of["minilm"], layer=3, heads=[1], token=10, key=3),
    "dashboard": lambda of: av.Dashboard(of["minilm"], layer=3, heads=[1, 7], token=10),
    "embedding": lambda of: av.EmbeddingView(
        [of["minilm"], of["pair"]], enlarged=True, layer=3, heads=[1], text=0, token=10
    ),
    "mean": lambda of: av.EmbeddingView(
        [of["minilm"], of["pair"]], enlarged=True, layer=3, heads=[1], content="aggregate"
    ),
}


@pytest.fixture(scope="module")
def records(
    minilm: av.AttentionRecord,
    pair: av.AttentionRecord,
    picture: av.AttentionRecord,
    answer: av.AttentionRecord,
) -> Records:
    long = long_record(300, heads=2)
    return {"minilm": minilm, "pair": pair, "picture": picture, "answer": answer, "long": long}


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_at_the_width_of_a_column_all_texts_are_legible(
    page: Page, tmp_path: Path, records: Records, name: str
) -> None:
    svg = svg_of(page, VIEWS[name](records), tmp_path, width="84mm", font_size=8)
    check_texts(page, svg, 84 * MM, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*VIEWS, "all plots"])
def test_at_the_width_of_a_page_all_texts_are_legible(
    page: Page, tmp_path: Path, records: Records, name: str
) -> None:
    view = (
        VIEWS[name](records)
        if name in VIEWS
        else av.EmbeddingView([records["minilm"], records["pair"]])
    )
    svg = svg_of(page, view, tmp_path, width="174mm", font_size=7, theme="dark")
    check_texts(page, svg, 174 * MM, 7)


HOSTILE = [
    "</script><script>document.title='ran'</script>",
    "<img src=x onerror=\"document.title='ran'\">",
    "\u202eright to left",
    "nul\x00",
    "👩\u200d🔬",
    "注意力机制注意力机制",
    "w" * 300,
    "",
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["HeadView", "MatrixView", "ModelView"])
def test_names_of_any_kind_stay_in_the_figure(page: Page, tmp_path: Path, kind: str) -> None:
    count = len(HOSTILE)
    weights = np.full((2, 2, count, count), 1 / count, np.float32)
    name = "organisation/" + "a-model-of-a-long-name-" * 4
    record = av.AttentionRecord.from_weights(weights, HOSTILE, model=name)
    view = getattr(av, kind)(record, layer=0, heads=[1], token=0)
    svg = svg_of(page, view, tmp_path, width="84mm", font_size=8)
    check_texts(page, svg, 84 * MM, 8)
    assert "ran" not in page.title().split()
    root = ET.fromstring(svg)  # noqa: S314 - our own
    assert {"script", "image"}.isdisjoint(each.tag.removeprefix(SVG) for each in root.iter())
    view.save(tmp_path / "x.pdf", width="84mm", font_size=8, title="<b>“&” " + "x" * 200)
    [printed] = pypdf.PdfReader(tmp_path / "x.pdf").pages
    assert "<b>“&”" in printed.extract_text()


@pytest.mark.slow
def test_what_does_not_fit_is_refused_with_the_width_that_it_needs(
    tmp_path: Path, minilm: av.AttentionRecord
) -> None:
    view = av.HeadView(minilm, layer=3, heads=[1], orientation="horizontal")
    with pytest.raises(ValueError, match=r'Pass width="(\d+)mm" or more') as refused:
        view.save(tmp_path / "x.pdf", width="60mm", font_size=8)
    assert list(tmp_path.iterdir()) == []
    needed = re.search(r'width="(\d+mm)"', str(refused.value))
    assert needed
    # The width that the message suggests is sufficient.
    assert view.save(tmp_path / "x.pdf", width=needed[1], font_size=8).is_file()


def pixels_of(png: bytes) -> NDArray[np.float64]:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), np.float64) / 255


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
def test_two_readers_of_svg_draw_what_the_browser_drew(saved: Path) -> None:
    svg = (saved / "x.svg").read_text(encoding="utf-8")
    drawn = pixels_of((saved / "x.png").read_bytes())
    scale = 300 / 96
    by_cairo = pixels_of(cairosvg.svg2png(svg.encode(), scale=scale))
    by_resvg = pixels_of(bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=scale)))
    for other in (by_cairo, by_resvg):
        # A renderer may round the size to whole pixels before scaling.
        assert np.abs(np.subtract(other.shape, drawn.shape)).max() <= np.ceil(scale / 2)
        rows, columns = np.minimum(other.shape, drawn.shape)[:2]
        far = np.abs(other[:rows, :columns] - drawn[:rows, :columns]).max(-1) > 0.5
        # Letters differ slightly. A clipped text or missing lines would differ many times as
        # much.
        assert far.mean() < 0.035


@pytest.mark.slow
def test_other_programs_set_tokens_in_letters_of_one_width(saved: Path) -> None:
    """Some programs use only the first family of the list, so they must know it."""
    root = ET.parse(saved / "x.svg").getroot()  # noqa: S314 - our own file
    tokens = {
        str(text.get("font-family"))
        for text in root.iter(f"{SVG}text")
        if "".join(text.itertext()) in ("animal", "because")
    }
    [families] = tokens
    assert "ui-monospace" not in families

    def ink(letters: str) -> int:
        text = f'<text x="0" y="30" font-size="30" font-family="{html(families)}">{letters}|</text>'
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="600" height="40">{text}</svg>'
        dark = pixels_of(cairosvg.svg2png(svg.encode(), background_color="white")).min(-1) < 0.5
        return int(np.flatnonzero(dark.any(0)).max())

    # In a monospace font the bar after ten letters has the same position for all letters.
    assert abs(ink("i" * 10) - ink("m" * 10)) <= 1


def html(text: str) -> str:
    return text.replace('"', "&quot;")


def test_the_pdf_is_one_page_of_vectors_and_text_with_its_fonts(saved: Path) -> None:
    [page] = pypdf.PdfReader(saved / "x.pdf").pages
    width, height = float(page.mediabox.width), float(page.mediabox.height)
    assert width == pytest.approx(84 / 25.4 * 72, abs=0.2)
    root = ET.parse(saved / "x.svg").getroot()  # noqa: S314 - our own file
    ratio = float(root.get("height", "")) / float(root.get("width", ""))
    assert height / width == pytest.approx(ratio, rel=0.003)
    fonts = [font.get_object() for font in page["/Resources"]["/Font"].values()]  # type: ignore[index]
    assert fonts
    for font in fonts:
        [descendant] = font["/DescendantFonts"]
        assert "/FontFile2" in descendant.get_object()["/FontDescriptor"].get_object()
    assert len(page.images) == 0
    document = pypdfium2.PdfDocument(saved / "x.pdf")
    assert len(document) == 1
    said = without_blanks(document[0].get_textpage().get_text_range())
    by_pypdf = without_blanks(page.extract_text())
    for text in root.iter(f"{SVG}text"):
        words = without_blanks("".join(text.itertext()))
        assert words in said
        assert words in by_pypdf
    drawn = pixels_of((saved / "x.png").read_bytes())
    read = np.asarray(document[0].render(scale=300 / 72).to_pil().convert("RGB"), np.float64) / 255
    rows, columns = np.minimum(read.shape, drawn.shape)[:2]
    far = np.abs(read[:rows, :columns] - drawn[:rows, :columns]).max(-1) > 0.5
    assert far.mean() < 0.035


def test_the_png_has_its_pixels_to_the_inch(saved: Path) -> None:
    with Image.open(saved / "x.png") as picture:
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.02)
        assert picture.width == pytest.approx(84 / 25.4 * 300, abs=1)


@pytest.mark.slow
def test_a_scale_of_colours_and_a_heat_map_have_no_seams(tmp_path: Path) -> None:
    """No renderer shows the white background between neighbouring cells."""
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
    left, top = (int((min(each) + 1) * zoom) for each in (xs, ys))
    right, bottom = (int(max(each) * zoom) for each in (xs, ys))
    document = pypdfium2.PdfDocument(view.save(tmp_path / "x.pdf", **look))
    printed = document[0].render(scale=zoom * 96 / 72).to_pil().convert("RGB")
    # Some programs ignore crispEdges. Without it only overlapping cells leave no gap.
    smooth = svg.replace(' shape-rendering="crispEdges"', "")
    for drawn in (
        *(pixels_of(cairosvg.svg2png(each.encode(), scale=zoom)) for each in (svg, smooth)),
        pixels_of(bytes(resvg_py.svg_to_bytes(svg_string=smooth, zoom=zoom))),
        np.asarray(printed, np.float64) / 255,
    ):
        inside = drawn[top:bottom, left:right].min(-1)
        assert inside.size > 10_000
        # No pixel is brighter than the brighter of the two cell colours.
        assert inside.max() < np.median(inside[:, int(zoom * 40)]) + 0.02
    # The colour scale is a single gradient.
    assert len(list(root.iter(f"{SVG}linearGradient"))) == 1


@pytest.mark.slow
def test_texts_and_legends_can_be_left_out_and_the_file_still_says_it(
    minilm: av.AttentionRecord,
) -> None:
    view = av.HeadView(minilm, layer=3, heads=[1], token=10)
    svg = view.to_svg(width="84mm", title="", caption=False, legend=False)
    root = ET.fromstring(svg)  # noqa: S314 - our own
    said = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert "animal" in said
    assert not [text for text in said if "attends most to" in text or "MiniLM" in text]
    assert not list(root.iter(f"{SVG}linearGradient"))
    description = root.findtext(f"{SVG}desc") or ""
    assert "“it” attends most to “animal”: 0.68" in description
    assert "exact" in description
    named = av.HeadView(minilm, layer=3).to_svg(title="Coreference <b>&amp;</b>")
    assert "Coreference <b>&amp;</b>" in [
        "".join(text.itertext())
        for text in ET.fromstring(named).iter(f"{SVG}text")  # noqa: S314 - our own
    ]


@pytest.mark.slow
def test_colours_themes_fonts_and_grounds_are_as_asked_for(minilm: av.AttentionRecord) -> None:
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


@pytest.mark.parametrize("viewport", [1000, 700])
@pytest.mark.parametrize("kind", ["HeadView", "MatrixView"])
def test_the_export_of_a_view_is_the_picture_on_the_screen(
    page: Page, tmp_path: Path, minilm: av.AttentionRecord, kind: str, viewport: int
) -> None:
    """The exported picture contains the pixels of the screen, shifted by one offset."""
    page.set_viewport_size({"width": viewport, "height": 900})
    view = getattr(av, kind)(minilm, layer=3, heads=[1], token=10, theme="light")
    page.goto(view.save(tmp_path / "view.html").as_uri())
    expect(page.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("."))
    screen = pixels_of(page.locator(".av-plot").screenshot())
    exported = pixels_of(base64.b64decode(page.evaluate(EXPORTED)))
    ink = np.argwhere((screen < 0.9).any(-1))
    (top, left), (bottom, right) = ink.min(0), ink.max(0) + 1
    seen = screen[top:bottom, left:right]
    # Find the offset at which the drawn part of the screen best matches the exported picture.
    assert all(np.greater_equal(exported.shape, seen.shape))
    dark, wanted = (1 - each.mean(-1) for each in (exported, seen))
    likeness = fftconvolve(dark, wanted[::-1, ::-1], "valid")
    power = fftconvolve(dark**2, np.ones_like(wanted), "valid")
    y, x = np.unravel_index(np.argmin(power - 2 * likeness), likeness.shape)
    rows, columns = wanted.shape
    far = np.abs(exported[y : y + rows, x : x + columns] - seen).max(-1)
    assert (far > 0.1).mean() < 0.001
