"""Tests of exports in frames whose sandbox forbids downloads."""

from __future__ import annotations

import csv
import html
import io
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.chromium import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, FrameLocator, Page

# Hostile tokens and line breaks: the offered text must equal the text of the file.
TOKENS = ["The", "=1+1", "a\tb\nc", "</textarea>", "end"]
REFUSED = r"Download is disallowed|frame initiating or instantiating the download is sandboxed"


@pytest.fixture(scope="module")
def exported() -> str:
    generator = torch.Generator().manual_seed(0)
    weights = torch.softmax(3 * torch.randn(2, 2, 5, 5, generator=generator), -1)
    record = av.AttentionRecord.from_weights(weights, TOKENS, model="my model")
    return av.HeadView(record, layer=1, heads=[0]).to_html()


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(offline=True, accept_downloads=True)
    page = context.new_page()
    watch = Watch(known=(REFUSED,))
    watch.follow(page)
    yield page
    context.close()
    watch.check()


def framed(page: Page, folder: Path, exported: str, sandbox: str | None) -> FrameLocator:
    attribute = "" if sandbox is None else f'sandbox="{sandbox}"'
    host = folder / "host.html"
    host.write_text(
        f'<!doctype html><meta charset="utf-8"><iframe {attribute} width="900" height="700" '
        f'srcdoc="{html.escape(exported)}"></iframe><textarea id="paste"></textarea>',
        encoding="utf-8",
    )
    page.goto(host.as_uri())
    frame = page.frame_locator("iframe")
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("^head:"))
    return frame


def export(frame: FrameLocator, name: str) -> None:
    frame.get_by_role("button", name="Export").click()
    frame.get_by_role("menuitem", name=name).click()


def pasted(page: Page) -> str:
    page.locator("#paste").fill("")
    page.locator("#paste").press("Control+v")
    return page.locator("#paste").input_value()


def test_a_sandbox_without_downloads_offers_the_text(
    tab: Page, tmp_path: Path, exported: str
) -> None:
    frame = framed(tab, tmp_path, exported, "allow-scripts")
    arrived: list[str] = []
    tab.on("download", lambda download: arrived.append(download.suggested_filename))
    export(frame, "Lines drawn, CSV")
    offer = frame.get_by_role("region", name="my-model-head-view-layer-1.csv")
    expect(offer).to_contain_text("If my-model-head-view-layer-1.csv was not saved")
    expect(offer).to_contain_text("its sandbox lacks allow-downloads")
    shown = offer.get_by_role("textbox").input_value()
    # The text is selected and ready to copy.
    expect(offer.get_by_role("textbox")).to_be_focused()
    tab.keyboard.press("Control+c")
    assert pasted(tab) == shown
    rows = list(csv.DictReader(io.StringIO(shown)))
    assert {row["query_token"] for row in rows} <= {"The", "'=1+1", "a⇥b⏎c", "</textarea>", "end"}
    assert len(rows) > 5
    assert arrived == []
    offer.get_by_role("button", name="Close").click()
    expect(offer).to_have_count(0)


@pytest.mark.slow
def test_a_sandbox_without_downloads_offers_the_picture(
    tab: Page, tmp_path: Path, exported: str
) -> None:
    frame = framed(tab, tmp_path, exported, "allow-scripts")
    export(frame, "Picture, SVG")
    svg = frame.get_by_role("region", name="my-model-head-view-layer-1.svg").get_by_role("textbox")
    assert ET.fromstring(svg.input_value()).tag.endswith("svg")  # noqa: S314 (our own file)
    frame.locator(".av-offer").press("Escape")
    expect(frame.locator(".av-offer")).to_have_count(0)
    # The focus returns to the button.
    expect(frame.get_by_role("button", name="Export")).to_be_focused()
    export(frame, "Picture, PNG")
    offer = frame.get_by_role("region", name="my-model-head-view-layer-1.png")
    expect(offer).to_contain_text("right-click")
    picture = offer.get_by_role("img")
    size = picture.evaluate(
        "async (image) => { await image.decode(); "
        "return [image.naturalWidth, image.naturalHeight] }"
    )
    assert min(size) > 400


def test_where_the_sandbox_allows_it_the_file_arrives(
    tab: Page, tmp_path: Path, exported: str
) -> None:
    frame = framed(tab, tmp_path, exported, "allow-scripts allow-downloads")
    with tab.expect_download() as download:
        export(frame, "Picture, SVG")
    assert download.value.path().read_text(encoding="utf-8").startswith("<svg")
    # The page cannot detect that the download succeeded.
    expect(frame.locator(".av-offer")).to_contain_text("was not saved")


def test_a_readable_sandbox_is_not_asked_for_what_it_forbids(
    tab: Page, tmp_path: Path, exported: str
) -> None:
    # A frame with the same origin as its host, as in about:blank and in experiment trackers.
    tab.goto("about:blank")
    tab.set_content('<iframe sandbox="allow-scripts allow-same-origin" width="900"></iframe>')
    tab.locator("iframe").evaluate("(frame, page) => { frame.srcdoc = page }", exported)
    frame = tab.frame_locator("iframe")
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("^head:"))
    arrived: list[str] = []
    tab.on("download", lambda download: arrived.append(download.suggested_filename))
    export(frame, "Lines drawn, CSV")
    expect(frame.locator(".av-offer")).to_contain_text("was not saved: this frame does not allow")
    assert arrived == []


@pytest.mark.parametrize("in_a_frame", [True, False], ids=["frame", "page"])
def test_nothing_is_offered_where_downloads_are_allowed(
    tab: Page, tmp_path: Path, exported: str, in_a_frame: bool
) -> None:
    page = tmp_path / "view.html"
    page.write_text(exported, encoding="utf-8")
    if in_a_frame:
        tab.goto("about:blank")
        tab.set_content('<iframe width="900" height="700"></iframe>')
        tab.locator("iframe").evaluate("(frame, page) => { frame.srcdoc = page }", exported)
        frame = tab.frame_locator("iframe")
    else:
        tab.goto(page.as_uri())
        frame = tab.locator("html")  # type: ignore[assignment]
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("^head:"))
    with tab.expect_download() as download:
        export(frame, "Lines drawn, CSV")
    assert download.value.suggested_filename == "my-model-head-view-layer-1.csv"
    expect(frame.locator(".av-offer")).to_have_count(0)
