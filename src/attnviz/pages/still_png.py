"""PNG of a saved picture, for LaTeX, PDF and other formats that have no HTML.

The saved picture of a view is HTML with an SVG or PNG inside (`attnviz.pages.saved_picture`).
Pillow, if it is installed, draws the elements that these pictures have. No browser is needed.
"""

from __future__ import annotations

import base64
import io
import re
import textwrap
import unicodedata
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from attnviz.pages.colors import LIGHT

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

# Number of PNG pixels per CSS pixel, and the number of colors.
_SCALE, _NUM_COLORS = 2, 32
# Size in CSS pixels of texts above and below pictures, of their lines, and of the edges.
_FONT_SIZE, _LINE, _MARGIN = 12, 17, 12
# Smallest width in CSS pixels, so that the lines of texts are not short.
_MIN_WIDTH = 480
# Names of fonts, of which the first one that is installed is used: for labels and words, each
# regular and bold, and for texts with wide characters.
_MONOSPACED = ("DejaVuSansMono.ttf", "Menlo.ttc", "consola.ttf", "LiberationMono-Regular.ttf")
_MONOSPACED_BOLD = ("DejaVuSansMono-Bold.ttf", "consolab.ttf", *_MONOSPACED)
_WORDS = ("DejaVuSans.ttf", "Helvetica.ttc", "arial.ttf", "LiberationSans-Regular.ttf")
_WORDS_BOLD = ("DejaVuSans-Bold.ttf", "arialbd.ttf", *_WORDS)
_WIDE = ("NotoSansCJK-Regular.ttc", "msyh.ttc", "PingFang.ttc", "Arial Unicode.ttf")
_ROTATED = re.compile(r"translate\((\S+) (\S+)\) rotate\((\S+)\)")


def draw_still_png(still: str) -> bytes | None:
    """Draw the HTML of a saved picture as a PNG. Return None if Pillow is not installed."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        return None
    parts = _Parts()
    parts.feed(still)
    pictures = [part for part in parts.blocks if not isinstance(part, str)]
    size = max([_MIN_WIDTH * _SCALE, *(picture.width for picture in pictures)])
    characters = int(size / _SCALE / _FONT_SIZE / 0.55)
    blocks: list[Any] = []
    for part in parts.blocks:
        if isinstance(part, str):
            blocks += textwrap.wrap(part, characters) if len(part) > characters else [part]
        else:
            blocks.append(part)
    heights = [_LINE * _SCALE if isinstance(block, str) else block.height for block in blocks]
    edge = _MARGIN * _SCALE
    canvas = Image.new("RGB", (size + 2 * edge, sum(heights) + 2 * edge), "white")
    pen, top = ImageDraw.Draw(canvas), edge
    # Texts without shades of grey halve the size of the PNG, and are as legible on paper.
    pen.fontmode = "1"
    for number, (block, height) in enumerate(zip(blocks, heights, strict=True)):
        if isinstance(block, str):
            # The first line is the title.
            names = _WORDS if number else _WORDS_BOLD
            pen.text((edge, top), block, fill=LIGHT["ink"], font=_font(names, _FONT_SIZE, block))
        else:
            canvas.paste(block, (edge, top))
        top += height
    result = io.BytesIO()
    colors = canvas.quantize(_NUM_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    colors.save(result, "PNG", optimize=True, dpi=(96 * _SCALE, 96 * _SCALE))
    return result.getvalue()


class _Parts(HTMLParser):
    """Texts and pictures of a saved picture in their order. The note in small letters is left out.

    Attributes
    ----------
    blocks : list of str or Image
        The texts, of which each row of a table is one, and the pictures.
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str | Image] = []
        self._text = ""
        self._is_note = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_note |= tag == "small"
        if tag == "img":
            attributes = dict(attrs)
            kind, _, data = (attributes["src"] or "").partition(";base64,")
            content = base64.b64decode(data)
            width = float(attributes.get("width") or 0)
            self.blocks.append(
                _draw_svg(content) if kind.endswith("svg+xml") else _enlarge(content, width)
            )

    def handle_data(self, data: str) -> None:
        if not self._is_note:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._text += "   "
        if tag in ("p", "tr", "caption") and self._text.strip():
            self.blocks.append(self._text.strip())
        if tag in ("p", "tr", "caption", "small"):
            self._text, self._is_note = "", False


def _enlarge(png: bytes, width: float) -> Image:
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    factor = max(1, round(width * _SCALE / image.width))
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _draw_svg(svg: bytes) -> Image:
    """Draw the images, frames and texts of an SVG of `attnviz.pages.saved_picture`."""
    from PIL import Image, ImageDraw

    root = ET.fromstring(svg)  # noqa: S314 - our own
    size = [round(float(root.attrib[side]) * _SCALE) for side in ("width", "height")]
    canvas = Image.new("RGB", (size[0], size[1]), "white")
    pen = ImageDraw.Draw(canvas)
    pen.fontmode = "1"
    for element in root:
        kind = element.tag.rpartition("}")[2]
        x, y, width, height = (
            float(element.get(name, 0)) * _SCALE for name in ("x", "y", "width", "height")
        )
        if kind == "image":
            content = base64.b64decode(element.attrib["href"].partition(",")[2])
            box = (round(x), round(y), round(x + width), round(y + height))
            cells = Image.open(io.BytesIO(content)).convert("RGB")
            cells = cells.resize((box[2] - box[0], box[3] - box[1]), Image.Resampling.NEAREST)
            canvas.paste(cells, box[:2])
        elif kind == "rect" and element.get("stroke"):
            pen.rectangle((x, y, x + width, y + height), outline=element.get("stroke"))
        elif kind == "text":
            _draw_text(canvas, pen, element, (x, y))
    return canvas


def _draw_text(
    canvas: Image, pen: ImageDraw, element: ET.Element, position: tuple[float, float]
) -> None:
    from PIL import Image, ImageDraw

    text, color = element.text or "", element.get("fill", "black")
    names = _MONOSPACED_BOLD if element.get("font-weight") else _MONOSPACED
    font = _font(names, 11, text)
    rotation = _ROTATED.match(element.get("transform", ""))
    if rotation is None:
        anchor = "rs" if element.get("text-anchor") == "end" else "ls"
        pen.text(position, text, fill=color, font=font, anchor=anchor)
        return
    x, y, angle = map(float, rotation.groups())
    # Draw the text to the right of the center of a square, and rotate the square.
    radius = int(font.getlength(text)) + 20
    mask = Image.new("L", (2 * radius, 2 * radius))
    ImageDraw.Draw(mask).text((radius, radius), text, fill=255, font=font, anchor="ls")
    mask = mask.rotate(-angle, Image.Resampling.BICUBIC).point(lambda shade: 255 * (shade > 127))
    corner = (round(x * _SCALE) - radius, round(y * _SCALE) - radius)
    canvas.paste(color, (*corner, corner[0] + 2 * radius, corner[1] + 2 * radius), mask)


def _font(names: tuple[str, ...], size: float, text: str) -> Any:
    """Return an installed font for a text, or Pillow's own font."""
    from PIL import ImageFont

    is_wide = any(unicodedata.east_asian_width(character) in "WF" for character in text)
    for name in (*_WIDE, *names) if is_wide else names:
        try:
            return ImageFont.truetype(name, size * _SCALE)
        except OSError:
            continue
    return ImageFont.load_default(size * _SCALE)
