"""Tests of attention between words, into which the tokens of a record are merged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import attnviz.server.cells
from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.masks import BandMask
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.units import UnitAttention
from attnviz.record.words import MERGED_NOTE
from attnviz.server.server import RecordServer
from unit.records import shares, vectors

WEIGHTS = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.4, 0.4]]
# Tokens of the words "the", "undoing", "of" and "itall", and the positions where the words start.
TEXT = ["the", " un", "do", "ing", " of", " it", "all"]
STARTS = np.array([0, 1, 4, 5])


def by_hand() -> AttentionRecord:
    return AttentionRecord.from_weights([[WEIGHTS]], Tokens.of(["the", " un", "do"]), model="m")


def causal_stack(size: int = 7) -> AttentionStack:
    queries, keys = vectors(2, size, 4), vectors(1, size, 4, seed=1)
    attention = QueryKeyAttention(queries, keys, 0.5, mask=BandMask(None, 0))
    return AttentionStack("self", {3: attention}, Tokens.of((TEXT * size)[:size]))


def test_keys_are_summed_and_queries_averaged_by_hand() -> None:
    record = by_hand()
    merged = record.merge_words()
    assert merged.tokens.text == ("the", "·undo")
    expected = [[1.0, 0.0], [(0.5 + 0.2) / 2, (0.5 + 0.8) / 2]]
    for words in (merged, merged.only([0]), record.only([0]).merge_words()):
        assert_allclose(words.to_numpy()[0][0], expected, atol=1e-7)
    assert_allclose(record.to_numpy()[0][0], WEIGHTS, atol=1e-7)


def test_the_gate_of_a_word_is_the_mean_of_the_known_gates_of_its_tokens() -> None:
    stack = causal_stack()
    gates = torch.tensor([[0.5, 0.1, torch.nan, 0.3, torch.nan, 0.2, 0.6], [0.25] * 7])
    record = AttentionRecord(
        {
            "self": AttentionStack(
                "self", {3: stack.attention(3)}, stack.query_tokens, gates={3: gates}
            )
        }
    )
    expected = [[0.5, 0.2, np.nan, 0.4], [0.25] * 4]
    for words in (record.merge_words(), record.only([3]).merge_words()):
        merged = words.stack().gates(3)
        assert merged is not None
        assert_allclose(merged, expected, rtol=1e-6)


def test_merging_twice_equals_merging_once() -> None:
    once = by_hand().merge_words()
    assert once.notes == (MERGED_NOTE,)
    assert once.merge_words() is once
    with_note = AttentionRecord(by_hand().stacks, notes=["n", MERGED_NOTE, "o"]).merge_words()
    assert with_note.notes == ("n", "o", MERGED_NOTE)


def test_only_the_rows_that_are_needed_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[tuple[slice, slice]] = []
    read_block = StoredWeights.block

    def noted(self: StoredWeights, heads: Any, rows: slice, columns: slice, *_: Any) -> Any:
        blocks.append((rows, columns))
        return read_block(self, heads, rows, columns)

    monkeypatch.setattr(StoredWeights, "block", noted)
    merged = UnitAttention(StoredWeights(torch.from_numpy(shares(1, 7, 7))), STARTS, STARTS)
    # The second word has the tokens 1 to 3, and the third word has token 4.
    merged.block([0], slice(1, 2), slice(1, 3))
    assert blocks == [(slice(1, 4), slice(1, 5))]


def test_causal_tokens_make_causal_words() -> None:
    merged = causal_stack().merge_words()
    assert merged.causal
    weights = merged.weights(layer=3)
    assert not np.triu(weights, k=1).any()
    assert_array_equal(merged.allowed(layer=3, head=1), np.tri(4, dtype=bool))


def test_words_with_different_borders_are_not_causal() -> None:
    # Query word 1 (tokens 1 to 5) may attend to key word 2 (tokens 4 to 6), because query token 5
    # may attend to key token 4.
    merged = UnitAttention(causal_stack().attention(3), np.array([0, 1, 6]), np.array([0, 2, 4]))
    assert merged.block([0], slice(1, 2), slice(2, 3)).item() > 0
    assert not merged.causal


@pytest.mark.parametrize("starts", [[], [1], [0, 3, 2], [0, 8], [[0, 1]], [0.0, 1.0], [-1, 0]])
def test_invalid_starts_are_refused(starts: Any) -> None:
    base = StoredWeights(torch.from_numpy(shares(1, 7, 7)))
    with pytest.raises(ValueError, match=r"key_starts must ascend from 0 to at most 7"):
        UnitAttention(base, STARTS, np.array(starts))
    with pytest.raises(ValueError, match="query_starts must ascend"):
        UnitAttention(base, np.array(starts), STARTS)


def test_a_word_has_the_whole_character_of_its_tokens() -> None:
    entries = ["Ġcaf", "Ã", "©", "s", "Ġ1/2", "ð", "ŁĲ", "¶x"]
    record = AttentionRecord.from_weights([shares(1, 8, 8)], entries)
    parts = ("·caf", "é 1/2", "é 2/2", "s", "·1/2", "🐶 1/3", "🐶 2/3", "🐶 3/3 x")
    assert record.tokens.text == parts
    assert record.merge_words().tokens.text == ("·cafés", "·1/2🐶x")


def test_words_that_take_too_long_to_merge_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = RecordServer(AttentionRecord({"self": causal_stack(600).merge_words()}))
    num_words = len(server.record.stack().query_tokens)
    reduce = {"kind": "cells", "pooled": "mean", "length": 2}
    request: dict[str, Any] = {"stack": "self", "layer": 3, "heads": [0], "reduce": reduce}
    request |= {"rows": [0, num_words], "columns": [0, num_words]}
    monkeypatch.setattr(attnviz.server.cells, "_MAX_WORD_PAIRS", num_words**2 - 1)
    with pytest.raises(ValueError, match=r"query_window=.*without words=True"):
        server.reply("read", request)
    assert server.reply("read", request | {"rows": [0, num_words - 1]}).data
