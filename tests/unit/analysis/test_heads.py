"""Tests of scores of all heads of a stack, against functions of `analysis.patterns` and formulas.

The functions of `analysis.patterns` compute scores of arrays of weights.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from attnviz import analysis
from attnviz.analysis import (
    MEASURES,
    all_head_scores,
    head_scores,
    heads,
    measures_of,
    patterns,
)
from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.masks import BandMask, PackedMask
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from unit.records import captioned_record, captured_record, given_record, shares, vectors

ON_ARRAYS: dict[str, Any] = {
    "previous token": patterns.previous_token,
    "next token": patterns.next_token,
    "self": patterns.self_token,
    "first token": patterns.first_token,
    "same token": patterns.same_token,
    "induction": patterns.induction,
}


@settings(max_examples=50)
@given(st.integers(0, 99), st.integers(1, 7), st.integers(1, 40), st.data())
def test_scores_equal_the_functions_of_arrays(
    seed: int, size: int, entries: int, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    before = data.draw(st.none() | st.integers(0, 3))
    after = data.draw(st.none() | st.integers(0, 2))
    attention = QueryKeyAttention(
        vectors(4, size, 3, seed=seed),
        vectors(2, size, 3, seed=seed + 1),
        1.0,
        mask=BandMask(before, after),
    )
    given_weights = StoredWeights(torch.from_numpy(shares(1, size, size, seed=seed)))
    tokens = Tokens.of(["x"] * size, ids=ids)
    stack = AttentionStack("self", {2: attention, 5: given_weights}, tokens)
    distance = np.arange(size)[None] - np.arange(size)[:, None]
    allowed = (distance >= -(size if before is None else before)) & (
        distance <= (size if after is None else after)
    )
    with pytest.MonkeyPatch.context() as patch:
        # With a small `_MAX_ENTRIES`, the rows are computed in several blocks.
        patch.setattr(heads, "_MAX_ENTRIES", entries)
        together = all_head_scores(stack)
        assert tuple(together) == measures_of(stack)
        for pattern, measure in ON_ARRAYS.items():
            more = (ids,) if pattern in ("same token", "induction") else ()
            expected = [
                measure(stack.weights(layer=2), *more, allowed=allowed),
                measure(stack.weights(layer=5), *more),
            ]
            actual = head_scores(stack, pattern)
            for scores, reference in zip(actual, expected, strict=True):
                assert_allclose(scores, reference, atol=1e-6)
            if pattern in together:
                for scores, reference in zip(together[pattern], actual, strict=True):
                    assert_allclose(scores, reference, atol=1e-12)
            else:
                assert np.isnan(np.concatenate(actual)).all()


def test_cross_attention_has_no_pattern_of_positions() -> None:
    # Queries and keys have equal texts, but are different tokens.
    stack = AttentionRecord.from_weights(
        cross_attentions=[shares(2, 3, 3)], decoder_tokens=["a"] * 3, encoder_tokens=["a"] * 3
    ).stack()
    assert {"first token", "entropy"} <= set(measures_of(stack))
    assert not any(MEASURES[name].one_text for name in measures_of(stack))
    weights = stack.weights(layer=0)
    assert_allclose(head_scores(stack, "first token"), [weights[:, :, 0].mean(1)], atol=1e-7)
    message = r"measure='induction' .* stack 'cross' are different tokens. .*measures_of"
    with pytest.raises(ValueError, match=message):
        head_scores(stack, "induction")


def test_entropy_omits_rows_of_zeros_and_the_share_of_a_sink() -> None:
    tokens = ["a", "b"]
    halves = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.0, 0.0]]])
    record = AttentionRecord.from_weights([halves], tokens)
    assert_allclose(head_scores(record, "entropy"), [[math.log(2) / 2, 0.0]], atol=1e-7)
    nothing = AttentionRecord.from_weights([np.zeros((1, 2, 2))], tokens)
    assert np.isnan(head_scores(nothing, "entropy")).all()
    # Both keys have the same small weight, and the sink has the rest.
    zeros = torch.zeros(1, 2, 1)
    sink = AttentionRecord.from_qk([zeros], [zeros], tokens, sinks=[torch.tensor([3.0])])
    assert sink.stack().weights(layer=0).sum() < 0.5
    assert_allclose(head_scores(sink, "entropy"), [[math.log(2)]], atol=1e-6)


def test_patches_of_an_image_are_different_tokens() -> None:
    # All patches have the text "<image>" and no other token occurs twice.
    record = captioned_record()
    assert not {"same token", "induction"} & set(measures_of(record))


def test_a_sample_of_queries_is_measured_without_other_queries() -> None:
    num_tokens, num_queries = 300, 20
    layer = QueryKeyAttention(
        vectors(4, num_tokens, 8), vectors(2, num_tokens, 8, seed=1), 0.5, mask=BandMask(None, 0)
    )
    tokens = Tokens.of([f"t{index % 11}" for index in range(num_tokens)])
    stack = AttentionStack("self", {0: layer}, tokens)
    rows, keys = sample_queries(num_tokens, num_queries)[:, None], np.arange(num_tokens)
    weights = stack.weights(layer=0).astype(np.float64)[:, rows[:, 0]]
    same = (keys % 11 == rows % 11) & (keys < rows)
    scores = all_head_scores(stack, max_queries=num_queries)
    for pattern, pairs in (("previous token", keys == rows - 1), ("same token", same)):
        expected = (weights * pairs).sum((1, 2)) / np.count_nonzero(pairs.any(1))
        assert_allclose(scores[pattern][0], expected, atol=1e-6)
        assert_allclose(
            head_scores(stack, pattern, max_queries=num_queries)[0], expected, atol=1e-6
        )
    logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy = -(weights * logarithms).sum(-1).mean(-1)
    assert_allclose(head_scores(stack, "entropy", max_queries=num_queries)[0], entropy, atol=1e-5)


@pytest.mark.parametrize(
    "measure",
    [
        lambda value: head_scores(value, "first token"),
        all_head_scores,
        lambda value: head_scores(value, "entropy"),
        measures_of,
        lambda value: analysis.uniform_scores(value, "first token"),
        analysis.distinct_head,
    ],
)
def test_measures_read_the_first_stack_of_a_record_and_refuse_other_types(measure: Any) -> None:
    record = captured_record()
    assert repr(measure(record)) == repr(measure(record.stack()))
    for value, message in (
        (shares(2, 3, 3), r"stack must be one record, .*; got ndarray. .*from_weights\(weights"),
        ([record] * 3, r"stack must be one record, .*; got list"),
        (record.stacks, r"or one of its stacks, record.stacks\[.self.\]; got"),
    ):
        with pytest.raises(TypeError, match=message):
            measure(value)


def test_uniform_attention_has_the_mask_of_each_head() -> None:
    triangle = torch.ones(4, 4, dtype=torch.bool).tril()
    mask = PackedMask.pack(torch.stack([triangle, torch.eye(4, dtype=torch.bool)]))
    layer = QueryKeyAttention(vectors(2, 4, 3), vectors(2, 4, 3, seed=1), 1.0, mask=mask)
    stack = AttentionStack("self", {0: layer}, Tokens.of(["a"] * 4))
    scores = analysis.uniform_scores(stack, "self")
    assert_allclose(scores[0], [(1 + 1 / 2 + 1 / 3 + 1 / 4) / 4, 1.0])


def test_unknown_patterns_and_no_queries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'prev' does not exist. Pass one of 'previous token', '"):
        head_scores(given_record(), "prev")
    with pytest.raises(ValueError, match="max_queries=0 must be at least 1"):
        head_scores(given_record(), "self", max_queries=0)
