"""Tests of `distinct_head`, which returns the head with the clearest pattern, or None."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz.analysis import distinct_head, head_scores, patterns, uniform_scores
from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from unit.records import words

N = 12


def noise(layers: int, heads: int, tokens: int, *, causal: bool, seed: int) -> NDArray[np.float64]:
    logits = np.random.default_rng(seed).normal(size=(layers, heads, tokens, tokens))
    if causal:
        logits[..., np.triu_indices(tokens, 1)[0], np.triu_indices(tokens, 1)[1]] = -np.inf
    weights: NDArray[np.float64] = np.exp(logits)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def before(share: float, tokens: int = N) -> NDArray[np.float64]:
    """Return causal weights: `share` on the previous token, the rest evenly on all visible keys."""
    even = np.tri(tokens) / np.arange(1, tokens + 1)[:, None]
    planted = (1 - share) * even + share * np.eye(tokens, k=-1)
    planted[0, 0] = 1
    return planted


def stack_of(weights: NDArray[np.float64], tokens: list[str] | None = None) -> AttentionStack:
    tokens = tokens or words(weights.shape[-1])
    return AttentionRecord.from_weights(list(weights.astype(np.float32)), tokens).stack()


def directions(heads: int, tokens: int, dims: int) -> torch.Tensor:
    """Return random vectors (heads, tokens, dims) of length 1."""
    vectors = torch.randn(heads, tokens, dims, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.normalize(vectors, dim=-1)


def test_a_planted_head_is_the_distinct_head() -> None:
    weights = noise(3, 5, N, causal=True, seed=0)
    weights[2, 3] = before(0.8)
    stack = stack_of(weights)
    distinct = distinct_head(stack)
    assert distinct is not None
    assert (distinct.layer, distinct.head, distinct.pattern, distinct.num_queries) == (
        2,
        3,
        "previous token",
        None,
    )
    # The causal mask is recognised by its zeros, so the baseline is even attention to earlier keys.
    even = np.tri(N) / np.arange(1, N + 1)[:, None]
    assert distinct.score == pytest.approx(patterns.previous_token(weights[2, 3]), abs=1e-6)
    assert distinct.score == head_scores(stack, "previous token")[2][3]
    assert distinct.baseline == pytest.approx(patterns.previous_token(even), abs=1e-6)


def test_layers_are_compared_with_even_attention_under_their_own_mask() -> None:
    keys = 3 * directions(1, N, 8)
    queries = keys.roll(1, dims=1)
    # In layer 1, the window has 2 keys, so even attention gives 1 / 2 to the previous token.
    record = AttentionRecord.from_qk(
        [queries] * 3,
        [keys] * 3,
        words(N),
        causal=True,
        scale=[0.6, 0.35, 0.6],
        window=[None, 2, None],
    )
    shares = np.concatenate(head_scores(record, "previous token"))
    even = np.concatenate(uniform_scores(record, "previous token"))
    assert np.argmax(shares) == 1
    assert np.argmax((shares - even) / (1 - even)) == 0
    distinct = distinct_head(record)
    assert distinct is not None
    assert (distinct.layer, distinct.pattern) == (0, "previous token")


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_noise_has_no_distinct_head(seed: int, *, causal: bool) -> None:
    tokens = [f"w{index % 7}" for index in range(24)]
    assert distinct_head(stack_of(noise(4, 12, 24, causal=causal, seed=seed), tokens)) is None


def test_attention_to_the_first_token_is_not_distinct() -> None:
    sink = np.zeros((1, 1, N, N))
    sink[..., 0] = 1
    assert distinct_head(stack_of(sink)) is None


def test_a_head_with_a_closed_gate_is_not_distinct() -> None:
    weights = noise(1, 3, N, causal=True, seed=0)
    weights[0, 0], weights[0, 1] = before(0.9), before(0.8)
    stack = stack_of(weights)
    layers = {0: stack.attention(0)}
    for gate, head in ((0.049, 1), (0.051, 0), (-0.051, 0), (torch.nan, 0)):
        gates = {0: torch.tensor([[gate], [0.5], [0.5]]).expand(3, N)}
        distinct = distinct_head(AttentionStack("self", layers, stack.query_tokens, gates=gates))
        assert distinct is not None
        assert distinct.head == head, gate


def test_a_pattern_that_few_queries_can_show_is_not_distinct() -> None:
    # Token 9 repeats token 2, and query 9 of head 1 attends to token 2.
    weights = noise(1, 2, N, causal=True, seed=1)
    weights[0, 1, 9] = np.eye(N)[2]
    tokens = words(N)
    tokens[9] = tokens[2]
    stack = stack_of(weights, tokens)
    assert head_scores(stack, "same token")[0][1] == 1
    assert distinct_head(stack) is None


def test_short_texts_cross_attention_and_nan_have_no_distinct_head() -> None:
    for tokens in (1, 8):
        assert distinct_head(stack_of(before(1.0, tokens)[None, None])) is None
    cross = AttentionRecord.from_weights(
        np.full((1, 2, 6, 8), 0.125), words(6, "q"), key_tokens=words(8)
    )
    assert distinct_head(cross) is None
    weights = torch.from_numpy(noise(1, 2, N, causal=True, seed=0)[0])
    weights[1, 3] = torch.nan
    stack = AttentionStack("self", {0: StoredWeights(weights.float())}, Tokens.of(words(N)))
    assert distinct_head(stack) is None


def test_a_long_text_is_estimated_as_views_score_it_unless_it_would_take_long() -> None:
    keys = directions(1, 5000, 64).expand(64, -1, -1)
    queries = 160 * keys.roll(1, dims=1)
    one_head = AttentionRecord.from_qk([queries[:1]], [keys[:1]]).stack()
    distinct = distinct_head(one_head)
    assert distinct is not None
    assert (distinct.pattern, distinct.num_queries) == ("previous token", 64)
    assert distinct.score == head_scores(one_head, "previous token", max_queries=64)[0][0]
    # 64 heads x 64 queries x 5,000 keys exceed the limit of 2**24 weights.
    assert distinct_head(AttentionRecord.from_qk([queries], [keys])) is None
