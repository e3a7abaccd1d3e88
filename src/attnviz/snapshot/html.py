"""One HTML file that carries a view, its data and its code, and needs no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from attnviz.analysis import all_head_scores
from attnviz.channel.codec import Encoded, encode
from attnviz.channel.description import describe
from attnviz.channel.limits import MAX_REPLY_BYTES
from attnviz.channel.maps import encoded_maps
from attnviz.channel.pictures import encoded_image
from attnviz.channel.server import finite_scores
from attnviz.record import AttentionRecord
from attnviz.snapshot.vectors import carried_vectors
from attnviz.static_files import bundle

__all__ = ["Carried", "make_page"]

Carried = Literal["weights", "vectors"]

_FORMAT = 2
_MAP_SIZE = 32
# Above this a browser tab struggles with the page, and so does whoever receives it.
_MAX_WEIGHTS = 200_000_000
# Scoring every head by every pattern goes over all weights many times: above this it would take
# longer than all else, and pages are made without.
_MAX_SCORED_WEIGHTS = 30_000_000

# The bundle lies in the page as inert text, so that one file serves widget and page. The loader is
# the only script that may run by itself, known to the browser by its hash.
_LOADER = """
const text = (id) => document.getElementById(id).textContent;
const source = new Blob([text("attnviz-bundle")], { type: "text/javascript" });
const address = URL.createObjectURL(source);
try {
  const view = await import(address);
  view.openPage(document.getElementById("attnviz"), JSON.parse(text("attnviz-data")));
} catch (error) {
  document.getElementById("attnviz").textContent = "attnviz could not open this page: " + error;
  throw error;
} finally {
  URL.revokeObjectURL(address);
}
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
html {{ background: {light}; color-scheme: {scheme}; }}
{dark_rule}
body {{ margin: 16px; }}
</style>
</head>
<body>
<div id="attnviz"></div>
<noscript>This page draws attention weights with JavaScript, which is switched off.</noscript>
<script type="application/json" id="attnviz-data">{data}</script>
<script type="text/plain" id="attnviz-bundle">{bundle}</script>
<script type="module">{loader}</script>
</body>
</html>
"""
_SCRIPT_END = re.compile("</(script)", re.IGNORECASE)
_LIGHT, _DARK = "#ffffff", "#17181c"


def make_page(
    record: AttentionRecord,
    view: str,
    state: Mapping[str, Any],
    *,
    carries: Collection[Carried] = frozenset({"weights"}),
) -> str:
    """Make the page of a view.

    Parameters
    ----------
    record : AttentionRecord
        What the page shows; all of its layers are carried: weights in one byte each, queries and
        keys exact or, where there are many, in half precision.
    view : str
        Name of the view.
    state : mapping
        The view's traits, fit for JSON.
    carries : collection of {"weights", "vectors"}
        What the view asks for beside the description and small maps of all heads.

    Returns
    -------
    str
        A whole HTML document.

    Raises
    ------
    ValueError
        If the record is too large for a page; says how to make it fit.
    """
    count = sum(
        len(stack.kept_heads(layer)) * len(stack.query_tokens) * len(stack.key_tokens)
        for stack in record.stacks.values()
        for layer in stack.layers
    )
    if "weights" in carries and count > _MAX_WEIGHTS:
        raise ValueError(
            f"a page with all {count:,} weights would be too large to open (at most "
            f"{_MAX_WEIGHTS:,}); choose layers with include_layers=[...], or a shorter text"
        )
    # Before the maps, so that what is too large is refused before minutes of computing.
    vectors = carried_vectors(record.stacks.values()) if "vectors" in carries else None
    description = describe(record)
    scores = _carried_scores(record) if count <= _MAX_SCORED_WEIGHTS else []
    carried = {(each["stack"], each["pattern"]) for each in scores}
    for each in description["stacks"]:
        # A pattern is offered where its scores are at hand.
        each["patterns"] = [name for name in each["patterns"] if (each["name"], name) in carried]
    blocks, maps = [], []
    layers = [(stack, layer) for stack in record.stacks.values() for layer in stack.layers]
    # Silent for the second that most pages take.
    for stack, layer in tqdm(layers, desc="page", unit="layer", delay=1.0, leave=False):
        place = {"stack": stack.name, "layer": layer}
        if "weights" in carries:
            of = f"stack {stack.name!r}, layer {layer}"
            weights = encode(stack.weights(layer=layer), "uint8", stack.maximum, of=of)
            blocks.append(place | _carried(weights))
        small, sampled = encoded_maps(stack, layer, _MAP_SIZE)
        maps.append(place | _carried(small) | ({} if sampled is None else {"sampled": sampled}))
    data = {
        "format": _FORMAT,
        "view": view,
        "state": dict(state),
        "description": description,
        "blocks": blocks,
        "maps": maps,
        "scores": scores,
    }
    if vectors is not None:
        data["vectors"] = vectors
    if "weights" in carries and record.images:
        data["images"] = [_carried_image(image) for image in record.images]
    loader_hash = base64.b64encode(hashlib.sha256(_LOADER.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{loader_hash}' blob:; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    title = f"{record.model or 'Attention'} · {view} view · attnviz"
    theme = state.get("theme", "auto")
    return _PAGE.format(
        policy=policy,
        title=html.escape(title),
        light=_DARK if theme == "dark" else _LIGHT,
        scheme={"light": "light", "dark": "dark"}.get(theme, "light dark"),
        dark_rule=f"@media (prefers-color-scheme: dark) {{ html {{ background: {_DARK}; }} }}"
        if theme == "auto"
        else "",
        # A "<" in a string can then begin no tag, and JSON reads it back as the same string.
        data=json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        # In JavaScript these stand in strings and regular expressions only, where "\\/" is "/".
        bundle=_SCRIPT_END.sub(r"<\\/\1", bundle(view)).replace("<!--", "<\\!--"),
        loader=_LOADER,
    )


def _carried_scores(record: AttentionRecord) -> list[dict[str, Any]]:
    return [
        {"stack": stack.name, "pattern": pattern, "scores": finite_scores(scores)}
        for stack in record.stacks.values()
        for pattern, scores in all_head_scores(stack).items()
    ]


def _carried(encoded: Encoded) -> dict[str, Any]:
    return encoded.header() | {"data": _packed(encoded.data)}


def _carried_image(image: NDArray[np.uint8]) -> dict[str, Any]:
    header, data = encoded_image(image, MAX_REPLY_BYTES)
    return header | {"data": _packed(data)}


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")
