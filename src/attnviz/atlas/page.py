"""The exported page of an atlas.

The page has the statistics, roles and mean weights of all heads, and as many edges as its maximum
size allows, as recorded replies (see `attnviz.pages.recorded`). Tests in Python and in TypeScript
read the same example, ``tests/fixtures/atlas.json``.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from attnviz.atlas.answers import (
    describe_atlas,
    edges_of,
    max_edges_per_head,
    table_of,
    texts_of,
)
from attnviz.corpus.statistics import HeadStatistics, StackStatistics
from attnviz.pages.html import check_size_without_data, document
from attnviz.pages.limits import format_megabytes
from attnviz.pages.recorded import recorded_json, recorded_weights
from attnviz.utils.numbers import format_with_error
from attnviz.utils.progress import report, show_progress

#: Default maximum size of a page in bytes. Pages of this size open quickly and can be sent by mail.
MAX_BYTES = 5_000_000

_MAX_ROWS = 12
_STATIC_NOTE = (
    f"\n<p>This table shows at most {_MAX_ROWS} roles. All heads, their scores and their "
    "strongest edges are in the interactive view.</p>"
)


@show_progress("page")
def make_atlas_page(
    statistics: HeadStatistics, state: Mapping[str, Any], *, max_bytes: int | None = MAX_BYTES
) -> str:
    """Make the page of an atlas.

    Parameters
    ----------
    statistics : HeadStatistics
        Statistics that the page shows.
    state : mapping
        Values of the view's traits, which can be written as JSON.
    max_bytes : int, optional
        Maximum size of the page in bytes, or None for no limit. If the page with all edges is
        larger, it has fewer edges of each head. The caption of the view then states their number.

    Raises
    ------
    ValueError
        If a page without edges is larger than `max_bytes`.
    """
    check_size_without_data(statistics.model, "atlas", state, max_bytes)
    # Without JavaScript, the page shows a table of roles. It has more information than a picture,
    # in which each head would have one score.
    figure = atlas_figure(statistics, state["stack"])
    stacks = {name: statistics.stack(name) for name in statistics.stack_names}
    of_heads = [reply for stack in stacks.values() for reply in _head_replies(stack)]

    def page_of(page_stacks: Mapping[str, StackStatistics]) -> str:
        of_edges = [reply for stack in page_stacks.values() for reply in _edge_replies(stack)]
        data = {
            "description": describe_atlas(statistics, page_stacks),
            "replies": of_heads + of_edges,
        }
        return document(statistics.model, "atlas", state, data, figure=figure)

    page = page_of(stacks)
    if max_bytes is None or len(page.encode()) <= max_bytes:
        return page
    without_edges = {name: stack.with_edges(0) for name, stack in stacks.items()}
    smallest = page_of(without_edges)
    min_bytes = len(smallest.encode())
    if min_bytes > max_bytes:
        raise ValueError(_too_large(stacks, min_bytes, max_bytes))
    max_edges = max(
        max_edges_per_head(stack, sampled=sampled)
        for stack in stacks.values()
        for sampled in (False, True)
    )
    while max_edges > 1:
        # The size is not proportional to the number of edges, because edges share tokens. So this
        # estimate of the largest number of edges that fits may be too large, and is repeated.
        share = (max_bytes - min_bytes) / max(1, len(page.encode()) - min_bytes)
        max_edges = min(max_edges - 1, int(max_edges * share))
        page = page_of({name: stack.with_edges(max_edges) for name, stack in stacks.items()})
        if len(page.encode()) <= max_bytes:
            return page
    return smallest


def _head_replies(stack: StackStatistics) -> list[dict[str, Any]]:
    """Record the statistics, roles and mean weights of all heads, which every page contains."""
    at: dict[str, Any] = {"stack": stack.name}
    replies = [recorded_json("statistics", at, table_of(stack))]
    for done, layer in enumerate(stack.layers):
        report("statistics", done, len(stack.layers), "layer")
        of_layer = at | {"layer": layer}
        header = {"bins": len(stack.offset_labels)}
        replies.append(recorded_weights("offsets", of_layer, header, stack.offsets(layer)))
    return replies


def _edge_replies(stack: StackStatistics) -> list[dict[str, Any]]:
    """Record the edges of all heads, and the tokens near them."""
    at: dict[str, Any] = {"stack": stack.name}
    replies = [recorded_json("texts", at, texts_of(stack))]
    for done, layer in enumerate(stack.layers):
        report("edges", done, len(stack.layers), "layer")
        replies.append(recorded_json("edges", at | {"layer": layer}, edges_of(stack, layer)))
    return replies


def _too_large(stacks: Mapping[str, StackStatistics], size: int, limit: int) -> str:
    heads = sum(sum(stack.heads_per_layer) for stack in stacks.values())
    return (
        f"the page of {heads:,} heads needs {format_megabytes(size)} MB without any edges, but "
        f"the limit is {format_megabytes(limit)} MB. Pass max_mb={format_megabytes(size)}, or make "
        "the statistics with fewer layers, layers=[...]. Views in a notebook need no page."
    )


def atlas_figure(statistics: HeadStatistics, stack: str) -> str:
    """Return the HTML that is shown without JavaScript: a table of roles and a note."""
    return roles_table(statistics, stack) + _STATIC_NOTE


def roles_table(statistics: HeadStatistics, stack: str) -> str:
    """Return an HTML table of heads that have a role.

    The row of a head shows its main role. Heads without a role are omitted. At most `_MAX_ROWS`
    heads are shown: those whose scores exceed the baselines of their main roles most.
    """
    named = statistics.stack(stack).roles().main_roles()
    rows = sorted(named, key=lambda row: -row[2].difference)[:_MAX_ROWS]
    cells = [
        (
            f"{layer}.{head}",
            role.name,
            format_with_error(role.score, role.standard_error),
            f"{role.baseline:.2f}",
        )
        for layer, head, role in rows
    ]
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
    )
    caption = (
        f"{statistics.model or 'Attention'}: roles of heads over {statistics.texts:,} texts"
        f"{f', stack “{stack}”' if len(statistics.stack_names) > 1 else ''}"
        f"{'' if rows else ' (none)'}"
    )
    names = ("layer.head", "role", "score ± standard error", "baseline")
    header = "".join(f"<th>{name}</th>" for name in names)
    return (
        f"<table><caption>{html.escape(caption)}</caption><thead><tr>{header}</tr></thead>"
        f"<tbody>{lines}</tbody></table>"
    )
