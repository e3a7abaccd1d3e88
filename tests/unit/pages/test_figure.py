"""Options of pictures: lengths, fonts, colours, and error messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import attnviz as av
from attnviz.pages.figure import parse_figure_options

if TYPE_CHECKING:
    from pathlib import Path


def view() -> av.HeadView:
    return av.HeadView(av.AttentionRecord.from_weights(np.ones((1, 1, 1, 1)), ["one"]))


@pytest.mark.parametrize(
    ("value", "inches"),
    [
        ("84mm", 84 / 25.4),
        (" 3.3 in", 3.3),
        ("240pt", 240 / 72),
        ("12cm", 12 / 2.54),
        ("20pc", 20 / 6),
        ("480px", 5),
        (480, 5),
        (480.0, 5),
        (np.float32(480), 5),
    ],
)
def test_widths_have_units_and_bare_numbers_are_css_pixels(value: Any, inches: float) -> None:
    width = parse_figure_options({"width": value}).width
    assert width is not None
    # CSS has 96 pixels to the inch.
    assert math.isclose(width, 96 * inches, rel_tol=1e-6)


def test_sizes_of_text_are_points() -> None:
    # An inch has 72 points and 96 pixels.
    assert parse_figure_options({"font_size": 9}).font_size == pytest.approx(12)
    assert parse_figure_options({"font_size": "9pt"}).font_size == pytest.approx(12)
    assert parse_figure_options({"font_size": "12px"}).font_size == pytest.approx(12)


def test_the_defaults_are_those_of_the_screen() -> None:
    assert parse_figure_options({}).request() == {"caption": True, "legend": True}
    none: dict[str, Any] = dict.fromkeys(
        ["width", "font_size", "font", "dpi", "title", "theme", "background", "colors"]
    )
    assert parse_figure_options(none) == parse_figure_options({})


def test_dots_per_inch_set_the_scale() -> None:
    assert parse_figure_options({"dpi": 300, "scale": 7}).scale == pytest.approx(300 / 96)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"width": "wide"}, ValueError, "84mm"),
        ({"width": "84"}, ValueError, "84mm"),
        (
            {"width": 84},
            ValueError,
            'CSS pixels, which are 22 mm. Pass a unit, such as width="84mm"',
        ),
        ({"width": "84mm; x"}, ValueError, "84mm"),
        ({"width": "1e3mm"}, ValueError, "84mm"),
        ({"width": ""}, ValueError, "84mm"),
        ({"width": 0}, ValueError, "between 20 and 3000 mm"),
        ({"width": -320}, ValueError, "between 20 and 3000 mm"),
        ({"width": math.nan}, ValueError, "between"),
        ({"width": math.inf}, ValueError, "between"),
        ({"width": "9" * 400 + "mm"}, ValueError, "between"),
        ({"width": True}, TypeError, "84mm"),
        ({"width": [84]}, TypeError, "84mm"),
        ({"width": b"84mm"}, TypeError, "84mm"),
        ({"font_size": 1}, ValueError, "between 3 and 72 pt"),
        ({"font_size": "large"}, ValueError, "font_size='large'"),
        ({"font": 8}, TypeError, "name of a font"),
        ({"font": ""}, ValueError, "one name"),
        ({"font": "a, b"}, ValueError, "one name"),
        ({"font": 'x"; } </style><script>'}, ValueError, "one name"),
        ({"font": ("Arial",)}, TypeError, "a pair of fonts"),
        ({"font": ("Arial", 3)}, TypeError, "3 must be a string, the name"),
        ({"scale": 0}, ValueError, "between 0.1 and 32"),
        ({"scale": None}, TypeError, "scale=None"),
        ({"scale": "2"}, TypeError, "scale='2' must be a number"),
        ({"dpi": 1e9}, ValueError, "between 18 and 2400"),
        ({"dpi": math.nan}, ValueError, "between"),
        ({"title": 3}, TypeError, 'Pass "" to leave it out'),
        ({"caption": 1}, TypeError, "True or False"),
        ({"legend": "no"}, TypeError, "True or False"),
        ({"theme": "blue"}, ValueError, '"light", "dark"'),
        ({"background": "red"}, ValueError, "#ffffff"),
        ({"background": "#000000"}, ValueError, 'theme="dark"'),
        ({"background": "#ffffff", "theme": "dark"}, ValueError, 'theme="light"'),
        ({"colors": "#123456"}, TypeError, "list of colors"),
        ({"colors": []}, TypeError, "list of colors"),
        ({"colors": ["red"]}, ValueError, "#1b6ab3"),
        ({"colors": ["#ffff00"]}, ValueError, "contrast of 1.1"),
        ({"colors": ["#000000"] * 9}, ValueError, "at most 8"),
        ({"widht": "84mm"}, TypeError, "'widht'. Its arguments are width"),
    ],
)
def test_errors_name_the_argument_and_a_valid_value(
    options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as raised:
        parse_figure_options(options)
    assert words in str(raised.value)
    assert next(iter(options)) in str(raised.value)


def test_some_options_need_the_dark_theme() -> None:
    assert parse_figure_options({"background": "#000000"}, "dark").background == "#000000"
    assert parse_figure_options({"colors": ["#ffff00"], "theme": "dark"}).colors == ("#ffff00",)


def test_a_page_refuses_options_of_pictures(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"width= is for pictures.*\.pdf"):
        view().save(tmp_path / "x.html", width="84mm")
    with pytest.raises(TypeError, match="widht"):
        view().save(tmp_path / "x.svg", widht="84mm")  # type: ignore[call-arg]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_browser_is_reported_before_the_page_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNVIZ_BROWSER", str(tmp_path / "none"))
    head_view = view()
    monkeypatch.setattr(type(head_view), "_page", lambda *_: pytest.fail("the page was made"))
    for ending in ("pdf", "svg", "png"):
        with pytest.raises(RuntimeError, match="apt-get install chromium"):
            head_view.save(tmp_path / f"x.{ending}")
    with pytest.raises(RuntimeError, match="ATTNVIZ_BROWSER"):
        head_view.to_svg()
