"""HTML of an iframe that contains an exported page, for notebooks and other programs."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from attnviz.record.record import AttentionRecord

# JavaScript that runs in the document around the frame. It sets the height of the frame to that of
# the exported page in it, but at least 60 and at most 20,000 pixels. It sends one request to the
# page. The page then sends its height, and sends it again after each change. The code is in an
# `onload` attribute, because some programs remove script elements.
_FOLLOW = (
    "const frame = this; const follow = ({ source, data }) => { "
    "if (!frame.isConnected) window.removeEventListener('message', follow); "
    "else if (source === frame.contentWindow && data && data.attnviz === 'height') "
    "frame.style.height = Math.min(Math.max(Number(data.height) || 0, 60), 20000) + 'px'; }; "
    "window.addEventListener('message', follow); "
    "frame.contentWindow.postMessage('attnviz: height?', '*');"
)

# Sizes in pixels for `estimate_height`: the height of a view's controls (above and below its
# drawing), the height of a token, the width of the column that contains the view, and the maximum
# height of a view. If a text has more than `_MAX_TOKENS` tokens, only `_MAX_TOKENS` are counted.
_CONTROLS_HEIGHT = 480
_TOKEN, _MAX_TOKENS = 26, 64
_COLUMN = 780
_MAX_HEIGHT = 1600


def check_height(height: object) -> float | Literal["auto"]:
    """Check that `height` is "auto" or a positive number of pixels, and return `height`.

    Raise TypeError or ValueError for other values.
    """
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
    """Return the HTML of an iframe that contains `page`.

    `height` is in pixels. If it is "auto", the frame first has the height `estimate`, also in
    pixels. When the page has opened, the frame gets the height of the page. `css_class` is the
    class of the frame, or "" for no class.
    """
    pixels, follow = (estimate, f' onload="{_FOLLOW}"') if height == "auto" else (height, "")
    class_attribute = f' class="{css_class}"' if css_class else ""
    # The sandbox omits allow-same-origin, so the page cannot read the page that contains the frame.
    return (
        f'<iframe{class_attribute} srcdoc="{html.escape(page)}" '
        'sandbox="allow-scripts allow-downloads" '
        'style="display: block; width: 100%; min-width: min(100%, 320px); '
        f'height: {pixels:g}px; border: 0" '
        f'title="Interactive attention view"{follow}></iframe>'
    )


def make_module(text: str) -> str:
    """Return the JavaScript module of a widget that only shows the HTML `text`."""
    return f"export default {{ render({{ el }}) {{ el.innerHTML = {json.dumps(text)}; }} }};\n"


def estimate_height(view: str, record: AttentionRecord, state: Mapping[str, Any]) -> int:
    """Estimate the height in pixels of a view in a column with a width of about 780 pixels."""
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
