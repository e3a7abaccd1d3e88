"""Options for the appearance of saved figures: size, fonts, texts and colors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, NamedTuple, TypedDict


class FigureArguments(TypedDict, total=False):
    """Arguments of the methods `save` and `to_svg` of a view for the appearance of a figure."""

    content: Literal["view", "image", "layers"] | None
    width: float | str | None
    font_size: float | str | None
    font: str | tuple[str, str] | None
    scale: float
    dpi: float | None
    title: str | None
    caption: bool
    legend: bool
    theme: Literal["auto", "light", "dark"] | None
    background: str | None
    colors: Sequence[str] | None


#: Number of CSS pixels in each unit of length. An inch has 96 CSS pixels.
_PIXELS = {"mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96.0, "pt": 96 / 72, "pc": 16.0, "px": 1.0}
# For each argument that is a length: the unit of its bounds, the unit of a value without a unit,
# the smallest and the largest length, and examples for the error message.
_LENGTHS = {
    "width": ("mm", "px", (20, 3000), '"84mm", "3.3in" or 320 (CSS pixels)'),
    "font_size": ("pt", "pt", (3, 72), '8, "8pt" or "3mm" (points)'),
}
_LENGTH = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*(mm|cm|in|pt|pc|px)\s*")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
# Characters that are forbidden in the name of a font, because they could end the name in CSS or
# SVG.
_NO_FAMILY = re.compile(r"[\"'\\;:,<>&{}()/\x00-\x1f\x7f]")

# Smallest width that may be passed without a unit, in CSS pixels. A smaller number is an error,
# because it was probably meant in mm or inches.
_MIN_BARE_WIDTH = 200
# Smallest and largest values of `scale` and of `dpi`, and the maximum number of `colors`.
_SCALES = (0.1, 32.0)
_DPI = (18.0, 2400.0)
_MAX_COLORS = 8
#: Number of PNG pixels per CSS pixel, unless `scale` or `dpi` is passed.
PNG_SCALE = 2.0


class FigureOptions(NamedTuple):
    """Validated options of a figure.

    Attributes
    ----------
    request : dict
        Options for the page, which draws the figure, as JSON values.
        ``js/src/draw/figure-request.ts`` reads them. Lengths are in CSS pixels. If an option is
        missing, the figure is drawn as on the screen in this respect.
    scale : float
        Number of PNG pixels per CSS pixel.
    theme : str or None
        Theme of the figure: "auto", "light" or "dark", or None for the theme of the view.
    """

    request: dict[str, Any]
    scale: float
    theme: str | None


def parse_figure_options(arguments: Mapping[str, Any]) -> FigureOptions:
    """Validate the arguments of a figure, and convert them to options.

    An argument that is None counts as not passed.

    Raises
    ------
    TypeError, ValueError
        If an argument is unknown or invalid.

    Examples
    --------
    >>> round(parse_figure_options({"width": "84mm"}).request["width"], 1)
    317.5
    >>> parse_figure_options({"width": "84 mils"})
    Traceback (most recent call last):
    ValueError: width='84 mils' must be a length such as "84mm", "3.3in" or 320 (CSS pixels)
    """
    unknown = sorted(set(arguments) - FigureArguments.__annotations__.keys())
    if unknown:
        raise TypeError(
            f"a figure has no argument {unknown[0]!r}. Its arguments are "
            + ", ".join(FigureArguments.__annotations__)
        )
    values = {name: value for name, value in arguments.items() if value is not None}
    theme = values.get("theme")
    if theme not in (None, "auto", "light", "dark"):
        raise ValueError(f'theme={theme!r} must be "light", "dark" or "auto"')
    request: dict[str, Any] = {"caption": True, "legend": True}
    for name, (key, parse) in _PARSERS.items():
        if name in values:
            request[key] = parse(name, values[name])
    scale = _check_range("scale", values.get("scale", PNG_SCALE), _SCALES)
    if "dpi" in values:
        scale = _check_range("dpi", values["dpi"], _DPI) / 96
    return FigureOptions(request, scale, theme)


def _parse_length(name: str, value: Any) -> float:
    """Convert a length to CSS pixels.

    The length is a string with a unit, or a number. A number means CSS pixels for ``"width"`` and
    points for ``"font_size"``. Raise TypeError or ValueError for an invalid length.
    """
    unit, bare_unit, bounds, examples = _LENGTHS[name]
    message = f"{name}={value!r} must be a length such as {examples}"
    if isinstance(value, str):
        match = _LENGTH.fullmatch(value)
        if match is None:
            raise ValueError(message)
        pixels = float(match[1]) * _PIXELS[match[2]]
    elif isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(message)
    else:
        pixels = float(value) * _PIXELS[bare_unit]
        if name == "width" and 0 < pixels < _MIN_BARE_WIDTH:
            raise ValueError(
                f"width={value!r} without a unit means CSS pixels, which are "
                f'{pixels / _PIXELS["mm"]:.0f} mm. Pass a unit, such as width="{value}mm".'
            )
    if not bounds[0] <= pixels / _PIXELS[unit] <= bounds[1]:
        raise ValueError(f"{name}={value!r} must be between {bounds[0]} and {bounds[1]} {unit}")
    return pixels


def _check_range(name: str, value: Any, bounds: tuple[float, float]) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} must be a number")
    number = float(value)
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError(f"{name}={value!r} must be between {bounds[0]:g} and {bounds[1]:g}")
    return number


def _parse_fonts(name: str, value: Any) -> tuple[str, str]:
    """Return the names of the fonts for words and for tokens. A single name is for both."""
    fonts = (value, value) if isinstance(value, str) else value
    if not isinstance(fonts, tuple | list) or [*map(type, fonts)] != [str, str]:
        raise TypeError(
            f"{name}={value!r} must be the name of a font, or a pair of fonts for words and for "
            'tokens, such as ("Helvetica", "Courier New")'
        )
    for font in fonts:
        if not font.strip() or _NO_FAMILY.search(font):
            raise ValueError(f'{name}={value!r}: {font!r} must be one name, such as "Helvetica"')
    return fonts[0].strip(), fonts[1].strip()


def _parse_colors(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, tuple | list) or not 1 <= len(value) <= _MAX_COLORS:
        raise TypeError(
            f"{name}={value!r} must be a list of at most {_MAX_COLORS} colors, such as "
            '["#1b6ab3", "#d96f0e"]. More colors look alike, so further heads share one color.'
        )
    return tuple(_parse_color(name, color) for color in value)


def _parse_color(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _COLOR.fullmatch(value):
        raise ValueError(f'{name}: {value!r} must have the form "#1b6ab3"')
    return value.lower()


def _parse_background(name: str, value: Any) -> str:
    return "transparent" if value == "transparent" else _parse_color(name, value)


def _parse_content(name: str, value: Any) -> str:
    if value not in ("view", "image", "layers"):
        raise ValueError(
            f'{name}={value!r} must be "view", "image" for the image with its weights alone, or '
            '"layers" for the image with the weights of each layer'
        )
    return str(value)


def _parse_title(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f'{name}={value!r} must be a string. Pass "" to leave it out.')
    return value


def _parse_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be True or False")
    return value


# For each argument that is an option in `FigureOptions.request`: the name of the option, and the
# function that validates and converts the value.
_PARSERS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "content": ("content", _parse_content),
    "width": ("width", _parse_length),
    "font_size": ("fontSize", _parse_length),
    "font": ("fonts", _parse_fonts),
    "title": ("title", _parse_title),
    "caption": ("caption", _parse_flag),
    "legend": ("legend", _parse_flag),
    "background": ("background", _parse_background),
    "colors": ("colors", _parse_colors),
}
