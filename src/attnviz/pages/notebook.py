"""Static outputs of a notebook that survive without a kernel.

JupyterLab strips frames, scripts and SVG from a notebook that is not trusted, and prefers HTML to
an image where one output has both. So the picture is an output of its own, and the interactive
page another. Where the page's frame shows, a style sheet beside it hides the picture; what strips
the frame strips the style sheet, and leaves the picture.

Some hosts show the frame and forbid its scripts (a security policy). No style sheet can tell, so
the picture stands in the frame as well, until the page's code has drawn the view in its place.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable

from attnviz.pages.html import still_of, with_still
from attnviz.pages.iframe import iframe
from attnviz.pages.image import draw_for_notebook
from attnviz.utils.bars import Output, bars_in
from attnviz.utils.host import warn_caller

__all__ = ["show_snapshot"]

# Height of the frame, in pixels.
_LEAST_HEIGHT, _MOST_HEIGHT = 420, 1500

# What stands around one output of a cell: in JupyterLab, Notebook, Voila and nbconvert, in
# nbconvert's classic template, in Colab, in VS Code, in Quarto, and in Jupyter Book.
_OUTPUTS = (
    ".jp-OutputArea-child, .output_area, .output_subarea, .output_container, .cell-output, "
    ".cell_output > *"
)
# The frame draws with scripts, and on paper it would be cut off.
_STYLE = f"""<style>
@media screen and (scripting: enabled) {{
  :is({_OUTPUTS}):has(+ * iframe.attnviz-snapshot) {{ display: none !important; }}
}}
@media print, (scripting: none) {{
  iframe.attnviz-snapshot {{ display: none !important; }}
}}
</style>"""


def show_snapshot(page: Callable[[], str], height: float) -> None:
    """Display a picture, and the interactive page in a frame; nothing else is left behind.

    If no browser can draw, the picture is the page's own for readers without scripts, and `height`
    is the frame's, in pixels.
    """
    from IPython import get_ipython
    from IPython.display import HTML, Image, display

    # Bars, while the page is made, stand where the picture will.
    output = Output()
    with bars_in(output):
        document = page()
    if get_ipython() is None:
        raise RuntimeError(
            "snapshot() adds outputs to a notebook, and none is running; save('x.html') or "
            "save('x.png') write files"
        )
    picture: HTML | Image
    try:
        drawn = draw_for_notebook(document)
    except (ImportError, RuntimeError) as error:
        warn_caller(f"a smaller picture stands in for that of the view: {error}")
        picture = HTML(still_of(document))
    else:
        png = _smaller(drawn.png)
        picture = Image(png, format="png", retina=True, alt=drawn.title)
        # Jupyter Book makes a height fixed, and squeezes the picture in a narrow column.
        picture.height = None
        height = drawn.height
        still = (
            f'<img alt="{html.escape(drawn.title)}" style="width: 100%" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        )
        document = with_still(document, still)
    output.show(picture)
    # As raw data: IPython would advise IFrame, which shows an address and no document.
    frame = _frame(document, height)
    data = {"text/html": frame, "text/plain": "<interactive attention view>"}
    display(data, raw=True)


def _smaller(png: bytes) -> bytes:
    """The picture in 256 colours, a fifth of its size, where Pillow is there to choose them."""
    try:
        from PIL import Image
    except ImportError:
        return png
    # By coverage, so that no colour is off by more than a few of 255.
    colours = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    result = io.BytesIO()
    colours.save(result, "PNG", optimize=True)
    return result.getvalue()


def _frame(page: str, height: float) -> str:
    size = min(max(height, _LEAST_HEIGHT), _MOST_HEIGHT)
    # It follows its content where that can tell: in a narrow column a view is higher.
    return f"{iframe(page, 'auto', size, kind='attnviz-snapshot')}{_STYLE}"
