"""Tests of the options of saved pictures, such as lengths, fonts and colours."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.pages.figure import parse_figure_options
from unit.records import given_record


@pytest.mark.parametrize(
    ("value", "inches"),
    [
        ("84mm", 84 / 25.4),
        (" 3.3 in", 3.3),
        ("240pt", 240 / 72),
        ("20pc", 20 / 6),
        (np.float32(480), 5),
    ],
)
def test_widths_have_units_and_bare_numbers_are_css_pixels(value: Any, inches: float) -> None:
    # CSS has 96 pixels to the inch.
    assert parse_figure_options({"width": value}).request["width"] == pytest.approx(96 * inches)


def test_sizes_of_text_are_points() -> None:
    # An inch has 72 points and 96 pixels.
    for size in (9, "9pt", "12px"):
        options = parse_figure_options({"font_size": size})
        assert options.request["fontSize"] == pytest.approx(12)


def test_the_defaults_are_those_of_the_screen() -> None:
    assert parse_figure_options({}).request == {"caption": True, "legend": True}
    assert parse_figure_options({"width": None, "title": None}) == parse_figure_options({})


def test_dots_per_inch_set_the_scale() -> None:
    assert parse_figure_options({"dpi": 300, "scale": 7}).scale == pytest.approx(300 / 96)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"width": "wide"}, ValueError, "84mm"),
        ({"width": 84}, ValueError, 'are 22 mm. Pass a unit, such as width="84mm"'),
        ({"width": "84mm; x"}, ValueError, "84mm"),
        ({"width": 0}, ValueError, "between 20 and 3000 mm"),
        ({"width": math.nan}, ValueError, "between"),
        ({"width": [84]}, TypeError, "84mm"),
        ({"font_size": 1}, ValueError, "between 3 and 72 pt"),
        ({"font_size": "large"}, ValueError, "font_size='large'"),
        ({"font": "a, b"}, ValueError, "one name"),
        ({"font": 'x"; } </style><script>'}, ValueError, "one name"),
        ({"font": ("Arial", 3)}, TypeError, "a pair of fonts"),
        ({"content": "picture"}, ValueError, '"image" for the image with its weights alone'),
        ({"scale": 0}, ValueError, "between 0.1 and 32"),
        ({"scale": "2"}, TypeError, "scale='2' must be a number"),
        ({"dpi": 1e9}, ValueError, "between 18 and 2400"),
        ({"title": 3}, TypeError, 'Pass "" to leave it out'),
        ({"caption": 1}, TypeError, "True or False"),
        ({"theme": "blue"}, ValueError, '"light", "dark"'),
        ({"background": "red"}, ValueError, "#1b6ab3"),
        ({"colors": ["red"]}, ValueError, "#1b6ab3"),
        ({"colors": ["#000000"] * 9}, TypeError, "at most 8"),
        ({"widht": "84mm"}, TypeError, "'widht'. Its arguments are content, width"),
    ],
)
def test_errors_name_the_argument_and_a_valid_value(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as raised:
        parse_figure_options(options)
    assert words in str(raised.value)
    assert next(iter(options)) in str(raised.value)


def test_a_page_refuses_options_of_pictures(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"width= is for pictures.*\.pdf"):
        av.HeadView(given_record()).save(tmp_path / "x.html", width="84mm")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_browser_is_reported_before_the_page_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNVIZ_BROWSER", str(tmp_path / "none"))
    view = av.HeadView(given_record())
    monkeypatch.setattr(type(view), "_page", lambda *_: pytest.fail("the page was made"))
    with pytest.raises(RuntimeError, match="apt-get install chromium"):
        view.save(tmp_path / "x.pdf")
    with pytest.raises(RuntimeError, match="ATTNVIZ_BROWSER"):
        view.to_svg()
