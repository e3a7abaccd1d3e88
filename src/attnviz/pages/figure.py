"""Options for the appearance of saved figures: size, fonts, texts and colors."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypedDict


class FigureArguments(TypedDict, total=False):
    """Arguments of `save` and `to_svg` for the appearance of a figure."""

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


#: CSS pixels per unit of length. An inch has 96 CSS pixels.
_PIXELS = {"mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96.0, "pt": 96 / 72, "pc": 16.0, "px": 1.0}
_LENGTH = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*(mm|cm|in|pt|pc|px)\s*")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
# Characters that are forbidden in a font family, because they would end the name in CSS or SVG.
_NO_FAMILY = re.compile(r"[\"'\\;:,<>&{}()/\x00-\x1f\x7f]")

_WIDTHS = (20 * _PIXELS["mm"], 3000 * _PIXELS["mm"])
# Smallest width that may be passed without a unit, in CSS pixels. A smaller number is an error,
# because it was probably meant in mm or inches.
_MIN_BARE_WIDTH = 200
_FONT_SIZES = (3 * _PIXELS["pt"], 72 * _PIXELS["pt"])
_SCALES = (0.1, 32.0)
_DPI = (18.0, 2400.0)
_MAX_COLORS = 8
# Minimum contrast ratios of lines and text to the background, as in
# js/test/ui/colors/palette.test.ts.
_MIN_LINE_CONTRAST = 3.0
_MIN_TEXT_CONTRAST = 4.5
#: Background color and text color of each theme, as in js/src/ui/colors/palette.ts.
_THEMES = {"light": ("#ffffff", "#1c1f26"), "dark": ("#17191e", "#eceef2")}
_PNG_SCALE = 2.0


@dataclass(frozen=True)
class FigureOptions:
    """Validated options of a figure.

    Lengths are in CSS pixels. If an option is None, the figure looks as on the screen.

    Attributes
    ----------
    width, font_size : float or None
        Width of the figure, and size of its smallest text.
    fonts : tuple of str or None
        Two font families: one for words, one for tokens.
    scale : float
        Number of PNG pixels per CSS pixel.
    title : str or None
        Title above the figure. None is the name of the model, and "" omits the title.
    caption, legend : bool
        Whether the caption and the legend are drawn.
    theme, background : str or None
        Theme and background color of the figure.
    colors : tuple of str or None
        Colors of the selected heads, in the order of the heads.
    """

    width: float | None = None
    font_size: float | None = None
    fonts: tuple[str, str] | None = None
    scale: float = _PNG_SCALE
    title: str | None = None
    caption: bool = True
    legend: bool = True
    theme: str | None = None
    background: str | None = None
    colors: tuple[str, ...] | None = None

    def request(self) -> dict[str, Any]:
        """Return the options as JSON values for the page, which draws the figure.

        ``js/src/draw/figure-request.ts`` reads them.
        """
        options = {
            "width": self.width,
            "fontSize": self.font_size,
            "fonts": self.fonts,
            "title": self.title,
            "caption": self.caption,
            "legend": self.legend,
            "background": self.background,
            "colors": self.colors,
        }
        return {name: value for name, value in options.items() if value is not None}


def parse_figure_options(arguments: Mapping[str, Any], theme: str = "auto") -> FigureOptions:
    """Validate the arguments of a figure, and convert them to options.

    `theme` is the theme of the view. If `arguments` contains no theme, the contrasts of colors are
    checked for this theme.

    Raises
    ------
    TypeError, ValueError
        If an argument is unknown or invalid.

    Examples
    --------
    >>> round(parse_figure_options({"width": "84mm"}).width, 1)
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
    dpi = _parse_number("dpi", arguments.get("dpi"), _DPI)
    scale = _parse_number("scale", arguments.get("scale", _PNG_SCALE), _SCALES)
    if scale is None:
        raise TypeError("scale=None must be a number of pixels such as 2")
    chosen_theme = _parse_theme(arguments.get("theme"))
    background = _parse_background(arguments.get("background"), chosen_theme or theme)
    return FigureOptions(
        width=_parse_length(
            "width", arguments.get("width"), "px", _WIDTHS, '"84mm", "3.3in" or 320'
        ),
        font_size=_parse_length(
            "font_size", arguments.get("font_size"), "pt", _FONT_SIZES, '8, "8pt" or "3mm"'
        ),
        fonts=_parse_fonts(arguments.get("font")),
        scale=scale if dpi is None else dpi / 96,
        title=_parse_text("title", arguments.get("title")),
        caption=_parse_flag("caption", arguments.get("caption", True)),
        legend=_parse_flag("legend", arguments.get("legend", True)),
        theme=chosen_theme,
        background=background,
        colors=_parse_colors(arguments.get("colors"), background, chosen_theme or theme),
    )


def _parse_length(
    name: str, value: Any, unit: str, bounds: tuple[float, float], example: str
) -> float | None:
    """Convert a length to CSS pixels. Return None for None.

    `value` is a string with a unit, or a number in `unit`. `bounds` are the smallest and largest
    allowed length in CSS pixels. The error for an invalid length quotes `example`.
    """
    if value is None:
        return None
    unit_name = {"px": "CSS pixels", "pt": "points"}[unit]
    message = f"{name}={value!r} must be a length such as {example} ({unit_name})"
    if isinstance(value, str):
        match = _LENGTH.fullmatch(value)
        if match is None:
            raise ValueError(message)
        pixels = float(match[1]) * _PIXELS[match[2]]
    else:
        pixels = _parse_real(value, message) * _PIXELS[unit]
        if name == "width" and 0 < pixels < _MIN_BARE_WIDTH:
            raise ValueError(
                f"width={value!r} without a unit means CSS pixels, which are "
                f'{pixels / _PIXELS["mm"]:.0f} mm. Pass a unit, such as width="{value}mm".'
            )
    minimum, maximum = bounds
    if not minimum <= pixels <= maximum:
        shown_unit = "mm" if name == "width" else "pt"
        low, high = (f"{bound / _PIXELS[shown_unit]:.4g}" for bound in bounds)
        raise ValueError(f"{name}={value!r} must be between {low} and {high} {shown_unit}")
    return pixels


def _parse_number(name: str, value: Any, bounds: tuple[float, float]) -> float | None:
    if value is None:
        return None
    number = _parse_real(value, f"{name}={value!r} must be a number")
    if not bounds[0] <= number <= bounds[1] or math.isnan(number):
        raise ValueError(f"{name}={value!r} must be between {bounds[0]:g} and {bounds[1]:g}")
    return number


def _parse_real(value: Any, message: str) -> float:
    """Convert a number to float. Raise TypeError for other types and for bool."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(message)
    return float(value)


def _parse_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be True or False")
    return value


def _parse_text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f'{name}={value!r} must be a string. Pass "" to leave it out.')
    return value


def _parse_theme(value: Any) -> str | None:
    if value not in (None, "auto", "light", "dark"):
        raise ValueError(f'theme={value!r} must be "light", "dark" or "auto"')
    return None if value is None else str(value)


def _parse_fonts(value: Any) -> tuple[str, str] | None:
    if value is None:
        return None
    names = (value, value) if isinstance(value, str) else value
    if not isinstance(names, (tuple, list)) or len(names) != 2:
        raise TypeError(
            f"font={value!r} must be the name of a font, or a pair of fonts for words and for "
            'tokens, such as ("Helvetica", "Courier New")'
        )
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"font={value!r}: {name!r} must be a string, the name of a font")
        if not name.strip() or _NO_FAMILY.search(name):
            raise ValueError(f'font={value!r}: {name!r} must be one name, such as "Helvetica"')
    return names[0].strip(), names[1].strip()


def _parse_colors(colors: Any, background: str | None, theme: str) -> tuple[str, ...] | None:
    if colors is None:
        return None
    if isinstance(colors, str) or not isinstance(colors, Sequence) or len(colors) == 0:
        raise TypeError(
            f'colors={colors!r} must be a list of colors such as ["#1b6ab3", "#d96f0e"]'
        )
    if len(colors) > _MAX_COLORS:
        raise ValueError(
            f"colors has {len(colors)} colors. Pass at most {_MAX_COLORS}: more colors look alike, "
            "so further heads share one color."
        )
    background_color = (
        background if background not in (None, "transparent") else _theme_colors(theme)[0]
    )
    for color in colors:
        if not isinstance(color, str) or not _COLOR.fullmatch(color):
            raise ValueError(f'colors: {color!r} must have the form "#1b6ab3"')
        contrast = _contrast_ratio(color, str(background_color))
        if contrast < _MIN_LINE_CONTRAST:
            raise ValueError(
                f"colors: {color!r} has a contrast of {contrast:.1f} to the background "
                f"{background_color}, but lines need at least {_MIN_LINE_CONTRAST:g}"
            )
    return tuple(color.lower() for color in colors)


def _parse_background(value: Any, theme: str) -> str | None:
    if value is None or value == "transparent":
        return value if value is None else "transparent"
    if not isinstance(value, str) or not _COLOR.fullmatch(value):
        raise ValueError(f'background={value!r} must be "transparent" or a color such as "#ffffff"')
    text_color = _theme_colors(theme)[1]
    contrast = _contrast_ratio(value, text_color)
    if contrast < _MIN_TEXT_CONTRAST:
        other = "light" if theme == "dark" else "dark"
        raise ValueError(
            f"background={value!r} has a contrast of {contrast:.1f} to the text, but needs "
            f'at least {_MIN_TEXT_CONTRAST:g}. Pass theme="{other}" for another text color.'
        )
    return value.lower()


def _theme_colors(theme: str) -> tuple[str, str]:
    # For the theme "auto", the browser that draws the figure uses the light theme.
    return _THEMES["dark" if theme == "dark" else "light"]


def _contrast_ratio(one: str, other: str) -> float:
    """Return the contrast ratio of two colors as WCAG 2.2 defines it, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(color[at : at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
