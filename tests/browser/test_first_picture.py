"""What a live view asks before its first picture: nothing, as its widget has the answers."""

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
    """Random queries and keys, sharp enough that weights differ."""
    queries, keys = (
        2 * torch.randn(layers, heads, tokens, 16, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    )
    plain = av.Tokens.of([f"token{at}" for at in range(tokens)])
    # The last one is no word, and no view opens at it.
    named = replace(plain, special=tuple(at == tokens - 1 for at in range(tokens)))
    return av.AttentionRecord.from_qk(queries, keys, named, causal=causal)


def asked_before(live: LiveView, place: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    """The requests that were sent before a picture (of a place) was drawn."""
    return [
        (name, given)
        for name, given, drawn in live.asked
        if (drawn is None if place is None else drawn != place)
    ]


@pytest.mark.parametrize(
    ("view", "tokens", "causal"),
    [*((view, 256, False) for view in VIEWS), (av.HeadView, 9, True), (av.ModelView, 64, True)],
)
def test_nothing_is_asked_before_the_first_picture(
    page: Page, view: Any, tokens: int, causal: bool
) -> None:
    live = LiveView(page, view(record(tokens, causal=causal)), first=True)
    assert asked_before(live) == []
    # Nor are the small maps asked for by which heads are chosen; of thumbnails finer ones may be.
    later = {name for name, *_ in live.asked}
    assert later <= ({"maps"} if view is av.ModelView else {"block"})


def test_heads_that_are_shown_together_come_in_a_byte_each_and_then_exact(page: Page) -> None:
    shown = record(256, heads=12)
    live = LiveView(page, av.HeadView(shown, layer=1), first=True)
    assert asked_before(live) == []
    exact = {"layer": 1, "precision": "float32", "rows": [0, 64]}
    assert any(name == "block" and exact.items() <= given.items() for name, given, _ in live.asked)
    # The same is asked for once.
    asked = [str((name, given)) for name, given, _ in live.asked]
    assert len(set(asked)) == len(asked)
    # What is drawn in the end is exact: no caption says how far a weight may be off.
    assert "±" not in page.locator("body").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("view", [av.HeadView, av.ModelView, av.NeuronView])
def test_a_longer_text_takes_one_request_at_most(page: Page, view: Any) -> None:
    heads = [] if view is av.ModelView else [1]
    live = LiveView(page, view(record(700), layer=0, heads=heads), first=True)
    assert len(asked_before(live)) <= 1


@pytest.mark.slow
def test_the_head_that_opens_beside_the_grid_comes_along(page: Page) -> None:
    live = LiveView(page, av.ModelView(record(200), layer=1, heads=[2]), first=True)
    assert asked_before(live) == []


def test_a_longer_matrix_is_there_at_once_as_a_coarse_one(page: Page) -> None:
    """Before any tile has come that is as fine as the screen."""
    view = av.MatrixView(record(700), layer=0, heads=[1])
    live = LiveView(page, view, first=True, rest=False, silent=True)
    # Nothing has been answered; the legend has the scale of what is drawn.
    page.locator(".av-matrix-footer").wait_for()
    assert page.locator("[data-attnviz-drawn]").count() == 0
    assert {name for name, *_ in live.asked} <= {"tile"}


@pytest.mark.parametrize("view", [av.HeadView, av.MatrixView])
def test_what_is_shown_by_now_is_asked_for(page: Page, view: Any) -> None:
    """The widget came, Python moved the view, and only then a browser drew it."""
    shown = view(record(24, layers=4), layer=0, heads=[0])
    LiveView(page, shown, first=lambda: setattr(shown, "layer", 2))
    drawn = page.locator("body > [data-attnviz-drawn]").get_attribute("data-attnviz-drawn")
    assert drawn == f"{view.name}:self:2"


def test_a_change_of_layer_asks_once_and_back_not_at_all(page: Page) -> None:
    live = LiveView(page, av.HeadView(record(130, layers=5), layer=0, heads=[1]), first=True)
    for layer, count in ((1, 1), (4, 1), (1, 0)):
        live.asked.clear()
        page.get_by_role("button", name=f"Layer {layer}").click()
        page.wait_for_selector(f"[data-attnviz-drawn='head:self:{layer}']")
        live.rest()
        needed = asked_before(live, f"head:self:{layer}")
        assert len(needed) == count, needed


def test_a_window_that_is_moved_asks_once(page: Page) -> None:
    live = LiveView(page, av.HeadView(record(200), layer=0, heads=[1]), first=True)
    live.asked.clear()
    live.set("query_window", [64, 128])
    live.rest()
    assert [name for name, *_ in live.asked if name == "block"] == ["block"]


@pytest.mark.parametrize(
    ("view", "traits"),
    [
        (av.HeadView, {"heads": [2, 0], "query_window": [70, 140], "key_window": [3, 200]}),
        (av.NeuronView, {"heads": [3]}),
        (av.NeuronView, {"token": 5, "key": 120}),
    ],
)
def test_of_what_the_caller_chose_nothing_is_asked_either(
    page: Page, view: Any, traits: dict[str, Any]
) -> None:
    live = LiveView(page, view(record(230), layer=2, **traits), first=True)
    assert asked_before(live) == []
