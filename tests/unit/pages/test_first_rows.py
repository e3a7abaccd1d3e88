"""The rows that a page opens with stand before its code, and are those of their layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.pages import encoding
from attnviz.pages.first_rows import FirstRows, first_rows_block
from attnviz.pages.packing import packed
from attnviz.utils.progress import completed
from attnviz.views.first_requests import first_rows
from unit.page_data import bare_data_of, before_the_code, data_of, no_page_of_all, parts_of, shown
from unit.records import words

LAYERS, HEADS, TOKENS = 3, 12, 200


def weights(tokens: int = TOKENS, *, causal: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(LAYERS, HEADS, tokens, tokens, generator=generator)
    if causal:
        logits = logits.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -torch.inf)
    return torch.softmax(logits, dim=-1)


@pytest.fixture(scope="module")
def given() -> torch.Tensor:
    return weights()


@pytest.fixture(scope="module")
def record(given: torch.Tensor) -> av.AttentionRecord:
    return av.AttentionRecord.from_weights(given, words(TOKENS))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["all", "strongest"])
@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("window", [None, [70, 100]])
def test_they_are_the_rows_of_their_layer(
    causal: bool, form: str, fine: bool, window: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = weights(causal=causal)
    record = av.AttentionRecord.from_weights(given, words(TOKENS))
    if form == "strongest":
        monkeypatch.setattr(encoding, "_all", no_page_of_all)
    view = av.HeadView(record, layer=1, renormalize=fine, query_window=window)
    data = data_of(view.to_html())
    assert data["embedded"]["form"] == form
    [first] = data["first_rows"]
    # The queries in sight, in the sixty-fours that a view asks for.
    start, stop = first["rows"]
    assert (start, stop) == ((0, 64) if window is None else (64, 128))
    [block] = [each for each in data["blocks"] if each["layer"] == 1]
    assert (first["stack"], first["layer"]) == ("self", 1)
    found = shown(first)
    np.testing.assert_array_equal(found, shown(block)[:, start:stop])
    assert np.abs(found - given[1, :, start:stop].numpy()).max() <= first["error"] * 1.0001 + 1e-7


def test_they_stand_before_the_code_and_their_layer_after_it(record: av.AttentionRecord) -> None:
    page = av.HeadView(record, layer=1).to_html()
    data = bare_data_of(page)
    [first] = data["first_rows"]
    # And the small maps of the layer's heads.
    [maps] = [each for each in data["maps"] if each["layer"] == 1]
    assert (first["data"], maps["data"], before_the_code(page)) == ("#0000", "#0001", 2)
    [block] = [each for each in data["blocks"] if each["layer"] == 1]
    assert block["data"] == "#0002"
    parts = parts_of(page)
    assert len(parts[0]) < len(parts[2]) / 2


@pytest.mark.parametrize(
    ("view", "tokens", "options"),
    [
        # All of a layer is in sight.
        (av.HeadView, 90, {}),
        (av.HeadView, TOKENS, {"query_window": [0, TOKENS]}),
        # The rows are most of it, though not all.
        (av.HeadView, TOKENS, {"query_window": [0, 190]}),
        # These open with more than rows.
        (av.MatrixView, TOKENS, {}),
        (av.ModelView, TOKENS, {}),
        (av.Dashboard, TOKENS, {}),
    ],
)
def test_a_page_that_opens_with_all_of_a_layer_has_none(
    view: Any, tokens: int, options: dict[str, Any], given: torch.Tensor
) -> None:
    record = av.AttentionRecord.from_weights(
        given[..., :tokens, :tokens], words(tokens), normalized=tokens == TOKENS
    )
    assert "first_rows" not in data_of(view(record, **options).to_html())


def test_a_small_layer_is_not_there_twice() -> None:
    few = av.AttentionRecord.from_weights(weights()[:, :1], words(TOKENS))
    page = av.HeadView(few).to_html()
    assert "first_rows" not in bare_data_of(page)
    assert before_the_code(page) == 1


def test_half_of_a_pair_is_asked_for_when_the_view_is_there(record: av.AttentionRecord) -> None:
    stack, state = record.stack(), av.HeadView(record, layer=2).state
    assert first_rows("head", stack, state) == FirstRows("self", 2, 0, 64)
    assert first_rows("head", stack, {**state, "pair": "a-b"}) is None
    assert first_rows("head", stack, {**state, "shown_run": "after"}) is None


def test_they_never_make_a_page_larger_than_allowed(record: av.AttentionRecord) -> None:
    view = av.HeadView(record)
    page = view.to_html()
    [first] = data_of(page)["first_rows"]
    whole = len(page.encode())
    for room in (whole, whole - 100, whole - len(first["data"]), whole // 2):
        small = view.to_html(max_mb=room / 1e6)
        assert len(small.encode()) <= room
        assert ("first_rows" in data_of(small)) == (room == whole)


@pytest.mark.slow
def test_a_long_text_leaves_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = 1500
    record = av.AttentionRecord.from_weights(weights(tokens)[:, :4], words(tokens))
    monkeypatch.setattr(encoding, "_all", no_page_of_all)
    monkeypatch.setattr(encoding, "_MOST_SPARED", 0.05)
    view = av.HeadView(record)
    bound = 2.0
    page = view.to_html(max_mb=bound)
    data = data_of(page)
    # As much of the weight as there is room for.
    assert data["embedded"]["covered"] < 0.95
    assert len(data["first_rows"]) == 1
    assert 0.9 * bound <= len(page.encode()) / 1e6 <= bound


def test_rows_that_cannot_be_cut_out_are_left_out() -> None:
    data = packed(np.random.default_rng(0).integers(0, 255, 90_000).astype(np.uint8).tobytes())
    block = {
        "stack": "self",
        "layer": 0,
        "shape": [1, 300, 300],
        "encoding": "uint8-sqrt",
        "maximum": 1.0,
        "error": 0.0,
        "reach": 300,
        "data": data,
    }

    def cut(rows: FirstRows) -> dict[str, Any] | None:
        return completed(first_rows_block([block], rows))

    found = cut(FirstRows("self", 0, 10, 20))
    assert found is not None
    np.testing.assert_array_equal(shown(found), shown(block)[:, 10:20])
    # Another layer, and another stack.
    assert cut(FirstRows("self", 1, 10, 20)) is None
    assert cut(FirstRows("cross", 0, 10, 20)) is None
