"""The tools that are compared: functions that make their pages, and scripts that operate them.

The scripts are JavaScript expressions. `drawn` is true when the picture is drawn. `layer` and
`hover` act on the picture with the number `i`, and `changed` and `lit` are true when it shows the
result.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.guarded import PEERS

if TYPE_CHECKING:
    # Opening pages does not need torch.
    import torch

Build: TypeAlias = "Callable[[torch.Tensor, list[str]], str]"
_START = "<!doctype html><meta charset=utf-8>"
_COMPARED = ("bertviz", "circuitsvis", "inspectus")


@dataclass(frozen=True)
class Tool:
    """One tool and its way of drawing the weights."""

    name: str
    build: Build
    drawn: str
    layer: str | None = None
    changed: str = "true"
    hover: str | None = None
    lit: str = "true"


def _bertviz(view: str) -> Build:
    def build(weights: torch.Tensor, tokens: list[str]) -> str:
        # The tools have no types and are installed in a separate folder.
        make = getattr(importlib.import_module("bertviz"), view)
        html = make([layer[None] for layer in weights], tokens, html_action="return")
        return f"{_START}{html.data}"

    return build


def _circuitsvis(weights: torch.Tensor, tokens: list[str], names: list[str] | None) -> str:
    attention = importlib.import_module("circuitsvis.attention")
    page = attention.attention_heads(
        attention=weights, tokens=tokens, attention_head_names=names, mask_upper_tri=True
    )
    # The output for use without a network: the page contains its script, like attnviz's pages.
    return f"{_START}{page.local_src}"


def _circuitsvis_layer(weights: torch.Tensor, tokens: list[str]) -> str:
    return _circuitsvis(weights[0], tokens, None)


def _circuitsvis_all(weights: torch.Tensor, tokens: list[str]) -> str:
    layers, heads = weights.shape[:2]
    names = [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)]
    return _circuitsvis(weights.flatten(0, 1), tokens, names)


def _inspectus(weights: torch.Tensor, tokens: list[str]) -> str:
    display: Any = importlib.import_module("IPython.display")
    parts: list[str] = []
    # inspectus displays its output and returns nothing.
    original, display.display = display.display, lambda html: parts.append(html.data)
    try:
        importlib.import_module("inspectus").attention(weights.numpy(), tokens)
    finally:
        display.display = original
    return _START + "".join(parts)


def _attnviz(view: str, **options: Any) -> Build:
    def build(weights: torch.Tensor, tokens: list[str]) -> str:
        import attnviz as av

        record = av.AttentionRecord.from_weights(weights, tokens)
        html: str = getattr(av, view)(record, **options).to_html()
        return html

    return build


def _from_vectors(weights: torch.Tensor, tokens: list[str]) -> str:
    """Return the page of a text too long for weights, from queries and keys as in a record."""
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
# BertViz draws in one step.
_BERTVIZ = "document.querySelector('#vis svg') !== null"
# CircuitsVis draws after it has made its canvases. The sampled row crosses nearly all keys.
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
# Tools for the longest text, for which no tensor of weights fits into memory.
LONG_VIEWS: Mapping[str, Tool] = {
    "vectors": Tool("attnviz, head view of queries and keys", _from_vectors, **_ATTNVIZ_HEAD),
}
VIEWS = {"head": HEAD_VIEWS, "model": MODEL_VIEWS, "long": LONG_VIEWS}


def versions() -> dict[str, str]:
    """Return the versions of the tools that attnviz is compared with."""
    packages = importlib.metadata.distributions(path=[str(PEERS)])
    return {package.name: package.version for package in packages if package.name in _COMPARED}
