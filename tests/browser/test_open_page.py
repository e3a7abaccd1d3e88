"""The page that opens saved records: a file is dropped on it, and its views are drawn."""

from __future__ import annotations

import base64
import csv
import io
import json
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import attnviz as av
from attnviz.pages.opener import opener_page
from browser.accessibility import check
from marks import slow
from unit.records import HOSTILE, shares

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

VIEWS = ("Head", "Matrix", "Model", "Neuron")
FIXTURE = Path(__file__).parents[1] / "fixtures" / "records.json"

# As a reader drops a file; `files` are names and base64.
_DROP = """files => {
  const transfer = new DataTransfer();
  for (const [name, text] of files) {
    const bytes = Uint8Array.from(atob(text), each => each.charCodeAt(0));
    transfer.items.add(new File([bytes], name));
  }
  for (const type of ["dragenter", "dragover", "drop"]) {
    const event = new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true });
    document.body.dispatchEvent(event);
  }
}"""


@pytest.fixture(scope="module")
def opener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("opener") / "open.html"
    path.write_text(opener_page(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def record() -> Any:
    model, tokenizer = av.demos.load("decoder")
    return av.extract(model, "The cat sat on the mat. The cat", tokenizer=tokenizer)


def drop(page: Page, *files: tuple[str, bytes]) -> None:
    encoded = [(name, base64.b64encode(data).decode("ascii")) for name, data in files]
    page.evaluate(_DROP, encoded)


def start(page: Page, opener: Path) -> None:
    page.goto(opener.as_uri())
    expect(page.get_by_role("heading", name="Open an attention record")).to_be_visible()


def show(page: Page, view: str) -> Locator:
    page.get_by_role("tab", name=view).click()
    # The view before it is there until it is drawn.
    drawn = f'[data-attnviz-drawn^="{view.lower()}:"]'
    root = page.locator(f"#av-open-view > .attnviz{drawn}")
    expect(root).to_have_attribute("data-attnviz-state", "ready")
    expect(root).to_have_count(1)
    return root


@pytest.mark.parametrize(
    "window",
    [("light", 1000), slow(("dark", 360))],
    ids=["wide", "narrow"],
)
def test_a_dropped_record_is_shown_in_four_views(
    page: Page, opener: Path, record: Any, tmp_path: Path, window: Any
) -> None:
    scheme, width = window
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    start(page, opener)
    path = record.save(tmp_path / "cats.safetensors")
    drop(page, (path.name, path.read_bytes()))
    expect(page.get_by_role("heading", name="cats.safetensors")).to_be_visible()
    expect(page.locator(".av-open-file")).to_contain_text("3 layers, 9 tokens")
    for view in VIEWS:
        root = show(page, view)
        expect(root).to_have_attribute("data-theme", scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    check(page.locator("html"))
    # The numbers are Python's.
    root = show(page, "Matrix")
    rows = list(csv.DictReader(io.StringIO(root.evaluate("root => root.attnviz.csv()"))))
    wanted = record.stack().weights(layer=0).mean(axis=0)
    assert len(rows) == wanted.size
    for row in rows:
        found = wanted[int(row["query"]), int(row["key"])]
        assert float(row["weight"]) == pytest.approx(found, abs=1e-4)


def test_views_keep_their_place_and_the_keyboard_reaches_all(
    page: Page, opener: Path, record: Any, tmp_path: Path
) -> None:
    start(page, opener)
    page.keyboard.press("Tab")
    expect(page.locator("input[type=file]")).to_be_focused()
    path = record.save(tmp_path / "cats.safetensors")
    page.set_input_files("input[type=file]", path)
    root = show(page, "Head")
    root.get_by_role("button", name="Layer 2").click()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:2")
    page.get_by_role("tab", name="Head").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Matrix")).to_be_focused()
    root = page.locator("#av-open-view > .attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "matrix:self:2")
    # What cannot be read is said, and what is open stays.
    drop(page, ("broken.safetensors", path.read_bytes()[:-1]))
    expect(page.get_by_role("alert")).to_contain_text("broken.safetensors This file is damaged")
    check(page.locator("html"))
    drop(page, ("a", b"1"), ("b", b"2"))
    expect(page.get_by_role("alert")).to_contain_text("Open one record at a time")
    expect(root).to_have_attribute("data-attnviz-drawn", "matrix:self:2")
    # Another record opens where its views open.
    page.set_input_files("input[type=file]", path)
    expect(root).to_have_attribute("data-attnviz-drawn", "matrix:self:0")
    expect(page.get_by_role("alert")).to_be_empty()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack("<Q", 2**60) + b"{}", "This is not a saved record"),
        (b"PK\x03\x04" + bytes(100), "This is not a saved record"),
        (b"\x80\x04\x95" + bytes(100), "This is not a saved record"),
        (b"", "it has 0 bytes"),
    ],
    ids=["2^60", "zip", "pickle", "empty"],
)
def test_another_file_is_refused_in_words(
    page: Page, opener: Path, data: bytes, words: str
) -> None:
    start(page, opener)
    drop(page, ("<script>alert(1)</script>.safetensors", data))
    expect(page.get_by_role("alert")).to_contain_text(words)
    expect(page.get_by_role("alert")).to_contain_text("<script>alert(1)</script>.safetensors")


def test_a_folder_is_refused_with_the_way_to_a_file(
    page: Page, opener: Path, tmp_path: Path
) -> None:
    start(page, opener)
    devtools = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(tmp_path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        dragged = {"type": kind, "x": 200, "y": 200, "data": data}
        devtools.send("Input.dispatchDragEvent", dragged)
    expect(page.get_by_role("alert")).to_contain_text("This is a folder.")
    expect(page.get_by_role("alert")).to_contain_text('av.load("folder").save(')


def test_hostile_texts_are_text(page: Page, opener: Path, tmp_path: Path) -> None:
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    record = av.AttentionRecord.from_weights(
        [shares(2, 12, 12)], list(HOSTILE), model="<img src=x onerror=alert(1)>"
    )
    start(page, opener)
    path = record.save(tmp_path / "x.safetensors")
    drop(page, ("<b>x</b>.safetensors", path.read_bytes()))
    for view in VIEWS[:3]:
        show(page, view)
    expect(page.locator("#av-open-view")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator("#attnviz img, #attnviz script, .av-open-file b")).to_have_count(0)
    # Of weights alone the neuron view has nothing to show, and says so.
    page.get_by_role("tab", name="Neuron").click()
    expect(page.locator(".av-only-weights")).to_contain_text("only weights are known")


def test_weights_that_are_nan_are_refused_where_they_are_shown(page: Page, opener: Path) -> None:
    fixture = json.loads(FIXTURE.read_text(encoding="utf-8"))["unshown"]
    start(page, opener)
    drop(page, ("nan.safetensors", zlib.decompress(base64.b64decode(fixture["file"]))))
    root = page.locator("#av-open-view > .attnviz")
    expect(root).to_have_attribute("data-attnviz-state", "error")
    expect(root).to_contain_text("some weights are NaN or infinite")
