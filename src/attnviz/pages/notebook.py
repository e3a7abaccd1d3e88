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
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attnviz.pages.html import with_still
from attnviz.pages.iframe import iframe
from attnviz.pages.image import draw_for_notebook
from attnviz.record.record import AttentionRecord
from attnviz.utils.bars import Output, bars_in
from attnviz.utils.host import warn_caller

__all__ = ["height_without_a_browser", "show_snapshot", "strongest_weights_table"]

_ROWS_IN_TABLE = 10
_FRAME_HEIGHT = {"least": 420, "most": 1500, "around": 450, "a_token": 26}


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


def show_snapshot(page: Callable[[], str], table: Callable[[], str], height: int) -> None:
    """Display a picture, and the interactive page in a frame; nothing else is left behind.

    Where no browser can draw, `table` makes the HTML that stands in for the picture, and `height`
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
    try:
        drawn = draw_for_notebook(document)
    except (ImportError, RuntimeError) as error:
        warn_caller(f"a table stands in for the picture: {error}")
        still = table()
        picture: HTML | Image = HTML(still)
    else:
        png = _smaller(drawn.png)
        still = (
            f'<img alt="{html.escape(drawn.title)}" style="width: 100%" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        )
        picture = Image(png, format="png", retina=True, alt=drawn.title)
        # Jupyter Book makes a height fixed, and squeezes the picture in a narrow column.
        picture.height = None
        height = drawn.height
    output.show(picture)
    # As raw data: IPython would advise IFrame, which shows an address and no document.
    frame = _frame(with_still(document, still), height)
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


def height_without_a_browser(record: AttentionRecord) -> int:
    """About how high the frame of a record's view has to be, in pixels."""
    longest = max(
        max(len(stack.query_tokens), len(stack.key_tokens)) for stack in record.stacks.values()
    )
    return _FRAME_HEIGHT["around"] + _FRAME_HEIGHT["a_token"] * longest


def _frame(page: str, height: int) -> str:
    size = min(max(height, _FRAME_HEIGHT["least"]), _FRAME_HEIGHT["most"])
    # It follows its content where that can tell: in a narrow column a view is higher.
    return f"{iframe(page, 'auto', size, kind='attnviz-snapshot')}{_STYLE}"


def strongest_weights_table(record: AttentionRecord, state: Mapping[str, Any]) -> str:
    """The strongest weights of what a view shows, or the largest signed numbers, as a table."""
    stack = record.stack(state["stack"])
    heads = list(state["heads"]) or list(stack.kept_heads(state["layer"]))
    chosen = np.stack([stack.weights(layer=state["layer"], head=head) for head in heads])
    queries = list(range(chosen.shape[1])) if state.get("token") is None else [state["token"]]
    chosen = chosen[:, queries]
    strongest = np.argsort(np.abs(chosen), axis=None)[::-1][:_ROWS_IN_TABLE]
    rows = []
    for head, row, key in zip(*np.unravel_index(strongest, chosen.shape), strict=True):
        cells = (
            str(heads[head]),
            stack.query_tokens[queries[row]],
            stack.key_tokens[int(key)],
            _number(chosen[head, row, key], signed=stack.signed),
        )
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    caption = html.escape(
        f"{record.model or 'Attention'}: the {len(rows)} "
        f"{'largest' if stack.signed else 'strongest'} {stack.measure}s of layer "
        f"{state['layer']} ({stack.name}), exact to 0.001"
    )
    return (
        f"<table><caption>{caption}</caption><thead><tr><th>head</th><th>query</th><th>key</th>"
        f"<th>{html.escape(stack.measure)}</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _number(value: float, *, signed: bool) -> str:
    """Three decimals, with the sign where there are two."""
    return f"{value:+.3f}".replace("-", "−") if signed else f"{value:.3f}"
