"""Test exported pages in Firefox and WebKit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import attnviz as av
from browser import test_forced_colours
from browser.other_browsers import open_drawn, start
from browser.test_atlas_page import measured

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from browser.other_browsers import Browser

VIEWS = ["head", "model", "matrix", "neuron", "compare", "dashboard", "atlas", "all heads"]


def made(name: str, **traits: Any) -> Any:
    if name == "atlas":
        return av.AtlasView(measured(), **traits)
    return test_forced_colours.made(name, **traits)


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
