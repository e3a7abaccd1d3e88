"""Notebook outputs that need no kernel: a picture and, optionally, an interactive page.

JupyterLab and VS Code show a widget without a kernel as an error, even if its output has other
data. The picture of a live view is therefore a separate output after the widget. A style sheet
hides the picture while the view is alive, and the rest of the view otherwise. A host that removes
the style sheet shows the picture.

JupyterLab removes frames, scripts and SVG from untrusted notebooks, and prefers HTML to an image if
an output has both. The picture and the interactive page are therefore separate outputs. The style
sheet of the page's frame hides the picture. A host that removes the frame also removes its style
sheet, and shows the picture.

Some hosts show the frame but forbid its scripts with a security policy, which a style sheet cannot
detect. The frame therefore contains the picture as well, until the page's code has drawn the view.

Python draws the picture of a live view once, when the view is displayed. The browser could send its
own drawing to the kernel instead, but notebooks that run without a browser would have no picture,
and every click would change the notebook.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable

from attnviz.pages.html import get_still, replace_still
from attnviz.pages.iframe import iframe
from attnviz.pages.image import draw_for_notebook
from attnviz.utils.bars import Output, bars_in
from attnviz.utils.host import warn_caller

__all__ = ["show_saved", "show_snapshot"]

# Limits of the frame's height, in pixels.
_MIN_HEIGHT, _MAX_HEIGHT = 420, 1500

# Elements around one output of a cell: in JupyterLab, Notebook, Voila and nbconvert, in nbconvert's
# classic template, in Colab, in VS Code, in Quarto, and in Jupyter Book.
_OUTPUTS = (
    ".jp-OutputArea-child, .output_area, .output_subarea, .output_container, .cell-output, "
    ".cell_output > *"
)
# Hides the picture before a frame. Hides the frame if scripts are disabled, because its view needs
# them, and in print, where it would be cut off.
_STYLE = f"""<style>
@media screen and (scripting: enabled) {{
  :is({_OUTPUTS}):has(+ * iframe.attnviz-snapshot) {{ display: none !important; }}
}}
@media print, (scripting: none) {{
  iframe.attnviz-snapshot {{ display: none !important; }}
}}
</style>"""

# View that a host restored without its kernel. A view that was drawn before its kernel ended stays.
_DETACHED = '.attnviz[data-attnviz-state="detached"]:not([data-attnviz-drawn])'
# JupyterLab's panel for a widget. The panel contains a text while JupyterLab looks for the widget,
# which does not end without a kernel, and gets the class "jupyter-widgets" when the search fails.
_LAB_LOOKS = ".jp-OutputArea-child:has(> .lm-Panel.jp-OutputArea-output:not(.jupyter-widgets))"
_LAB_TEXT = f"{_LAB_LOOKS}:not(:has(> .lm-Panel > *))"
_LAB_ERROR = ".jp-OutputArea-child:has(> .lm-Panel.jupyter-widgets)"
# Text that nbconvert shows for a widget without its state, in both templates.
_AS_TEXT = (
    '.jp-OutputArea-child:has(> [data-mime-type="text/plain"]), .output_area:has(> .output_text)'
)
_SAVED = f":is({_OUTPUTS}):has(.attnviz-saved)"
_FRAMED = f":is({_OUTPUTS}):has(iframe.attnviz-snapshot)"
_ALIVE = f":is({_OUTPUTS}):has(.attnviz):not(:has({_DETACHED}))"
# With `options.snapshot="page"`, the frame of the page follows the picture.
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
    """Display the saved picture of the live view that was displayed last.

    Parameters
    ----------
    still : str
        HTML of a picture and its description.
    page : callable, optional
        Function that makes the interactive page, which is stored in a frame after the picture.
    height : float
        Height of the frame, in pixels.
    """
    from IPython.display import display

    text = f'<div class="attnviz-saved">\n{still}\n</div>{_SAVED_STYLE}'
    display({"text/html": text, "text/plain": "<saved picture of a live view>"}, raw=True)
    if page is not None:
        _show_frame(page(), height)


def show_snapshot(page: Callable[[], str], height: float) -> None:
    """Display a picture, and the interactive page in a frame.

    If no browser can draw the picture, the small picture of the page is used, and the frame has
    `height` pixels.
    """
    from IPython import get_ipython
    from IPython.display import HTML, Image

    # Show progress bars in the output that will hold the picture.
    output = Output()
    with bars_in(output):
        document = page()
    if get_ipython() is None:
        raise RuntimeError(
            "snapshot() adds outputs to a notebook, but no notebook is running. Use save('x.html') "
            "or save('x.png') to write a file."
        )
    picture: HTML | Image
    try:
        drawn = draw_for_notebook(document)
    except (ImportError, RuntimeError) as error:
        warn_caller(f"a smaller picture replaces that of the view: {error}")
        picture = HTML(get_still(document))
    else:
        png = _reduce_colors(drawn.png)
        picture = Image(png, format="png", retina=True, alt=drawn.title)
        # With a fixed height, Jupyter Book would distort the picture in a narrow column.
        picture.height = None
        height = drawn.height
        still = (
            f'<img alt="{html.escape(drawn.title)}" style="width: 100%" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        )
        document = replace_still(document, still)
    output.show(picture)
    _show_frame(document, height)


def _show_frame(document: str, height: float) -> None:
    from IPython.display import display

    # Use raw data: `HTML` warns and recommends IFrame, which needs a URL.
    frame = _frame(document, height)
    data = {"text/html": frame, "text/plain": "<interactive attention view>"}
    display(data, raw=True)


def _reduce_colors(png: bytes) -> bytes:
    """Reduce a PNG to 256 colors, a fifth of its size. Without Pillow, return it unchanged."""
    try:
        from PIL import Image
    except ImportError:
        return png
    # MAXCOVERAGE keeps the error of every color within a few of 255 levels.
    colours = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    result = io.BytesIO()
    colours.save(result, "PNG", optimize=True)
    return result.getvalue()


def _frame(page: str, height: float) -> str:
    size = min(max(height, _MIN_HEIGHT), _MAX_HEIGHT)
    # The frame adapts to its content if scripts run, because a view is higher in a narrow column.
    return f"{iframe(page, 'auto', size, css_class='attnviz-snapshot')}{_STYLE}"
