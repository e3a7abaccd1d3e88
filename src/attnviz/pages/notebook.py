"""Outputs of a notebook that survive without a kernel: beside a live view, or in its place.

JupyterLab shows a widget whose kernel is gone as an error, whatever else its output has, and so
does VS Code. So the picture beside a live view is an output of its own after the widget's, and a
style sheet hides one of the two: the picture while the view is alive, and otherwise what is left of
the view. A host that strips the style sheet shows the picture.

JupyterLab strips frames, scripts and SVG from a notebook that is not trusted, and prefers HTML to
an image where one output has both. So the picture is an output of its own, and the interactive
page another. Where the page's frame shows, a style sheet beside it hides the picture; what strips
the frame strips the style sheet, and leaves the picture.

Some hosts show the frame and forbid its scripts (a security policy). No style sheet can tell, so
the picture stands in the frame as well, until the page's code has drawn the view in its place.

The picture beside a live view is drawn by Python, once, when the view is displayed. A browser could
send what it drew, and the kernel could put that into the output. But a notebook that a program runs
has no browser, and every click of a reader would change the notebook.
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

__all__ = ["show_saved", "show_snapshot"]

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

# A view that a host restored without the kernel, which has its weights. One that has drawn before
# its kernel went keeps its picture.
_DETACHED = '.attnviz[data-attnviz-state="detached"]:not([data-attnviz-drawn])'
# JupyterLab has a panel in a widget's place. It contains a text while JupyterLab looks for the
# widget, which never ends without a kernel, and has this class once JupyterLab has given up.
_LAB_LOOKS = ".jp-OutputArea-child:has(> .lm-Panel.jp-OutputArea-output:not(.jupyter-widgets))"
_LAB_TEXT = f"{_LAB_LOOKS}:not(:has(> .lm-Panel > *))"
_LAB_ERROR = ".jp-OutputArea-child:has(> .lm-Panel.jupyter-widgets)"
# The text that nbconvert shows for a widget without its state, in its two templates.
_AS_TEXT = (
    '.jp-OutputArea-child:has(> [data-mime-type="text/plain"]), .output_area:has(> .output_text)'
)
_SAVED = f":is({_OUTPUTS}):has(.attnviz-saved)"
_FRAMED = f":is({_OUTPUTS}):has(iframe.attnviz-snapshot)"
_ALIVE = f":is({_OUTPUTS}):has(.attnviz):not(:has({_DETACHED}))"
# With `options.snapshot="page"` the frame of the page follows the picture.
_SAVED_STYLE = f"""<style>
.attnviz-saved .attnviz-title {{ font-weight: 600; }}
.attnviz-saved img {{ max-width: 100%; height: auto; }}
.attnviz-saved img[src^="data:image/png"] {{ image-rendering: pixelated; }}
{_LAB_LOOKS} + {_SAVED}, {_LAB_LOOKS} + {_SAVED} + {_FRAMED} {{
  max-height: 0; overflow: hidden; visibility: hidden; animation: attnviz-show 0s 1s forwards;
}}
{_LAB_TEXT}:has(+ * .attnviz-saved) {{ animation: attnviz-hide 0s 1s forwards; }}
@keyframes attnviz-show {{ to {{ max-height: none; visibility: visible; }} }}
@keyframes attnviz-hide {{ to {{ max-height: 0; overflow: hidden; visibility: hidden; }} }}
{_ALIVE} + {_SAVED}, {_ALIVE} + {_SAVED} + {_FRAMED} {{ display: none !important; }}
:is({_LAB_ERROR}, {_AS_TEXT}, :is({_OUTPUTS}):has({_DETACHED})):has(+ * .attnviz-saved) {{
  display: none !important;
}}
</style>"""


def show_saved(still: str, page: Callable[[], str] | None = None, height: float = 0) -> None:
    """Display what is stored with the live view that was displayed last.

    Parameters
    ----------
    still : str
        HTML of a picture and its sentences.
    page : callable, optional
        Makes the interactive page, which is stored in a frame after the picture.
    height : float
        Height of the frame, in pixels.
    """
    from IPython.display import display

    text = f'<div class="attnviz-saved">\n{still}\n</div>{_SAVED_STYLE}'
    display({"text/html": text, "text/plain": "<saved picture of a live view>"}, raw=True)
    if page is not None:
        _show_frame(page(), height)


def show_snapshot(page: Callable[[], str], height: float) -> None:
    """Display a picture, and the interactive page in a frame; nothing else is left behind.

    If no browser can draw, the picture is the page's own for readers without scripts, and `height`
    is the frame's, in pixels.
    """
    from IPython import get_ipython
    from IPython.display import HTML, Image

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
    _show_frame(document, height)


def _show_frame(document: str, height: float) -> None:
    from IPython.display import display

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
