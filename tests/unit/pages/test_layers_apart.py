"""The layers of a page that are not shown first stand in elements after its code."""

from __future__ import annotations

import re

import pytest
import torch

import attnviz as av
from unit.page_data import bare_data_of
from unit.records import words

LAYERS, TOKENS = 5, 48


def weights(layers: int = LAYERS, heads: int = 3, tokens: int = TOKENS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.softmax(3 * torch.randn(layers, heads, tokens, tokens, generator=generator), -1)


@pytest.fixture(scope="module")
def given() -> torch.Tensor:
    return weights()


@pytest.fixture(scope="module")
def record(given: torch.Tensor) -> av.AttentionRecord:
    return av.AttentionRecord.from_weights(given, words(TOKENS))


@pytest.mark.parametrize("layer", [0, 3])
def test_the_layer_that_is_shown_is_among_the_data(record: av.AttentionRecord, layer: int) -> None:
    page = av.HeadView(record, layer=layer).to_html()
    code = page.index('id="attnviz-bundle"')
    for block in bare_data_of(page)["blocks"]:
        name = block["data"]
        assert name.startswith("#") == (block["layer"] != layer)
        if name.startswith("#"):
            assert page.index(f'<template id="{name[1:]}">') > code
    assert len(re.findall("<template ", page)) == LAYERS - 1


def test_all_that_a_comparison_shows_is_among_the_data(
    record: av.AttentionRecord, given: torch.Tensor
) -> None:
    other = av.AttentionRecord.from_weights(given.flip(1), words(TOKENS))
    page = av.CompareView(av.compare(record, other), layer=2).to_html()
    blocks = bare_data_of(page)["blocks"]
    assert len({block["stack"] for block in blocks}) > 1
    for block in blocks:
        assert block["data"].startswith("#") == (block["layer"] != 2)


def test_equal_records_make_equal_pages(given: torch.Tensor) -> None:
    pages = {
        av.HeadView(av.AttentionRecord.from_weights(given, words(TOKENS)), layer=2).to_html()
        for _ in range(2)
    }
    assert len(pages) == 1
