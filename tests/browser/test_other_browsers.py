"""Test exported pages in Firefox and WebKit, and the printed page of Firefox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pypdfium2
import pytest

import attnviz as av
from browser import test_paper_and_contrast
from browser.other_browsers import Firefox, open_drawn, start
from browser.test_atlas_page import measured

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from browser.other_browsers import Browser

VIEWS = ["head", "model", "matrix", "neuron", "compare", "dashboard", "atlas", "all heads"]


def made(name: str, **traits: Any) -> Any:
    if name == "atlas":
        return av.AtlasView(measured(), **traits)
    return test_paper_and_contrast.made(name, **traits)


@pytest.fixture(scope="module", params=["firefox", "webkit"])
def browser(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    browser = start(request.param, tmp_path_factory.mktemp(request.param))
    yield browser
    browser.close()


@pytest.mark.parametrize("name", VIEWS)
def test_every_page_draws_without_a_problem(browser: Browser, tmp_path: Path, name: str) -> None:
    open_drawn(browser, made(name).save(tmp_path / "view.html"))
    drawn = browser.evaluate(
        """[...document.querySelectorAll("canvas")].filter(({ width, height }) => width && height)
        .map((canvas) => canvas.getContext("2d")
            .getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))"""
    )
    assert any(drawn)
    assert browser.evaluate("document.querySelector('.attnviz').dataset.attnvizState") != "error"


def test_the_name_of_a_group_of_controls_is_on_their_line(browser: Browser, tmp_path: Path) -> None:
    open_drawn(browser, made("head").save(tmp_path / "head.html"))
    boxes = browser.evaluate(
        """[...[...document.querySelectorAll("fieldset")]
            .find((each) => each.textContent.startsWith("Layer")).children]
        .map((each) => each.getBoundingClientRect().toJSON())"""
    )
    middles = [(box["top"] + box["bottom"]) / 2 for box in boxes]
    assert len(middles) > 1
    assert np.ptp(middles) < 4


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    browser = start("firefox", tmp_path_factory.mktemp("printing"))
    assert isinstance(browser, Firefox)
    yield browser
    browser.close()


def printed(firefox: Firefox) -> tuple[pypdfium2.PdfPage, NDArray[np.int64]]:
    """Return the first printed sheet and its pixels, at two pixels per point."""
    sheet = pypdfium2.PdfDocument(firefox.print())[0]
    return sheet, np.asarray(sheet.render(scale=2).to_pil().convert("RGB")).astype(np.int64)


@pytest.mark.parametrize("name", VIEWS)
def test_firefox_prints_light_pictures_with_whole_texts(
    firefox: Firefox, tmp_path: Path, name: str
) -> None:
    open_drawn(firefox, made(name, theme="light").save(tmp_path / "light.html"))
    _, expected = printed(firefox)
    open_drawn(firefox, made(name, theme="dark").save(tmp_path / "dark.html"))
    sheet, pixels = printed(firefox)
    assert (np.abs(pixels - expected).max(axis=-1) > 100).mean() < 0.002
    # A letter that is cut off leaves no ink in its box.
    text = sheet.get_textpage()
    letters = [i for i in range(text.count_chars()) if text.get_text_range(i, 1).strip(" .\r\n")]
    assert len(letters) > 100
    for i in letters:
        left, bottom, right, top = text.get_charbox(i)
        height = sheet.get_height()
        rows = slice(int(2 * (height - top)) - 1, int(2 * (height - bottom)) + 2)
        ink = 255 - pixels[rows, int(2 * left) : int(2 * right) + 2].min(axis=-1)
        assert np.ptp(ink) > 40, text.get_text_range(max(0, i - 20), 21)
    # Printing does not change the page on the screen.
    assert firefox.evaluate("document.querySelector('.attnviz').dataset.theme") == "dark"
    assert firefox.evaluate(
        "[...document.querySelectorAll('canvas')].every((each) => each.style.display !== 'none')"
    )


def test_firefox_prints_panes_as_wide_as_they_were_drawn(firefox: Firefox, tmp_path: Path) -> None:
    open_drawn(firefox, made("dashboard").save(tmp_path / "view.html"))
    text = printed(firefox)[0].get_textpage()
    titles = ["Model view", "Head view", "Matrix view"]
    paper = [text.get_charbox(text.search(title).get_next()[0])[0] for title in titles]
    screen = firefox.evaluate(
        "[...document.querySelectorAll('.av-pane')].map((e) => e.getBoundingClientRect().left)"
    )
    shares = [(left[1] - left[0]) / (left[2] - left[0]) for left in (paper, screen)]
    assert shares[0] == pytest.approx(shares[1], abs=0.01)
