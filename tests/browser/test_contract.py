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
from attnviz.record.notes import Note
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
Export = Callable[[str], "Path"]


def record(tokens: list[str], model: str = "my model") -> av.AttentionRecord:
    queries, keys = (vectors(3, 4, len(tokens), 16, seed=seed) for seed in (0, 1))
    made = av.AttentionRecord.from_qk(queries, keys, tokens, causal=True)
    return av.AttentionRecord(made.stacks, model=model, notes=[Note(NOTE, "not shown")])


@cache
def made(view: HostedView) -> Any:
    """Return the view at layer 0, head 0."""
    traits = {"enlarged": True} if view.several else {}
    return view.widget(record(TOKENS), layer=0, heads=[0], **traits)


@pytest.fixture(scope="session")
def export(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """Return a function that exports the page of a state of `STATES` once for all tests."""
    folder = tmp_path_factory.mktemp("contract")

    @cache
    def export(name: str) -> Path:
        path: Path = STATES[name]().save(folder / f"{name}.html")
        return path

    return export


def opened(page: Page, view: HostedView, export: Export, fragment: str = "") -> Locator:
    """Open the page of a view and return its root element once it has drawn layer 0."""
    page.goto(export(view.class_name).as_uri() + fragment)
    root = page.locator(".attnviz").first
    view.drawn(root, 0)
    return root


@each_view
def test_a_page_names_its_model_and_follows_the_theme_of_the_reader(
    page: Page, view: HostedView, export: Export
) -> None:
    # The page ignores these invalid parts of its address.
    root = opened(page, view, export, "#stack=none&layer=99&heads=77,-1,x&token=1e9&key=%00")
    expect(root.get_by_text("my model").first).to_be_visible()
    expect(root.get_by_text(NOTE)).to_be_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        expect(root).to_have_attribute("data-theme", scheme)


@each_view
def test_keys_change_the_layer_and_pin_a_token(
    page: Page, view: HostedView, export: Export
) -> None:
    root = opened(page, view, export)
    view.press(page, root, view.next_layer)
    view.drawn(root, 1)
    assert "layer=1" in page.url
    page.reload()
    view.drawn(root, 1)
    view.press(page, root, view.previous_layer)
    view.drawn(root, 0)
    if not view.pin:
        return
    pinned = re.compile(r"\btoken=\d")
    root.locator(".av-plot").first.focus()
    for key in view.pin:
        page.keyboard.press(key)
    expect(page).to_have_url(pinned)
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(pinned)


# Positions of the pictures on the page.
POSITIONS = """(root) => [...root.querySelectorAll(".av-plot, .av-grid-box")].map((picture) => {
  const { left, top } = picture.getBoundingClientRect();
  return [Math.round(left + scrollX), Math.round(top + scrollY)];
})"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(
    "view",
    [view for view in VIEWS if view.pin and not view.several],
    ids=lambda view: view.class_name,
)
def test_pictures_do_not_move_during_pin_choice_and_search(
    page: Page, view: HostedView, export: Export, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    root = opened(page, view, export)
    positions = root.evaluate(POSITIONS)
    plot = root.locator(".av-plot").first
    plot.focus()
    for keys in (("ArrowLeft", "ArrowDown", "Enter"), ("ArrowRight", "ArrowDown", "Enter")):
        for key in keys:
            page.keyboard.press(key)
        expect(page).to_have_url(re.compile(r"\btoken=\d"))
        assert root.evaluate(POSITIONS) == positions
    page.keyboard.press("2")
    expect(page).to_have_url(re.compile(r"\bheads=(0,)?2"))
    assert root.evaluate(POSITIONS) == positions
    plot.hover()
    assert root.evaluate(POSITIONS) == positions
    for field in root.get_by_role("searchbox").all():
        if field.is_visible():
            field.fill("cat")
            expect(root).to_contain_text("2 found")
    assert root.evaluate(POSITIONS) == positions


@each_view
def test_the_menu_exports_named_files_and_prints_the_picture_on_one_page(
    page: Page, view: HostedView, export: Export
) -> None:
    page.add_init_script(
        """window.print = () => {
          if (window !== top) top.printed = document.documentElement.outerHTML;
          window.dispatchEvent(new Event("afterprint"));
        }"""
    )
    root = opened(page, view, export)

    def choose(entry: str) -> None:
        root.get_by_role("button", name="Export").first.click()
        root.get_by_role("menuitem", name=entry).first.click()

    name = {"dashboard": "my-model-dashboard", "atlas": "attention-atlas"}.get(
        view.name, f"my-model-{view.name}-view"
    )
    # PNG takes seconds and uses the same code in all views, so it is not exported here.
    for kind in ("SVG", "CSV"):
        with page.expect_download() as download:
            choose(kind)
        assert download.value.suggested_filename == f"{name}-layer-0.{kind.lower()}"
        assert download.value.path().stat().st_size > 100
    choose("PDF")
    page.wait_for_function("() => window.printed")
    printed: str = page.evaluate("() => window.printed")
    assert page.locator("iframe").count() == 0
    sheet = page.context.new_page()
    sheet.set_content(printed)
    document = pypdf.PdfReader(io.BytesIO(sheet.pdf(prefer_css_page_size=True)))
    sheet.close()
    [only_page] = document.pages
    assert "my model" in only_page.extract_text()
    width, height = map(float, re.findall(r"size: (\d+)px (\d+)px", printed)[0])
    assert (float(only_page.mediabox.width), float(only_page.mediabox.height)) == pytest.approx(
        (0.75 * width, 0.75 * height), abs=2
    )


@pytest.mark.slow
@each_view
def test_the_figure_of_python_has_the_texts_of_the_page(
    page: Page, view: HostedView, export: Export, tmp_path: Path
) -> None:
    # Python saves pictures of views at a width of 1,100 pixels.
    page.set_viewport_size({"width": 1100, "height": 800})
    root = opened(page, view, export)
    saved = ET.parse(made(view).save(tmp_path / "view.svg")).getroot()  # noqa: S314 - our own

    def words(picture: ET.Element) -> str:
        # A page rounds weights to one byte and says so, also that blank cells may be small weights.
        text = " ".join(" ".join(texts(picture)).split())
        return re.sub(r"(exact) to [\d.]+|(no weight) or less than [\d.e−]+", r"\1\2", text)

    assert words(figure(root)) == words(saved)


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


@cache
def answer() -> av.AttentionRecord:
    model, tokenizer = av.demos.load("decoder")
    return av.extract(model, "the animal did not cross the", tokenizer=tokenizer, generate=8)


def images() -> av.AttentionRecord:
    return captioned_record(images=2)


# Views in states that together show all of their elements.
STATES: dict[str, Callable[[], Any]] = {
    **{view.class_name: partial(made, view) for view in VIEWS},
    "answer": lambda: av.HeadView(answer(), layer=1, heads=[0, 2], prediction=1),
    "dashboard of an answer": lambda: av.Dashboard(answer(), layer=1, prediction=1),
    "images": lambda: av.HeadView(images(), heads=[1], token=9),
    "matrix of images": lambda: av.MatrixView(images(), heads=[1], token=9),
    "gallery": lambda: av.ModelView(record(TOKENS), layer=1, heads=[3, 1], order="first token"),
    "points of all heads": lambda: av.EmbeddingView(prose(), color="kind", search="dog"),
    "points": lambda: av.EmbeddingView(
        prose(), enlarged=True, layer=0, color="kind", search="dog", text=0, token=5
    ),
    "edges": lambda: av.AtlasView(measured(), layer=0, heads=[1], edges="strongest"),
}

# Elements whose text is wider than the element, or lies outside the page.
CUT_OFF = """(root, width) => [...root.querySelectorAll("*")].filter((element) => {
  const hasText = [...element.childNodes].some(
    (node) => node.nodeType === 3 && node.data.trim());
  // Candidates end in an ellipsis if they do not fit.
  if (!hasText || element.closest(".av-unseen, .av-generated, svg, [aria-hidden]")) return false;
  const box = element.getBoundingClientRect();
  if (box.width === 0) return false;
  const wide = element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0;
  return wide || box.right > width + 0.5 || box.left < -0.5;
}).map((element) => `${element.className}: ${element.textContent}`.slice(0, 80))"""


# Colours depend on the theme only and cut-off texts on the width only. So two combinations suffice.
@pytest.mark.parametrize(("theme", "width"), [("light", 400), slow("dark", 1100)])
@pytest.mark.parametrize("name", STATES)
def test_every_state_is_accessible_and_no_text_is_cut_off(
    page: Page, export: Export, name: str, theme: Any, width: int
) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(export(name).as_uri())
    root = page.locator(".attnviz").first
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("."))
    expect(root).to_have_attribute("data-theme", theme)
    assert overflow(root) <= 0
    assert root.evaluate(CUT_OFF, width) == []
    check(page.locator("html"))
    root.get_by_role("button", name="Keys").first.click()
    expect(root.locator(".av-keys").first).to_be_visible()
    root.get_by_role("button", name="Export").first.click()
    expect(root.get_by_role("menuitem").first).to_be_visible()
    check(root.locator(".av-keys").first)
    check(root.get_by_role("menu").first)
