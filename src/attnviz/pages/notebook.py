"""Notebook outputs that need no kernel: a picture and, optionally, an interactive page.

A host is a program that shows notebooks, such as JupyterLab or VS Code. A live view is a widget,
which needs a kernel. A page is an exported HTML file, which needs none.

JupyterLab and VS Code show a widget without a kernel as an error, even if its output also contains
a picture. The picture of a live view is therefore a separate output after the widget. A style sheet
in this output hides the picture while the widget works. If the widget does not work, the style
sheet hides what the host shows in place of the widget. A host that removes style sheets always
shows the picture.

A snapshot of a view has a picture and an interactive page in a frame, and no widget. JupyterLab
removes frames, scripts and SVG from untrusted notebooks, and if an output contains both HTML and an
image, it shows the HTML. The picture and the page are therefore separate outputs. A style sheet in
the output of the page hides the picture. A host that removes the frame also removes this style
sheet, so it shows the picture.

Some hosts show the frame but forbid its scripts with a security policy. A style sheet cannot detect
this. Therefore the page in the frame also contains the picture, which is visible until the code of
the page opens the view.

Python draws the picture of a live view, because notebooks may run without a browser. It draws the
picture when the view is displayed and, after the view has changed, at the end of the cell or when
the reader pauses (see `attnviz.views.display`).
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable

from attnviz.pages.html import get_still, replace_still
from attnviz.pages.iframe import iframe
from attnviz.pages.image import Drawing, draw_for_notebook
from attnviz.utils.bars import Output
from attnviz.utils.host import ipython, warn_caller
from attnviz.utils.progress import show_progress

# Minimum and maximum height in pixels of the frame before its page has opened.
_MIN_HEIGHT, _MAX_HEIGHT = 420, 1500

# CSS selectors of the HTML element that contains one output of a cell. Each host needs its own
# selector. The selectors are for JupyterLab (also Notebook, Voila and nbconvert), nbconvert's
# classic template, Colab, VS Code, Quarto and Jupyter Book, in this order.
_OUTPUTS = (
    ".jp-OutputArea-child, .output_area, .output_subarea, .output_container, .cell-output, "
    ".cell_output > *"
)
# Style sheet of a snapshot. It hides the output with the picture, which is directly before the
# output with the frame. If scripts are disabled, it hides the frame instead, because the page needs
# scripts. In print, it also hides the frame instead, because the frame would be cut off.
_STYLE = f"""<style>
@media screen and (scripting: enabled) {{
  :is({_OUTPUTS}):has(+ * iframe.attnviz-snapshot) {{ display: none !important; }}
}}
@media print, (scripting: none) {{
  iframe.attnviz-snapshot {{ display: none !important; }}
}}
</style>"""

# CSS selector of views that a host restored without a kernel and could not draw. A view that was
# drawn before its kernel ended is not included, because it is still visible.
_DETACHED = '.attnviz[data-attnviz-state="detached"]:not([data-attnviz-drawn])'
# CSS selectors of outputs that contain JupyterLab's panel for a widget:
# - _LAB_LOOKS: JupyterLab searches for the widget. Without a kernel, the search never ends.
# - _LAB_TEXT: as _LAB_LOOKS, but the panel contains only a text.
# - _LAB_ERROR: The panel shows an error. Either the search failed, and the panel has the class
#   "jupyter-widgets", or the server has no anywidget.
_LAB_LOOKS = ".jp-OutputArea-child:has(> .lm-Panel.jp-OutputArea-output:not(.jupyter-widgets))"
_LAB_TEXT = f"{_LAB_LOOKS}:not(:has(> .lm-Panel > *))"
_LAB_ERROR = (
    ".jp-OutputArea-child:has("
    "> .lm-Panel.jupyter-widgets, > .lm-Panel .jupyter-widgets-error-widget)"
)
# CSS selectors of outputs with the text that nbconvert shows for a widget without saved state. The
# first selector is for nbconvert's default template, and the second for its classic template.
_AS_TEXT = (
    '.jp-OutputArea-child:has(> [data-mime-type="text/plain"]), .output_area:has(> .output_text)'
)
# CSS selectors of outputs that contain a saved picture (_SAVED), a frame with a page (_FRAMED), or
# a view that is drawn or has a kernel (_ALIVE).
_SAVED = f":is({_OUTPUTS}):has(.attnviz-saved)"
_FRAMED = f":is({_OUTPUTS}):has(iframe.attnviz-snapshot)"
_ALIVE = f":is({_OUTPUTS}):has(.attnviz):not(:has({_DETACHED}))"
# Style sheet of the content of a saved picture.
_PICTURE_STYLE = """<style>
.attnviz-saved .attnviz-title { font-weight: 600; }
.attnviz-saved img { max-width: 100%; height: auto; }
.attnviz-saved img[src^="data:image/png"] { image-rendering: pixelated; }
</style>"""
# Advice below a picture that JupyterLab shows because it cannot show the view.
_INSTALL = (
    '<p class="attnviz-install"><small>If the picture stays after you have run the cell, install '
    "anywidget where JupyterLab runs (<code>pip install anywidget</code>) and reload this "
    "page.</small></p>"
)
# Style sheet of the output with a saved picture. It hides the picture while the view directly
# before it works. While JupyterLab searches for the widget, the picture stays hidden for 1 second.
# If the notebook has a kernel, JupyterLab usually finds the widget within this time, so the picture
# does not appear at all. With `options.snapshot="page"`, a frame with the page follows the picture
# and is hidden with it.
_SAVED_STYLE = f"""<style>
{_LAB_LOOKS} + {_SAVED}, {_LAB_LOOKS} + {_SAVED} + {_FRAMED} {{
  max-height: 0; overflow: hidden; visibility: hidden; animation: attnviz-show 0s 1s forwards;
}}
.attnviz-install {{ display: none; }}
{_LAB_ERROR} + {_SAVED} .attnviz-install {{ display: block; }}
{_LAB_TEXT}:has(+ * .attnviz-saved) {{ animation: attnviz-hide 0s 1s forwards; }}
@keyframes attnviz-show {{ to {{ max-height: none; visibility: visible; }} }}
@keyframes attnviz-hide {{ to {{ max-height: 0; overflow: hidden; visibility: hidden; }} }}
{_ALIVE} + {_SAVED}, {_ALIVE} + {_SAVED} + {_FRAMED} {{ display: none !important; }}
:is({_LAB_ERROR}, {_AS_TEXT}, :is({_OUTPUTS}):has({_DETACHED})):has(+ * .attnviz-saved) {{
  display: none !important;
}}
</style>"""


def frame_saved(still: str) -> str:
    """Return a picture and its description, which is HTML, with their style sheet."""
    return f'<div class="attnviz-saved">\n{still}\n{_PICTURE_STYLE}</div>'


def show_saved(output: Output, still: str, page: str | None = None, height: float = 0) -> None:
    """Show a picture in an output of a cell, directly after a live view.

    Parameters
    ----------
    output : Output
        Output of the picture. If it already shows a picture, the new one replaces it.
    still : str
        HTML with a picture and its description.
    page : str, optional
        HTML of the interactive page. If it is passed, a frame with this page follows the picture.
    height : float
        Height of the frame in pixels before its page has opened. Heights outside `_MIN_HEIGHT` to
        `_MAX_HEIGHT` are replaced with the nearest of these bounds.
    """
    text = f"{frame_saved(still)}{_INSTALL}{_SAVED_STYLE}"
    output.show({"text/html": text, "text/plain": "<saved picture of a live view>"}, raw=True)
    if page is not None:
        _show_frame(page, height)


def show_snapshot(page: Callable[[], str], drawing: Callable[[], Drawing], height: float) -> None:
    """Display a picture of the view, then the interactive page in a frame.

    `page` returns the HTML of the page, and `height` is the height of the frame in pixels before
    its page has opened. A browser draws the picture from what `drawing` returns. If this fails, for
    example because no browser is installed, the small picture that the page contains is displayed.
    Raise RuntimeError outside a notebook.
    """
    from IPython.display import HTML, Image

    output = Output()
    with show_progress("snapshot", output=output):
        document = page()
        if ipython() is None:
            raise RuntimeError(
                "snapshot() adds outputs to a notebook, but no notebook is running. Use "
                "save('x.html') or save('x.png') to write a file."
            )
        picture: HTML | Image
        try:
            png, title = draw_for_notebook(drawing())
        except (ImportError, RuntimeError) as error:
            warn_caller(f"a smaller picture replaces that of the view: {error}")
            picture = HTML(get_still(document))
        else:
            png = _reduce_colors(png)
            picture = Image(png, format="png", retina=True, alt=title)
            # Remove the height that IPython's `Image` has set. With a fixed height, Jupyter Book
            # would distort the picture in a narrow column.
            picture.height = None
            still = (
                f'<img alt="{html.escape(title)}" style="width: 100%" '
                f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
            )
            document = replace_still(document, still)
    # The picture replaces the progress bar, which may be in an output before it.
    output.show(picture)
    _show_frame(document, height)


def _show_frame(document: str, height: float) -> None:
    from IPython.display import display

    size = min(max(height, _MIN_HEIGHT), _MAX_HEIGHT)
    # If scripts run, the frame gets the height of its page ("auto"), because a view is higher in a
    # narrow column than in a wide one. Otherwise it keeps the height `size`.
    frame = f"{iframe(document, 'auto', size, css_class='attnviz-snapshot')}{_STYLE}"
    # Do not use IPython's `HTML`. It warns about iframes and recommends `IFrame`, which needs a
    # URL.
    display({"text/html": frame, "text/plain": "<interactive attention view>"}, raw=True)


def _reduce_colors(png: bytes) -> bytes:
    """Reduce a PNG to 256 colors, which makes it about five times smaller.

    If Pillow is not installed, return the PNG unchanged.
    """
    try:
        from PIL import Image
    except ImportError:
        return png
    # With the method MAXCOVERAGE, the red, green and blue of a pixel (0 to 255) change only a
    # little.
    colours = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    result = io.BytesIO()
    colours.save(result, "PNG", optimize=True)
    return result.getvalue()
