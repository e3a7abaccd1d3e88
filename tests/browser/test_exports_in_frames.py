"""Tests of exports in frames whose sandbox forbids downloads."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.chromium import Watch
from unit.records import shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, FrameLocator, Page

# Hostile tokens and line breaks: the offered text must equal the text of the file.
TOKENS = ["The", "=1+1", "a\tb\nc", "</textarea>", "end"]
REFUSED = r"Download is disallowed|frame initiating or instantiating the download is sandboxed"


@pytest.fixture(scope="module")
def exported() -> str:
    record = av.AttentionRecord.from_weights(list(shares(2, 2, 5, 5)), TOKENS, model="my model")
    return av.HeadView(record, layer=1, heads=[0]).to_html()


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(offline=True, accept_downloads=True)
    page = context.new_page()
    watch = Watch(ignored=(REFUSED,))
    watch.follow(page)
    yield page
    context.close()
    watch.check()


def framed(page: Page, exported: str, sandbox: str) -> FrameLocator:
    """Open a page in a frame with these permissions."""
    page.goto("about:blank")
    page.set_content(
        f'<iframe sandbox="{sandbox}" width="900" height="700"></iframe>'
        '<textarea id="paste"></textarea>'
    )
    page.locator("iframe").evaluate("(frame, page) => { frame.srcdoc = page }", exported)
    frame = page.frame_locator("iframe")
    expect(frame.locator(".attnviz")).to_have_attribute("data-attnviz-drawn", re.compile("^head:"))
    return frame


def export(frame: FrameLocator, name: str) -> None:
    frame.get_by_role("button", name="Export").click()
    frame.get_by_role("menuitem", name=name).click()


def test_a_sandbox_without_downloads_offers_the_text(tab: Page, exported: str) -> None:
    frame = framed(tab, exported, "allow-scripts")
    downloads: list[str] = []
    tab.on("download", lambda download: downloads.append(download.suggested_filename))
    export(frame, "Lines drawn, CSV")
    offer = frame.get_by_role("region", name="my-model-head-view-layer-1.csv")
    expect(offer).to_contain_text("its sandbox lacks allow-downloads")
    text = offer.get_by_role("textbox").input_value()
    # The text is selected and ready to copy.
    expect(offer.get_by_role("textbox")).to_be_focused()
    tab.keyboard.press("Control+c")
    tab.locator("#paste").press("Control+v")
    assert tab.locator("#paste").input_value() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["query_token"] for row in rows} <= {"The", "'=1+1", "a⇥b⏎c", "</textarea>", "end"}
    assert len(rows) > 5
    assert downloads == []
    offer.get_by_role("button", name="Close").click()
    expect(offer).to_have_count(0)


def test_a_sandbox_that_allows_downloads_saves_the_file(tab: Page, exported: str) -> None:
    frame = framed(tab, exported, "allow-scripts allow-downloads")
    with tab.expect_download() as download:
        export(frame, "Picture, SVG")
    assert download.value.path().read_text(encoding="utf-8").startswith("<svg")
    # The page cannot detect that the download succeeded.
    expect(frame.locator(".av-offer")).to_contain_text("was not saved")


def test_a_sandbox_that_the_page_can_read_starts_no_forbidden_download(
    tab: Page, exported: str
) -> None:
    # A frame with the same origin as its host, as in experiment trackers.
    frame = framed(tab, exported, "allow-scripts allow-same-origin")
    downloads: list[str] = []
    tab.on("download", lambda download: downloads.append(download.suggested_filename))
    export(frame, "Lines drawn, CSV")
    expect(frame.locator(".av-offer")).to_contain_text("was not saved: this frame does not allow")
    assert downloads == []
