"""Data of the layer shown at first precedes the code of a page. Other layers follow the code."""

from __future__ import annotations

from typing import Any

import pytest

import attnviz as av
import attnviz.pages.encoding
from unit.page_data import bare_data_of
from unit.records import shares, words

LAYERS, TOKENS = 5, 48
WEIGHTS = shares(LAYERS, 3, TOKENS, TOKENS)


def record() -> av.AttentionRecord:
    return av.AttentionRecord.from_weights(WEIGHTS, words(TOKENS))


def are_before_the_code(page: str, entries: list[dict[str, Any]]) -> list[bool]:
    """Return whether the data of each entry (a layer or a map) precedes the code of the page."""
    code = page.index('"use strict";\n  const page = globalThis.attnvizPage')
    return [page.index(f'<template id="{entry["data"][1:]}">') < code for entry in entries]


def test_the_shown_layer_comes_before_the_code() -> None:
    page = av.HeadView(record(), layer=3).to_html()
    blocks = bare_data_of(page)["blocks"]
    assert are_before_the_code(page, blocks) == [block["layer"] == 3 for block in blocks]
    # Each layer has one `<template>`.
    assert page.count("<template ") == LAYERS
    # Equal records make equal pages.
    assert av.HeadView(record(), layer=3).to_html() == page


def test_layers_that_a_comparison_shows_come_before_the_code() -> None:
    flipped = av.AttentionRecord.from_weights(WEIGHTS[:, ::-1].copy(), words(TOKENS))
    page = av.CompareView(av.compare(record(), flipped), layer=2).to_html()
    blocks = bare_data_of(page)["blocks"]
    assert len({block["stack"] for block in blocks}) > 1
    assert are_before_the_code(page, blocks) == [block["layer"] == 2 for block in blocks]


def test_small_maps_come_before_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attnviz.pages.encoding, "_POOLED_WEIGHTS", 0)
    page = av.ModelView(record()).to_html()
    maps = bare_data_of(page)["maps"]
    assert are_before_the_code(page, maps) == [True] * LAYERS
