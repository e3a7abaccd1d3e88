"""Attention between words, compared with sums and means by hand.

`test_attention.py` compares random words with a matrix product.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.masks import BandMask
from attnviz.record.record import AttentionRecord, AttentionStack, load
from attnviz.record.tokens import Tokens
from attnviz.record.words import MERGED_NOTE, MergedWeights
from attnviz.server import tiles as tiles_module
from attnviz.server.server import RecordServer
from unit.formulas import merge_by_words
from unit.records import shares, vectors

# The words are: the | un do ing | of | it all. All sums are easy to do by hand.
TEXT = ["the", " un", "do", "ing", " of", " it", "all"]
STARTS = [0, 1, 4, 5]
WEIGHTS = np.array(
    [
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.2, 0.4, 0.4, 0.0, 0.0, 0.0, 0.0],
        [0.2, 0.3, 0.2, 0.3, 0.0, 0.0, 0.0],
        [0.1, 0.2, 0.1, 0.1, 0.5, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.5, 0.25, 0.25, 0.0],
        [0.0, 0.5, 0.0, 0.0, 0.25, 0.0, 0.25],
    ]
)
BY_HAND = np.array(
    [
        [1.0, 0.0, 0.0, 0.0],
        [0.3, 0.7, 0.0, 0.0],
        [0.1, 0.4, 0.5, 0.0],
        [0.0, 0.5, 0.25, 0.25],
    ]
)


def by_hand() -> AttentionRecord:
    return AttentionRecord.from_weights([WEIGHTS[None]], Tokens.of(TEXT), model="m")


def causal_stack(size: int = 7) -> AttentionStack:
    queries, keys = vectors(2, size, 4), vectors(1, size, 4, seed=1)
    attention = QueryKeyAttention(queries, keys, 0.5, mask=BandMask(None, 0))
    return AttentionStack("self", {3: attention}, Tokens.of((TEXT * size)[:size]))


def test_keys_are_summed_and_queries_averaged_by_hand() -> None:
    merged = by_hand().merge_words()
    assert merged.tokens.text == ("the", "·undoing", "·of", "·itall")
    assert_allclose(merged.stacks["self"].weights(layer=0, head=0), BY_HAND, atol=1e-7)


def test_records_of_words_have_all_methods() -> None:
    record = by_hand()
    merged = record.merge_words()
    stack = merged.stacks["self"]
    assert stack.queries(layer=0, head=0) is stack.keys(layer=0, head=0) is None
    assert_allclose(merged.only([0]).to_numpy()[0][0], BY_HAND, atol=1e-7)
    assert_allclose(record.only([0]).merge_words().to_numpy()[0][0], BY_HAND, atol=1e-7)
    assert repr(merged) == "<AttentionRecord of m: <self: layers 0, 1 head each, 4 tokens>>"
    # The original record is unchanged.
    assert_allclose(record.to_numpy()[0][0], WEIGHTS, atol=1e-7)
    assert record.notes == ()


def test_merging_twice_equals_merging_once() -> None:
    once = by_hand().merge_words()
    assert once.notes == (MERGED_NOTE,)
    assert once.merge_words() is once
    with_note = AttentionRecord(by_hand().stacks, notes=["n", MERGED_NOTE, "o"]).merge_words()
    assert with_note.notes == ("n", "o", MERGED_NOTE)


def test_only_the_rows_that_are_needed_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[tuple[slice, slice]] = []
    base = StoredWeights(torch.from_numpy(WEIGHTS[None]))
    stored_weights = StoredWeights.weights

    def noted(self: StoredWeights, head: int, rows: slice, columns: slice) -> Any:
        blocks.append((rows, columns))
        return stored_weights(self, head, rows, columns)

    monkeypatch.setattr(StoredWeights, "weights", noted)
    merged = MergedWeights(base, np.array(STARTS), np.array(STARTS))
    block = merged.weights(0, slice(1, 2), slice(1, 3))
    assert_allclose(block, BY_HAND[1:2, 1:3], atol=1e-7)
    assert blocks == [(slice(1, 4), slice(1, 5))]
    assert merged.weights(0, slice(2, 2), slice(0, 4)).shape == (0, 4)
    assert merged.weights(0, slice(0, 4), slice(4, 4)).shape == (4, 0)


def test_causal_tokens_make_causal_words() -> None:
    stack = causal_stack()
    merged = stack.merge_words()
    assert stack.causal
    assert merged.causal
    weights = merged.weights(layer=3)
    assert not np.triu(weights, k=1).any()
    assert (np.diagonal(weights, axis1=1, axis2=2) > 0).all()
    assert_array_equal(merged.allowed(layer=3, head=1), np.tri(4, dtype=bool))
    expected = merge_by_words(stack.weights(layer=3), STARTS, STARTS)
    assert_allclose(weights, expected, atol=1e-6)


def test_words_with_different_borders_are_not_causal() -> None:
    base = causal_stack().attention(3)
    # Queries and keys have different words: word 1 of the queries sees word 2 of the keys.
    merged = MergedWeights(base, np.array([0, 1, 6]), np.array([0, 2, 4]))
    assert merged.weights(0, slice(1, 2), slice(2, 3)).item() > 0
    assert not merged.causal
    assert not MergedWeights(base, np.array([0, 1, 2]), np.array([0, 1])).causal
    assert not MergedWeights(
        StoredWeights(torch.from_numpy(WEIGHTS[None])), np.array(STARTS), np.array(STARTS)
    ).causal


@pytest.mark.parametrize(
    "starts", [[], [1], [0, 0], [0, 3, 2], [0, 7], [[0, 1]], [0.0, 1.0], [-1, 0]]
)
def test_invalid_starts_are_refused(starts: Any) -> None:
    base = StoredWeights(torch.from_numpy(WEIGHTS[None]))
    with pytest.raises(ValueError, match=r"key_starts must ascend from 0 to at most 6"):
        MergedWeights(base, np.array(STARTS), np.array(starts))
    with pytest.raises(ValueError, match="query_starts must ascend"):
        MergedWeights(base, np.array(starts), np.array(STARTS))
    once = MergedWeights(base, np.array(STARTS), np.array(STARTS))
    with pytest.raises(TypeError, match="base is already merged"):
        MergedWeights(once, np.array([0]), np.array([0]))


def test_a_character_of_several_tokens_is_saved_as_shown(tmp_path: Path) -> None:
    entries = ["Ġcaf", "Ã", "©", "s", "Ġ1/2", "ð", "ŁĲ", "¶x"]
    record = AttentionRecord.from_weights([shares(1, 8, 8)], entries)
    shown = ("·caf", "é 1/2", "é 2/2", "s", "·1/2", "🐶 1/3", "🐶 2/3", "🐶 3/3 x")
    assert record.tokens.text == shown
    reloaded = load(record.save(tmp_path / "x.safetensors"))
    assert reloaded.tokens == record.tokens
    assert reloaded.merge_words().tokens.text == ("·cafés", "·1/2🐶x")


def test_words_that_take_too_long_to_merge_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = RecordServer(AttentionRecord({"self": causal_stack(600).merge_words()}))
    count = len(server.record.stack().query_tokens)
    request = {"stack": "self", "layer": 3, "heads": [0], "level": 1, "row": 0, "column": 0}
    request |= {"pooled": "mean"}
    monkeypatch.setattr(tiles_module, "_MAX_WORD_PAIRS", count * count - 1)
    with pytest.raises(ValueError, match=r"query_window=.*without words=True"):
        server.reply("tile", request)
    assert server.reply("tile", request | {"level": 0}).data
