"""A page in a frame, as text for the pages of other programs."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from attnviz.record.record import AttentionRecord

__all__ = ["check_height", "estimated_height", "iframe", "module_of"]

# The page answers only who asks, and tells a number alone. As an attribute it also runs where a
# program puts text into its page and leaves scripts out.
_FOLLOW = (
    "const frame = this; const follow = ({ source, data }) => { "
    "if (!frame.isConnected) window.removeEventListener('message', follow); "
    "else if (source === frame.contentWindow && data && data.attnviz === 'height') "
    "frame.style.height = Math.min(Math.max(Number(data.height) || 0, 60), 20000) + 'px'; }; "
    "window.addEventListener('message', follow); "
    "frame.contentWindow.postMessage('attnviz: height?', '*');"
)

# What stands above and below a picture at the width of a usual column, and the picture's own sizes,
# in pixels.
_AROUND = 480
_TOKEN, _MOST_TOKENS = 26, 64
_COLUMN = 780
_HIGHEST = 1600


def check_height(height: object) -> float | Literal["auto"]:
    """A number of pixels, or "auto"; TypeError or ValueError for anything else."""
    if isinstance(height, str) and height == "auto":
        return "auto"
    says = f'height={height!r} must be "auto" or a number of pixels, such as 600'
    if isinstance(height, bool) or not isinstance(height, (int, float)):
        raise TypeError(says)
    if not (math.isfinite(height) and height > 0):
        raise ValueError(says)
    return height


def iframe(page: str, height: float | Literal["auto"], estimate: float, *, kind: str = "") -> str:
    """The frame; one that follows its content has the estimate until the content has told.

    `kind` is a class for style sheets.
    """
    pixels, follow = (estimate, f' onload="{_FOLLOW}"') if height == "auto" else (height, "")
    named = f' class="{kind}"' if kind else ""
    # allow-scripts alone: the page gets an origin of its own and cannot reach the one around it.
    return (
        f'<iframe{named} srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-downloads" '
        'style="display: block; width: 100%; min-width: min(100%, 320px); '
        f'height: {pixels:g}px; border: 0" '
        f'title="Interactive attention view"{follow}></iframe>'
    )


def module_of(text: str) -> str:
    """A widget's module that shows some HTML, and asks nothing of a kernel."""
    return f"export default {{ render({{ el }}) {{ el.innerHTML = {json.dumps(text)}; }} }};\n"


def estimated_height(view: str, record: AttentionRecord, state: Mapping[str, Any]) -> int:
    """About how high a view is in a usual column, where it cannot be measured."""
    stack = record.stack(state["stack"])
    tokens = min(max(len(stack.query_tokens), len(stack.key_tokens)), _MOST_TOKENS)
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
        "dashboard": cell // 2 * layers + _TOKEN * tokens + _AROUND,
    }
    return min(_AROUND + pictures[view], _HIGHEST)
