"""The page of an atlas: statistics, roles and offsets of all heads, and edges as far as they fit.

What a kernel would send is embedded as it is, deflated, but for mean weights by offset and by
class of token, of which each is one byte: 0 where no such pair exists, else the weight is
``maximum * ((code - 1) / 254) ** 2``, with a head's own maximum.
``js/src/views/atlas/client/page.ts`` reads all of it, ``tests/fixtures/atlas.json`` is read by
both.
"""

from __future__ import annotations

import base64
import html
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.atlas.answers import (
    deflated,
    describe_atlas,
    edges_of,
    most_edges,
    table_of,
    texts_of,
)
from attnviz.corpus.statistics import HeadStatistics, StackStatistics
from attnviz.pages.html import FORMAT, document
from attnviz.pages.limits import code_too_large, megabytes
from attnviz.pages.picture import titled
from attnviz.utils.progress import Progress, Steps, run_with_bar

__all__ = [
    "MAX_BYTES",
    "MOST_CLASSES",
    "atlas_figure",
    "atlas_page_steps",
    "make_atlas_page",
    "roles_table",
]

#: The size of a page by default, in bytes: it opens at once and can be mailed.
MAX_BYTES = 5_000_000
#: A system of more classes has no table of mean weights, which would not be read.
MOST_CLASSES = 24

# Pages are made so many times until one fits: each is smaller than the one before.
_MOST_TRIES = 12
_ROWS_IN_TABLE = 12
_STILL_SAYS = (
    f"\n<p>The {_ROWS_IN_TABLE} surest roles at most; all heads, their scores and their strongest "
    "edges are in the interactive view.</p>"
)


def make_atlas_page(
    statistics: HeadStatistics, state: Mapping[str, Any], *, max_bytes: int | None = MAX_BYTES
) -> str:
    """Make the page of an atlas, with a bar where that takes long."""
    return run_with_bar(atlas_page_steps(statistics, state, max_bytes=max_bytes), "page")


def atlas_page_steps(
    statistics: HeadStatistics, state: Mapping[str, Any], *, max_bytes: int | None = MAX_BYTES
) -> Steps[str]:
    """Make the page of an atlas step by step.

    Parameters
    ----------
    statistics : HeadStatistics
        What is shown.
    state : mapping
        The view's traits, fit for JSON.
    max_bytes : int, optional
        Bytes that the page may have; None is any number. Where it is needed, the page has fewer
        edges of each head, and says so.
    """
    bare = len(document(statistics.model, "atlas", state, {}).encode())
    if max_bytes is not None and bare > max_bytes:
        raise ValueError(code_too_large(max_bytes, bare))
    # A picture would show one score of each head; the roles say what the heads do.
    still = titled(statistics.model, "atlas", atlas_figure(statistics, state["stack"]))
    stacks = {name: statistics.stack(name) for name in statistics.stack_names}
    heads = {}
    for name, stack in stacks.items():
        heads[name] = yield from _embedded_heads(stack)

    def page_of(some: Mapping[str, StackStatistics]) -> Steps[str]:
        edges = {}
        for name, stack in some.items():
            edges[name] = yield from _embedded_edges(stack)
        data = {
            "format": FORMAT,
            "view": "atlas",
            "state": dict(state),
            "description": describe_atlas(statistics, some),
            "blocks": [],
            "maps": [],
            "scores": [],
            "atlas": {"stacks": [{"stack": name} | heads[name] | edges[name] for name in some]},
        }
        return document(statistics.model, "atlas", state, data, still)

    page = yield from page_of(stacks)
    if max_bytes is None or len(page.encode()) <= max_bytes:
        return page
    without = {name: stack.with_edges(0) for name, stack in stacks.items()}
    smallest = yield from page_of(without)
    least = len(smallest.encode())
    if least > max_bytes:
        raise ValueError(_too_large(stacks, least, max_bytes))
    most = max(
        most_edges(stack, sampled=sampled) for stack in stacks.values() for sampled in (False, True)
    )
    for _ in range(_MOST_TRIES):
        # Tokens near edges are shared, so bytes fall slower than edges do.
        share = (max_bytes - least) / max(1, len(page.encode()) - least)
        most = min(most - 1, int(most * share))
        if most < 1:
            break
        page = yield from page_of({name: each.with_edges(most) for name, each in stacks.items()})
        if len(page.encode()) <= max_bytes:
            return page
    return smallest


def _embedded_heads(stack: StackStatistics) -> Steps[dict[str, Any]]:
    """What is there of every head, however small the page is."""
    systems = [each for each in stack.class_systems if len(stack.classes_of(each)) <= MOST_CLASSES]
    table = _text(deflated(table_of(stack)))
    offsets: list[dict[str, Any]] = []
    classes: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
    for done, layer in enumerate(stack.layers):
        yield Progress("statistics", done, len(stack.layers), "layer")
        offsets.append(_coded(stack.offsets(layer)))
        for system in systems:
            classes[system].append(_coded(stack.class_weights(layer, system)))
    return {"table": table, "offsets": offsets, "classes": classes}


def _embedded_edges(stack: StackStatistics) -> Steps[dict[str, Any]]:
    edges = []
    for done, layer in enumerate(stack.layers):
        yield Progress("edges", done, len(stack.layers), "layer")
        edges.append(_text(deflated(edges_of(stack, layer))))
    return {"texts": _text(deflated(texts_of(stack))), "edges": edges}


def _coded(weights: NDArray[np.floating]) -> dict[str, Any]:
    """Mean weights of each head of a layer, (heads, ...), a byte each."""
    flat = weights.reshape(len(weights), -1)
    known = np.isfinite(flat)
    values = np.where(known, np.clip(flat, 0.0, None), 0.0)
    maxima = values.max(axis=1, initial=0.0)
    shares = np.sqrt(values / np.where(maxima > 0, maxima, 1.0)[:, None])
    codes = np.where(known, 1 + np.rint(254 * shares), 0).astype(np.uint8)
    return {"maximum": maxima.tolist(), "data": _text(zlib.compress(codes.tobytes()))}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _too_large(stacks: Mapping[str, StackStatistics], size: int, limit: int) -> str:
    heads = sum(sum(stack.heads_per_layer) for stack in stacks.values())
    return (
        f"the page of {heads:,} heads has {megabytes(size)} MB without any edges (at most "
        f"{megabytes(limit)}): allow it with max_mb={megabytes(size)}, or choose layers where you "
        "make the statistics, layers=[...]. Views in a notebook need no page"
    )


def atlas_figure(statistics: HeadStatistics, stack: str) -> str:
    """Return what is shown where no picture can be drawn: the roles, and what is left out."""
    return roles_table(statistics, stack) + _STILL_SAYS


def roles_table(statistics: HeadStatistics, stack: str) -> str:
    """The heads with the surest roles, as a table: what stands where no picture can be drawn."""
    found = statistics.stack(stack)
    roles = found.roles()
    rows = sorted(
        (
            (layer, head, held[0])
            for layer in found.layers
            for head in range(found.num_heads(layer))
            if (held := roles.of(layer, head))
        ),
        key=lambda row: -row[2].difference,
    )[:_ROWS_IN_TABLE]
    cells = [
        (
            f"{layer}.{head}",
            role.name,
            f"{role.score:.2f} ± {role.error:.2f}",
            f"{role.baseline:.2f}",
        )
        for layer, head, role in rows
    ]
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
    )
    caption = (
        f"{statistics.model or 'Attention'}: roles of heads over {statistics.texts:,} texts"
        f"{'' if rows else ' (none)'}"
    )
    names = ("layer.head", "role", "score ± standard error", "baseline")
    header = "".join(f"<th>{name}</th>" for name in names)
    return (
        f"<table><caption>{html.escape(caption)}</caption><thead><tr>{header}</tr></thead>"
        f"<tbody>{lines}</tbody></table>"
    )
