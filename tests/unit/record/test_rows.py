"""Selected rows of a layer: queries that represent a long text, and their weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnviz.record import rows
from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.masks import BandMask
from attnviz.record.rows import num_scored_queries, sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.words import MergedWeights
from unit.records import captured_record, vectors, words

TOKENS = 150


@given(st.integers(1, 5000), st.integers(1, 300))
def test_one_query_is_sampled_from_each_part(num_queries: int, max_queries: int) -> None:
    queries = sample_queries(num_queries, max_queries)
    num_sampled = min(num_queries, max_queries)
    assert len(queries) == num_sampled
    edges = np.arange(num_sampled + 1) * num_queries / num_sampled
    assert (queries >= np.floor(edges[:-1])).all()
    assert (queries < edges[1:]).all()
    assert len(set(queries.tolist())) == num_sampled


@pytest.mark.parametrize("period", [16, 24, 64, 256, 512])
def test_sampled_queries_do_not_repeat_with_a_period(period: int) -> None:
    columns = sample_queries(32_768) % period
    # Evenly spaced queries would all have the same column in their row of patches.
    quarters = np.bincount(columns * 4 // period, minlength=4)
    assert quarters.min() >= 8, quarters


def test_scores_sample_queries_of_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = captured_record().stack()
    monkeypatch.setattr(rows, "_MAX_ENTRIES", 36)
    assert num_scored_queries(stack) is None
    monkeypatch.setattr(rows, "_MAX_ENTRIES", 35)
    assert num_scored_queries(stack) == 6


def test_rows_of_any_layer_are_slices_of_its_weights() -> None:
    stack = captured_record().stack()
    rows = np.array([4, 1, 3])
    for layer in stack.layers:
        for head in range(4):
            weights, allowed = stack.attention(layer).weights_of_rows(head, rows)
            whole = stack.weights(layer=layer, head=head)
            np.testing.assert_allclose(weights, whole[rows], atol=1e-6)
            assert (allowed == stack.allowed(layer=layer, head=head)[rows]).all()


@pytest.mark.parametrize("base", ["vectors", "weights"])
def test_rows_of_words_of_any_number_of_tokens(base: str) -> None:
    of_vectors = QueryKeyAttention(
        vectors(4, TOKENS, 8, seed=1),
        vectors(2, TOKENS, 8, seed=2),
        0.9,
        mask=BandMask(None, 0),
        sinks=torch.tensor([0.5, 2.0, -1.0, 3.0]),
    )
    whole = AttentionStack("self", {3: of_vectors}, Tokens.of(words(TOKENS)))
    of_weights = StoredWeights(torch.from_numpy(whole.weights(layer=3)))
    layers: dict[str, LayerAttention] = {
        "vectors": of_vectors,
        "weights": of_weights,
    }
    starts = np.sort(np.random.default_rng(0).choice(np.arange(1, TOKENS), 99, replace=False))
    starts = np.concatenate([[0], starts])
    merged = MergedWeights(layers[base], starts, starts)
    stack = AttentionStack("self", {3: merged}, Tokens.of(words(100)))
    queries = sample_queries(100, 40)
    weights = stack.weights(layer=3).astype(np.float64)[:, queries]
    rows, columns = slice(3, 9), slice(5, 60)
    all_heads = []
    for heads, group in merged.rows_of_heads(range(4), queries):
        group_weights, allowed = group.weights(rows, columns), group.allowed(rows, columns)
        for index, head in enumerate(heads):
            np.testing.assert_allclose(
                group_weights[index], weights[head, rows, columns], atol=1e-6
            )
            expected = stack.allowed(layer=3, head=head)[queries][rows, columns]
            assert (allowed[index] == expected).all()
        all_heads += heads
    assert sorted(all_heads) == [0, 1, 2, 3]
