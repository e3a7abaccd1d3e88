"""Helpers that read the page of a view."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any, Protocol

from playwright.sync_api import expect

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

SVG = "{http://www.w3.org/2000/svg}"
# End colours of the diverging scale in the light theme.
NEGATIVE, POSITIVE = "#d96f0e", "#1b6ab3"


class Show(Protocol):
    """Type of the fixture ``show``, which opens the exported page of a view."""

    def __call__(self, view: Any, fragment: str = "", **options: Any) -> Locator:
        """Return the view's root element once it has drawn.

        Parameters
        ----------
        view : View
            View to export.
        fragment : str
            End of the address, such as ``"#layer=1"``.
        **options
            Options of `View.save`.
        """


def open_view(page: Page, folder: Path, view: Any, fragment: str = "", **options: Any) -> Locator:
    """Export a view, open its page, and return its root element once it has drawn."""
    if fragment:
        # The browser does not reload a page if only the fragment of its URL changes.
        page.goto("about:blank")
    page.goto(view.save(folder / "view.html", **options).as_uri() + fragment)
    root = page.locator(".attnviz").first
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile(f"^{view.name}:"))
    return root


def says(root: Locator, text: str) -> None:
    """Wait until a view contains a text."""
    expect(root).to_contain_text(text)


def table(root: Locator) -> list[dict[str, str]]:
    """Return the rows of the table that a view exports."""
    text = root.evaluate("root => root.attnviz.csv()")
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


def svg(root: Locator) -> str:
    """Return the SVG that a view exports."""
    return str(root.evaluate("root => root.attnviz.svg()"))


def figure(root: Locator) -> ET.Element:
    """Return the parsed SVG that a view exports."""
    return ET.fromstring(svg(root))  # noqa: S314 - our own


def texts(figure: ET.Element) -> list[str]:
    """Return the texts of an SVG."""
    return ["".join(mark.itertext()) for mark in figure.iter(f"{SVG}text")]


def effect_bars(root: Locator) -> tuple[list[str], list[float]]:
    """Return the colours and the widths of the bars of effects in a view's picture."""
    drawn = [
        (mark.get("fill", ""), float(mark.get("width", 0)))
        for mark in figure(root).iter(f"{SVG}rect")
        # Bars of a legend have rounded corners (rx). Marks of linear layers are 3 pixels high.
        if mark.get("fill") in (NEGATIVE, POSITIVE)
        and mark.get("rx") is None
        and float(mark.get("height", 0)) > 3
    ]
    return [color for color, _ in drawn], [width for _, width in drawn]


def overflow(root: Locator) -> int:
    """Return the number of pixels by which a page is wider than its window."""
    pixels: int = root.page.evaluate(
        "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return pixels
