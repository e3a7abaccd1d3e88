"""The head with the most distinct pattern: planted heads, noise, sums worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz.analysis import distinct_head, head_scores, patterns, uniform_scores
from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.tokens import Tokens

N = 12
WORDS = [f"w{index}" for index in range(N)]


def noise(layers: int, heads: int, tokens: int, *, causal: bool, seed: int) -> NDArray[np.float64]:
    logits = np.random.default_rng(seed).normal(size=(layers, heads, tokens, tokens))
    if causal:
        logits[..., np.triu_indices(tokens, 1)[0], np.triu_indices(tokens, 1)[1]] = -np.inf
    weights: NDArray[np.float64] = np.exp(logits)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def before(share: float, tokens: int = N) -> NDArray[np.float64]:
    """Return a causal head that gives `share` to the previous token and the rest evenly."""
    even = np.tri(tokens) / np.arange(1, tokens + 1)[:, None]
    planted = (1 - share) * even + share * np.eye(tokens, k=-1)
    planted[0, 0] = 1
    return planted


def stack_of(weights: NDArray[np.float64], tokens: list[str] | None = None) -> AttentionStack:
    names = tokens or [f"w{index}" for index in range(weights.shape[-1])]
    return AttentionRecord.from_weights(list(weights.astype(np.float32)), names).stack()


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
    # Compare with the function of arrays. Stored weights have no mask, so the baseline is all keys.
    assert distinct.score == pytest.approx(patterns.previous_token(weights[2, 3]), abs=1e-6)
    assert distinct.score == head_scores(stack, "previous token")[2][3]
    assert distinct.baseline == pytest.approx(1 / N, abs=1e-6)


def test_layers_are_compared_with_even_attention_under_their_own_mask() -> None:
    generator = torch.Generator().manual_seed(0)
    keys = 3 * torch.nn.functional.normalize(torch.randn(1, N, 8, generator=generator), dim=-1)
    queries = keys.roll(1, dims=1)
    # In the second layer each query sees two keys, so even attention already gives half to the
    # previous one.
    record = AttentionRecord.from_qk(
        [queries] * 3,
        [keys] * 3,
        WORDS,
        causal=True,
        scale=[0.6, 0.35, 0.6],
        window=[None, 2, None],
    )
    shares = np.concatenate(head_scores(record, "previous token"))
    even = np.concatenate(uniform_scores(record, "previous token"))
    above = (shares - even) / (1 - even)
    assert np.argmax(shares) == 1
    assert np.argmax(above) == 0
    distinct = distinct_head(record)
    assert distinct is not None
    assert (distinct.layer, distinct.pattern) == (0, "previous token")


def test_a_pattern_of_many_pairs_is_compared_with_its_baseline() -> None:
    # Two words, each twice in turn. Many pairs have the same word, so even attention already gives
    # them a large weight: 0.52 above it is less than 0.55 above the small weight of the previous
    # token.
    n = 24
    word = np.arange(n) // 2 % 2
    same = np.tri(n, k=-1) * (word[:, None] == word[None, :])
    even = np.full((n, n), 1 / n)
    repeats = np.where(same.any(axis=1, keepdims=True), 0.52, 0)
    by_word = (1 - repeats) * even + repeats * same / np.maximum(same.sum(1, keepdims=True), 1)
    by_position = 0.45 * even + 0.55 * np.eye(n, k=-1)
    by_position[0] = even[0]
    stack = stack_of(np.stack([[by_word, by_position]]), [f"w{number}" for number in word])
    scores = {name: head_scores(stack, name)[0] for name in ("same token", "previous token")}
    assert scores["same token"][0] > scores["previous token"][1]
    distinct = distinct_head(stack)
    assert distinct is not None
    assert (distinct.head, distinct.pattern) == (1, "previous token")


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_noise_has_no_distinct_head(seed: int, *, causal: bool) -> None:
    tokens = [f"w{index % 7}" for index in range(24)]
    assert distinct_head(stack_of(noise(4, 12, 24, causal=causal, seed=seed), tokens)) is None


def test_attention_to_the_first_token_is_not_distinct() -> None:
    sink = np.zeros((1, 1, N, N))
    sink[..., 0] = 1
    stack = stack_of(sink)
    assert head_scores(stack, "first token")[0][0] == 1
    assert distinct_head(stack) is None


def test_a_pattern_that_few_queries_can_show_is_not_distinct() -> None:
    # One of twelve tokens occurs twice, and one head attends to its first occurrence.
    weights = noise(1, 2, N, causal=True, seed=1)
    weights[0, 1, 9] = np.eye(N)[2]
    tokens = [*WORDS[:9], WORDS[2], *WORDS[10:]]
    stack = stack_of(weights, tokens)
    assert head_scores(stack, "same token")[0][1] == 1
    assert distinct_head(stack) is None


def test_short_texts_cross_attention_and_nan_have_no_distinct_head() -> None:
    for tokens in (1, 2, 8):
        assert distinct_head(stack_of(before(1.0, tokens)[None, None])) is None
    keys = [f"k{i}" for i in range(8)]
    cross = AttentionRecord.from_weights(np.full((1, 2, 6, 8), 0.125), keys[:6], key_tokens=keys)
    assert distinct_head(cross) is None
    weights = torch.from_numpy(noise(1, 2, N, causal=True, seed=0)[0])
    weights[1, 3] = torch.nan
    stack = AttentionStack("self", {0: StoredWeights(weights.float())}, Tokens.of(WORDS))
    assert distinct_head(stack) is None


def long_stack(tokens: int, heads: int) -> AttentionStack:
    """Return heads that attend to the previous token, by products of waves of the position."""
    turn = 0.1 + 3 * torch.rand(16, generator=torch.Generator().manual_seed(0))
    angles_of_positions = torch.arange(tokens)[:, None] * turn

    def waves(angles: torch.Tensor) -> torch.Tensor:
        return torch.cat([angles.cos(), angles.sin()], dim=1).expand(heads, tokens, 32)

    names = [f"w{index}" for index in range(tokens)]
    record = AttentionRecord.from_qk(
        [20 * waves(angles_of_positions - turn)], [waves(angles_of_positions)], names
    )
    return record.stack()


def test_a_long_text_is_estimated_as_views_score_it() -> None:
    stack = long_stack(5000, 1)
    distinct = distinct_head(stack)
    assert distinct is not None
    assert (distinct.pattern, distinct.num_queries) == ("previous token", 64)
    assert distinct.score == head_scores(stack, "previous token", max_queries=64)[0][0]


def test_a_stack_that_would_take_long_has_no_distinct_head() -> None:
    # 64 heads x 64 queries x 5,000 keys are more than 2**24, those of 40 heads are not.
    assert distinct_head(long_stack(5000, 64)) is None
    assert distinct_head(long_stack(5000, 40)) is not None
