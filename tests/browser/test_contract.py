"""Tests that every view passes on an exported page. Tests of a single view are in other files."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pypdf
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.accessibility import check
from browser.embedding_pages import prose
from browser.hosts import VIEW_IDS, VIEWS
from browser.pages import SVG, figure, overflow, table, texts
from browser.test_atlas_page import measured
from marks import slow
from unit.records import HOSTILE, captioned_record, vectors

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.hosts import HostedView

TOKENS = "The cat sat on the mat . The cat".split()
NOTE = "Layers 3 to 5 are linear attention (GatedDeltaNet) and are not shown."

each_view = pytest.mark.parametrize("view", VIEWS, ids=VIEW_IDS)


def record(tokens: list[str], model: str = "my model") -> av.AttentionRecord:
    queries, keys = (vectors(3, 4, len(tokens), 16, seed=seed) for seed in (0, 1))
    made = av.AttentionRecord.from_qk(queries, keys, tokens, causal=True)
    return av.AttentionRecord(made.stacks, model=model, notes=[NOTE])


@cache
def made(view: HostedView) -> Any:
    """Return the view at layer 0, head 0."""
    traits = {"enlarged": True} if view.several else {}
    return view.widget(record(TOKENS), layer=0, heads=[0], **traits)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[HostedView], Path]:
    """Return a function that exports the page of a view once for all tests."""
    folder = tmp_path_factory.mktemp("contract")

    @cache
    def exported(view: HostedView) -> Path:
        path: Path = made(view).save(folder / f"{view.class_name}.html")
        return path

    return exported


@pytest.fixture
def root(page: Page, view: HostedView, exported: Callable[[HostedView], Path]) -> Locator:
    page.goto(exported(view).as_uri())
    root = page.locator(".attnviz").first
    view.drawn(root, 0)
    return root


@each_view
def test_a_page_names_its_model_and_what_it_does_not_contain(root: Locator) -> None:
    expect(root.get_by_text("my model").first).to_be_visible()
    expect(root.get_by_text(NOTE)).to_be_visible()


@each_view
def test_keys_change_the_layer_and_the_address_keeps_it(
    page: Page, view: HostedView, root: Locator
) -> None:
    view.press(page, root, view.next_layer)
    view.drawn(root, 1)
    assert "layer=1" in page.url
    page.reload()
    view.drawn(root, 1)
    view.press(page, root, view.previous_layer)
    view.drawn(root, 0)
    page.keyboard.press("Control+z")
    view.drawn(root, 1)
    page.keyboard.press("Control+Shift+z")
    view.drawn(root, 0)


@pytest.mark.parametrize(
    "view", [view for view in VIEWS if view.pin], ids=lambda view: view.class_name
)
def test_keys_pin_a_token_and_take_the_pin_away(
    page: Page, view: HostedView, root: Locator
) -> None:
    pinned = re.compile(r"\btoken=\d")
    root.locator(".av-plot").first.focus()
    for key in view.pin:
        page.keyboard.press(key)
    expect(page).to_have_url(pinned)
    page.keyboard.press("Control+z")
    expect(page).not_to_have_url(pinned)
    page.keyboard.press("Control+Shift+z")
    expect(page).to_have_url(pinned)
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(pinned)


# Positions of the pictures on the page.
PLACES = """(root) => [...root.querySelectorAll(".av-plot, .av-grid-box")].map((each) => {
  const { left, top } = each.getBoundingClientRect();
  return [Math.round(left + scrollX), Math.round(top + scrollY)];
})"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 860, 400])
@pytest.mark.parametrize(
    "view", [each for each in VIEWS if not each.several and each.pin], ids=lambda v: v.class_name
)
def test_nothing_moves_under_the_pointer(
    page: Page, view: HostedView, exported: Callable[[HostedView], Path], width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(exported(view).as_uri())
    root = page.locator(".attnviz").first
    view.drawn(root, 0)
    places = root.evaluate(PLACES)
    plot = root.locator(".av-plot").first
    plot.focus()
    for keys in (("ArrowLeft", "ArrowDown", "Enter"), ("ArrowRight", "ArrowDown", "Enter")):
        for key in keys:
            page.keyboard.press(key)
        expect(page).to_have_url(re.compile(r"\btoken=\d"))
        assert root.evaluate(PLACES) == places
    page.keyboard.press("2")
    expect(page).to_have_url(re.compile(r"\bheads=(0,)?2"))
    assert root.evaluate(PLACES) == places
    plot.hover()
    assert root.evaluate(PLACES) == places
    for field in root.get_by_role("searchbox").all():
        if field.is_visible():
            field.fill("cat")
            expect(root).to_contain_text("2 found")
    assert root.evaluate(PLACES) == places


@each_view
def test_an_address_that_makes_no_sense_is_passed_over(
    page: Page, view: HostedView, exported: Callable[[HostedView], Path]
) -> None:
    fragment = "#stack=none&layer=99&heads=77,-1,x&token=1e9&key=%00"
    page.goto(exported(view).as_uri() + fragment)
    view.drawn(page.locator(".attnviz").first, 0)


@each_view
def test_files_are_named_after_the_model_the_view_and_the_layer(
    page: Page, view: HostedView, root: Locator
) -> None:
    for entry, ending in (("SVG", "svg"), ("PNG", "png"), ("CSV", "csv")):
        root.get_by_role("button", name="Export").first.click()
        with page.expect_download() as download:
            root.get_by_role("menuitem", name=entry).first.click()
        name = {"dashboard": "my-model-dashboard", "atlas": "attention-atlas"}.get(
            view.name, f"my-model-{view.name}-view"
        )
        assert download.value.suggested_filename == f"{name}-layer-0.{ending}"
        assert download.value.path().stat().st_size > 100


@each_view
def test_the_menu_prints_the_picture_alone_on_one_page(
    page: Page, view: HostedView, exported: Callable[[HostedView], Path]
) -> None:
    page.add_init_script(
        """window.print = () => {
          if (window !== top) top.printed = document.documentElement.outerHTML;
          window.dispatchEvent(new Event("afterprint"));
        }"""
    )
    page.goto(exported(view).as_uri())
    root = page.locator(".attnviz").first
    view.drawn(root, 0)
    root.get_by_role("button", name="Export").first.click()
    root.get_by_role("menuitem", name="PDF").first.click()
    page.wait_for_function("() => window.printed")
    printed: str = page.evaluate("() => window.printed")
    assert page.locator("iframe").count() == 0
    sheet = page.context.new_page()
    sheet.set_content(printed)
    document = pypdf.PdfReader(io.BytesIO(sheet.pdf(prefer_css_page_size=True)))
    sheet.close()
    [only] = document.pages
    assert "my model" in only.extract_text()
    width, height = (float(each) for each in re.findall(r"size: (\d+)px (\d+)px", printed)[0])
    assert (float(only.mediabox.width), float(only.mediabox.height)) == pytest.approx(
        (0.75 * width, 0.75 * height), abs=2
    )


@pytest.mark.slow
@each_view
def test_the_figure_of_python_has_the_texts_of_the_page(
    page: Page, view: HostedView, root: Locator, tmp_path: Path
) -> None:
    # The width of pictures that Python saves.
    page.set_viewport_size({"width": 1100, "height": 800})
    view.drawn(root, 0)
    saved = ET.parse(made(view).save(tmp_path / "view.svg")).getroot()  # noqa: S314 - our own
    assert texts(figure(root)) == texts(saved)
    page.set_viewport_size({"width": 1000, "height": 800})


@each_view
def test_hostile_tokens_and_names_are_text(page: Page, view: HostedView, tmp_path: Path) -> None:
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    traits = {"enlarged": True, "text": 1} if view.several else {}
    traits |= {} if view.measured else {"token": 1}
    widget = view.widget(record([*HOSTILE, "=1+1"], HOSTILE[0]), layer=0, heads=[1], **traits)
    page.goto(widget.save(tmp_path / "view.html").as_uri())
    root = page.locator(".attnviz").first
    view.drawn(root, 0)
    assert root.locator("img, script").count() == 0
    assert page.title().startswith(HOSTILE[0])
    expect(root).to_contain_text(HOSTILE[0])
    svg = figure(root)
    assert any("<script" in text for text in texts(svg))
    assert not {f"{SVG}script", f"{SVG}image"} & {mark.tag for mark in svg.iter()}
    cells = [cell for row in table(root) for cell in row.values()]
    assert cells
    # No cell starts a spreadsheet formula or contains a control character for text direction.
    assert not [cell for cell in cells if re.match(r"[=+@]|-(?!\d)", cell)]
    assert not [cell for cell in cells if "\u202e" in cell or "\x00" in cell]


@each_view
def test_the_theme_follows_the_reader_and_paper_is_light(page: Page, root: Locator) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        expect(root).to_have_attribute("data-theme", scheme)
    page.emulate_media(media="print")
    expect(root).to_have_attribute("data-theme", "light")
    expect(root.get_by_role("button", name="Export").first).to_be_hidden()
    expect(root.locator(".av-printed").first).to_contain_text("layer 0")


@cache
def answer() -> av.AttentionRecord:
    model, tokenizer = av.demos.load("decoder")
    return av.extract(model, "the animal did not cross the", tokenizer=tokenizer, generate=8)


def images() -> av.AttentionRecord:
    return captioned_record(images=2)


# Views in states that together show all of their elements.
STATES: dict[str, Callable[[], Any]] = {
    **{view.class_name: partial(made, view) for view in VIEWS},
    "pinned": lambda: av.HeadView(record(TOKENS), layer=1, heads=[0, 2], token=3),
    "answer": lambda: av.HeadView(answer(), layer=1, prediction=1),
    "matrix of an answer": lambda: av.MatrixView(answer(), layer=1, prediction=1),
    "thumbnails of an answer": lambda: av.ModelView(answer(), layer=1, prediction=1),
    "neuron view of an answer": lambda: av.NeuronView(answer(), layer=1, prediction=1),
    "dashboard of an answer": lambda: av.Dashboard(answer(), layer=1, prediction=1),
    "images": lambda: av.HeadView(images(), heads=[1], token=9),
    "matrix of images": lambda: av.MatrixView(images(), heads=[1], token=9),
    "head of images": lambda: av.ModelView(images(), heads=[1], token=9),
    "gallery": lambda: av.ModelView(record(TOKENS), layer=1, heads=[3, 1], order="first token"),
    "points of all heads": lambda: av.EmbeddingView(prose(), color="kind", search="dog"),
    "points": lambda: av.EmbeddingView(
        prose(), enlarged=True, layer=0, color="kind", search="dog", text=0, token=5
    ),
    "found edges": lambda: av.AtlasView(measured(), layer=0, heads=[1], key_search="kind:word"),
    "edges": lambda: av.AtlasView(measured(), layer=0, heads=[1], edges="strongest", text=3),
}

# Elements whose text is wider than the element, or lies outside the page.
CUT_OFF = """(root, width) => [...root.querySelectorAll("*")].filter((each) => {
  const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  // Candidates end in an ellipsis where there is no room.
  if (!own || each.closest(".av-unseen, .av-generated, svg, [aria-hidden]")) return false;
  const box = each.getBoundingClientRect();
  if (box.width === 0) return false;
  const wide = each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0;
  return wide || box.right > width + 0.5 || box.left < -0.5;
}).map((each) => `${each.className}: ${each.textContent}`.slice(0, 80))"""


# The checks of theme and width are independent, so each of them is tested once.
@pytest.mark.parametrize("window", [("light", 400), slow(("dark", 1100))], ids=str)
@pytest.mark.parametrize("name", STATES)
def test_nobody_is_shut_out_and_nothing_is_cut_off(
    page: Page, tmp_path: Path, name: str, window: Any
) -> None:
    scheme, width = window
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(STATES[name]().save(tmp_path / "view.html").as_uri())
    root = page.locator(".attnviz").first
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("."))
    expect(root).to_have_attribute("data-theme", scheme)
    assert overflow(root) <= 0
    assert root.evaluate(CUT_OFF, width) == []
    whole = page.locator("html")
    check(whole)
    root.get_by_role("button", name="Keys").first.click()
    expect(root.locator(".av-keys").first).to_be_visible()
    root.get_by_role("button", name="Export").first.click()
    expect(root.get_by_role("menuitem").first).to_be_visible()
    check(whole)
