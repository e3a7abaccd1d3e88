"""A page stores the layer that it shows first before its code, and other layers after it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import attnviz as av
import attnviz.pages.encoding
from unit.page_data import bare_data_of
from unit.records import words

LAYERS, TOKENS = 5, 48


def weights(layers: int = LAYERS, heads: int = 3, tokens: int = TOKENS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.softmax(3 * torch.randn(layers, heads, tokens, tokens, generator=generator), -1)


@pytest.fixture(scope="module")
def layer_weights() -> torch.Tensor:
    return weights()


@pytest.fixture(scope="module")
def record(layer_weights: torch.Tensor) -> av.AttentionRecord:
    return av.AttentionRecord.from_weights(layer_weights, words(TOKENS))


def are_before_the_code(page: str, entries: list[dict[str, Any]]) -> list[bool]:
    """Return for each layer or map whether its text comes before the code that opens the page."""
    code = page.index('"use strict";\n  const page = globalThis.attnvizPage')
    return [page.index(f'<template id="{entry["data"][1:]}">') < code for entry in entries]


@pytest.mark.parametrize("layer", [0, 3])
def test_the_shown_layer_comes_before_the_code(record: av.AttentionRecord, layer: int) -> None:
    page = av.HeadView(record, layer=layer).to_html()
    blocks = bare_data_of(page)["blocks"]
    assert are_before_the_code(page, blocks) == [block["layer"] == layer for block in blocks]
    assert len(re.findall("<template ", page)) == LAYERS


def test_layers_that_a_comparison_shows_come_before_the_code(
    record: av.AttentionRecord, layer_weights: torch.Tensor
) -> None:
    flipped = av.AttentionRecord.from_weights(layer_weights.flip(1), words(TOKENS))
    page = av.CompareView(av.compare(record, flipped), layer=2).to_html()
    blocks = bare_data_of(page)["blocks"]
    assert len({block["stack"] for block in blocks}) > 1
    assert are_before_the_code(page, blocks) == [block["layer"] == 2 for block in blocks]


def test_small_maps_come_before_the_code(
    layer_weights: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnviz.pages.encoding, "_POOLED_WEIGHTS", 0)
    page = av.ModelView(av.AttentionRecord.from_weights(layer_weights, words(TOKENS))).to_html()
    maps = bare_data_of(page)["maps"]
    assert are_before_the_code(page, maps) == [True] * LAYERS


def test_equal_records_make_equal_pages(layer_weights: torch.Tensor) -> None:
    pages = {
        av.HeadView(
            av.AttentionRecord.from_weights(layer_weights, words(TOKENS)), layer=2
        ).to_html()
        for _ in range(2)
    }
    assert len(pages) == 1
