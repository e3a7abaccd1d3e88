"""What stands apart from a page's data, in which order, and that nothing is lost by it."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.pages import encoding
from attnviz.pages.encoding import embedded_weights
from attnviz.pages.html import document
from attnviz.pages.parts import LEAST, extra_bytes, parted
from attnviz.utils.progress import completed
from unit.page_data import bare_data_of, before_the_code, data_of, parts_of
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


def named(page: str) -> dict[str, tuple[str, int]]:
    """What the parts are of, by their names."""
    data = bare_data_of(page)
    pieces = [("block", each) for each in data["blocks"]] + [("map", each) for each in data["maps"]]
    return {each["data"]: (kind, each["layer"]) for kind, each in pieces}


@pytest.mark.parametrize(("layer", "order"), [(0, [0, 1, 2, 3, 4]), (3, [3, 2, 4, 1, 0])])
def test_the_layer_that_is_shown_stands_before_the_code(
    record: av.AttentionRecord, layer: int, order: list[int]
) -> None:
    page = av.HeadView(record, layer=layer).to_html()
    assert before_the_code(page) == 1
    found = named(page)
    assert [found[f"#{place:04}"][1] for place in range(LAYERS)] == order
    # What ends the page is the last of its kind, so that each part has one after it.
    assert page.rindex('class="attnviz-part"') > page.rindex("</template>")


def test_the_parts_are_the_weights(record: av.AttentionRecord, given: torch.Tensor) -> None:
    data = data_of(av.HeadView(record, layer=2).to_html())
    for block in data["blocks"]:
        codes = np.frombuffer(zlib.decompress(base64.b64decode(block["data"])), np.uint8)
        found = block["maximum"] * (codes.reshape(block["shape"]) / 255.0) ** 2
        assert np.abs(found - given[block["layer"]].numpy()).max() <= 0.0041


def test_a_small_page_has_no_parts() -> None:
    small = av.AttentionRecord.from_weights(weights(2, 2, 8), words(8))
    page = av.HeadView(small).to_html()
    assert parts_of(page) == []
    assert all(len(block["data"]) < LEAST for block in bare_data_of(page)["blocks"])


def test_maps_come_early_where_a_view_opens_with_all_layers(
    monkeypatch: pytest.MonkeyPatch, given: torch.Tensor
) -> None:
    # What is embedded stays with a record.
    record = av.AttentionRecord.from_weights(given, words(TOKENS))
    monkeypatch.setattr(encoding, "_POOLED_WEIGHTS", 0)
    monkeypatch.setattr("attnviz.pages.parts.LEAST", 500)
    found = named(av.ModelView(record, layer=1).to_html())
    kinds = [found[name][0] for name in sorted(found)]
    assert sorted(kinds[:2]) == ["block", "map"]
    assert kinds[2:] == ["map"] * 4 + ["block"] * 4
    found = named(av.HeadView(record, layer=1).to_html())
    layers = [found[name][1] for name in sorted(found)]
    assert layers == [1, 1, 0, 2, 0, 2, 3, 3, 4, 4]


def test_what_a_shown_layer_is_computed_from_stands_before_the_code(
    record: av.AttentionRecord, given: torch.Tensor
) -> None:
    nearly = 0.97 * given + 0.03 * given.flip(1)
    others = [av.AttentionRecord.from_weights(each, words(TOKENS)) for each in (nearly, given)]
    page = av.CompareView(av.compare([record, *others]), layer=2).to_html()
    data = bare_data_of(page)
    early = {f"#{place:04}" for place in range(before_the_code(page))}
    assert early
    for block in data["blocks"]:
        if len(data_of(page)["blocks"][data["blocks"].index(block)]["data"]) >= LEAST:
            assert (block["data"] in early) == (block["layer"] == 2)


def test_arrays_belong_to_the_first_layer_that_needs_them() -> None:
    layers = [
        {
            "stack": "self",
            "layer": 0,
            "queries": 0,
            "keys": 1,
            "mask": {"kind": "packed", "bits": 4},
        },
        {
            "stack": "self",
            "layer": 1,
            "queries": 2,
            "keys": 3,
            "mask": {"kind": "packed", "bits": 4},
        },
    ]
    arrays = [letter * LEAST for letter in "ABCDE"]
    data = {
        "view": "neuron",
        "state": {"stack": "self", "layer": 1},
        "description": {"stacks": [{"name": "self", "layers": [0, 1]}]},
        "vectors": {"layers": layers, "arrays": arrays},
    }
    apart = parted(data)
    assert apart.data["vectors"]["arrays"] == ["#0003", "#0004", "#0000", "#0001", "#0002"]
    assert apart.first.count("<template") == 3
    assert apart.texts == [letter * LEAST for letter in "CDEAB"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"view": "head", "state": {}},
        {"view": "open", "format": 2, "state": {}},
        {"view": "head", "state": {"stack": "none", "layer": 9}, "blocks": [], "maps": []},
    ],
)
def test_what_has_no_weights_stays_as_it_is(data: dict[str, Any]) -> None:
    assert parted(data) == (data, [], "", "")


def test_a_state_that_names_no_layer_opens_the_first(record: av.AttentionRecord) -> None:
    stacks = [{"name": "self", "layers": [4, 7]}]
    blocks = [{"stack": "self", "layer": layer, "data": "A" * LEAST} for layer in (4, 7)]
    for state in ({}, {"stack": "self", "layer": 0}, {"stack": "self", "layer": 4}):
        data = {"view": "head", "state": state, "description": {"stacks": stacks}, "blocks": blocks}
        assert [each["data"] for each in parted(data).data["blocks"]] == ["#0000", "#0001"]


def test_equal_records_make_equal_pages(given: torch.Tensor) -> None:
    pages = {
        av.HeadView(av.AttentionRecord.from_weights(given, words(TOKENS)), layer=2).to_html()
        for _ in range(2)
    }
    assert len(pages) == 1


def test_the_size_is_known_before_the_page_is_made(record: av.AttentionRecord) -> None:
    view = av.HeadView(record)
    page = view.to_html()
    data = data_of(page)
    rest = data | {"blocks": [], "maps": []}
    rest.pop("embedded")
    without = document(record.model, "head", view.state, rest)
    weights = completed(embedded_weights(record, precision="auto", max_bytes=None, rest=0))
    still = page[page.index('<div id="attnviz-still">') : page.index('<p id="attnviz-note">')]
    bare = without[
        without.index('<div id="attnviz-still">') : without.index('<p id="attnviz-note">')
    ]
    size = len(without.encode()) + len(still.encode()) - len(bare.encode()) + weights.size
    assert abs(len(page.encode()) - size) < 40
    # A limit that the page just keeps to changes nothing.
    assert view.to_html(max_mb=len(page.encode()) / 1e6) == page


def test_parts_add_less_than_a_hundredth(record: av.AttentionRecord) -> None:
    page = av.HeadView(record).to_html()
    texts = parts_of(page)
    assert len(texts) == LAYERS
    whole = json.dumps(data_of(page), ensure_ascii=False)
    apart = json.dumps(bare_data_of(page), ensure_ascii=False)
    assert extra_bytes(texts) + len(apart) + sum(map(len, texts)) - len(whole) < len(page) / 100
