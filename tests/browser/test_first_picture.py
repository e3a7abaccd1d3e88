"""Tests of the requests that a live view sends before its first picture."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import attnviz as av
from benchmarks.live import LiveView

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEWS = [av.HeadView, av.MatrixView, av.ModelView, av.NeuronView]


def record(tokens: int, *, layers: int = 3, heads: int = 4, causal: bool = False) -> Any:
    """Return a record of random queries and keys, large enough that weights differ clearly."""
    queries, keys = (
        2 * torch.randn(layers, heads, tokens, 16, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    )
    plain = av.Tokens.of([f"token{at}" for at in range(tokens)])
    # The last token is special, so no view selects it at the start.
    named = replace(plain, special=tuple(at == tokens - 1 for at in range(tokens)))
    return av.AttentionRecord.from_qk(queries, keys, named, causal=causal)


def asked_before(live: LiveView, place: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Return the requests sent before any picture, or the picture of `place`, was drawn."""
    return [
        (name, given)
        for name, given, drawn in live.asked
        if (drawn is None if place is None else drawn != place)
    ]


@pytest.mark.parametrize(
    ("view", "asked"),
    [
        (av.HeadView, ["block"]),
        (av.MatrixView, ["tile"]),
        # One request per layer.
        (av.ModelView, ["maps"] * 3),
        (av.NeuronView, ["vectors"]),
    ],
)
def test_what_is_drawn_first_is_asked_for_once(page: Page, view: Any, asked: list[str]) -> None:
    # The window contains all keys.
    live = LiveView(page, view(record(60)), described=True)
    assert [name for name, _ in asked_before(live)] == asked
    every = [str((name, given)) for name, given, _ in live.asked]
    assert len(set(every)) == len(every)
    # The drawn weights are exact, so no caption states an error.
    if view is av.HeadView:
        assert "±" not in page.locator("body").inner_text()


def test_a_widget_without_its_description_asks_for_it(page: Page) -> None:
    live = LiveView(page, av.HeadView(record(60)))
    assert [name for name, _ in asked_before(live)] == ["describe", "block"]


@pytest.mark.parametrize("view", [av.HeadView, av.MatrixView])
def test_what_is_shown_by_now_is_asked_for(page: Page, view: Any) -> None:
    """A trait that Python changes after sending the widget applies to the first picture."""
    shown = view(record(24, layers=4), layer=0, heads=[0])
    LiveView(page, shown, described=lambda: setattr(shown, "layer", 2))
    drawn = page.locator("body > [data-attnviz-drawn]").get_attribute("data-attnviz-drawn")
    assert drawn == f"{view.name}:self:2"


def test_a_change_of_layer_asks_once_and_back_not_at_all(page: Page) -> None:
    live = LiveView(page, av.HeadView(record(130, layers=5), layer=0, heads=[1]), described=True)
    for layer, count in ((1, 1), (4, 1), (1, 0)):
        live.asked.clear()
        page.get_by_role("button", name=f"Layer {layer}").click()
        page.wait_for_selector(f"[data-attnviz-drawn='head:self:{layer}']")
        live.rest()
        needed = asked_before(live, f"head:self:{layer}")
        assert len(needed) == count, needed


def test_a_window_that_is_moved_asks_once(page: Page) -> None:
    live = LiveView(page, av.HeadView(record(200), layer=0, heads=[1]), described=True)
    live.asked.clear()
    live.set("query_window", [64, 128])
    live.rest()
    assert [name for name, *_ in live.asked if name == "block"] == ["block"]
