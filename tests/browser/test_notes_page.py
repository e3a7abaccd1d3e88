"""The caption of every view says what its record does not contain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

NOTE = "Layers 0 to 2 are linear attention (GatedDeltaNet) and are not shown."


def record(tokens: int = 8) -> av.AttentionRecord:
    generator = torch.Generator().manual_seed(tokens)
    queries, keys = torch.randn((2, 1, 2, tokens, 4), generator=generator)
    names = [f"w{place}" for place in range(tokens)]
    made = av.AttentionRecord.from_qk(queries, keys, names, causal=True, layers=[3])
    return av.AttentionRecord(made.stacks, model="hybrid", notes=[NOTE])


def statistics() -> av.HeadStatistics:
    found = av.HeadStatistics()
    for tokens in (8, 9):
        found.fold(record(tokens))
    return found


VIEWS: dict[str, Callable[[], Any]] = {
    "head": lambda: av.HeadView(record()),
    "matrix": lambda: av.MatrixView(record()),
    "model": lambda: av.ModelView(record()),
    "neuron": lambda: av.NeuronView(record()),
    "dashboard": lambda: av.Dashboard(record()),
    "compare": lambda: av.CompareView(av.compare(record(), record(9))),
    "atlas": lambda: av.AtlasView(statistics()),
    "embedding": lambda: av.EmbeddingView(av.Corpus([record(), record(9)])),
}


@pytest.mark.parametrize("name", VIEWS)
def test_layers_that_are_not_shown_are_named(name: str, page: Page, tmp_path: Path) -> None:
    page.goto(VIEWS[name]().save(tmp_path / "view.html").as_uri())
    expect(page.locator(".attnviz").get_by_text(NOTE)).to_be_visible()
