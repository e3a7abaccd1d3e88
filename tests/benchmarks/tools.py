"""The tools that are compared: how each makes a page, and how its page is read and handled.

What a page is asked are JavaScript expressions. `drawn` holds when the picture is there; `layer`
and `hover` act on it, given `i`, and `changed` and `lit` hold when what that asks for is there.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.guarded import PEERS

if TYPE_CHECKING:
    # What opens pages needs none of it.
    import torch

Build: TypeAlias = "Callable[[torch.Tensor, list[str]], str]"
_START = "<!doctype html><meta charset=utf-8>"
_COMPARED = ("bertviz", "circuitsvis", "inspectus")


@dataclass(frozen=True)
class Tool:
    """One way of drawing the weights."""

    name: str
    build: Build
    drawn: str
    layer: str | None = None
    changed: str = "true"
    hover: str | None = None
    lit: str = "true"


def _bertviz(view: str) -> Build:
    def build(weights: torch.Tensor, tokens: list[str]) -> str:
        # They come without types, and lie in an environment of their own.
        make = getattr(importlib.import_module("bertviz"), view)
        html = make([layer[None] for layer in weights], tokens, html_action="return")
        return f"{_START}{html.data}"

    return build


def _circuitsvis(weights: torch.Tensor, tokens: list[str], names: list[str] | None) -> str:
    attention = importlib.import_module("circuitsvis.attention")
    made = attention.attention_heads(
        attention=weights, tokens=tokens, attention_head_names=names, mask_upper_tri=True
    )
    # What it shows where there is no network: with its script inside, as attnviz's pages.
    return f"{_START}{made.local_src}"


def _circuitsvis_layer(weights: torch.Tensor, tokens: list[str]) -> str:
    return _circuitsvis(weights[0], tokens, None)


def _circuitsvis_all(weights: torch.Tensor, tokens: list[str]) -> str:
    layers, heads = weights.shape[:2]
    names = [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]
    return _circuitsvis(weights.flatten(0, 1), tokens, names)


def _inspectus(weights: torch.Tensor, tokens: list[str]) -> str:
    display: Any = importlib.import_module("IPython.display")
    parts: list[str] = []
    # It shows and returns nothing.
    shown, display.display = display.display, lambda html: parts.append(html.data)
    try:
        importlib.import_module("inspectus").attention(weights.numpy(), tokens)
    finally:
        display.display = shown
    return _START + "".join(parts)


def _attnviz(view: str, **options: Any) -> Build:
    def build(weights: torch.Tensor, tokens: list[str]) -> str:
        import attnviz as av

        record = av.AttentionRecord.from_weights(weights, tokens)
        html: str = getattr(av, view)(record, **options).to_html()
        return html

    return build


def _from_vectors(weights: torch.Tensor, tokens: list[str]) -> str:
    """A text so long that there are no weights: from queries and keys, as an extracted record."""
    import attnviz as av
    from unit.long_records import long_record

    layers, heads = weights.shape[:2]
    record = long_record(len(tokens), layers=layers, heads=heads, key_heads=heads)
    return av.HeadView(record).to_html()


_ATTNVIZ_HEAD = {
    "drawn": "document.querySelector('[data-attnviz-drawn]') !== null",
    "layer": """document.querySelector(`[aria-label="Layer ${i}"]`).click()""",
    "changed": "document.querySelector(`[data-attnviz-drawn='head:self:${i}']`) !== null",
    "hover": """{
      const plot = document.querySelector('.av-plot');
      const box = plot.getBoundingClientRect();
      const at = { clientX: box.left + 320, clientY: box.top + 60 + 26 * (i % 20), bubbles: true };
      plot.dispatchEvent(new PointerEvent('pointermove', at));
    }""",
}
_ATTNVIZ_MATRIX = {
    **_ATTNVIZ_HEAD,
    "changed": "document.querySelector(`[data-attnviz-drawn='matrix:self:${i}']`) !== null",
}
_ATTNVIZ_GRID = {
    "drawn": "document.querySelector('[data-attnviz-drawn]') !== null",
    "hover": """document.querySelectorAll('.av-grid-cell')[i]
      .dispatchEvent(new PointerEvent('pointermove', { clientX: 200, clientY: 200, bubbles: true }))
    """,
    "lit": "document.querySelector('.av-hint') !== null",
}
# Its script draws in one go.
_BERTVIZ = "document.querySelector('#vis svg') !== null"
# It draws after it has made its canvases. The row that is looked at crosses nearly all keys.
_CIRCUITSVIS = {
    "drawn": """(() => {
      const painted = (canvas) => {
        const { width, height } = canvas;
        const row = width && canvas.getContext('2d').getImageData(0, height * 0.85, width, 1).data;
        return Boolean(row) && row.some((value) => value > 0);
      };
      const canvases = [...document.querySelectorAll('canvas')];
      if (canvases.length === 0) return false;
      window.painted ??= new Set();
      for (const canvas of canvases) {
        if (window.painted.has(canvas)) continue;
        if (!painted(canvas)) return false;
        window.painted.add(canvas);
      }
      return true;
    })()""",
    "hover": """{
      const canvas = [...document.querySelectorAll('canvas')].at(-1);
      window.zoomed = () => {
        const { width, height } = canvas;
        return canvas.getContext('2d').getImageData(0, height * 0.85, width, 1).data.join();
      };
      window.before = window.zoomed();
      document.querySelectorAll('canvas')[i % 10 + 1]
        .dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
    }""",
    "lit": "window.zoomed() !== window.before",
}
_INSPECTUS = {
    "drawn": "document.querySelector('.dimension-values .value') !== null",
    "layer": "document.querySelectorAll('.dimension-values .value')[i].click()",
}

HEAD_VIEWS: Mapping[str, Tool] = {
    "bertviz": Tool(
        "BertViz, head_view",
        _bertviz("head_view"),
        drawn=_BERTVIZ,
        layer="""{
          const menu = document.querySelector('#layer');
          menu.value = i;
          menu.dispatchEvent(new Event('change'));
        }""",
        hover="""document.querySelectorAll('#left text')[i % 20]
          .dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))""",
    ),
    "circuitsvis": Tool(
        "CircuitsVis, attention_heads of one layer", _circuitsvis_layer, **_CIRCUITSVIS
    ),
    "inspectus": Tool("inspectus, attention", _inspectus, **_INSPECTUS),
    "head": Tool("attnviz, head view as it opens", _attnviz("HeadView"), **_ATTNVIZ_HEAD),
    "matrix": Tool("attnviz, matrix view as it opens", _attnviz("MatrixView"), **_ATTNVIZ_MATRIX),
}
MODEL_VIEWS: Mapping[str, Tool] = {
    "bertviz": Tool("BertViz, model_view", _bertviz("model_view"), drawn=_BERTVIZ),
    "circuitsvis": Tool(
        "CircuitsVis, attention_heads of all layers", _circuitsvis_all, **_CIRCUITSVIS
    ),
    "maps": Tool("attnviz, model view as it opens", _attnviz("ModelView"), **_ATTNVIZ_GRID),
    "lines": Tool(
        "attnviz, model view with lines",
        _attnviz("ModelView", thumbnails="lines"),
        **_ATTNVIZ_GRID,
    ),
}
# For the longest text that opens: beyond what a tensor of weights can be made for.
LONG_VIEWS: Mapping[str, Tool] = {
    "vectors": Tool("attnviz, head view of queries and keys", _from_vectors, **_ATTNVIZ_HEAD),
}
VIEWS = {"head": HEAD_VIEWS, "model": MODEL_VIEWS, "long": LONG_VIEWS}


def versions() -> dict[str, str]:
    """The tools that attnviz is compared with, and their versions."""
    found = importlib.metadata.distributions(path=[str(PEERS)])
    return {each.name: each.version for each in found if each.name in _COMPARED}
