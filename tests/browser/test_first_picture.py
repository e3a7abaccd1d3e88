"""Tests of what a view requests, or decodes in an exported page, before its first picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import attnviz as av
from benchmarks.live import LiveView
from unit.page_data import bare_data_of
from unit.records import words

if TYPE_CHECKING:
    from playwright.sync_api import Page


def record(tokens: int, *, layers: int = 3, heads: int = 4, causal: bool = False) -> Any:
    """Return a record of random queries and keys, large enough that weights differ clearly."""
    queries, keys = (
        2 * torch.randn(layers, heads, tokens, 16, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    )
    plain = av.Tokens.of(words(tokens))
    # The last token is special, so no view selects it at the start.
    named = replace(plain, special=tuple(token == tokens - 1 for token in range(tokens)))
    return av.AttentionRecord.from_qk(queries, keys, named, causal=causal)


def kind_of(name: str, arguments: dict[str, Any]) -> str:
    """Return the name of a request, or of a read the name of its reduction or "block"."""
    return (arguments.get("reduce") or {"kind": "block"})["kind"] if name == "read" else name


def requests_before(live: LiveView, picture: str | None = None) -> list[str]:
    """Return the kinds of the requests before a picture, by default the first, was drawn."""
    return [
        kind_of(name, arguments)
        for name, arguments, drawn in live.asked
        if (drawn is None if picture is None else drawn != picture)
    ]


@pytest.mark.parametrize(
    ("view", "requests"),
    [
        (av.HeadView, ["block"]),
        (av.MatrixView, ["cells"]),
        # One request per layer.
        (av.ModelView, ["cells"] * 3),
        (av.NeuronView, ["vectors"]),
    ],
)
def test_the_first_picture_needs_one_request(page: Page, view: Any, requests: list[str]) -> None:
    # The initial window contains all 60 keys.
    live = LiveView(page, view(record(60)), described=True)
    assert requests_before(live) == requests
    # No request is sent twice.
    sent = [str(request[:2]) for request in live.asked]
    assert len(set(sent)) == len(sent)
    # The drawn weights are exact, so no caption states an error.
    if view is av.HeadView:
        assert "±" not in page.locator("body").inner_text()


def test_a_new_layer_needs_one_request_and_an_earlier_layer_none(page: Page) -> None:
    live = LiveView(page, av.HeadView(record(130, layers=5), layer=0, heads=[1]), described=True)
    for layer, count in ((1, 1), (4, 1), (1, 0)):
        live.asked.clear()
        page.get_by_role("button", name=f"Layer {layer}").click()
        page.wait_for_selector(f"[data-attnviz-drawn='head:self:{layer}']")
        live.rest()
        requests = requests_before(live, f"head:self:{layer}")
        assert len(requests) == count, requests


# Collect the names of the elements that a page decodes before its first picture.
_COLLECT = """
window.decoded = new Set();
const find = Document.prototype.querySelector;
Document.prototype.querySelector = function (selector) {
  const isDrawn = find.call(this, "[data-attnviz-drawn]") !== null;
  if (selector.startsWith("#attnviz-") && !isDrawn) window.decoded.add(selector);
  return find.call(this, selector);
};
"""


@pytest.mark.parametrize(
    ("window", "starts"), [((0, 64), [0]), ((130, 190), [128]), ((100, 130), [64, 128])]
)
def test_a_page_decodes_only_the_rows_that_it_draws(
    page: Page, tmp_path: Path, window: tuple[int, int], starts: list[int]
) -> None:
    html = av.HeadView(record(300, causal=True), layer=1, query_window=window).to_html()
    path = tmp_path / "view.html"
    path.write_text(html, encoding="utf-8")
    page.add_init_script(_COLLECT)
    page.goto(path.as_uri())
    page.wait_for_selector("[data-attnviz-drawn]")
    decoded = page.evaluate("[...window.decoded]")
    parts = {
        entry["data"]: (entry["layer"], entry["start"]) for entry in bare_data_of(html)["blocks"]
    }
    assert len(parts) == 3 * 5
    assert [parts[name] for name in decoded if name in parts] == [(1, start) for start in starts]
