"""HTML of a frame with a page, for the pages of other programs."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from attnviz.record.record import AttentionRecord

__all__ = ["check_height", "estimate_height", "iframe", "make_module"]

# Code that adapts the frame's height to the page. The page sends its height only on request, and
# sends only a number. An `onload` attribute also runs in programs that remove script elements.
_FOLLOW = (
    "const frame = this; const follow = ({ source, data }) => { "
    "if (!frame.isConnected) window.removeEventListener('message', follow); "
    "else if (source === frame.contentWindow && data && data.attnviz === 'height') "
    "frame.style.height = Math.min(Math.max(Number(data.height) || 0, 60), 20000) + 'px'; }; "
    "window.addEventListener('message', follow); "
    "frame.contentWindow.postMessage('attnviz: height?', '*');"
)

# Estimated sizes in pixels, at the width of a usual column: controls above and below a picture, a
# token, the column, and the maximum height.
_CONTROLS_HEIGHT = 480
_TOKEN, _MAX_TOKENS = 26, 64
_COLUMN = 780
_MAX_HEIGHT = 1600


def check_height(height: object) -> float | Literal["auto"]:
    """Return `height` if it is "auto" or a positive number of pixels. Otherwise raise an error."""
    if isinstance(height, str) and height == "auto":
        return "auto"
    message = f'height={height!r} must be "auto" or a number of pixels, such as 600'
    if isinstance(height, bool) or not isinstance(height, (int, float)):
        raise TypeError(message)
    if not (math.isfinite(height) and height > 0):
        raise ValueError(message)
    return height


def iframe(
    page: str, height: float | Literal["auto"], estimate: float, *, css_class: str = ""
) -> str:
    """Return the HTML of a frame with `page`.

    With ``height="auto"``, the frame has the height `estimate` until the page reports its height.
    `css_class` is a CSS class of the frame.
    """
    pixels, follow = (estimate, f' onload="{_FOLLOW}"') if height == "auto" else (height, "")
    class_attribute = f' class="{css_class}"' if css_class else ""
    # Without allow-same-origin, the page has a separate origin and cannot read the outer page.
    return (
        f'<iframe{class_attribute} srcdoc="{html.escape(page)}" '
        'sandbox="allow-scripts allow-downloads" '
        'style="display: block; width: 100%; min-width: min(100%, 320px); '
        f'height: {pixels:g}px; border: 0" '
        f'title="Interactive attention view"{follow}></iframe>'
    )


def make_module(text: str) -> str:
    """Return a widget module that shows HTML and sends no requests to a kernel."""
    return f"export default {{ render({{ el }}) {{ el.innerHTML = {json.dumps(text)}; }} }};\n"


def estimate_height(view: str, record: AttentionRecord, state: Mapping[str, Any]) -> int:
    """Estimate the height of a view in a usual column."""
    stack = record.stack(state["stack"])
    tokens = min(max(len(stack.query_tokens), len(stack.key_tokens)), _MAX_TOKENS)
    layers = len(stack.layers)
    heads = max(stack.num_heads(layer) for layer in stack.layers)
    cell = min(96, _COLUMN // heads)
    pictures = {
        "head": _TOKEN * tokens,
        "neuron": _TOKEN * tokens + 150,
        "matrix": min(36 * tokens, _COLUMN - 100),
        "model": cell * layers - 180,
        "embedding": _COLUMN if state.get("enlarged") else (cell + 26) * layers,
        "compare": min(cell, 44) * layers + _TOKEN * tokens + 120,
        "dashboard": cell // 2 * layers + _TOKEN * tokens + _CONTROLS_HEIGHT,
    }
    return min(_CONTROLS_HEIGHT + pictures[view], _MAX_HEIGHT)
